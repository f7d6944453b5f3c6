"""Two groups compared inside strata and pooled: the same weights of the strata for both groups.

With weights W_s that add up to 1 each group's number becomes V_g = Σ W_s v_gs, as if both groups were spread over the
strata alike; the pooled difference is V_a - V_b, the pooled ratio V_a / V_b. With W_s proportional to
n_as n_bs / (n_as + n_bs) they are Mantel and Haenszel's difference and ratio of rates. Means get the inverse of the
variance of their difference, with each group's variance taken over all strata, so that small strata have weights, too.

A cell's variance is its unbiased estimate where the cell has two rows or more, and otherwise that of the thin cells of
the group together. So the pooled variance holds for few large strata and for many small ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import difference_limits, ratio_limits
from fairkit.limits.means import mean_limits, student, weighted_share_limits
from fairkit.metrics import Estimate
from fairkit_group.between import surely_apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.intervals import Limits
    from fairkit_dependent import Noise

    Array = NDArray[np.float64]

ROUNDING = 1e-7
"""A smaller part of a mean is no standard error."""

THIN = 2.0
"""A cell with fewer rows says nothing about its own variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumCells:
    """A number in every stratum and group, shapes [S, G]; NaN where it is not defined."""

    values: Array  # the number
    mass: Array  # what Mantel and Haenszel's weights are made from: rows that the number is over, or their weights
    sizes: Array  # the effective number of rows
    variance: Array  # of the number, unbiased; of any value where there are fewer than `THIN` rows
    cube: Array  # the third central moment of the number; zeros where it is not known
    span: tuple[float, float]  # the range of the number, or of what was seen
    share: bool  # whether it is a share of rows
    inflated: tuple[float | Array, Callable[[float], float | Array]] | None = None  # as that of `Estimate`

    def inverse_variance(self) -> StratumCells:
        """Return the same cells with sizes over each group's own variance as mass."""
        own = _own_variance(self)
        with np.errstate(divide="ignore", invalid="ignore"):
            mass = np.where(own > 0, self.sizes / own, self.sizes)
        return replace(self, mass=mass if (own > 0).all() else self.sizes)


