"""Rows and ids that occur more than once: counted from a sample of hashes, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.arrow import as_numpy, empty_text
from fairkit.data.codes import Codes, codes_of
from fairkit.data.copies import CopiedRows, copied_rows
from fairkit.data.digest import plain_doubles
from fairkit.data.text_hashes import mixed, text_words

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

MOST = 1 << 15
"""So many distinct hashes are kept at most; all copies of a row have one hash, so their counts stay exact."""
PIECE = 8_192
"""So many rows are hashed at once: what that needs stays in the processor's cache."""
FEWEST = 0.001
"""A smaller share of copies is not worth a sentence."""

_ID = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|ssn|email|person|customer|client|applicant|patient|employee|student|user|member)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STEP = np.uint64(0x9E3779B97F4A7C15)


def looks_like_id(column: str) -> bool:
    """Tell whether a column's name is that of an identifier of people: ``person_id``, ``customerId``, ``ssn``."""
    return _ID.search(_CAMEL.sub("_", column).lower()) is not None


@dataclass(slots=True)
class Repeats:
    """How often things occur; ``+`` joins with other rows.

    Attributes
    ----------
    rows
        How many there were.
    keys, counts
        The kept hashes, in order, and how often each occurred.
    shift
        Only hashes whose leading `shift` bits are 0 are kept.
    """

    rows: int = 0
    keys: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    shift: int = 0

    def update(self, hashes: Hashes) -> None:
        """Count more of them."""
        keys, counts = np.unique(self._kept(hashes, self.shift), return_counts=True)
        self.rows += len(hashes)
        self._join(keys, counts)

    def __add__(self, right: Repeats) -> Repeats:
        joined = Repeats(self.rows + right.rows, self.keys, self.counts, max(self.shift, right.shift))
        kept = self._mask(joined.keys, joined.shift)
        joined.keys, joined.counts = joined.keys[kept], joined.counts[kept]
        kept = self._mask(right.keys, joined.shift)
        joined._join(right.keys[kept], right.counts[kept])
        return joined

    @property
    def distinct(self) -> int:
        """How many different ones there are: exact up to `MOST`, else estimated from the sample."""
        return len(self.keys) if self.shift == 0 else round(self.rows * (1 - self.copies))

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
        places = np.searchsorted(self.keys, keys)  # both are in order: no sorting again
        known = places < len(self.keys)
        known[known] = self.keys[places[known]] == keys[known]
        summed = self.counts.copy()
        summed[places[known]] += counts[known]
        self.counts = np.insert(summed, places[~known], counts[~known])
        self.keys = np.insert(self.keys, places[~known], keys[~known])
        while len(self.keys) > MOST:
            self.shift += 1
            kept = self._mask(self.keys, self.shift)
            self.keys, self.counts = self.keys[kept], self.counts[kept]

    @staticmethod
    def _mask(hashes: Hashes, shift: int) -> NDArray[np.bool_]:
        return hashes < np.uint64(1 << (64 - shift)) if shift else np.ones(len(hashes), dtype=bool)

    def _kept(self, hashes: Hashes, shift: int) -> Hashes:
        return hashes.take(np.flatnonzero(self._mask(hashes, shift))) if shift else hashes


@dataclass(slots=True)
class RowCopies:
    """Copies of whole rows, and repeats in columns that look like ids; ``+`` joins with other rows.

    Attributes
    ----------
    whole, ids
        Counts of rows, and of the cells of columns.
    fine
        Counts of the values of those columns that have about as many as there are different rows.
    total
        The sum of the rows' hashes, 64 bits: the same for the same rows in any order.
    """

    whole: Repeats
    ids: dict[str, Repeats]
    fine: dict[str, Repeats] = field(default_factory=dict)
    total: int = 0

    @classmethod
    def of(cls, columns: Sequence[str]) -> RowCopies:
        """Return the counter of repeated rows of a table with these columns."""
        ids = {name: Repeats() for name in columns if looks_like_id(name)}
        return cls(Repeats(), ids, {name: Repeats() for name in columns})

    def update(self, batch: pa.RecordBatch) -> None:
        """Count more rows."""
        if batch.num_rows:
            hashes = self._update(batch)
            self.whole.update(hashes)
            self._drop_coarse()
            self.total = (self.total + int(hashes.sum(dtype=np.uint64))) % 2**64

    def _update(self, batch: pa.RecordBatch) -> Hashes:
        """Count the ids of some rows, and return a hash of each row."""
        total = np.zeros(batch.num_rows, dtype=np.uint64)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            hashes = column_hashes(column)
            if name in self.ids:
                self.ids[name].update(mixed(hashes if not column.null_count else hashes[~_missing(column)]))
            if name in self.fine:
                self.fine[name].update(mixed(hashes))
            total *= _STEP
            total += hashes
            total ^= total >> np.uint64(32)
        return mixed(total)

    def _drop_coarse(self) -> None:
        """Count no longer the values of columns that many different rows share."""
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
        return copied_rows(
            self.whole.counts, self.whole.pairs, {name: one.pairs for name, one in self.fine.items()}
        )

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


def _coded_hashes(codes: Codes) -> Hashes:
    """Return the words of coded text that `text_words` has for pieces: the empty text's own where all else is empty."""
    import pyarrow as pa

    ends = pa.py_buffer(np.array([0, 0, 1], np.int32))
    more = pa.StringArray.from_buffers(
        2, ends, pa.py_buffer(b"x")
    )  # for missing cells; and a text that is not empty
    hashes = codes.mapped(text_words(pa.concat_arrays([codes.values, more]))[:-1])
    empty = codes.mapped(np.array([not cell for cell in codes.cells]))
    if empty.any():
        for start in range(0, len(hashes), PIECE):
            if empty[start : start + PIECE].all():
                hashes[start : start + PIECE] = mixed(np.zeros(1, np.uint64))
    return hashes


def _missing(column: pa.Array) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    flags: NDArray[np.bool_] = as_numpy(pc.is_null(column))
    return flags


def column_hashes(column: pa.Array) -> Hashes:
    """Return a 64-bit number for every cell, the same for the same value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        return _coded_hashes(codes_of(column))
    if pa.types.is_string(column.type):
        texts = pc.fill_null(column, empty_text()) if column.null_count else column
        pieces = [text_words(texts.slice(start, PIECE)) for start in range(0, len(texts), PIECE)]
        return np.concatenate(pieces) if pieces else np.empty(0, np.uint64)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    hashes: Hashes = plain_doubles(column).view(np.uint64)
    return hashes
