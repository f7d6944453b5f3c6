"""Equal rows: distinct ones with their counts, copies beyond what chance explains, and ids that occur again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.data.arrow_types import Codes, as_arrow, as_numpy, codes_of, decoded
from fairkit.data.hashing import column_hashes, mixed
from fairkit.data.parts import TablePart
from fairkit.data.source import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Counts = NDArray[np.int64]
    Hashes = NDArray[np.uint64]


DIVISORS = range(2, 65)
# in 1e-5, by divisor from 2 on
_MOST = (
    50051, 33367, 25026, 20369, 17623, 15806, 14505, 13515, 12727, 12079, 11531, 11058, 10644, 10276, 9947, 9648,
    9374, 9126, 8895, 8680, 8482, 8297, 8124, 7960, 7807, 7661, 7525, 7394, 7269, 7152, 7041, 6934, 6832, 6734,
    6639, 6548, 6463, 6381, 6301, 6223, 6149, 6079, 6008, 5941, 5878, 5812, 5754, 5694, 5638, 5582, 5529, 5476,
    5426, 5375, 5329, 5278, 5236, 5190, 5148, 5106, 5061, 5025, 4985,
)  # fmt: skip
MOST_DIVISIBLE = {divisor: 1e-5 * bound for divisor, bound in zip(DIVISORS, _MOST, strict=True)}
"""For each divisor d the largest chance, over all mixtures of Poisson rates, that a count of at least 1 is divisible by
d, times 1.001; the tests compute it."""
FEWEST_ROWS = 10  # different ones
SHARE_OF_COPIES = 0.01
"""A smaller share of copies changes no interval by more than half of a percent."""
AGREE = 0.9
"""Rows that share a column's value are copies where so large a share of the pairs is the same in all columns."""
_DEVIATIONS = 6.0
"""Standard errors above the bound: one false alarm in more than 10⁷ tables, all divisors together."""


class CopiedRows(NamedTuple):
    """Copies that independent rows do not have."""

    factor: float  # how many rows stand for one: intervals are narrower than they should be by its square root
    reason: str  # what shows it, as the beginning of a sentence

    def bounds(self, value: float) -> dict[str, Any]:
        """Return evidence for a finding: its verdict must hold for the interval of the rows counted once, too."""
        wider = math.sqrt(self.factor)
        return {"low": value, "high": value, "stretch": wider, "reason": self.reason, "binding": True}

    @property
    def sentence(self) -> str:
        """What shows it, and what it does to intervals, without the full stop."""
        return (
            f"Rows are copies of others: {self.reason}. Intervals take all rows for different people, and are about "
            f"{math.sqrt(self.factor):.2g} times too narrow if they are not"
        )

    def told(self, setting: str | None) -> str:
        """Return the sentence of a report."""
        about = "they were said to be independent" if setting else "no verdict depends on them"
        return f"{self.sentence}; {about}."


def copied_rows(counts: NDArray[np.int64], pairs: float, columns: Mapping[str, float]) -> CopiedRows | None:
    """Return what shows that rows were copied; None where nothing does."""
    different, copies = len(counts), 1 - len(counts) / max(int(counts.sum()), 1)
    if different < FEWEST_ROWS or copies < SHARE_OF_COPIES:
        return None
    for divisor in reversed(DIVISORS):
        share, bound = float((counts % divisor == 0).mean()), MOST_DIVISIBLE[divisor]
        if share > bound + _DEVIATIONS * math.sqrt(bound * (1 - bound) / different):
            return CopiedRows(
                factor=float(divisor),
                reason=f"{share:.0%} of the different rows occur {divisor} times or a multiple of it, and of "
                f"independent rows at most {bound:.0%} do",
            )
    for name, shared in columns.items():
        if shared and pairs / shared > AGREE:
            return CopiedRows(
                factor=float((counts**2).sum() / counts.sum()),
                reason=f"{copies:.0%} of the rows are copies of another one, while different rows hardly ever "
                f"share a value of {name!r}",
            )
    return None


FEWEST_ROWS_COUNTED = 1 << 18
"""Of a table with fewer rows the rows themselves are measured."""

EQUAL_ROWS = 16
"""Rows are counted where each distinct one stands for so many, among the first ones and in the table."""

MOST_DISTINCT = 1 << 17
"""So many distinct rows are kept at most."""

