"""Audits that were not made yet: draw their totals, and judge them as an audit is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.metrics import Estimate
from fairkit.planning.targets import sums_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.planning.results import Side
    from fairkit.planning.targets import Target
    from fairkit.results.rules import Rule
    from fairkit.results.values import Interval

    Array = NDArray[np.float64]

LEAST = 30
"""The smallest group that an audit accepts (`group.min_group`), and the fewest of its rows that a rate is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is assumed about the groups."""

    names: tuple[str, ...]  # the groups
    shares: Array  # of the rows, of sum 1, shape [G]
    rates: Array  # shape [K, G]: the true rates
    bases: Array  # shape [K, G]: the share of a group's rows that each rate is over
    rows: Array  # what was seen already, shapes [G], [K, G], [K, G]; zeros before the first audit
    denominators: Array  # what was seen already, shapes [G], [K, G], [K, G]; zeros before the first audit
    counted: Array  # what was seen already, shapes [G], [K, G], [K, G]; zeros before the first audit


def decided(
    target: Target,
    truth: Truth,
    added: Array,
    rule: Rule,
    side: Side,
    confidence: float,
    rng: np.random.Generator,
    draws: int,
) -> float:
    """Return the share of a verdict, pass or fail, among audits with `added` more rows in each group."""
    whole = np.round(added).astype(np.int64)
    rows = truth.rows + whole
    if (rows < LEAST).any():
        return 0.0
    first = rng.binomial(whole, truth.bases[0], size=(draws, len(truth.names)))
    enough = np.ones(draws, dtype=bool)
    stacked = []
    for k, rate in enumerate(target.rates):
        inside = first if k == 0 else whole - first  # the second rate is over the other rows
        seen = inside + truth.denominators[k]
        enough &= (seen >= LEAST).all(axis=1)
        hits = rng.binomial(inside, truth.rates[k]) + truth.counted[k]
        totals = sums_of(rate, np.broadcast_to(np.maximum(rows, seen), seen.shape), seen, hits)
        stacked.append(rate().estimate(totals, rng))
    share = 0.0
    for _, ends in intervals(target, stacked, enough, confidence):
        if settled(rule, ends) is (side == "pass"):
            share += 1 / draws
    return share


def intervals(
    target: Target, estimates: Sequence[Estimate], enough: NDArray[np.bool_], confidence: float
) -> Iterator[tuple[int, Interval]]:
    """Return the interval of every drawn audit whose rates are known, with the audit's number."""
    groups = len(estimates[0].values) // len(enough)
    for estimate in estimates:
        enough = enough & np.isfinite(estimate.values).reshape(-1, groups).all(axis=1)
    with np.errstate(invalid="ignore"):  # of draws that are left out below
        ends = target.ends(estimates, len(enough), confidence)
    for draw in np.flatnonzero(enough).tolist():
        if ends is not None:
            yield draw, (float(ends[0][draw]), float(ends[1][draw]))
            continue
        part = slice(draw * groups, (draw + 1) * groups)
        yield draw, target.interval([_some_of(estimate, part) for estimate in estimates], confidence)


def settled(rule: Rule, interval: Interval) -> bool | None:
    """Tell whether an interval keeps a rule's limit or breaks it, as `fairkit.judge` does."""
    return rule.settled(interval) if np.isfinite(interval).all() else None


def _some_of(estimate: Estimate, part: slice) -> Estimate:
    """Return the estimate of some of the groups."""

    def limits(z: float) -> tuple[Array, Array]:
        low, high = estimate.limits(z)
        return low[part], high[part]

    return Estimate(estimate.values[part], limits)
