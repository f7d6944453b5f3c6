"""Comparisons inside strata: pooled over them, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import difference_limits, ratio_limits
from fairkit.limits import chi_square_tail, mean_limits, student, weighted_share_limits
from fairkit.metrics import Estimate
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_group.between import surely_apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_dependent import Noise

    Array = NDArray[np.float64]
    PairNoise = Callable[[int, int, Array], Noise]  # of two groups whose strata have weights


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


class Pairs:
    """Pairs of groups, each pooled over the strata that have both; pairs without such a stratum are left out.

    Numbers come as [2, P], one row for each side of the pairs. What they are made from is held for a block of pairs at
    a time, and made again where there are many pairs: memory has no squares of groups times strata.
    """

    def __init__(self, cells: StratumCells, groups: NDArray[np.intp], noise: PairNoise | None = None) -> None:
        self.cells, self.noise = cells, noise
        known = [*map(self._block, in_blocks(groups, len(cells.values)))]
        self.groups = np.concatenate([block.groups for block in known], axis=1)  # their places
        self.values = np.concatenate([block.value for block in known], axis=1)
        self.rows = np.concatenate([block.rows for block in known], axis=1)  # of each group in the strata that count
        self._kept = known if len(self) <= MOST_KEPT else None

    def __len__(self) -> int:
        return len(self.groups[0])

    @property
    def differences(self) -> Array:
        """V_a - V_b, shape [P]."""
        return np.asarray(self.values[0] - self.values[1])

    def difference_limits(self, z: float) -> tuple[Array, Array]:
        """Return the limits of V_a - V_b, shapes [P]."""
        return self._limits(lambda block: block.difference_limits(z))

    def ratio_limits(self, z: float) -> tuple[Array, Array]:
        """Return the limits of V_a / V_b and of V_b / V_a, shapes [2, P]."""
        first, second = np.array([0, 1]), np.array([1, 0])
        return self._limits(lambda block: ratio_limits(block.value, block.limits, z, first, second, block.correlation))

    def _limits(self, of: Callable[[_Pooled], tuple[Array, Array]]) -> tuple[Array, Array]:
        ends = [of(block) for block in self._kept or map(self._block, in_blocks(self.groups, len(self.cells.values)))]
        return np.concatenate([low for low, _ in ends], axis=-1), np.concatenate([high for _, high in ends], axis=-1)

    def _block(self, groups: NDArray[np.intp]) -> _Pooled:
        return _pooled(self.cells, groups, self.noise)


MOST_AT_ONCE = 1 << 18
"""Strata times pairs of groups that are pooled at once."""


def in_blocks(groups: NDArray[np.intp], strata: int) -> list[NDArray[np.intp]]:
    """Cut pairs, shape [2, P], into blocks to look at together in so many strata; without pairs an empty one."""
    step = max(MOST_AT_ONCE // max(strata, 1), 1)
    return [groups[:, start : start + step] for start in range(0, max(groups.shape[1], 1), step)]


MOST_KEPT = 1 << 17
"""So many pairs' pooled numbers are kept between two confidences; those of more are made again."""


@dataclass(frozen=True, slots=True)
class _Pooled:
    """Numbers of pairs of groups with the same weights of the strata for both; shapes [2, P]."""

    groups: NDArray[np.intp]
    value: Array
    variance: Array
    cube: Array
    rows: Array
    equal: Array
    degrees: Array
    span: tuple[float, float]
    share: bool
    correlation: Array | None  # of the two numbers, shape [2, 2, P]
    inflated: tuple[Array, Callable[[float], Array]] | None = None  # as that of `Estimate`, of the pooled numbers

    def limits(self, z: float) -> tuple[Array, Array]:
        """Return the limits of each number for itself."""
        return _of_share(self, z) if self.share else _of_mean(self, z)

    def difference_limits(self, z: float) -> tuple[Array, Array]:
        first, second = np.array(0), np.array(1)
        if self.inflated is not None:
            both = Estimate(self.value, self.limits, inflated=self.inflated)
            return -surely_apart(both, z, second, first), surely_apart(both, z, first, second)
        low, high = self.limits(z)
        return difference_limits(self.value.T, lambda _: (low.T, high.T), z, first, second, self.correlation)


def shared_weights(cells: StratumCells, groups: NDArray[np.intp]) -> Array:
    """Return the weights of the strata for pairs of groups, shape [S, P], adding up to 1; 0 where no stratum has both.

    `groups`: the places of each pair, shape [2, P].
    """
    both = np.isfinite(cells.values[:, groups]).all(axis=1)
    first, second = cells.mass[:, groups[0]], cells.mass[:, groups[1]]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Mantel and Haenszel's n_a n_b / (n_a + n_b)
        weights = np.where(both & (first + second > 0), first * second / (first + second), 0.0)
        return np.asarray(np.nan_to_num(weights / weights.sum(axis=0)))


