"""Disparities between groups: spreads of one metric, and the joint ones of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fairkit.few_labels import difference_between, ratio_between
from fairkit.intervals import (
    NOISE,
    Spread,
    extreme,
    guarded,
    largest,
    pairwise,
    reach,
    spread_difference,
    spread_quantiles,
    spread_ratio,
    two_sided,
)
from fairkit.metrics import Estimate
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.results.findings import Better


@dataclass(frozen=True, slots=True)
class Comparison:
    """A disparity as a function of the confidence, and which direction is better."""

    metric: str
    better: Better
    spread: Callable[[float], Spread]


def usable(estimate: Estimate) -> Estimate:
    """Leave out the groups where the metric is not defined."""
    keep = np.isfinite(estimate.values)
    return estimate if keep.all() else _select(estimate, keep)


def _select(estimate: Estimate, keep: NDArray[np.bool_]) -> Estimate:
    def limits(z: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = estimate.limits(z)
        return low[keep], high[keep]

    sizes = None if estimate.sizes is None else estimate.sizes[keep]
    together = None if estimate.correlation is None else estimate.correlation[np.ix_(keep, keep)]
    return Estimate(
        estimate.values[keep], limits, sizes, correlation=together, inflated=estimate.inflated, bounded=estimate.bounded
    )


def surely_apart(estimate: Estimate, z: float, a: NDArray[np.intp], b: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return upper limits of values[a] - values[b] where noise makes every number too large on average, shape [P].

    Where its truth is small, the second number is too large by μ standard errors e on average, and by at most q e at
    this quantile; the normal deviation of the first one is independent of that. Hence D + μ e + √(u² + (q - μ)² e²),
    with u the first one's distance to its upper limit. Where the second one's truth is large this is too much. Such
    numbers are distances between shares: no two are further apart than 1.
    """
    assert estimate.inflated is not None  # noqa: S101 -- callers look
    above = estimate.limits(z)[1] - estimate.values
    error = above / z
    mean, most = (np.broadcast_to(part, error.shape) for part in (estimate.inflated[0], estimate.inflated[1](z)))
    far = estimate.values[a] - estimate.values[b] + (mean * error)[b]
    return np.asarray(np.minimum(far + np.hypot(above[a], ((most - mean) * error)[b]), 1.0))


def _difference(estimate: Estimate, confidence: float) -> Spread:
    """Estimate the largest difference; see `surely_apart` for numbers that noise makes larger."""
    if estimate.bounded:
        return difference_between(estimate, confidence)
    spread = spread_difference(estimate.values, estimate.limits, confidence, estimate.correlation)
    if estimate.inflated is None or len(estimate.values) < 2:
        return spread
    z = spread_quantiles(len(estimate.values), confidence)[1]
    mean, most = estimate.inflated[0], estimate.inflated[1](z)
    top = estimate.limits(z)[1]
    bottom = estimate.values - (mean + np.abs(most - mean)) * (top - estimate.values) / z
    bounds = np.minimum(np.maximum(top - bottom.min(), top.max() - bottom) + NOISE, 1.0)
    of = partial(surely_apart, estimate, z)
    return Spread(spread.value, spread.low, largest(bounds, lambda pairs: np.maximum(of(*pairs), of(*pairs[::-1]))))


def _ratio(estimate: Estimate, confidence: float) -> Spread:
    """Estimate the smallest ratio."""
    if estimate.bounded:
        return ratio_between(estimate, confidence)
    return spread_ratio(estimate.values, estimate.limits, confidence, estimate.correlation)


