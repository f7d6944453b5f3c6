"""The family of groups: which conjunctions of conditions there are, and where their counts are."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.cells import ColumnCells

    Array = NDArray[np.float64]

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
                place = TableLayout(chosen, (sizes[0], sizes[1], sizes[2]), at, (runs[0], runs[1], runs[2]))
                layouts.append(place)
                at = place.stop
        return tuple(layouts)

    @property
    def conjunctions(self) -> int:
        """How many groups there are, small ones too."""
        return sum(len(p.runs[0]) * len(p.runs[1]) * len(p.runs[2]) for p in self.places)

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
        table = next(at for at, place in enumerate(self.places) if place.columns == columns)
        place, number = self.places[table], 0
        runs = [run for _, run in literals] + [(0, 0)] * (3 - len(literals))
        for axis, run in enumerate(runs):
            at = int(np.flatnonzero((place.runs[axis] == run).all(axis=1))[0])
            number = number * len(place.runs[axis]) + at
        return table, number

    def box(self, laid: Array, table: int, number: int) -> Array:
        """Return a group's sums, shape [V], from sums by cell, shape [V, all cells]."""
        place = self.places[table]
        block = laid[:, place.start : place.stop].reshape(-1, *place.shape)
        runs = dict(place.literals(number))
        cuts = [runs.get(column, (0, 0)) for column in place._padded()]
        (a, b), (c, d), (e, f) = cuts
        return np.asarray(block[:, a : b + 1, c : d + 1, e : f + 1].sum(axis=(1, 2, 3)))

    def check_size(self, sums: int, copies: int) -> None:
        """Refuse tables that take too much memory."""
        size = 8 * sums * self.cells * copies
        if size <= MOST_BYTES:
            return
        largest = sorted(self.columns, key=lambda column: -column.size)[:3]
        told = ", ".join(f"{column.name} ({column.size} cells)" for column in largest)
        times = f" in {copies} strata or halves" if copies > 1 else ""
        raise DataError(
            f"the joint tables of {len(self.columns)} columns{times} would take {size / 2**20:,.0f} MiB, more than "
            f"{MOST_BYTES // 2**20}: search fewer columns, set fewer `bins`, or a larger `share`. "
            f"Columns with the most cells: {told}"
        )
