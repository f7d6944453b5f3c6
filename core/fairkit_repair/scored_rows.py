"""Scores with groups and outcomes: all that a post-processing rule is learned from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.objective import Objective


@dataclass(frozen=True, slots=True)
class RowBound:
    """A rule on a rate over the rows: kept where Σ refused + a (accepted - refused) ≤ 0 for decisions a."""

    refused: NDArray[np.float64]  # what a refused row adds, weights included, shape [n]
    accepted: NDArray[np.float64]  # what an accepted row adds, shape [n]

    def take(self, index: NDArray[Any]) -> Self:
        """Return the rows that a mask or an index array names."""
        return type(self)(self.refused[index], self.accepted[index])


def row_bounds(table: Table, objective: Objective, margin: float) -> tuple[RowBound, ...]:
    """Return the policy's rules on rates over the rows of a table, one for each group that has to keep it."""
    return tuple(_bounds(table, objective, margin))


def _bounds(table: Table, objective: Objective, margin: float) -> Iterator[RowBound]:
    outcome, weights = (table.target > 0).astype(np.int64), table.row_weights()
    for bound in objective.bounds:
        counted, over = np.array(bound.counted, float), np.array(bound.over, float)
        # counted / over ≤ L, as counted - L over ≤ 0
        cells = (counted - bound.tightened(margin) * over) * (1.0 if bound.upper else -1.0)
        split = None if bound.split is None else table.groups[bound.split]
        members = [np.ones(len(table))] if split is None else np.eye(len(split.names))[split.codes].T
        for member in members:
            mass = weights * member
            mass = mass / max(mass.sum(), 1e-12)
            yield RowBound(mass * cells[2 * outcome], mass * cells[2 * outcome + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """Scores with groups and outcomes: all that a rule is learned from.

    `scores`: the base model's probability of the favorable label, shape [n], in [0, 1]; `codes`: each row's group,
    shape [n]; K for rows whose group has no rule of its own; `names`: the K groups; `favorable`: 1 where the outcome
    was the favorable label, else 0, shape [n]; `weights`: shape [n], nonnegative; None where all rows count the same;
    `cells`: for each group the numbers of its cells, one per sensitive column; empty where that is not known; `gain`:
    what accepting each row brings, shape [n]; None: 1 where the outcome is favorable, else -1; `rate`: the share of all
    rows to accept; None where any may be; `bounds`: rules on rates.
    """

    scores: NDArray[np.float64]
    codes: NDArray[np.int64]
    names: tuple[str, ...]
    favorable: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    cells: tuple[tuple[int, ...] | None, ...] = ()
    gain: NDArray[np.float64] | None = None
    rate: float | None = None
    bounds: tuple[RowBound, ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """The weights, shape [n]; ones where there are none."""
        return np.ones(len(self)) if self.weights is None else self.weights

    @property
    def gains(self) -> NDArray[np.float64]:
        """What accepting each row brings, shape [n]."""
        return 2.0 * self.favorable - 1.0 if self.gain is None else self.gain

    def take(self, index: NDArray[Any]) -> Self:
        """Return the rows that a mask or an index array names."""
        return dataclasses.replace(
            self,
            gain=None if self.gain is None else self.gain[index],
            bounds=tuple(bound.take(index) for bound in self.bounds),
            scores=self.scores[index],
            codes=self.codes[index],
            favorable=self.favorable[index],
            weights=None if self.weights is None else self.weights[index],
        )

    def folds(self, count: int, rng: np.random.Generator) -> list[tuple[Self, Self]]:
        """Split the rows at random into parts that hold a share of every group and outcome.

        Returns for each of `count` parts, the rows outside it and the rows in it.
        """
        part = even_folds(2 * self.codes + (self.favorable > 0), count, rng)
        return [(self.take(part != place), self.take(part == place)) for place in range(count)]

    def rates(self, chance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted mean of h in each of the K groups, NaN in an empty one."""
        weights = self.row_weights
        count = len(self.names) + 1
        totals = np.bincount(self.codes, weights, minlength=count)[:-1]
        sums = np.bincount(self.codes, weights * chance, minlength=count)[:-1]
        means: NDArray[np.float64] = np.divide(sums, totals, out=np.full(len(totals), np.nan), where=totals > 0)
        return means

    def accuracy(self, chance: NDArray[np.float64]) -> float:
        """Return the expected accuracy E[y h + (1 - y)(1 - h)] of randomized decisions."""
        agreed = self.favorable * chance + (1.0 - self.favorable) * (1.0 - chance)
        return float(np.average(agreed, weights=self.weights))

    def effective_rows(self) -> NDArray[np.float64]:
        """Return (Σ w)² / Σ w² in each of the K groups: the rows of equal weight that would say as much."""
        weights, count = self.row_weights, len(self.names) + 1
        totals = np.bincount(self.codes, weights, minlength=count)[:-1]
        squares = np.bincount(self.codes, weights**2, minlength=count)[:-1]
        return np.divide(totals**2, squares, out=np.zeros(len(totals)), where=squares > 0)

    def margin(self) -> float:
        """Return two standard errors of a rate in the smallest group: 2 √(.25 / n), n its effective rows."""
        rows = self.effective_rows()
        return 1.0 / float(np.sqrt(rows[rows > 0].min())) if (rows > 0).any() else 1.0


def even_folds(strata: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Number the rows' folds at random, shape [n]: each holds its share of every stratum."""
    order = rng.permutation(len(strata))
    fold = np.empty(len(strata), dtype=np.int64)
    fold[order[np.argsort(strata[order], kind="stable")]] = np.arange(len(strata)) % count
    return fold