def _pooled(cells: StratumCells, groups: NDArray[np.intp], noise: PairNoise | None) -> _Pooled:
    """Pool pairs of groups over the strata that have both."""
    weights = shared_weights(cells, groups)
    known = (weights > 0).any(axis=0)
    groups, weights = groups[:, known], weights[:, None, known]  # [2, P] and [S, 1, P]
    used = weights > 0
    values, sizes, variance, cube = (
        np.where(used, part[:, groups], 0.0) for part in (cells.values, cells.sizes, cells.variance, cells.cube)
    )
    thin = used & (sizes < THIN)
    if thin.any():
        alone = _thin_variance(cells, weights, values, sizes, thin, groups)
        variance = np.where(thin, alone / np.maximum(sizes, 1e-12), variance)
    squared = weights**2
    total = (squared * variance).sum(axis=0)
    degrees = np.where(used, np.where(thin, 0.5, np.maximum(sizes - 1, 0.5)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Satterthwaite (1946): degrees (Σ W² v)² / Σ (W² v)² / ν
        spread = np.where(used, squared**2 * variance**2 / degrees, 0.0).sum(axis=0)
        made = _Pooled(
            groups=groups,
            value=(weights * values).sum(axis=0),
            variance=total,
            cube=(weights**3 * cube).sum(axis=0),
            rows=sizes.sum(axis=0),
            equal=1 / np.where(used, squared / sizes, 0.0).sum(axis=0),
            degrees=np.where(spread > 0, total**2 / spread, degrees.sum(axis=0)),
            span=cells.span,
            share=cells.share,
            correlation=None,
            inflated=_inflated(cells, weights, groups),
        )
    return made if noise is None else _dependent(made, [noise(*pair, w) for pair, w in _each(groups, weights)])


def _each(groups: NDArray[np.intp], weights: Array) -> Iterator[tuple[tuple[int, int], Array]]:
    for index in range(groups.shape[1]):
        yield (int(groups[0, index]), int(groups[1, index])), weights[:, 0, index]


def _dependent(pooled: _Pooled, noises: Sequence[Noise]) -> _Pooled:
    """Return numbers with the noise of buckets, that of each pair."""
    if not noises:
        return pooled
    variance, skewness, equal, degrees = (
        np.stack([getattr(noise, name) for noise in noises], axis=1)
        for name in ("variance", "skewness", "buckets", "degrees")
    )
    together = np.stack([noise.correlation for noise in noises], axis=2)
    return replace(
        pooled, variance=variance, cube=skewness * variance**1.5, equal=equal, degrees=degrees, correlation=together
    )


def _inflated(
    cells: StratumCells, weights: Array, groups: NDArray[np.intp]
) -> tuple[Array, Callable[[float], Array]] | None:
    """Return how much pooled numbers are too large, where the strata's are.

    What is too large adds up over the strata, Σ W_s μ e_s, and noise does as a root of squares, (Σ W_s² e_s²)^½: the
    more strata, the more of the pooled number's standard errors is it too large.
    """
    if cells.inflated is None:
        return None
    mean, most = cells.inflated
    parts = np.where(weights > 0, weights * np.sqrt(cells.variance[:, groups]), 0.0)
    with np.errstate(all="ignore"):
        center = mean * np.nan_to_num(parts.sum(axis=0) / np.sqrt((parts**2).sum(axis=0)), nan=1.0)
    return center, lambda z: np.asarray(center + most(z) - mean)


def _of_share(share: _Pooled, z: float) -> tuple[Array, Array]:
    """Return the limits of shares from their variances, by way of an effective number of rows."""
    inner = share.value * (1 - share.value)
    with np.errstate(divide="ignore", invalid="ignore"):
        # p (1 - p) / n' = variance
        rows = np.where((share.variance > 0) & (inner > 0), inner / share.variance, share.equal)
    factor = (z / student(z, share.degrees + 1)) ** 2
    return weighted_share_limits(share.value, rows * factor, z)


def _of_mean(mean: _Pooled, z: float) -> tuple[Array, Array]:
    """Return the limits of means from their variances and skewness."""
    with np.errstate(all="ignore"):
        error = np.sqrt(np.maximum(mean.variance, 0.0))
        # equal numbers: what is left depends on how they were added up
        error = np.where(error < ROUNDING * np.abs(mean.value), 0.0, error)
        rows = np.maximum(mean.rows, 2.0)
        widen = student(z, mean.degrees + 1) / student(z, rows)
        seen = np.array(mean.span[0]), np.array(mean.span[1])
        skewness = np.where(error > 0, mean.cube / error**3, 0.0)
        low, high = mean_limits(mean.value, error * widen, skewness, rows, seen, z)
    return np.where(np.isfinite(error), low, mean.span[0]), np.where(np.isfinite(error), high, mean.span[1])


def _thin_variance(
    cells: StratumCells, weights: Array, values: Array, sizes: Array, thin: NDArray[np.bool_], groups: NDArray[np.intp]
) -> Array:
    """Return the variance of one row in the thin cells of groups, at most overestimated, shape [2, P].

    Of shares it is p (1 - p) at their weighted mean: by concavity no less than the mean over the cells. Of other
    numbers it is the variance inside the group's other cells.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if cells.share:
            parts = np.where(thin, weights**2 / sizes, 0.0)
            mean = (parts * values).sum(axis=0) / parts.sum(axis=0)
            return np.asarray(np.maximum(mean * (1 - mean), 1e-12))
        variance = _own_variance(cells)[groups]
        used = np.broadcast_to(weights > 0, values.shape)
        count = used.sum(axis=0)
        away = np.where(used, values - values.sum(axis=0) / count, 0.0)
        among = (away**2).sum(axis=0) / np.where(count > 1, count - 1, np.nan)
    return np.where(np.isfinite(variance), variance, among)


def pairs_of(groups: int, reference: int | None = None) -> NDArray[np.intp]:
    """Return the pairs that are compared, shape [2, P]: every group with the reference, or all pairs."""
    if reference is None:
        return np.stack(np.triu_indices(groups, 1))
    return np.stack([np.delete(np.arange(groups), reference), np.full(groups - 1, reference)])


def single_pair(
    cells: StratumCells, stratum: int, a: int, b: int, variances: tuple[Array, Array] | None = None
) -> Pairs:
    """Return two groups' numbers in one stratum, as if it were all of them."""
    parts = {name: getattr(cells, name)[[stratum]] for name in ("values", "mass", "sizes", "cube")}
    variance = cells.variance[[stratum]].copy()
    if variances is not None:
        variance[0, a], variance[0, b] = variances[0][stratum], variances[1][stratum]
    return Pairs(replace(cells, variance=np.nan_to_num(variance), **parts), np.array([[a], [b]]))


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
    """Ratios pooled over strata, shape [P]; `log_error` is the standard error of their logarithms."""

    value: Array
    log_error: Array

    def limits(self, z: float | Array) -> tuple[Array, Array]:
        """Return the limits for a normal quantile."""
        with np.errstate(all="ignore"):
            step = np.exp(z * self.log_error)
            return self.value / step, self.value * step


def usable(tables: Array) -> NDArray[np.bool_]:
    """Return the strata, shape [S], with rows of both groups."""
    return np.asarray((tables.sum(axis=2) > 0).all(axis=1))


def odds_ratio(tables: Array, effective: Array | None = None) -> Pooled:
    """Pool the odds ratio (Mantel & Haenszel 1959) with the variance of Robins, Breslow & Greenland (1986).

    The variance holds for few large strata and for many small ones. `tables`: shape [..., S, 2, 2].
    """
    value = _ratio_of_odds(tables)
    counts = tables if effective is None else effective
    a, b, c, d = (counts[..., i, j] for i in (0, 1) for j in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        n = a + b + c + d
        # ψ = Σ R_s / Σ S_s with R = a d / n and S = b c / n; P = (a + d) / n, Q = (b + c) / n
        r, s = _per(a * d, n), _per(b * c, n)
        p, q = _per(a + d, n), _per(b + c, n)
        total_r, total_s = r.sum(axis=-1), s.sum(axis=-1)
        # Var log ψ = Σ PR / (2 R²) + Σ (PS + QR) / (2 R S) + Σ QS / (2 S²)
        variance = (
            (p * r).sum(axis=-1) / (2 * total_r**2)
            + (p * s + q * r).sum(axis=-1) / (2 * total_r * total_s)
            + (q * s).sum(axis=-1) / (2 * total_s**2)
        )
        return Pooled(value, np.sqrt(variance))


def _ratio_of_odds(tables: Array) -> Array:
    a, b, c, d = (tables[..., i, j] for i in (0, 1) for j in (0, 1))
    n = tables.sum(axis=(-2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(_per(a * d, n).sum(axis=-1) / _per(b * c, n).sum(axis=-1))


def equal_odds(tables: Array, *, tarone: bool = True) -> Test:
    """Test that the odds ratio is the same in all strata (Breslow & Day 1980, eq. 4.30).

    Strata where every row says the same tell nothing about it and are left out.
    """
    informative = usable(tables) & (tables.sum(axis=1) > 0).all(axis=1)
    tables = tables[informative]
    degrees = len(tables) - 1
    common = float(_ratio_of_odds(tables))
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