_FIRST_ROWS = 1 << 13
"""So many rows say whether the others are worth counting, and whether a column has too many values to be coded."""

_CELLS = 1 << 18
"""So many combinations of values are counted in a batch without sorting."""


class DistinctRows:
    """Counts equal rows, batch by batch; ``+`` joins with the part of the table that comes next."""

    def __init__(self, columns: Sequence[str], known: str | None = None) -> None:
        self.columns, self.known = tuple(columns), known
        self.rows = 0
        self._closed = False
        self._block: _Block | None = None
        self._waiting: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, codes: Mapping[str, Codes]) -> bool:
        """Count the rows of a batch; return False, and leave them out, where too few are equal."""
        chosen = batch.select(list(self.columns))
        self._closed = self._closed or (not self.rows and _various(chosen, codes))
        if self._closed or self._many() or self._unknown(chosen):
            return False
        every = [codes[name] if name in codes else codes_of(chosen.column(name)) for name in self.columns]
        if math.prod(len(codes.values) + 1 for codes in every) <= batch.num_rows:
            if self._block is None or not self._block.fits(every):
                self._flush()
                self._block = _Block(every)
            self._block.add(every)
        else:
            equal = equal_rows(every)
            if equal is None:
                return False
            self._flush()
            self._waiting.append(_with_counts(chosen.take(as_arrow(equal[0])).columns, equal[1]))
        if self.rows < _FIRST_ROWS:
            seen = self.rows + batch.num_rows
            self._closed = seen >= _FIRST_ROWS and self._kept() * EQUAL_ROWS > seen
        self.rows += batch.num_rows
        return True

    def table(self) -> tuple[pa.RecordBatch, Counts]:
        """Return the distinct rows, in the order in which they first occur, and how often each does."""
        self._join()
        *columns, counts = self._waiting[0].columns
        import pyarrow as pa

        return pa.RecordBatch.from_arrays(columns, names=list(self.columns)), as_numpy(counts)

    def pieces(self, name: str) -> Iterator[Source]:
        """Return the distinct rows whose counts have a binary digit as tables, for each digit, the highest first."""
        import pyarrow as pa

        rows, counts = self.table()
        types = {field.name: field.type for field in rows.schema}
        for bit in reversed(range(int(counts.max()).bit_length())):
            chosen = pa.Table.from_batches([rows.filter(as_arrow((counts >> bit) & 1 == 1))])
            yield Source(name, types, (_EqualRows(name, chosen),))

    def serves(self, columns: Iterable[str]) -> bool:
        """Return whether measuring these rows, and these columns of them, is less work than measuring all rows."""
        usable = self.rows >= FEWEST_ROWS_COUNTED and not self._closed and set(columns) <= set(self.columns)
        return usable and len(self.table()[1]) * EQUAL_ROWS <= self.rows

    def __add__(self, right: DistinctRows) -> DistinctRows:
        joined = DistinctRows(self.columns, self.known)
        self._flush()
        right._flush()
        joined.rows, joined._waiting = self.rows + right.rows, [*self._waiting, *right._waiting]
        joined._closed = self._closed or right._closed or joined._many()
        if joined._closed:
            joined._waiting = []
        return joined

    def _unknown(self, batch: pa.RecordBatch) -> bool:
        if self.known is None:
            return False
        import pyarrow.compute as pc

        column = batch.column(self.columns.index(self.known))
        return bool(as_numpy(pc.is_null(column, nan_is_null=True)).any())

    def _kept(self) -> int:
        """Return how many distinct rows are kept, those of several batches as often."""
        block = 0 if self._block is None else int(np.count_nonzero(self._block.counts))
        return block + sum(int(part.num_rows) for part in self._waiting)

    def _many(self) -> bool:
        """Return whether more distinct rows are kept than should be."""
        if sum(part.num_rows for part in self._waiting) > 2 * MOST_DISTINCT:
            self._join()
            return bool(self._waiting[0].num_rows > MOST_DISTINCT)
        return False

    def _flush(self) -> None:
        """Put the rows of the block to those that wait."""
        if self._block is not None:
            self._waiting.append(self._block.rows())
            self._block = None

    def _join(self) -> None:
        """Add up the counts of rows that are equal in several batches."""
        import pyarrow as pa

        self._flush()
        if len(self._waiting) > 1:
            waiting = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()[0]
            *columns, counts = waiting.columns
            equal = equal_rows([codes_of(column) for column in columns], as_numpy(counts))
            assert equal is not None  # noqa: S101 -- with counts any number of values is sorted
            self._waiting = [_with_counts([column.take(as_arrow(equal[0])) for column in columns], equal[1])]


