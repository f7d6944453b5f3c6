"""Columns in cells: what a condition can say about each, known before any outcome is seen."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.data.arrow_types import as_numpy
from fairkit.data.roles import value_text
from fairkit.errors import DataError
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source

    Array = NDArray[np.float64]


MOST_CELLS = 250
"""Of one column, so that a cell's number fits into a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCells:
    """One column in cells: those of its values in order, then one of all other text, then one of missing values."""

    name: str  # the column
    texts: tuple[str, ...] = ()  # text: the value of each cell
    starts: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()
    other: bool = False  # whether there is a cell of rarer text, which joins no run of cells
    missing: bool = False  # the same of missing values

    @property
    def plain(self) -> int:
        """How many cells hold values."""
        return len(self.texts) or len(self.starts)

    @property
    def size(self) -> int:
        """How many cells there are, one at least."""
        return max(1, self.plain + self.other + self.missing)

    @property
    def literals(self) -> list[tuple[int, int]]:
        """What a condition can be: runs of cells, the last one included.

        A category; any run of cells of numbers but all of them; missing; and known, where something is missing.
        """
        last = self.plain - 1
        if self.texts:
            runs = [(cell, cell) for cell in range(self.plain)] if self.size > 1 else []
        else:
            whole = (0, last)
            runs = [(i, j) for i in range(self.plain) for j in range(i, self.plain) if (i, j) != whole]
        if self.missing and self.plain:
            runs.append((self.size - 1, self.size - 1))
            if not self.texts or len(self.texts) > 1 or self.other:
                runs.append((0, self.size - 2))
        return runs

    def condition(self, run: tuple[int, int]) -> dict[str, Any]:
        """Return a literal as data: column, and `value`, or `low` and `high` (None where that end is open).

        A `value` of None is a missing one; `low` and `high` both None is any known value.
        """
        low, high = run
        if self.missing and low == self.size - 1:
            return {"column": self.name, "value": None}
        if self.missing and (low, high) == (0, self.size - 2) and not (self.texts and low == high):
            return {"column": self.name, "low": None, "high": None}
        if self.texts:
            return {"column": self.name, "value": self.texts[low]}
        first, last = self.starts[low], self.ends[high]
        if first == last:
            return {"column": self.name, "value": _number(first)}
        return {
            "column": self.name,
            "low": None if low == 0 else _number(first),
            "high": None if high == self.plain - 1 else _number(last),
        }

    def encode(self, column: pa.Array) -> NDArray[np.uint8]:
        """Return the cell of each row, shape [n]."""
        if self.texts or (not self.starts and is_text(column)):
            return self._texts(column)
        values = as_numpy(column).astype(np.float64)
        codes = np.searchsorted(np.asarray(self.starts[1:]), values, side="right").astype(np.uint8)
        nan = np.isnan(values)
        if nan.any():
            codes[nan] = self._of_missing()
        return codes

    def _texts(self, column: pa.Array) -> NDArray[np.uint8]:
        coded = plain_text(column).dictionary_encode()
        places = {text: cell for cell, text in enumerate(self.texts)}
        rare = self.plain if self.other else -1
        table = np.array(
            [self._of_missing() if t == "" else places.get(t, rare) for t in coded.dictionary.to_pylist()]
            + [self._of_missing()],
            dtype=np.int64,
        )
        at = coded.indices
        rows = np.full(len(at), len(table) - 1)
        is_known = ~as_numpy(at.is_null()) if at.null_count else np.ones(len(at), dtype=bool)
        rows[is_known] = as_numpy(at.drop_null() if at.null_count else at)
        codes: NDArray[np.int64] = table[rows]
        if (codes < 0).any():
            raise DataError(f"column {self.name!r} holds text that was not there when its cells were made")
        return codes.astype(np.uint8)

    def _of_missing(self) -> int:
        return self.size - 1 if self.missing else -1 if self.texts else 0


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def make_cells(
    tallies: Tallies, rows: int, *, share: float, bins: int, edges: Mapping[str, Sequence[float]]
) -> tuple[list[ColumnCells], dict[str, str]]:
    """Turn what columns hold into cells."""
    made, left = [], {}
    for name, tally in tallies.columns.items():
        if isinstance(tally, Text):
            column, reason = _text_cells(name, tally, rows, share)
        else:
            column, reason = _number_cells(name, tally, rows, share, bins, edges.get(name))
        if column is None:
            left[name] = reason
        elif not column.literals:
            left[name] = "it has one value only"
        else:
            made.append(column)
    return made, left