def _own_variance(cells: StratumCells) -> Array:
    """Return the variance of one row of each group inside the strata, shape [G]."""
    known = np.isfinite(cells.values) & (cells.sizes >= THIN)
    degrees = np.where(known, cells.sizes - 1, 0.0)
    squares = np.where(known, degrees * cells.sizes * cells.variance, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(squares.sum(axis=0) / degrees.sum(axis=0))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two groups' pooled numbers."""

    groups: tuple[int, int]  # their places
    values: Array  # V_a and V_b; NaN where no stratum has both
    limits: Limits  # of the two, each for itself
    weights: Array  # W_s, shape [S]
    sizes: tuple[float, float]  # rows of each group in the strata that count
    correlation: Array | None = None
    inflated: tuple[Array, Callable[[float], Array]] | None = None  # as that of `Estimate`, of the two pooled numbers

    def difference_limits(self, z: float) -> tuple[float, float]:
        """Return the limits of V_a - V_b."""
        one, other = np.array([0]), np.array([1])
        if self.inflated is not None:
            both = Estimate(self.values, self.limits, inflated=self.inflated)
            ends = -surely_apart(both, z, other, one), surely_apart(both, z, one, other)
            return float(ends[0][0]), float(ends[1][0])
        low, high = difference_limits(self.values, self.limits, z, one, other, self.correlation)
        return float(low[0]), float(high[0])

    def ratio_limits(self, z: float) -> tuple[Array, Array]:
        """Return the limits of V_a / V_b and of V_b / V_a, shapes [2]."""
        one, other = np.array([0, 1]), np.array([1, 0])
        return ratio_limits(self.values, self.limits, z, one, other, self.correlation)

    @property
    def known(self) -> bool:
        """Whether some stratum has both groups."""
        return bool(np.isfinite(self.values).all())

    @property
    def difference(self) -> float:
        """V_a - V_b."""
        return float(self.values[0] - self.values[1])


def shared_weights(cells: StratumCells, a: int, b: int) -> Array:
    """Return the weights of the strata for two groups, shape [S], adding up to 1; NaN where no stratum has both."""
    both = np.isfinite(cells.values[:, [a, b]]).all(axis=1)
    one, other = cells.mass[:, a], cells.mass[:, b]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Mantel and Haenszel's n_a n_b / (n_a + n_b)
        weights = np.where(both & (one + other > 0), one * other / (one + other), 0.0)
        return np.asarray(weights / weights.sum())


def pooled_pair(cells: StratumCells, a: int, b: int, noise: Callable[[Array], Noise] | None = None) -> Pair:
    """Pool two groups over the strata that have both."""
    weights = shared_weights(cells, a, b)
    used = weights > 0
    if not used.any():
        nothing = np.full(2, np.nan)
        return Pair((a, b), nothing, lambda z: (nothing, nothing), np.zeros_like(weights), (0.0, 0.0))
    parts = [_standardised(cells, weights[used], used, place) for place in (a, b)]
    weights = np.where(used, weights, 0.0)
    correlation = None
    if noise is not None:
        seen = noise(weights)
        parts = [part.dependent(seen, place) for place, part in enumerate(parts)]
        correlation = seen.correlation

    @functools.cache
    def limits(z: float) -> tuple[Array, Array]:
        ends = [part.limits(z) for part in parts]
        return np.array([end[0] for end in ends]), np.array([end[1] for end in ends])

    values = np.array([part.value for part in parts])
    inflated = _inflated(cells, weights, (a, b))
    return Pair((a, b), values, limits, weights, (parts[0].rows, parts[1].rows), correlation, inflated)


def _inflated(
    cells: StratumCells, weights: Array, pair: tuple[int, int]
) -> tuple[Array, Callable[[float], Array]] | None:
    """Return how much pooled numbers are too large, where the strata's are.

    What is too large adds up over the strata, Σ W_s μ e_s, and noise does as a root of squares, (Σ W_s² e_s²)^½: the
    more strata, the more of the pooled number's standard errors is it too large.
    """
    if cells.inflated is None:
        return None
    mean, most = cells.inflated
    used = weights > 0
    parts = weights[used, None] * np.sqrt(cells.variance[used][:, list(pair)])
    with np.errstate(all="ignore"):
        center = mean * np.nan_to_num(parts.sum(axis=0) / np.sqrt((parts**2).sum(axis=0)), nan=1.0)
    return center, lambda z: np.asarray(center + most(z) - mean)


@dataclass(frozen=True, slots=True)
class _Standardised:
    """One group's number with the weights of the strata."""

    value: float
    variance: float
    cube: float
    rows: float
    equal: float
    degrees: float
    span: tuple[float, float]
    share: bool

    def dependent(self, noise: Noise, index: int) -> _Standardised:
        """Return it with the noise of buckets."""
        variance = float(noise.variance[index])
        return replace(
            self,
            variance=variance,
            cube=float(noise.skewness[index]) * variance**1.5,
            equal=float(noise.buckets[index]),
            degrees=float(noise.degrees[index]),
        )

    def limits(self, z: float) -> tuple[float, float]:
        if self.share:
            return share_of(self.value, self.variance, self.equal, self.degrees, z)
        return mean_of(self, z)


def share_of(value: float, variance: float, equal: float, degrees: float, z: float) -> tuple[float, float]:
    """Return the limits of a share from its variance, by way of an effective number of rows."""
    inner = value * (1 - value)
    # p (1 - p) / n' = variance
    rows = inner / variance if variance > 0 and inner > 0 else equal
    factor = float((z / student(z, np.array(degrees + 1))) ** 2)
    low, high = weighted_share_limits(np.array([value]), np.array([rows * factor]), z)
    return float(low[0]), float(high[0])


def mean_of(standardised: _Standardised, z: float) -> tuple[float, float]:
    """Return the limits of a mean from its variance and skewness."""
    error = math.sqrt(max(standardised.variance, 0.0))
    if not math.isfinite(error):
        return standardised.span
    if error < ROUNDING * abs(standardised.value):  # equal numbers: what is left depends on how they were added up
        error = 0.0
    widen = float(student(z, np.array(standardised.degrees + 1)) / student(z, np.array(max(standardised.rows, 2.0))))
    seen = np.array([standardised.span[0]]), np.array([standardised.span[1]])
    with np.errstate(all="ignore"):
        low, high = mean_limits(
            np.array([standardised.value]),
            np.array([error * widen]),
            np.array([standardised.cube / error**3 if error > 0 else 0.0]),
            np.array([max(standardised.rows, 2.0)]),
            seen,
            z,
        )
    return float(low[0]), float(high[0])


def _standardised(cells: StratumCells, weights: Array, used: NDArray[np.bool_], place: int) -> _Standardised:
    values, sizes = cells.values[used, place], cells.sizes[used, place]
    variance, cube = cells.variance[used, place].copy(), cells.cube[used, place]
    thin = sizes < THIN
    if thin.any():
        variance[thin] = _thin_variance(cells, weights, values, sizes, thin, place) / np.maximum(sizes[thin], 1e-12)
    squared = weights**2
    total = float((squared * variance).sum())
    degrees = np.where(thin, 0.5, np.maximum(sizes - 1, 0.5))
    # Satterthwaite (1946): degrees (Σ W² v)² / Σ (W² v)² / ν
    spread = float((squared**2 * variance**2 / degrees).sum())
    return _Standardised(
        value=float((weights * values).sum()),
        variance=total,
        cube=float((weights**3 * cube).sum()),
        rows=float(sizes.sum()),
        equal=float(1 / (squared / sizes).sum()),
        degrees=float(total**2 / spread) if spread > 0 else float(degrees.sum()),
        span=cells.span,
        share=cells.share,
    )


def _thin_variance(
    cells: StratumCells, weights: Array, values: Array, sizes: Array, thin: NDArray[np.bool_], index: int
) -> float:
    """Return the variance of one row in the thin cells of a group, at most overestimated.

    Of shares it is p (1 - p) at their weighted mean: by concavity no less than the mean over the cells. Of other
    numbers it is the variance inside the group's other cells.
    """
    if cells.share:
        parts = weights[thin] ** 2 / sizes[thin]
        mean = float((parts * values[thin]).sum() / parts.sum())
        return max(mean * (1 - mean), 1e-12)
    own = float(_own_variance(cells)[index])
    if math.isfinite(own):
        return own
    return float(values.var(ddof=1)) if len(values) > 1 else math.nan


def pairs_of(groups: int, reference: int | None = None) -> list[tuple[int, int]]:
    """Return the pairs that are compared: every group with the reference, or all pairs."""
    if reference is not None:
        return [(g, reference) for g in range(groups) if g != reference]
    return [(a, b) for a in range(groups) for b in range(a + 1, groups)]


def single_pair(
    cells: StratumCells, stratum: int, a: int, b: int, variances: tuple[Array, Array] | None = None
) -> Pair:
    """Return two groups' numbers in one stratum, as if it were all of them."""
    one = [stratum]
    parts = {name: getattr(cells, name)[one] for name in ("values", "mass", "sizes", "cube")}
    variance = cells.variance[one].copy()
    if variances is not None:
        variance[0, a], variance[0, b] = variances[0][stratum], variances[1][stratum]
    return pooled_pair(replace(cells, variance=np.nan_to_num(variance), **parts), a, b)
