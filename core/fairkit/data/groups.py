"""From cells to groups: values, bins and intersections become small integers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.data.arrow_types import NULL_SPELLINGS, as_numbers, as_numpy, codes_of
from fairkit.data.roles import MISSING_GROUP, SMALL_GROUPS, Missing, Sensitive, bin_names, proxy_of, value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.roles import Roles

    Array = NDArray[np.float64]
    Words = NDArray[np.uint64]


MAX_GROUPS = 10_000
"""More groups than this are a mistake (an identifier, say), not groups."""

_MANY = {"group": "groups", "stratum": "strata", "part": "parts"}
_CALLED = {"group": "the sensitive column", "stratum": "the `within` column", "part": "the `labelled` column"}


def quartile_edges(values: NDArray[Any], most: int) -> tuple[float, ...] | None:
    """Return the quartiles as bin edges; None for text or for at most `most` distinct values."""
    if values.dtype.kind not in "if":
        return None
    finite = values[np.isfinite(values)]
    if len(np.unique(finite)) <= most:
        return None
    edges = np.unique(np.quantile(finite, [0.25, 0.5, 0.75]))
    return tuple(float(edge) for edge in edges if edge > finite.min())


class ColumnCoder:
    """One column's values or bins, numbered as they appear."""

    def __init__(self, column: str, edges: tuple[float, ...] | None) -> None:
        self.column = column
        self.edges = edges
        self.reset()

    def reset(self) -> None:
        """Forget what was seen."""
        self.index: dict[str, int] = {}
        if self.edges is not None:
            self.index = {name: i for i, name in enumerate(bin_names(self.edges))}

    def codes(self, arrow: pa.RecordBatch) -> NDArray[np.int64]:
        """Return each row's place in `index`, which grows with new values, shape [n]."""
        column = arrow.column(arrow.schema.names.index(self.column))
        return self._values(column) if self.edges is None else self._bins(column)

    def _values(self, column: pa.Array) -> NDArray[np.int64]:
        codes = codes_of(column)
        cells, numbers = codes.cells, np.zeros(len(codes.values) + 1, dtype=np.int64)
        for code in codes.counted()[0]:
            numbers[code] = self._number(_group_text(cells[code]))
        return codes.mapped(numbers)

    def _bins(self, column: pa.Array) -> NDArray[np.int64]:
        cells = as_numbers(as_numpy(column))
        if cells is None or cells.dtype.kind == "b":
            raise DataError(f"the sensitive column {self.column!r} holds text and cannot be binned; leave the bins out")
        values = cells.astype(float)
        codes: NDArray[np.int64] = np.digitize(values, self.edges or ()).astype(np.int64)
        missing = np.isnan(values)
        if missing.any():
            codes[missing] = self._number(MISSING_GROUP)
        return codes

    def _number(self, name: str) -> int:
        return self.index.setdefault(name, len(self.index))

    def ordered(self) -> list[str]:
        """The names in the order of reports: numbers by size, bins by place, text by alphabet, missing last."""
        if self.edges is not None:
            return list(self.index)
        return sorted(self.index, key=_order)


def _group_text(value: Any) -> str:
    """Name a cell's group; text that a CSV file would have as missing is missing in every table."""
    return MISSING_GROUP if value in NULL_SPELLINGS else value_text(value)


def _cells(codes: Sequence[NDArray[np.int64]], shape: Sequence[int]) -> NDArray[np.int64]:
    return codes[0] if len(codes) == 1 else np.asarray(np.ravel_multi_index(codes, shape))


def _order(name: str) -> tuple[bool, bool, float, str]:
    try:
        return (name == MISSING_GROUP, False, float(name), name)
    except ValueError:
        return (name == MISSING_GROUP, True, 0.0, name)