def _text_cells(name: str, tally: Text, rows: int, share: float) -> tuple[ColumnCells | None, str]:
    if tally.too_many:
        return None, f"it has more than {Text.most:,} different values"
    frequent = sorted(text for text, count in tally.counts.items() if count >= share * rows)
    if not frequent and len(tally.counts) > 1:
        return None, f"none of its {len(tally.counts):,} values has {share:.3g} of the rows"
    if len(frequent) > MOST_CELLS:
        return None, f"{len(frequent)} of its values have {share:.3g} of the rows, more than {MOST_CELLS}"
    has_rare = len(frequent) < len(tally.counts)
    return ColumnCells(name=name, texts=tuple(frequent), other=has_rare, missing=tally.missing > 0), ""


def _number_cells(
    name: str, tally: Number, rows: int, share: float, bins: int, edges: Sequence[float] | None
) -> tuple[ColumnCells | None, str]:
    values, counts = tally.values, tally.counts
    if edges is None:
        firsts = fill(counts, rows, share, bins) if len(values) else np.empty(0, dtype=np.int64)
    else:
        firsts = np.unique(np.concatenate([[0], np.searchsorted(values, np.asarray(edges))]))
        firsts = firsts[firsts < len(values)]
    if len(firsts) > MOST_CELLS:
        return None, f"it has {len(firsts)} cells, more than {MOST_CELLS}; lower `bins`"
    starts = values[firsts]
    ends = values[np.append(firsts[1:], len(values)) - 1] if len(values) else values
    if tally.dropped:  # a value stands for all that follow up to the next one
        ends = np.append(np.nextafter(starts[1:], -math.inf), tally.largest)
    return (
        ColumnCells(
            name=name,
            starts=tuple(float(start) for start in starts),
            ends=tuple(float(end) for end in ends),
            missing=tally.missing > 0,
        ),
        "",
    )


def fill(counts: NDArray[np.int64], rows: int, share: float, bins: int) -> NDArray[np.int64]:
    """Return the place of the first value of each cell, shape [B], for counts of the sorted distinct values.

    Up to `bins` different values are a cell each. Of more, a value with rows / bins rows is a cell of its own, and
    the others fill cells of that size. Then the smallest cell joins its smaller neighbour, while there are too many
    cells or it has fewer than share · rows.
    """
    if len(counts) <= bins:
        cells = [[index, int(count)] for index, count in enumerate(counts)]
    else:
        cells = _filled(counts, rows / bins)
    while len(cells) > 1:
        least = min(range(len(cells)), key=lambda index: cells[index][1])
        if len(cells) <= bins and cells[least][1] >= share * rows:
            break
        neighbours = [index for index in (least - 1, least + 1) if 0 <= index < len(cells)]
        neighbour = min(neighbours, key=lambda index: cells[index][1])
        first, second = min(least, neighbour), max(least, neighbour)
        cells[first][1] += cells[second][1]
        del cells[second]
    return np.array([first for first, _ in cells], dtype=np.int64)


def _filled(counts: NDArray[np.int64], target: float) -> list[list[int]]:
    cells: list[list[int]] = []
    open_cell = False
    for position, count in enumerate(counts.tolist()):
        if count >= target:
            cells.append([position, count])
            open_cell = False
        elif open_cell:
            cells[-1][1] += count
            open_cell = cells[-1][1] < target
        else:
            cells.append([position, count])
            open_cell = True
    return cells