class _Block:
    """Counts of equal rows in batches whose columns are coded alike: by keys, the codes' mixed-radix numbers."""

    def __init__(self, codes: Sequence[Codes]) -> None:
        self._values = [code.values for code in codes]
        self.counts = np.zeros(math.prod(self._shape), dtype=np.int64)
        self._order: list[NDArray[np.int64]] = []

    @property
    def _shape(self) -> list[int]:
        return [len(values) + 1 for values in self._values]

    def fits(self, codes: Sequence[Codes]) -> bool:
        """Return whether a batch is coded alike."""
        pairs = zip(codes, self._values, strict=True)
        return all(bool(codes.values.equals(values)) for codes, values in pairs)

    def add(self, codes: Sequence[Codes]) -> None:
        """Count the rows of a batch."""
        keys = codes[0].places.astype(np.int64)
        for code in codes[1:]:
            keys *= len(code.values) + 1
            keys += code.places
        counts = np.bincount(keys, minlength=len(self.counts))
        new = np.flatnonzero((counts > 0) & (self.counts == 0))
        if len(new):
            self._order.append(new[np.argsort(_first(keys, len(counts))[new])])
        self.counts += counts

    def rows(self) -> pa.RecordBatch:
        """Return the distinct rows, in the order in which they first occurred, with their counts."""
        import pyarrow as pa

        keys = np.concatenate(self._order)
        columns = [
            pa.concat_arrays([values, pa.nulls(1, values.type)]).take(as_arrow(places))
            for values, places in zip(self._values, np.unravel_index(keys, self._shape), strict=True)
        ]
        return _with_counts(columns, self.counts[keys])


class _EqualRows(TablePart):
    """Rows that stand for equal ones each: so few that one thread reads and measures them."""

    alone = True


def _various(batch: pa.RecordBatch, codes: Mapping[str, Codes]) -> bool:
    """Return whether a column has about as many values as there are rows, by the first ones."""
    head = batch.slice(0, _FIRST_ROWS)
    columns = [column for name, column in zip(head.schema.names, head.columns, strict=True) if name not in codes]
    return head.num_rows == _FIRST_ROWS and any(2 * len(codes_of(column).values) > _FIRST_ROWS for column in columns)


def equal_rows(columns: Sequence[Codes], times: Counts | None = None) -> tuple[NDArray[np.int64], Counts] | None:
    """Return the first row of each kind, in order, and how many rows are equal to it."""
    keys, size = np.zeros(len(columns[0].places), dtype=np.int64), 1
    for codes in columns:
        values = len(codes.values) + 1
        if size * values > _CELLS:
            keys, size = _renumbered(keys, size)
            if times is None and size * values > _CELLS:
                return None
        keys *= values
        keys += codes.places
        size *= values
    if size > _CELLS:
        keys, size = _renumbered(keys, size)
    counts = np.bincount(keys, times, size).astype(np.int64, copy=False)
    first, used = _first(keys, size), np.flatnonzero(counts)
    order = used[np.argsort(first[used])]
    return first[order], counts[order]