def comparisons(
    name: str, better: Better, between: frozenset[str], estimate: Estimate, alias: str = ""
) -> list[Comparison]:
    """Return the difference, ratio and extremes of one metric between groups, under all their names."""
    comparable = usable(estimate)
    values, limits, together = comparable.values, comparable.limits, comparable.correlation
    results: list[Comparison] = []
    if "difference" in between:
        results.append(Comparison(f"{name}_difference", "lower", lambda c: _difference(comparable, c)))
    if "ratio" in between:
        results.append(Comparison(f"{name}_ratio", "higher", lambda c: _ratio(comparable, c)))
    level = guarded if together is not None else float
    if "extreme" in between and len(values):
        if better != "lower":
            results.append(
                Comparison(f"{name}_group_min", better, lambda c: extreme(values, limits, level(c), largest=False))
            )
        if better != "higher":
            results.append(
                Comparison(f"{name}_group_max", better, lambda c: extreme(values, limits, level(c), largest=True))
            )
    kinds = ("difference", "ratio") if alias else ()
    renamed = {f"{name}_{kind}": f"{alias}_{kind}" for kind in kinds}
    return results + [Comparison(renamed[c.metric], c.better, c.spread) for c in results if c.metric in renamed]


def odds(true_positive: Estimate, false_positive: Estimate) -> list[Comparison]:
    """Return equalized odds and BuDRO's gaps, from the rates on favorable and on unfavorable outcomes.

    Both families of pairs must hold at once, so each is taken at the square root of the confidence (they
    are over different rows, hence independent). A gap on the true negative rate is one on the false
    positive rate with the other sign.
    """
    tpr, fpr = usable(true_positive), usable(false_positive)
    return [
        Comparison("equalized_odds_difference", "lower", lambda c: _worst(tpr, fpr, c, _difference, max)),
        Comparison("equalized_odds_ratio", "higher", lambda c: _worst(tpr, fpr, c, _ratio, min)),
        Comparison("gap_max", "lower", lambda c: _worst(tpr, fpr, c, _difference, max)),
        Comparison("gap_rms", "lower", lambda c: _gap_rms(true_positive, false_positive, c)),
    ]


def _worst(
    tpr: Estimate, fpr: Estimate, confidence: float, spread: Callable[..., Spread], worst: Callable[..., float]
) -> Spread:
    each = math.sqrt(confidence)
    parts = [spread(part, each) for part in (tpr, fpr)]
    spreads = [spread(part, confidence) for part in (tpr, fpr)]
    defined = [part for part in parts if math.isfinite(part.value)]
    if not defined:
        return Spread(math.nan, math.nan, math.nan)
    value = worst(part.value for part in defined)
    alone = [part for part in spreads if math.isfinite(part.value)]
    if worst is max:
        return Spread(value, max(p.low for p in defined), max(p.high for p in alone))
    return Spread(value, min(p.low for p in alone), min(p.high for p in defined))


def _gap_rms(true_positive: Estimate, false_positive: Estimate, confidence: float) -> Spread:
    """The largest over pairs of groups of sqrt(mean of the two squared gaps), from a joint box for the two."""
    keep = np.isfinite(true_positive.values) & np.isfinite(false_positive.values)
    if keep.sum() < 2:
        return Spread(math.nan, math.nan, math.nan)
    each = math.sqrt(confidence)
    if true_positive.bounded or false_positive.bounded:
        both = [difference_between(_select(e, keep), each) for e in (true_positive, false_positive)]
        least, most = (math.sqrt(np.mean([getattr(s, side) ** 2 for s in both])) for side in ("low", "high"))
        return Spread((least + most) / 2, least / math.sqrt(2), most)
    joint, marginal = spread_quantiles(int(keep.sum()), each)
    if true_positive.correlation is not None:
        joint = two_sided(guarded(each) ** (2 / (keep.sum() * (keep.sum() - 1))))
    gaps = [_select(estimate, keep) for estimate in (true_positive, false_positive)]

    def of_all(z: float, end: int) -> float:
        bounds = _rms([np.maximum(reach(g.values, g.limits, z, end, g.correlation), 0) for g in gaps])
        each = [partial(pairwise, g.values, g.limits, z, g.correlation) for g in gaps]
        return largest(bounds, lambda pairs: _rms([spread_of(pairs)[end] for spread_of in each]))

    return Spread(of_all(joint, 0), of_all(joint, 1), of_all(marginal, 2))


def _rms(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(np.mean(np.square(parts), axis=0)))