def too_long(names: Sequence[str]) -> str:
    """List names for a message."""
    shown = ", ".join(value_text(name) for name in names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")


# The family of groups: which conjunctions of conditions there are, and where their counts are.


MOST_BYTES = 256 * 2**20
"""Tables above this size are refused."""

EVERYBODY = ((0, 0),)
"""The only run of an axis that nothing is said about."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """One joint table: its columns, its shape, where it begins, and the runs of each axis."""

    columns: tuple[int, ...]
    shape: tuple[int, int, int]
    start: int
    runs: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

    @property
    def stop(self) -> int:
        """Where it ends."""
        a, b, c = self.shape
        return self.start + a * b * c

    def literals(self, number: int) -> list[tuple[int, tuple[int, int]]]:
        """Return a group's conditions: the column's place and the run of cells."""
        literals = []
        for axis, column in zip((2, 1, 0), self._padded()[::-1], strict=True):
            number, at = divmod(number, len(self.runs[axis]))
            if column >= 0:
                first, last = self.runs[axis][at]
                literals.append((column, (int(first), int(last))))
        return literals[::-1]

    def _padded(self) -> list[int]:
        return [*self.columns, *[-1] * (3 - len(self.columns))]


@dataclass(frozen=True)
class Family:
    """Every conjunction of at most `depth` conditions on different columns."""

    columns: tuple[ColumnCells, ...]  # in cells
    depth: int = 3  # 1, 2 or 3

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The cells of each column, with columns of one cell up to three, shape [d]."""
        sizes = [column.size for column in self.columns]
        return np.array(sizes + [1] * (3 - len(sizes)), dtype=np.int64)

    @functools.cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each table of three columns begins, in cells; last, how many cells there are."""
        sizes = self.sizes.tolist()
        cells = [sizes[a] * sizes[b] * sizes[c] for a, b, c in itertools.combinations(range(len(sizes)), 3)]
        return np.concatenate([[0], np.cumsum(np.array(cells, dtype=np.int64))])

    @property
    def cells(self) -> int:
        """How many cells all tables of three columns have."""
        return int(self.offsets[-1])

    @functools.cached_property
    def places(self) -> tuple[TableLayout, ...]:
        """The tables that are searched, fewer conditions first, where `laid_out` puts them."""
        layouts, at = [], 0
        for depth in range(1, min(self.depth, len(self.columns)) + 1):
            for chosen in itertools.combinations(range(len(self.columns)), depth):
                sizes = [int(self.sizes[c]) for c in chosen] + [1] * (3 - depth)
                runs = [np.array(self.columns[c].literals, dtype=np.int64) for c in chosen]
                runs += [np.array(EVERYBODY, dtype=np.int64)] * (3 - depth)
                layout = TableLayout(chosen, (sizes[0], sizes[1], sizes[2]), at, (runs[0], runs[1], runs[2]))
                layouts.append(layout)
                at = layout.stop
        return tuple(layouts)

    def laid_out(self, tables: NDArray[Any]) -> Array:
        """Put the tables of all `places` one after another: those of one and two columns are sums of others."""
        sizes = self.sizes.tolist()
        triples = list(itertools.combinations(range(len(sizes)), 3))
        out = np.empty((tables.shape[1], self.places[-1].stop))
        for layout in self.places:
            at, triple = next((i, t) for i, t in enumerate(triples) if set(layout.columns) <= set(t))
            block = tables[self.offsets[at] : self.offsets[at + 1]]
            block = block.reshape(*(sizes[c] for c in triple), -1)
            gone = tuple(axis for axis, column in enumerate(triple) if column not in layout.columns)
            summed = block.sum(axis=gone) if gone else block
            out[:, layout.start : layout.stop] = summed.reshape(-1, tables.shape[1]).T
        return out

    def encode(self, columns: Mapping[str, pa.Array]) -> NDArray[np.uint8]:
        """Return the cells of rows, shape [d, n]."""
        coded = [column.encode(columns[column.name]) for column in self.columns]
        rows = len(coded[0])
        return np.stack([*coded, *[np.zeros(rows, dtype=np.uint8)] * (3 - len(coded))])

    def conditions(self, table: int, number: int) -> list[dict[str, Any]]:
        """Return a group's conditions as data (see `ColumnCells.condition`)."""
        return [self.columns[column].condition(run) for column, run in self.places[table].literals(number)]

    def member(self, codes: NDArray[np.uint8], table: int, number: int) -> NDArray[np.bool_]:
        """Return which rows, given by their cells, shape [d, n], are in a group."""
        keep = np.ones(codes.shape[1], dtype=bool)
        for column, (first, last) in self.places[table].literals(number):
            keep &= (codes[column] >= first) & (codes[column] <= last)
        return keep

    def parents(self, table: int, number: int) -> Iterator[tuple[int, int]]:
        """Return the groups with some of the same conditions, those with the fewest first."""
        literals = self.places[table].literals(number)
        for keep in range(1, len(literals)):
            for chosen in itertools.combinations(literals, keep):
                yield self.find(chosen)

    def find(self, literals: Sequence[tuple[int, tuple[int, int]]]) -> tuple[int, int]:
        """Return the table and number of a conjunction of conditions."""
        columns = tuple(column for column, _ in literals)
        table = next(at for at, layout in enumerate(self.places) if layout.columns == columns)
        place, number = self.places[table], 0
        runs = [run for _, run in literals] + [(0, 0)] * (3 - len(literals))
        for axis, run in enumerate(runs):
            at = int(np.flatnonzero((place.runs[axis] == run).all(axis=1))[0])
            number = number * len(place.runs[axis]) + at
        return table, number

    def box(self, laid: Array, table: int, number: int) -> Array:
        """Return a group's sums, shape [V], from sums by cell, shape [V, all cells]."""
        layout = self.places[table]
        block = laid[:, layout.start : layout.stop].reshape(-1, *layout.shape)
        runs = dict(layout.literals(number))
        cuts = [runs.get(column, (0, 0)) for column in layout._padded()]
        (a, b), (c, d), (e, f) = cuts
        return np.asarray(block[:, a : b + 1, c : d + 1, e : f + 1].sum(axis=(1, 2, 3)))

    def check_size(self, sums: int, copies: int) -> None:
        """Refuse tables that take too much memory."""
        size = 8 * sums * self.cells * copies
        if size <= MOST_BYTES:
            return
        largest = sorted(self.columns, key=lambda column: -column.size)[:3]
        widths = ", ".join(f"{column.name} ({column.size} cells)" for column in largest)
        times = f" in {copies} strata or halves" if copies > 1 else ""
        raise DataError(
            f"the joint tables of {len(self.columns)} columns{times} would take {size / 2**20:,.0f} MiB, more than "
            f"{MOST_BYTES // 2**20}: search fewer columns, set fewer `bins`, or a larger `share`. "
            f"Columns with the most cells: {widths}"
        )


# What columns hold: counts of their values, which add up over pieces of a table in any order.


@dataclass(frozen=True, slots=True)
class Text:
    """Counts of text; beyond `most` different values they are forgotten."""

    most: ClassVar[int] = 50_000
    counts: Mapping[str, int]
    missing: int
    too_many: bool = False

    def __add__(self, other: Text) -> Text:
        too_many, missing = self.too_many or other.too_many, self.missing + other.missing
        if not too_many:
            counts = dict(self.counts)
            for text, count in other.counts.items():
                counts[text] = counts.get(text, 0) + count
            if len(counts) <= self.most:
                return Text(counts, missing)
        return Text({}, missing, too_many=True)


@dataclass(frozen=True, slots=True)
class Number:
    """Counts of numbers.

    Beyond `most` different values, the lowest bits of each are dropped, as few as it takes: that number of bits
    depends on the values only, and not on the order in which they come.
    """

    most: ClassVar[int] = 20_000
    values: NDArray[np.float64]  # distinct and increasing, without the dropped bits, shape [m]
    counts: NDArray[np.int64]  # how many rows have each
    missing: int  # how many cells are empty
    dropped: int = 0  # how many bits
    largest: float = -np.inf  # the largest number

    def __add__(self, other: Number) -> Number:
        values = np.concatenate([self.values, other.values])
        counts = np.concatenate([self.counts, other.counts])
        largest = max(self.largest, other.largest)
        missing, dropped = self.missing + other.missing, max(self.dropped, other.dropped)
        return _cut(values, counts, missing, dropped, largest)


def _cut(values: NDArray[np.float64], counts: NDArray[np.int64], missing: int, dropped: int, largest: float) -> Number:
    while True:
        cut = (values.view(np.int64) >> dropped << dropped).view(np.float64) if dropped else values
        distinct, places = np.unique(cut, return_inverse=True)
        if len(distinct) <= Number.most:
            totals = np.bincount(places, counts, len(distinct)).astype(np.int64)
            return Number(distinct, totals, missing, dropped, largest)
        dropped += 1 if dropped else 30


@dataclass(frozen=True, slots=True)
class Tallies:
    """What columns hold, by name, the number of rows, and the largest weight."""

    columns: Mapping[str, Text | Number]
    rows: int
    weight: float = 0.0

    def __add__(self, other: Tallies) -> Tallies:
        added = {name: column + other.columns[name] for name, column in self.columns.items()}  # type: ignore[operator]
        return Tallies(added, self.rows + other.rows, max(self.weight, other.weight))


def is_text(column: pa.Array) -> bool:
    """Whether a column holds text, or nothing at all."""
    import pyarrow as pa

    return any(test(column.type) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null))