def _first(keys: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the place at which each key first occurs, shape [size]; of one that does not it means nothing."""
    first = np.empty(size, dtype=np.int64)
    # of several that are put to one place the last one stays
    first[np.ascontiguousarray(keys[::-1])] = np.arange(len(keys) - 1, -1, -1)
    return first


def _renumbered(keys: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], int]:
    """Number only the keys that occur."""
    if size > _CELLS:
        used, places = np.unique(keys, return_inverse=True)
        return places.astype(np.int64, copy=False), len(used)
    occurs = np.bincount(keys, minlength=size) > 0
    return (np.cumsum(occurs) - 1).take(keys), int(occurs.sum())


def _with_counts(columns: Sequence[pa.Array], counts: Counts) -> pa.RecordBatch:
    """Return rows, whose columns are named by their places, with their counts in the last column."""
    import pyarrow as pa

    arrays = [*map(decoded, columns), as_arrow(counts)]
    return pa.RecordBatch.from_arrays(arrays, names=[str(index) for index in range(len(arrays))])


MOST = 1 << 15
"""So many distinct hashes are kept at most; all copies of a row have one hash, so their counts stay exact."""
MOST_FINE, ROWS_TO_CHOOSE = 16, 2_000
"""Of so many columns, chosen after so many rows, the values are counted to tell copies from rows that are alike."""
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
            mask = self._mask(hashes, self._shift)
            keys, places = np.unique(hashes[mask], return_inverse=True)
            self._join(keys, np.bincount(places, times[mask], len(keys)).astype(np.int64))
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
        mask = self._mask(mine, joined._shift)
        joined._keys, joined._counts = mine[mask], self.counts[mask]
        mask = self._mask(theirs, joined._shift)
        joined._join(theirs[mask], right.counts[mask])
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
        is_known = places < len(self._keys)
        is_known[is_known] = self._keys[places[is_known]] == keys[is_known]
        summed = self._counts.copy()
        summed[places[is_known]] += counts[is_known]
        self._counts = np.insert(summed, places[~is_known], counts[~is_known])
        self._keys = np.insert(self._keys, places[~is_known], keys[~is_known])
        while len(self._keys) > MOST:
            self._shift += 1
            mask = self._mask(self._keys, self._shift)
            self._keys, self._counts = self._keys[mask], self._counts[mask]

    @staticmethod
    def _mask(hashes: Hashes, shift: int) -> NDArray[np.bool_]:
        return hashes < np.uint64(1 << (64 - shift)) if shift else np.ones(len(hashes), dtype=bool)

    def _kept(self, hashes: Hashes, shift: int) -> Hashes:
        return hashes.take(np.flatnonzero(self._mask(hashes, shift))) if shift else hashes


@dataclass(slots=True)
class RowCopies:
    """Copies of whole rows, and repeats in columns that look like ids; ``+`` joins with other rows."""

    whole: Repeats  # counts of rows
    ids: dict[str, Repeats]  # counts of the cells of columns
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
            mixed_hashes = mixed(column_hashes(column))
            for counter in counters:
                keep = (
                    ~as_numpy(column.is_null()) if counter is self.ids.get(name) and column.null_count else slice(None)
                )
                counter.update(mixed_hashes[keep], None if times is None else times[keep])
            total += mixed_hashes * factor  # not in place: the words wait to be counted
        return mixed(total)

    def _words(self, name: str, values: pa.Array) -> Hashes:
        """Return the mixed hash of each value of a coded column, and that of a missing cell."""
        import pyarrow as pa

        hashed = self._known.get(name)
        if hashed is None or not hashed[0].equals(values):
            cells = pa.concat_arrays([values, pa.nulls(1, values.type)])
            hashed = self._known[name] = values, mixed(column_hashes(cells))
        return hashed[1]

    def _drop_coarse(self) -> None:
        """Count no longer the values of columns that many different rows share."""
        self.checked = self.whole.rows
        if not (whole := self.whole.distinct):
            return
        distinct = {name: count.distinct for name, count in self.fine.items()}
        fine = [name for name in distinct if distinct[name] >= 0.5 * whole]
        # of very many columns the first are kept, and before them those that tell nearly all rows apart
        order = sorted(fine, key=lambda name: distinct[name] < 0.99 * whole)
        names_kept = set(order[: MOST_FINE if self.checked >= ROWS_TO_CHOOSE else None])
        self.fine = {name: count for name, count in self.fine.items() if name in names_kept}

    def __add__(self, right: RowCopies) -> RowCopies:
        joined = RowCopies(
            self.whole + right.whole,
            {name: count + right.ids[name] for name, count in self.ids.items()},
            {name: count + right.fine[name] for name, count in self.fine.items() if name in right.fine},
            (self.total + right.total) % 2**64,
        )
        joined._drop_coarse()
        return joined

    @property
    def copied(self) -> CopiedRows | None:
        """What shows that rows were copied; None where nothing does."""
        return copied_rows(
            self.whole.counts, self.whole.pairs, {name: count.pairs for name, count in self.fine.items()}
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
        for name, count in self.ids.items():
            if name not in skipped and count.rows and count.copies >= 0.01 and count.distinct > MOST_GROUPS:
                sentences.append(
                    f"{name!r} has {count.distinct:,} different values in {count.rows:,} rows: rows of one {name!r} "
                    "are not independent, as the intervals take them to be."
                )
        return sentences


MOST_GROUPS = 20
"""A column with at most so many values is no id."""
