"""Rows and ids that occur more than once: counted from a sample of hashes, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.arrow import as_arrow, as_numpy, empty_text
from fairkit.data.codes import Codes, codes_of
from fairkit.data.copies import CopiedRows, copied_rows
from fairkit.data.digest import plain_doubles
from fairkit.data.distinct import equal_rows
from fairkit.data.text_hashes import PIECE, mixed, text_words

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

MOST = 1 << 15
"""So many distinct hashes are kept at most; all copies of a row have one hash, so their counts stay exact."""
FEWEST = 0.001
"""A smaller share of copies is not worth a sentence."""

_ID = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|ssn|email|person|customer|client|applicant|patient|employee|student|user|member)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def looks_like_id(column: str) -> bool:
    """Tell whether a column's name is that of an identifier of people: ``person_id``, ``customerId``, ``ssn``."""
    return _ID.search(_CAMEL.sub("_", column).lower()) is not None


@dataclass(slots=True)
class Repeats:
    """How often things occur; ``+`` joins with other rows."""

    rows: int = 0  # how many there were
    _shift: int = 0
    _keys: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    _waiting: list[Hashes] = field(default_factory=list)

    @property
    def shift(self) -> int:
        """Only hashes whose leading bits, so many, are 0 are kept."""
        self._settle()
        return self._shift

    @property
    def keys(self) -> Hashes:
        """The kept hashes, in order."""
        self._settle()
        return self._keys

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each of the kept hashes occurred."""
        self._settle()
        return self._counts

    def update(self, hashes: Hashes, times: NDArray[np.int64] | None = None) -> None:
        """Count more of them, each once, or so many times, shape [n]."""
        if times is None:
            self._waiting.append(self._kept(hashes, self._shift))
            if sum(map(len, self._waiting)) > MOST // 2:
                self._settle()
        else:
            self._settle()
            kept = self._mask(hashes, self._shift)
            keys, places = np.unique(hashes[kept], return_inverse=True)
            self._join(keys, np.bincount(places, times[kept], len(keys)).astype(np.int64))
        self.rows += len(hashes) if times is None else int(times.sum())

    def _settle(self) -> None:
        """Count the hashes that wait."""
        if self._waiting:
            keys, counts = np.unique(np.concatenate(self._waiting), return_counts=True)
            self._waiting = []
            self._join(keys, counts)

    def __add__(self, right: Repeats) -> Repeats:
        mine, theirs = self.keys, right.keys
        joined = Repeats(self.rows + right.rows, max(self.shift, right.shift))
        kept = self._mask(mine, joined._shift)
        joined._keys, joined._counts = mine[kept], self.counts[kept]
        kept = self._mask(theirs, joined._shift)
        joined._join(theirs[kept], right.counts[kept])
        return joined

    @property
    def distinct(self) -> int:
        """How many different ones there are: exact up to `MOST`, else estimated from the sample."""
        self._settle()
        return len(self._keys) if self._shift == 0 else round(self.rows * (1 - self.copies))

    @property
    def copies(self) -> float:
        """The share of rows that repeat an earlier one."""
        seen = int(self.counts.sum())
        return 1 - len(self.keys) / seen if seen else 0.0

    @property
    def pairs(self) -> float:
        """How many pairs are the same, estimated from the sample."""
        counts = self.counts.astype(np.float64)
        return float((counts * (counts - 1)).sum()) / 2 * 2.0**self.shift

    def _join(self, keys: Hashes, counts: NDArray[np.int64]) -> None:
        places = np.searchsorted(self._keys, keys)  # both are in order: no sorting again
        known = places < len(self._keys)
        known[known] = self._keys[places[known]] == keys[known]
        summed = self._counts.copy()
        summed[places[known]] += counts[known]
        self._counts = np.insert(summed, places[~known], counts[~known])
        self._keys = np.insert(self._keys, places[~known], keys[~known])
        while len(self._keys) > MOST:
            self._shift += 1
            kept = self._mask(self._keys, self._shift)
            self._keys, self._counts = self._keys[kept], self._counts[kept]

    @staticmethod
    def _mask(hashes: Hashes, shift: int) -> NDArray[np.bool_]:
        return hashes < np.uint64(1 << (64 - shift)) if shift else np.ones(len(hashes), dtype=bool)

    def _kept(self, hashes: Hashes, shift: int) -> Hashes:
        return hashes.take(np.flatnonzero(self._mask(hashes, shift))) if shift else hashes


@dataclass(slots=True)
class RowCopies:
    """Copies of whole rows, and repeats in columns that look like ids; ``+`` joins with other rows."""

    whole: Repeats  # counts of rows, and of the cells of columns
    ids: dict[str, Repeats]  # counts of rows, and of the cells of columns
    fine: dict[str, Repeats] = field(default_factory=dict)
    total: int = 0  # the sum of the rows' hashes, 64 bits: the same for the same rows in any order
    checked: int = 0  # how many rows there were when columns were last left out of `fine`
    _known: dict[str, tuple[pa.Array, Hashes]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, columns: Sequence[str]) -> RowCopies:
        """Return the counter of repeated rows of a table with these columns."""
        ids = {name: Repeats() for name in columns if looks_like_id(name)}
        return cls(Repeats(), ids, {name: Repeats() for name in columns})

    def update(self, batch: pa.RecordBatch, codes: Mapping[str, Codes] | None = None) -> None:
        """Count more rows."""
        if not batch.num_rows:
            return
        codes = codes or {}
        counted = equal_rows(list(codes.values())) if len(codes) == batch.num_columns else None
        if counted is None:
            hashes, times = self._hashes(batch, codes), None
            self.total += int(hashes.sum(dtype=np.uint64))
        else:
            first, times = counted
            hashes = self._hashes(batch.take(as_arrow(first)), {}, times)
            self.total += int((hashes * times.astype(np.uint64)).sum(dtype=np.uint64))
        self.total %= 2**64
        self.whole.update(hashes, times)
        if self.whole.rows >= 2 * self.checked:
            self._drop_coarse()

    def _hashes(
        self, batch: pa.RecordBatch, codes: Mapping[str, Codes], times: NDArray[np.int64] | None = None
    ) -> Hashes:
        """Count the cells of some columns, and return a hash of each row: Σ of odd numbers times words of cells, mixed.

        Without the last mixing a sum over rows would be one over cells: cells that change rows would not be seen.
        """
        total = np.zeros(batch.num_rows, dtype=np.uint64)
        factors = mixed(np.arange(batch.num_columns, dtype=np.uint64)) | np.uint64(1)
        for name, column, factor in zip(batch.schema.names, batch.columns, factors, strict=True):
            counters = [counts[name] for counts in (self.ids, self.fine) if name in counts]
            if name in codes and not counters:
                total += codes[name].mapped(self._words(name, codes[name].values) * factor)
                continue
            words = mixed(column_hashes(column))
            for counter in counters:
                absent = _missing(column) if counter is self.ids.get(name) and column.null_count else None
                counter.update(*((words, times) if absent is None else _left(words, times, ~absent)))
            total += words * factor  # not in place: the words wait to be counted
        return mixed(total)

    def _words(self, name: str, values: pa.Array) -> Hashes:
        """Return the mixed hash of each value of a coded column, and that of a missing cell."""
        import pyarrow as pa

        known = self._known.get(name)
        if known is None or not known[0].equals(values):
            cells = pa.concat_arrays([values, pa.nulls(1, values.type)])
            known = self._known[name] = values, mixed(column_hashes(cells))
        return known[1]

    def _drop_coarse(self) -> None:
        """Count no longer the values of columns that many different rows share."""
        self.checked = self.whole.rows
        for name, one in list(self.fine.items()):
            if one.distinct < 0.5 * self.whole.distinct:
                del self.fine[name]

    def __add__(self, right: RowCopies) -> RowCopies:
        joined = RowCopies(
            self.whole + right.whole,
            {name: one + right.ids[name] for name, one in self.ids.items()},
            {name: one + right.fine[name] for name, one in self.fine.items() if name in right.fine},
            (self.total + right.total) % 2**64,
        )
        joined._drop_coarse()
        return joined

    @property
    def copied(self) -> CopiedRows | None:
        """What shows that rows were copied; None where nothing does."""
        return copied_rows(self.whole.counts, self.whole.pairs, {name: one.pairs for name, one in self.fine.items()})

    def warnings(self, skipped: Sequence[str] = ()) -> list[str]:
        """Return warnings about repeated rows and ids; none about the columns in `skipped`.

        A table of few categories repeats rows by its nature: copies are worth a sentence where most rows differ.
        """
        sentences = []
        copies, rows = self.whole.copies, self.whole.rows
        if FEWEST <= copies <= 0.5 and self.copied is None:
            about = "" if self.whole.shift == 0 else "About "
            sentences.append(
                f"{about}{rows - self.whole.distinct:,} of {rows:,} rows are exact copies of another row; intervals "
                "take all rows for different people."
            )
        for name, one in self.ids.items():
            if name not in skipped and one.rows and one.copies >= 0.01 and one.distinct > MOST_GROUPS:
                sentences.append(
                    f"{name!r} has {one.distinct:,} different values in {one.rows:,} rows: rows of one {name!r} "
                    "are not independent, as the intervals take them to be."
                )
        return sentences


MOST_GROUPS = 20
"""A column with at most so many values is no id."""


def _left(
    words: Hashes, times: NDArray[np.int64] | None, keep: NDArray[np.bool_]
) -> tuple[Hashes, NDArray[np.int64] | None]:
    return words[keep], None if times is None else times[keep]


def _missing(column: pa.Array) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    return as_numpy(pc.is_null(column))


def column_hashes(column: pa.Array) -> Hashes:
    """Return a 64-bit number for every cell, the same for the same value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        codes = codes_of(column)
        return codes.mapped(column_hashes(pa.concat_arrays([codes.values, pa.nulls(1, codes.values.type)])))
    if pa.types.is_string(column.type):
        texts = pc.fill_null(column, empty_text()) if column.null_count else column
        pieces = [text_words(texts.slice(start, PIECE)) for start in range(0, len(texts), PIECE)]
        return np.concatenate(pieces) if pieces else np.empty(0, np.uint64)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return plain_doubles(column).view(np.uint64)
