"""One pass over the rows: the domain of every column, and some people, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.structure.domain import one_hot_groups, value_text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.batch import Batch

MOST_VALUES = 10_000
"""Distinct values of a column that are kept."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a column holds: numbers by their range and moments, and distinct values while there are few."""

    low: float
    high: float
    whole: bool
    missing: bool
    moments: NDArray[np.float64]
    text: bool
    values: Mapping[Any, None] | None

    @classmethod
    def of(cls, cells: NDArray[Any]) -> Seen:
        """Look at a column of a batch."""
        text = cells.dtype.kind in "OUS"
        distinct = dict.fromkeys(np.unique(cells).tolist() if not text else cells.tolist())
        values = None if len(distinct) > MOST_VALUES else {v: None for v in distinct if v == v}  # noqa: PLR0124
        if text:
            return cls(np.inf, -np.inf, False, None in distinct, np.zeros(3), True, values)
        numbers = cells.astype(np.float64)
        known = numbers[np.isfinite(numbers)]
        whole = bool((known == np.floor(known)).all())
        moments = np.array([len(known), known.sum(), (known**2).sum()])
        return cls(
            float(known.min(initial=np.inf)),
            float(known.max(initial=-np.inf)),
            whole,
            bool(np.isnan(numbers).any()),
            moments,
            cells.dtype.kind == "b",
            values,
        )

    def __add__(self, other: Seen) -> Seen:
        values = None
        if self.values is not None and other.values is not None:
            both = {**self.values, **other.values}
            values = both if len(both) <= MOST_VALUES else None
        return Seen(
            min(self.low, other.low),
            max(self.high, other.high),
            self.whole and other.whole,
            self.missing or other.missing,
            self.moments + other.moments,
            self.text or other.text,
            values,
        )

    @property
    def spread(self) -> float:
        """The standard deviation; 1 where there is none."""
        count, total, squares = self.moments
        variance = squares / count - (total / count) ** 2 if count else 0.0
        return float(np.sqrt(variance)) if variance > 1e-12 * max(1.0, squares / max(count, 1.0)) else 1.0


@dataclass(frozen=True, slots=True)
class People:
    """What was seen of the rows so far; `+` merges."""

    seen: Mapping[str, Seen]  # by column
    most: int  # at most so many people are kept: those of the smallest draws, with their row numbers and raw columns
    draw: NDArray[np.uint64]
    rows: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    weights: NDArray[np.float64] | None  # what each counts, shape [n]; None where all count the same
    count: int  # how many rows there are
    groups: frozenset[tuple[str, ...]] = frozenset()  # groups of 0-1 columns of which every row has exactly one
    combinations: Mapping[tuple[str, ...], tuple[Any, ...]] | None = None

    @classmethod
    def of(cls, batch: Batch, names: Sequence[str], most: int, seed: int, changing: Sequence[str] = ()) -> People:
        """Look at a batch; `changing`: the columns that change together."""
        columns = batch.columns(names)
        rows = np.asarray(batch.rows, dtype=np.int64)
        draw = mixed(rows, seed)
        seen = {name: Seen.of(columns[name]) for name in names}
        groups = frozenset(one_hot_groups(columns, [name for name in names if name not in changing]))
        together = {
            tuple(map(value_text_of, row)): row for row in zip(*(columns[c].tolist() for c in changing), strict=True)
        }
        return cls(seen, most, draw, rows, columns, batch.weights, len(rows), groups, _few(together))._cut()

    def __add__(self, other: People) -> People:
        columns = {n: _joined(v, other.columns[n]) for n, v in self.columns.items()}
        seen = {name: one + other.seen[name] for name, one in self.seen.items()}
        draw, rows = np.concatenate([self.draw, other.draw]), np.concatenate([self.rows, other.rows])
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = np.concatenate([self.weights, other.weights])
        together = None
        if self.combinations is not None and other.combinations is not None:
            together = _few({**other.combinations, **self.combinations})
        groups = self.groups & other.groups
        count = self.count + other.count
        return People(seen, self.most, draw, rows, columns, weights, count, groups, together)._cut()

    def _cut(self) -> People:
        return self.some(np.sort(np.lexsort((self.rows, self.draw))[: self.most]))

    def some(self, rows: NDArray[Any]) -> People:
        """Return some of the people; what was seen of all rows stays."""
        return replace(
            self,
            draw=self.draw[rows],
            rows=self.rows[rows],
            columns={name: values[rows] for name, values in self.columns.items()},
            weights=None if self.weights is None else self.weights[rows],
        )

    def in_order(self) -> People:
        """Return the people by their row numbers: the same however the rows were cut."""
        return self.some(np.argsort(self.rows, kind="stable"))


def _few(together: dict[tuple[str, ...], tuple[Any, ...]]) -> dict[tuple[str, ...], tuple[Any, ...]] | None:
    return together if len(together) <= MOST_VALUES else None


def _joined(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    if one.dtype.kind == "O" or other.dtype.kind == "O":
        return np.concatenate([one.astype(object), other.astype(object)])
    return np.concatenate([one, other])


def mixed(rows: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return a draw for each row that depends on its number and the seed only (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(seed % 2**64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
