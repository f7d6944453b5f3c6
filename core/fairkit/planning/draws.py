"""Audits that were not made yet: draw their totals, and judge them as an audit is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.metrics import Estimate
from fairkit.planning.targets import sums_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.planning.targets import Target

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is assumed about the groups.

    Attributes
    ----------
    names
        The groups.
    shares
        Of the rows, of sum 1, shape [G].
    rates
        Shape [K, G]: the true rates.
    bases
        Shape [K, G]: the share of a group's rows that each rate is over.
    rows, denominators, counted
        What was seen already, shapes [G], [K, G], [K, G]; zeros before the first audit.
    """

    names: tuple[str, ...]
    shares: Array
    rates: Array
    bases: Array
    rows: Array
    denominators: Array
    counted: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A rule's limit: `at` is the largest value allowed, or the smallest."""

    at: float
    largest: bool

    def kept(self, value: float) -> bool:
        """Return whether a number keeps the limit."""
        return value <= self.at if self.largest else value >= self.at

    def verdict(self, low: float, high: float) -> str:
        """Return pass, fail or inconclusive, as `fairkit.judge` does."""
        if not (np.isfinite(low) and np.isfinite(high)):
            return "inconclusive"
        if (high <= self.at) if self.largest else (low >= self.at):
            return "pass"
        return "fail" if ((low > self.at) if self.largest else (high < self.at)) else "inconclusive"


def decided(
    target: Target,
    truth: Truth,
    added: Array,
    limit: Limit,
    confidence: float,
    rng: np.random.Generator,
    draws: int,
    least: int = 30,
) -> dict[str, float]:
    """Return the shares of verdicts among audits with `added` more rows in each group.

    Parameters
    ----------
    target, truth, limit
        The rule's number, what is assumed, the rule's limit.
    added
        Rows in each group besides those of `truth.rows`, shape [G].
    confidence
        Of the intervals.
    rng, draws
        How many audits are drawn, and from what.
    least
        A group with fewer rows, or fewer rows that the rate is over, makes a verdict inconclusive.
    """
    whole = np.round(added).astype(np.int64)
    rows = truth.rows + whole
    shares = {"pass": 0.0, "fail": 0.0, "inconclusive": 0.0}
    if (rows < least).any():
        return shares | {"inconclusive": 1.0}
    groups = len(truth.names)
    first = rng.binomial(whole, truth.bases[0], size=(draws, groups))
    enough = np.ones(draws, dtype=bool)
    stacked = []
    for k, rate in enumerate(target.rates):
        inside = first if k == 0 else whole - first  # the second rate is over the other rows
        seen = inside + truth.denominators[k]
        enough &= (seen >= least).all(axis=1)
        hits = rng.binomial(inside, truth.rates[k]) + truth.counted[k]
        totals = sums_of(rate, np.broadcast_to(np.maximum(rows, seen), seen.shape), seen, hits)
        stacked.append(rate().estimate(totals, rng))
    for draw in range(draws):
        part = slice(draw * groups, (draw + 1) * groups)
        estimates = [some_of(estimate, part) for estimate in stacked]
        if enough[draw] and all(np.isfinite(e.values).all() for e in estimates):
            shares[limit.verdict(*target.interval(estimates, confidence))] += 1 / draws
        else:
            shares["inconclusive"] += 1 / draws
    return shares


def some_of(estimate: Estimate, part: slice) -> Estimate:
    """Return the estimate of some of the groups."""

    def limits(z: float) -> tuple[Array, Array]:
        low, high = estimate.limits(z)
        return low[part], high[part]

    return Estimate(estimate.values[part], limits)
