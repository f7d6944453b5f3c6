"""Distinct rows, in the columns that an audit reads, with how often each occurs: counted while a table is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.arrow import as_arrow, as_numpy, decoded
from fairkit.data.codes import codes_of
from fairkit.data.parts import TablePart
from fairkit.data.source import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.codes import Codes

    Counts = NDArray[np.int64]

FEWEST = 1 << 18
"""Of a table with fewer rows the rows themselves are measured."""

SHARE = 16
"""Rows are counted where each distinct one stands for so many, among the first ones and in the table."""

MOST = 1 << 17
"""So many distinct rows are kept at most."""

_HEAD = 1 << 13
"""So many rows say whether the others are worth counting."""

_GLANCE = 1 << 13
"""A column that has about as many values in its first cells, so many, is not coded."""

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
        if math.prod(len(one.values) + 1 for one in every) <= batch.num_rows:
            if self._block is None or not self._block.fits(every):
                self._flush()
                self._block = _Block(every)
            self._block.add(every)
        else:
            found = equal_rows(every)
            if found is None:
                return False
            self._flush()
            self._waiting.append(_with_counts(chosen.take(as_arrow(found[0])).columns, found[1]))
        if self.rows < _HEAD:
            seen = self.rows + batch.num_rows
            self._closed = seen >= _HEAD and self._kept() * SHARE > seen
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
        known = self.rows >= FEWEST and not self._closed and set(columns) <= set(self.columns)
        return known and len(self.table()[1]) * SHARE <= self.rows

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
        if sum(part.num_rows for part in self._waiting) > 2 * MOST:
            self._join()
            return bool(self._waiting[0].num_rows > MOST)
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
            found = equal_rows([codes_of(column) for column in columns], as_numpy(counts))
            assert found is not None  # noqa: S101 -- with counts any number of values is sorted
            self._waiting = [_with_counts([column.take(as_arrow(found[0])) for column in columns], found[1])]


class _Block:
    """Counts of equal rows in batches whose columns are coded alike: by keys, the codes' mixed-radix numbers."""

    def __init__(self, codes: Sequence[Codes]) -> None:
        self._values = [one.values for one in codes]
        self.counts = np.zeros(math.prod(self._shape), dtype=np.int64)
        self._order: list[NDArray[np.int64]] = []

    @property
    def _shape(self) -> list[int]:
        return [len(values) + 1 for values in self._values]

    def fits(self, codes: Sequence[Codes]) -> bool:
        """Return whether a batch is coded alike."""
        pairs = zip(codes, self._values, strict=True)
        return all(bool(one.values.equals(values)) for one, values in pairs)

    def add(self, codes: Sequence[Codes]) -> None:
        """Count the rows of a batch."""
        keys = codes[0].places.astype(np.int64)
        for one in codes[1:]:
            keys *= len(one.values) + 1
            keys += one.places
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
    head = batch.slice(0, _GLANCE)
    columns = [column for name, column in zip(head.schema.names, head.columns, strict=True) if name not in codes]
    return head.num_rows == _GLANCE and any(2 * len(codes_of(column).values) > _GLANCE for column in columns)


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
    return pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])
