"""How sure is L(ε)? A normal interval, and a one-sided bound that needs no argument about the optimum.

The query rows are a sample of the population; the support is held fixed. By Danskin's theorem the first-order
variation of L(ε) - baseline is that of the mean of φ_j(η*) - R_jj.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fairkit_similarity.search.tree import Floats, Ints
    from fairkit_similarity.transport import Solution

FEWEST = 30
"""Effective rows below which no interval is given."""

CHOOSERS = 2_500
"""Rows of one half that choose η for the other half: any η is valid, so a few are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A gap with its standard errors; intervals follow at any confidence."""

    gap: float  # L(ε) less the mean reward of staying
    error: float  # standard error of `gap`, from the standard deviation of φ_j(η*) - R_jj over the rows
    bound: float
    bound_error: float  # standard error of `bound`
    bound_skew: float
    rows: float  # effective number of rows, (Σ w)² / Σ w²

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Two-sided normal interval, cut at 0 where gaps begin; None with fewer than `FEWEST` effective rows."""
        if self.rows < FEWEST:
            return None
        reach = NormalDist().inv_cdf(0.5 + confidence / 2.0) * self.error
        return max(self.gap - reach, 0.0), self.gap + reach

    def upper_bound(self, confidence: float) -> float | None:
        """One-sided: below the population's gap with probability at most 1 - confidence; never below `gap`.

        The normal quantile is corrected for skewness (Hall 1983): z + γ (2 z² + 1) / 6, where a skewness
        γ > 0 means that a sample without the rare large gains looks safer than the population is.
        """
        if self.rows < FEWEST:
            return None
        z = NormalDist().inv_cdf(confidence)
        reach = z + max(self.bound_skew, 0.0) * (2.0 * z * z + 1.0) / 6.0
        return max(self.bound + reach * self.bound_error, self.gap)


def spread(solution: Solution, rng: np.random.Generator) -> Spread:
    """Measure how sure the gap of a solution is."""
    problem, epsilon = solution.problem, solution.epsilon
    excess = solution.contributions() - problem.own
    rows = 1.0 / float(problem.mass @ problem.mass)
    gap = max(solution.value - float(problem.mass @ problem.own), 0.0)
    if rows < FEWEST:
        return Spread(gap=gap, error=math.nan, bound=gap, bound_error=math.nan, bound_skew=math.nan, rows=rows)
    halves = np.array_split(rng.permutation(len(problem.asked)), 2)
    means, errors, thirds = [], [], []
    for chooser, judged in (halves, halves[::-1]):
        eta = _chosen_eta(solution, chooser[:CHOOSERS])
        mean, error, third = _mean(_excess_at(solution, judged, eta), problem.mass[judged])
        means.append(mean + eta * epsilon)
        errors.append(error)
        thirds.append(third)
    # the mean of two independent halves: Var = (e₁² + e₂²) / 4
    bound_error = math.hypot(*errors) / 2.0
    return Spread(
        gap=gap,
        error=_mean(excess, problem.mass)[1],
        bound=float(np.mean(means)),
        bound_error=bound_error,
        bound_skew=sum(thirds) / 8.0 / bound_error**3 if bound_error > 0.0 else 0.0,
        rows=rows,
    )


def _mean(values: Floats, mass: Floats) -> tuple[float, float, float]:
    """Weighted mean, its standard error, and its third central moment."""
    weight = mass / mass.sum()
    mean = float(weight @ values)
    # Bessel's correction for weights: Σ w² r² / (1 - Σ w²)
    scale = 1.0 - float(weight @ weight)
    error = math.sqrt(max(float(weight**2 @ (values - mean) ** 2), 0.0) / max(scale, 1e-12))
    return mean, error, float(weight**3 @ (values - mean) ** 3)


def _chosen_eta(solution: Solution, rows: Ints) -> float:
    """Minimise M over some rows only."""
    problem = solution.problem
    mass = np.bincount(problem.query[rows], weights=problem.mass[rows], minlength=len(problem.where))
    queries = np.flatnonzero(mass > 0.0)
    if not len(queries):
        return solution.eta
    weights = mass[queries] / mass[queries].sum()
    return problem.bracket(queries, weights, solution.epsilon, eta=solution.eta, tolerance=1e-7).eta


def _excess_at(solution: Solution, rows: Ints, eta: float) -> Floats:
    """φ_j(η) - R_jj of some rows."""
    problem = solution.problem
    queries, place = np.unique(problem.query[rows], return_inverse=True)
    lines = problem.answers_near(solution.bracket, eta, queries)
    return lines.at(eta)[place] - problem.own[rows]
