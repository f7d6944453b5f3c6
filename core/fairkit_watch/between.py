"""Confidence sequences of differences and ratios between groups.

The construction is that of `fairkit.intervals` with a factor c(t) in place of the normal quantile: a pair's limits
come from
the two groups' deviance limits at r = c²/2 (MOVER). Each pair has its own time t/t₀ = information / information₀ with
information = 1/(1/n_a + 1/n_b). The lower end of the largest difference takes all pairs together (each at a part of
α that sums to α), the upper end each pair alone; α is a fifth smaller where nothing else is conservative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import difference_limits, guarded, ratio_limits
from fairkit_watch.sequences import deviance_limits, factor, rate_limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ends:
    """Rates of groups at the two ends of what unresolved rows could make of them; one array where all are resolved."""

    least: Array  # the smallest possible rate and the rows it is over, shape [..., G]
    least_n: Array  # the smallest possible rate and the rows it is over, shape [..., G]
    most: Array  # the largest; the same arrays where every row is resolved
    most_n: Array  # the largest; the same arrays where every row is resolved

    @classmethod
    def certain(cls, rate: Array, n: Array) -> Ends:
        """Return the ends where nothing is unresolved."""
        return cls(rate, n, rate, n)

    def take(self, groups: NDArray[np.intp]) -> Ends:
        """Return some groups, in this order."""
        if self.least is self.most:
            return Ends.certain(self.least[..., groups], self.least_n[..., groups])
        return Ends(*(part[..., groups] for part in (self.least, self.least_n, self.most, self.most_n)))


HELD_BACK = 0.05
"""The part of the error probability for groups and pairs that were not declared at the start."""


def spending(position: NDArray[np.intp], declared: int) -> Array:
    """Return the share of α of the group, or pair, at a position in the order of appearance.

    The declared ones share all but `HELD_BACK` equally; the later ones take 6 / (π² j²) of that, j = 1, 2, ..., so
    that all of them, however many come, add up to at most 1. Where none is declared, they take of the whole.
    """
    j = np.maximum(position - declared + 1, 1)
    late = 6 / (np.pi**2 * j**2)
    if declared == 0:
        return np.asarray(late)
    return np.where(position < declared, (1 - HELD_BACK) / declared, HELD_BACK * late)


def pairs(groups: int, declared: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return the pairs of groups and the share of α of each at the lower end.

    A pair is declared if both its groups are; later pairs come in the order of their later group.
    """
    b, a = np.tril_indices(groups, -1)  # ordered by the later group
    return a, b, spending(np.arange(len(a)), declared * (declared - 1) // 2)


def _information(n_a: Array, n_b: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where((n_a > 0) & (n_b > 0), 1 / (1 / n_a + 1 / n_b), 0.0))


@dataclass(frozen=True, slots=True)
class Between:
    """What an interval between groups is made with."""

    alpha: float  # the chance of ever being wrong, both ends together
    declared: int  # how many groups were declared at the start; the first of the groups
    best: Array  # information₀ of a pair of the groups, shape [G, G]: where its interval is to be narrowest


def difference(ends: Ends, how: Between) -> tuple[Array, Array]:
    """Return the sequence of the largest difference between groups: its lower and upper end, shape [...].

    NaN where fewer than two groups have rows.
    """
    a, b, c, known = _prepared(ends, how)
    low, high = _signed(ends, a, b, c)  # at the joint and at the lone factor
    least = np.where(known, np.maximum(np.maximum(low[0], -high[0]), 0), -np.inf).max(axis=-1, initial=-np.inf)
    most = np.where(known, np.maximum(high[1], -low[1]), -np.inf).max(axis=-1, initial=-np.inf)
    return _or_nan(least), _or_nan(np.minimum(most, 1))


def ratio(ends: Ends, how: Between) -> tuple[Array, Array]:
    """Return the sequence of the smallest ratio between groups: its lower and upper end, shape [...]."""
    a, b, c, known = _prepared(ends, how)
    low = np.where(known, _ratio_side(ends, a, b, c[1], 0), np.inf).min(axis=-1, initial=np.inf)
    high = np.where(known, _ratio_side(ends, a, b, c[0], 1), np.inf).min(axis=-1, initial=np.inf)
    return _or_nan(np.clip(low, 0, None)), _or_nan(np.where(np.isfinite(high), np.minimum(high, 1), high))


def extreme(ends: Ends, how: Between, grid: Array, *, largest: bool) -> tuple[Array, Array]:
    """Return the sequence of the largest, or smallest, rate of a group: inner end for all at once, outer end alone."""
    groups = ends.least.shape[-1]
    shares = spending(np.arange(groups), how.declared) if groups > 1 else np.ones(groups)
    counted = np.nan_to_num(ends.least * ends.least_n), np.nan_to_num(ends.most * ends.most_n)
    alphas = how.alpha * np.stack([shares, np.ones_like(shares)])  # all groups at once, and each alone
    alphas = alphas.reshape(2, *(1,) * (ends.least.ndim - 1), groups)
    lows, highs = rate_limits(counted[0], ends.least_n, alphas, grid)
    if ends.least is not ends.most:
        highs = rate_limits(counted[1], ends.most_n, alphas, grid)[1]
    joint, alone = (lows[0], highs[0]), (lows[1], highs[1])
    has_rows = (ends.least_n > 0) & (ends.most_n > 0)
    if largest:
        low = np.where(has_rows, joint[0], -np.inf).max(axis=-1, initial=-np.inf)
        high = np.where(has_rows, alone[1], -np.inf).max(axis=-1, initial=-np.inf)
    else:
        low = np.where(has_rows, alone[0], np.inf).min(axis=-1, initial=np.inf)
        high = np.where(has_rows, joint[1], np.inf).min(axis=-1, initial=np.inf)
    return _or_nan(low), _or_nan(high)


def _prepared(ends: Ends, how: Between) -> tuple[NDArray[np.intp], NDArray[np.intp], Array, NDArray[np.bool_]]:
    """Return the pairs, their factors (joint end, lone end), shape [2, ..., P], and which have rows in both groups."""
    a, b, shares = pairs(ends.least.shape[-1], how.declared)
    n = np.minimum(ends.least_n, ends.most_n)
    information = _information(n[..., a], n[..., b])
    share = information / how.best[a, b]
    guard = 1 - guarded(1 - how.alpha)
    alone = np.where((information > 0).sum(axis=-1, keepdims=True) <= 1, guard, how.alpha)
    inner = factor(share, guard * shares)
    return a, b, np.stack([inner, factor(share, alone)]), information > 0


def _signed(ends: Ends, a: NDArray[np.intp], b: NDArray[np.intp], c: Array) -> tuple[Array, Array]:
    """Return limits of p_a - p_b, shape [..., P]: the union over what unresolved rows could be."""
    first, second = ends.take(a), ends.take(b)
    low, high = _flat(difference_limits, first.least, first.least_n, second.most, second.most_n, c)
    if ends.least is ends.most:
        return low, high
    return low, _flat(difference_limits, first.most, first.most_n, second.least, second.least_n, c)[1]


def _ratio_side(ends: Ends, a: NDArray[np.intp], b: NDArray[np.intp], c: Array, side: int) -> Array:
    """Return the smaller of the lower (0) or upper (1) limits of p_a / p_b and p_b / p_a, shape [..., P]."""
    found = []
    for over, under in ((ends.take(a), ends.take(b)), (ends.take(b), ends.take(a))):
        top = (over.least, over.least_n) if side == 0 else (over.most, over.most_n)
        base = (under.most, under.most_n) if side == 0 else (under.least, under.least_n)
        found.append(_flat(ratio_limits, *top, *base, c)[side])
    return np.minimum(*found)


def _flat(make: object, p: Array, n_p: Array, q: Array, n_q: Array, c: Array) -> tuple[Array, Array]:
    """Call a function of `fairkit.intervals` for pairs of rates of any shape, each with its own factor."""
    shape = np.shape(c)
    values = np.concatenate([np.broadcast_to(one, shape).ravel() for one in (p, q)])
    sizes = np.concatenate([np.broadcast_to(one, shape).ravel() for one in (n_p, n_q)])
    r = np.concatenate([np.ravel(c), np.ravel(c)]) ** 2 / 2
    sizes = np.where(np.isfinite(r), sizes, 0.0)
    values = np.nan_to_num(values, nan=0.5)
    bounds = deviance_limits(values, sizes, np.where(np.isfinite(r), r, 1.0))
    half = np.arange(values.size // 2)
    low, high = make(values, lambda _: bounds, 0.0, half, half + half.size)  # type: ignore[operator]
    return low.reshape(shape), high.reshape(shape)


def _or_nan(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.nan)
