"""The transport plan of a solution: which row goes where, with how much mass, how far, and for what gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fairkit_similarity.search.dual import Lines
    from fairkit_similarity.search.tree import Floats, Ints
    from fairkit_similarity.transport import Solution


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """The nonzero entries of Π: at most two for each row that was asked, two for one row only."""

    source: Ints  # shape (e,): the row j that moves and the row i it moves to; equal where it stays
    target: Ints  # shape (e,): the row j that moves and the row i it moves to; equal where it stays
    mass: Floats  # shape (e,): Π_ij > 0; sums over each source to the row's weight, in all to 1
    distance: Floats  # shape (e,): C_ij, a squared distance
    gain: Floats  # shape (e,): R_ij - R_jj ≥ 0

    @property
    def cost(self) -> float:
        """<C, Π>, never above ε beyond rounding."""
        return float(self.mass @ self.distance)

    @property
    def moved(self) -> float:
        """The share of mass, in [0, 1], that goes to another row for a gain."""
        return float(self.mass[(self.source != self.target) & (self.gain > 0.0)].sum())

    def top(self, count: int) -> Ints:
        """Return the entries of the largest gains, at most one for each pair of rows.

        Ties go to the smaller distance, then to the smaller source.
        """
        entries = np.flatnonzero((self.source != self.target) & (self.gain > 0.0))
        order = np.lexsort((self.source[entries], self.distance[entries], -self.gain[entries]))
        return entries[order][:count]

    def label_weights(self, labels: Ints, rows: int, classes: int) -> Floats:
        """Sum the mass that arrives at each row under each label: Σ_j Π_ij 1[y_j = k]."""
        flat = self.target * classes + labels[self.source]
        summed: Floats = np.bincount(flat, weights=self.mass, minlength=rows * classes).astype(np.float64)
        return summed.reshape(rows, classes)


def transport_plan(solution: Solution) -> Plan:
    """Read the plan off a solution: feasible, with the value `lower_bound`.

    <C, Π> = ε exactly, save where every row has the largest reward at less.
    """
    problem = solution.problem
    share = solution.share[problem.query]
    parts = [_entries(solution, solution.bracket.high, 1.0 - share), _entries(solution, solution.bracket.low, share)]
    source, target, mass, distance, gain = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Plan(source=source, target=target, mass=mass, distance=distance, gain=gain)


def _entries(solution: Solution, lines: Lines, share: Floats) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    problem = solution.problem
    some = np.flatnonzero((share > 0.0) & (problem.mass > 0.0))
    query = problem.query[some]
    answer, reward, cost = lines.answer[query], lines.reward[query], lines.cost[query]
    row = problem.row_of(problem.label[query], answer)
    source = problem.asked[some]
    gain = reward - problem.own[some]
    # A row that is as good as the answer, at no distance, stays: equal rows are not moved among each other.
    row = np.where((cost == 0.0) & (gain <= 0.0), source, row)
    return source, row, problem.mass[some] * share[some], cost, gain