class GroupCoder:
    """Turns the columns of one way to split people into group indices.

    `learn` sees every batch once and counts; after `finish`, `encode` gives indices into `names`, and `unknown`
    is the number of rows that belong to no group. Strata are coded as groups are, with messages of their own. Groups of
    fewer than `counts_from` rows are one group.
    """

    def __init__(
        self,
        split: Sensitive,
        missing: Missing,
        role: Literal["group", "stratum", "part"] = "group",
        counts_from: int = 0,
    ) -> None:
        self.split = split
        self.missing = missing
        self.counts_from = counts_from
        self.role, self._called = role, _CALLED[role]
        self.names: list[str] = []
        self.unknown = self.joined = 0
        self.columns = [ColumnCoder(c, e) for c, e in zip(split.columns, split.edges, strict=True)]
        self.reset()

    def reset(self) -> None:
        """Forget what was learned."""
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._lookup: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        for column in self.columns:
            column.reset()

    def learn(self, arrow: pa.RecordBatch, times: NDArray[np.int64] | None = None) -> None:
        """Count the groups of one batch."""
        codes = [coder.codes(arrow) for coder in self.columns]
        shape = [len(coder.index) + 1 for coder in self.columns]
        cells = np.bincount(_cells(codes, shape), times) if codes[0].size else np.empty(0)
        seen = np.flatnonzero(cells)
        places = (part.tolist() for part in np.unravel_index(seen, shape))
        for cell, count in zip(zip(*places, strict=True), cells[seen].astype(np.int64).tolist(), strict=True):
            self._counts[cell] += count
        self._check_count()

    def merge(self, right: GroupCoder) -> None:
        """Add what another coder of the same split learned from other rows."""
        numbers = [
            {code: coder._number(name) for name, code in others.index.items()}
            for coder, others in zip(self.columns, right.columns, strict=True)
        ]
        for cell, count in right._counts.items():
            self._counts[tuple(number[i] for number, i in zip(numbers, cell, strict=True))] += count
        self._check_count()

    def _check_count(self) -> None:
        if len(self._counts) > MAX_GROUPS:
            raise DataError(
                f"{self._called} {self.split.name!r} has more than {MAX_GROUPS} {_MANY[self.role]}; "
                "is it an identifier? Bin it (column:edge:edge) or leave it out"
            )

    def finish(self, table: str) -> None:
        """Name and order the groups."""
        cell_counts = self._known_cells()
        present = [{cell[i] for cell in cell_counts} for i in range(len(self.columns))]
        for coder, counts in zip(self.columns, present, strict=True):
            empty = [n for n, i in coder.index.items() if i not in counts and n != MISSING_GROUP]
            if coder.edges is not None and empty:
                raise DataError(
                    f"{table}: no row has {self.split.name!r} in the bin {empty[0]!r} "
                    f"({sum(cell_counts.values())} rows); move or remove that bin edge"
                )
        orders = [coder.ordered() for coder in self.columns]
        codes = [[coder.index[n] for n in order] for coder, order in zip(self.columns, orders, strict=True)]
        cells = [cell for cell in itertools.product(*codes) if cell in cell_counts]
        if len(cells) < 2 and self.role != "part":
            only = self._named(cells)[0] if cells else "none"
            raise DataError(
                f"{table}: {self._called} {self.split.name!r} has one {self.role} only ({only}); "
                + ("a comparison needs two" if self.role == "group" else "leave `within` out, or name another column")
            )
        small = self._small(cell_counts, table)
        self.joined = len(small)
        large = [cell for cell in cells if cell not in small]
        places = {cell: index for index, cell in enumerate(large)} | dict.fromkeys(small, len(large))
        self.names = self._named(large) + [SMALL_GROUPS] * bool(small)
        shape = [len(coder.index) for coder in self.columns]
        self._lookup = np.full(int(np.prod(shape)), -1, dtype=np.int64)
        self._lookup[[int(np.ravel_multi_index(cell, shape)) for cell in cells]] = [places[c] for c in cells]
        self._sizes = [cell_counts[cell] for cell in large] + [sum(cell_counts[cell] for cell in small)] * bool(small)
        self.unknown = sum(self._counts.values()) - sum(cell_counts.values())

    def _small(self, counts: dict[tuple[int, ...], int], table: str) -> set[tuple[int, ...]]:
        """Return the cells that are one group.

        They are two or more with `counts_from` rows together: of fewer, the other groups' counts would tell them.
        """
        by_size = sorted(counts, key=lambda cell: (counts[cell], cell))
        small = [cell for cell in by_size if counts[cell] < self.counts_from]
        for cell in by_size[len(small) :] if small else ():
            if len(small) > 1 and sum(counts[cell] for cell in small) >= self.counts_from:
                break
            small.append(cell)
        if small and len(small) == len(counts):
            raise DataError(
                f"{table}: with counts_from={self.counts_from} {self._called} {self.split.name!r} has one group only; "
                "choose a smaller number, or leave the column out"
            )
        return set(small)

    def _known_cells(self) -> dict[tuple[int, ...], int]:
        """Return the counts of the cells whose rows belong to a group: a missing value is one only if it is kept."""
        if self.missing == "group":
            return dict(self._counts)
        without = [coder.index.get(MISSING_GROUP, -1) for coder in self.columns]
        return {
            cell: count
            for cell, count in self._counts.items()
            if all(code != missing for code, missing in zip(cell, without, strict=True))
        }

    def shares_of(self, others: GroupCoder) -> NDArray[np.float64]:
        """Return by name what share of the rows another coder of the same split learned."""
        counts = dict(zip(others._named(others._counts), others._counts.values(), strict=True))
        return np.array([counts.get(name, 0) / size for name, size in self.sizes().items()])

    def sizes(self) -> dict[str, int]:
        """Return the rows of each group."""
        return dict(zip(self.names, self._sizes, strict=True))

    def encode(self, arrow: pa.RecordBatch) -> NDArray[np.int64]:
        """Return each row's index into `names`, shape [n]; -1 where the value is missing and that is no group."""
        shape = [len(coder.index) for coder in self.columns]
        codes = [coder.codes(arrow) for coder in self.columns]
        if [len(coder.index) for coder in self.columns] != shape:
            raise DataError(f"the data changed while it was read: new values in {self.split.name!r}")
        return self._lookup.take(_cells(codes, shape))

    def _named(self, cells: Iterable[Sequence[int]]) -> list[str]:
        names = [list(coder.index) for coder in self.columns]
        return [" & ".join(name[i] for name, i in zip(names, cell, strict=True)) for cell in cells]