def plain_text(column: pa.Array) -> pa.Array:
    """Return a column of text as such, also one without any value."""
    import pyarrow as pa

    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def tally(source: Source, start: int, dataset: Dataset, columns: Sequence[str]) -> Tallies | None:
    """Count what columns hold in the rows of a piece of a table that have a weight; None where there are none."""
    total: Tallies | None = None
    for batch in dataset.part(source, start).batches(columns, partial=True):
        used = with_weight(batch)
        if not len(used):
            continue
        tallies = {name: tally_column(used.arrow(name)) for name in columns}
        weight = 0.0 if used.weights is None else float(used.weights.max())
        one = Tallies(tallies, len(used), weight)
        total = one if total is None else total + one
    return total


def with_weight(batch: Batch) -> Batch:
    """Leave out the rows whose weight is 0."""
    if batch.weights is None or bool((batch.weights > 0).all()):
        return batch
    return batch.take(batch.weights > 0)


def tally_column(column: pa.Array) -> Text | Number:
    """Count what one column holds."""
    import pyarrow.compute as pc

    if is_text(column):
        counted = pc.value_counts(plain_text(column))
        texts, counts = counted.field("values").to_pylist(), as_numpy(counted.field("counts")).tolist()
        pairs = dict(zip(texts, counts, strict=True))
        missing = pairs.pop(None, 0) + pairs.pop("", 0)
        return Text(pairs, missing) + Text({}, 0)
    values = as_numpy(column).astype(np.float64)
    nan = np.isnan(values)
    missing = int(nan.sum())
    values_known = values[~nan] if missing else values
    distinct, counts = np.unique(values_known + 0.0, return_counts=True)
    largest = float(distinct[-1]) if len(distinct) else -np.inf
    return _cut(distinct, counts.astype(np.int64), missing, 0, largest)
