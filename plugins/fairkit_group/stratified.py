"""Comparisons inside strata: pooled over them, and whether they agree."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import difference_limits, ratio_limits
from fairkit.limits import chi_square_tail, mean_limits, student, weighted_share_limits
from fairkit.metrics import Estimate
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_group.between import surely_apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.intervals import Limits
    from fairkit_dependent import Noise

    Array = NDArray[np.float64]


# Two groups compared inside strata and pooled: the same weights of the strata for both groups.


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
    is_known = np.isfinite(cells.values) & (cells.sizes >= THIN)
    degrees = np.where(is_known, cells.sizes - 1, 0.0)
    squares = np.where(is_known, degrees * cells.sizes * cells.variance, 0.0)
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
        first, second = np.array([0]), np.array([1])
        if self.inflated is not None:
            both = Estimate(self.values, self.limits, inflated=self.inflated)
            ends = -surely_apart(both, z, second, first), surely_apart(both, z, first, second)
            return float(ends[0][0]), float(ends[1][0])
        low, high = difference_limits(self.values, self.limits, z, first, second, self.correlation)
        return float(low[0]), float(high[0])

    def ratio_limits(self, z: float) -> tuple[Array, Array]:
        """Return the limits of V_a / V_b and of V_b / V_a, shapes [2]."""
        first, second = np.array([0, 1]), np.array([1, 0])
        return ratio_limits(self.values, self.limits, z, first, second, self.correlation)

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
    first, second = cells.mass[:, a], cells.mass[:, b]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Mantel and Haenszel's n_a n_b / (n_a + n_b)
        weights = np.where(both & (first + second > 0), first * second / (first + second), 0.0)
        return np.asarray(weights / weights.sum())


def pooled_pair(cells: StratumCells, a: int, b: int, noise: Callable[[Array], Noise] | None = None) -> Pair:
    """Pool two groups over the strata that have both."""
    weights = shared_weights(cells, a, b)
    used = weights > 0
    if not used.any():
        nothing = np.full(2, np.nan)
        return Pair((a, b), nothing, lambda z: (nothing, nothing), np.zeros_like(weights), (0.0, 0.0))
    parts = [_standardised(cells, weights[used], used, group) for group in (a, b)]
    weights = np.where(used, weights, 0.0)
    correlation = None
    if noise is not None:
        seen = noise(weights)
        parts = [part.dependent(seen, index) for index, part in enumerate(parts)]
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
        return _of_share(self, z) if self.share else mean_of(self, z)


def _of_share(share: _Standardised, z: float) -> tuple[float, float]:
    """Return the limits of a share from its variance, by way of an effective number of rows."""
    inner = share.value * (1 - share.value)
    # p (1 - p) / n' = variance
    rows = inner / share.variance if share.variance > 0 and inner > 0 else share.equal
    factor = float((z / student(z, np.array(share.degrees + 1))) ** 2)
    low, high = weighted_share_limits(np.array([share.value]), np.array([rows * factor]), z)
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
    variance = float(_own_variance(cells)[index])
    if math.isfinite(variance):
        return variance
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
    parts = {name: getattr(cells, name)[[stratum]] for name in ("values", "mass", "sizes", "cube")}
    variance = cells.variance[[stratum]].copy()
    if variances is not None:
        variance[0, a], variance[0, b] = variances[0][stratum], variances[1][stratum]
    return pooled_pair(replace(cells, variance=np.nan_to_num(variance), **parts), a, b)


# Two groups and a yes or no in strata: Mantel and Haenszel's pooled ratios, and the tests that go with them.


@dataclass(frozen=True, slots=True)
class Test:
    """A test: its statistic, its degrees of freedom, and the chance of at least that statistic if all is equal."""

    __test__ = False  # not one of pytest's

    statistic: float
    degrees: int
    p_value: float

    @classmethod
    def chi_square(cls, statistic: float, degrees: int) -> Test:
        """Return a test whose statistic is chi-square under the hypothesis."""
        return cls(statistic, degrees, chi_square_tail(statistic, degrees) if degrees > 0 else math.nan)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A ratio pooled over strata; `log_error` is the standard error of its logarithm."""

    value: float
    log_error: float

    def limits(self, z: float) -> tuple[float, float]:
        """Return the limits for a normal quantile."""
        with np.errstate(all="ignore"):
            step = np.exp(z * self.log_error)
            return float(self.value / step), float(self.value * step)


def usable(tables: Array) -> NDArray[np.bool_]:
    """Return the strata, shape [S], with rows of both groups."""
    return np.asarray((tables.sum(axis=2) > 0).all(axis=1))


def odds_ratio(tables: Array, effective: Array | None = None) -> Pooled:
    """Pool the odds ratio (Mantel & Haenszel 1959) with the variance of Robins, Breslow & Greenland (1986).

    The variance holds for few large strata and for many small ones.
    """
    value = _ratio_of_odds(tables)
    counts = tables if effective is None else effective
    a, b, c, d = (counts[:, i, j] for i in (0, 1) for j in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        n = a + b + c + d
        # ψ = Σ R_s / Σ S_s with R = a d / n and S = b c / n; P = (a + d) / n, Q = (b + c) / n
        r, s = _per(a * d, n), _per(b * c, n)
        p, q = _per(a + d, n), _per(b + c, n)
        total_r, total_s = r.sum(), s.sum()
        # Var log ψ = Σ PR / (2 R²) + Σ (PS + QR) / (2 R S) + Σ QS / (2 S²)
        variance = (
            (p * r).sum() / (2 * total_r**2)
            + (p * s + q * r).sum() / (2 * total_r * total_s)
            + (q * s).sum() / (2 * total_s**2)
        )
        return Pooled(value, float(np.sqrt(variance)))


def _ratio_of_odds(tables: Array) -> float:
    a, b, c, d = (tables[:, i, j] for i in (0, 1) for j in (0, 1))
    n = tables.sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(_per(a * d, n).sum(), _per(b * c, n).sum()))