# Columns of group probabilities in place of a sensitive column: names, what cannot be probabilities, known groups.


ROUNDING = 2e-3
"""How far the probabilities of a row may be from adding up to 1: tables are published with three digits."""


def proxies(roles: Roles) -> dict[str, tuple[str, ...]]:
    """Return the groups' names by the name of the proxy: the columns without what they all begin with, up to ``_``."""
    return {name: _names(columns) for name, columns in map(proxy_of, roles.sensitive_probability)}


def _names(columns: tuple[str, ...]) -> tuple[str, ...]:
    head = columns[0].partition("_")[0] + "_"
    if all(column.startswith(head) and len(column) > len(head) for column in columns):
        return tuple(column[len(head) :] for column in columns)
    return columns


def probabilities_of(
    arrow: pa.RecordBatch, roles: Roles, table: str, times: NDArray[np.int64] | None = None
) -> dict[str, Array]:
    """Return each proxy's group probabilities, shape [n, K], adding up to 1; NaN in rows that have none.

    Each row stands for so many equal ones, shape [n]; None: one.
    """
    return {
        name: _checked(np.stack([_numbers(arrow, column, table) for column in columns], axis=1), columns, table, times)
        for name, columns in map(proxy_of, roles.sensitive_probability)
    }


def _numbers(arrow: pa.RecordBatch, column: str, table: str) -> Array:
    values = as_numbers(as_numpy(arrow.column(arrow.schema.names.index(column))))
    if values is None:
        raise DataError(f"{table}: column {column!r} of group probabilities holds text; probabilities are numbers")
    return values.astype(np.float64)


def rows_where(flags: Any, times: NDArray[np.int64] | None) -> int:
    """Return how many rows are flagged, shape [n] of bool, where each stands for so many equal ones."""
    return int(flags.sum() if times is None else times[flags].sum())


def _checked(values: Array, columns: tuple[str, ...], table: str, times: NDArray[np.int64] | None) -> Array:
    absent = np.isnan(values)
    part = absent.any(axis=1) & ~absent.all(axis=1)
    shown = ", ".join(columns)
    if part.any():
        raise DataError(
            f"{table}: {rows_where(part, times)} rows lack some of the probabilities {shown}; give all or none"
        )
    outside = ~absent & ~((values >= 0) & (values <= 1))
    if outside.any():
        raise DataError(
            f"{table}: {rows_where(outside.any(axis=1), times)} rows have a value of {shown} outside [0, 1]"
        )
    total = values.sum(axis=1)
    off = np.abs(total - 1) > ROUNDING
    if off.any():
        raise DataError(
            f"{table}: the probabilities {shown} add up to {total[off][0]:.4g}, not to 1, in "
            f"{rows_where(off, times)} rows; name a column for every group, or add one for the others"
        )
    return np.asarray(values / total[:, None])


def known_groups(values: NDArray[Any], groups: Sequence[str]) -> NDArray[np.int64]:
    """Return each row's place among the groups, shape [n]; -1 where it is not known or none of them."""
    places = {group: index for index, group in enumerate(groups)}
    return np.array([-1 if v is None else places.get(value_text(v), -1) for v in values.tolist()], dtype=np.int64)


def known_shares(p: Array, group: NDArray[np.int64] | None) -> Array:
    """Count rows of known groups by group and tenth of its probability: rows, Σ p, hits, Σ p (1 - p), [K, 10, 4]."""
    made = np.zeros((p.shape[1], 10, 4))
    if group is not None:
        p, group = p[group >= 0], group[group >= 0]
        for index, share in enumerate(p.T):
            tenth, hit = np.minimum((10 * share).astype(np.int64), 9), (group == index).astype(np.float64)
            parts = (np.ones(len(share)), share, hit, share * (1 - share))
            made[index] = np.stack([np.bincount(tenth, part, 10) for part in parts], axis=1)
    return made