def equal_odds(tables: Array, *, tarone: bool = True) -> Test:
    """Test that the odds ratio is the same in all strata (Breslow & Day 1980, eq. 4.30).

    Strata where every row says the same tell nothing about it and are left out.
    """
    informative = usable(tables) & (tables.sum(axis=1) > 0).all(axis=1)
    tables = tables[informative]
    degrees = len(tables) - 1
    common = _ratio_of_odds(tables)
    if degrees < 1 or not (math.isfinite(common) and common > 0):
        return Test(math.nan, max(degrees, 0), math.nan)
    first, yes = tables[:, 0].sum(axis=1), tables[:, :, 0].sum(axis=1)
    n = tables.sum(axis=(1, 2))
    fitted = _fitted(first, yes, n, common)
    cells = [fitted, first - fitted, yes - fitted, n - first - yes + fitted]
    # of the first cell given the margins and ψ: 1 / (1/A + 1/B + 1/C + 1/D)
    variance = 1 / sum(1 / cell for cell in cells)
    off = tables[:, 0, 0] - fitted
    statistic = float((off**2 / variance).sum())
    if tarone:
        # Tarone (1985): less (Σ (a - A))² / Σ Var
        statistic -= float(off.sum() ** 2 / variance.sum())
    return Test.chi_square(max(statistic, 0.0), degrees)


def _fitted(first: Array, yes: Array, n: Array, common: float) -> Array:
    """Return the first cell of the tables with the same margins and a given odds ratio, shape [S].

    The root of (1 - ψ) A² + (n - m - t + ψ (m + t)) A - ψ m t = 0 that lies between the margins, written so that no
    digits cancel.
    """
    half = n - first - yes + common * (first + yes)
    root = np.sqrt(half**2 + 4 * (1 - common) * common * first * yes)
    return np.asarray(2 * common * first * yes / (half + root))


def _per(part: Array, whole: Array) -> Array:
    """Divide; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(whole, dtype=np.float64), where=whole > 0)


# Do the strata agree? Tests of one odds ratio, or of one difference, in all strata.


_STEPS = 200


def same_odds(yes: Array, rows: Array) -> Test:
    """Test that the odds ratios between groups are the same in all strata, from counts.

    Two groups: Breslow and Day's test with Tarone's correction. More: the score test of the model
    logit p_sg = α_s + β_g, which is Pearson's statistic of its fit.
    """
    if rows.shape[1] == 2:
        return equal_odds(np.stack([yes, rows - yes], axis=2))
    total, there = yes.sum(axis=1), rows.sum(axis=1)
    mixed = (total > 0) & (total < there)
    yes, rows = yes[mixed], rows[mixed]
    everybody = rows.sum(axis=0)
    both_decided = (yes.sum(axis=0) > 0) & (yes.sum(axis=0) < everybody)
    yes, rows = yes[:, both_decided], rows[:, both_decided]
    degrees = int((rows > 0).sum()) - len(rows) - max(rows.shape[1] - 1, 0)
    if degrees < 1 or rows.shape[1] < 2:
        return Test(math.nan, max(degrees, 0), math.nan)
    fitted = _additive(yes, rows)
    variance = rows * fitted * (1 - fitted)
    off = np.where(rows > 0, yes - rows * fitted, 0.0)
    return Test.chi_square(float((off**2 / np.where(variance > 0, variance, 1.0)).sum()), degrees)


def _additive(yes: Array, rows: Array) -> Array:
    """Fit logit p_sg = α_s + β_g by maximum likelihood: Newton steps in one side after the other."""
    strata = np.zeros(len(rows))
    groups = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        before = groups.copy()
        strata += _step(yes, rows, strata, groups, 1)
        groups += _step(yes, rows, strata, groups, 0)
        # α and β are known up to a constant: β of the first group is 0
        groups -= groups[0]
        if np.abs(groups - before).max() < 1e-12:
            break
    return _logistic(strata[:, None] + groups)


def _step(yes: Array, rows: Array, strata: Array, groups: Array, axis: int) -> Array:
    fitted = _logistic(strata[:, None] + groups)
    slope = (rows * fitted * (1 - fitted)).sum(axis=axis)
    step = (yes - rows * fitted).sum(axis=axis) / np.maximum(slope, 1e-12)
    return np.asarray(np.clip(step, -2, 2))


def _logistic(value: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(value, -500, 500))))


def same_difference(differences: Array, variances: Array) -> Test:
    """Test that a difference is the same in all strata (Cochran's Q)."""
    usable = np.isfinite(differences) & np.isfinite(variances) & (variances > 0)
    weight = 1 / variances[usable]
    degrees = int(usable.sum()) - 1
    if degrees < 1:
        return Test(math.nan, max(degrees, 0), math.nan)
    # Q = Σ w (d - d̄)² with w = 1 / variance (Cochran 1954)
    mean = (weight * differences[usable]).sum() / weight.sum()
    return Test.chi_square(float((weight * (differences[usable] - mean) ** 2).sum()), degrees)
