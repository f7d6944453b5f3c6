"""Limits of a mean: Student's, moved by skewness, and widened by what unseen rows could add."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.limits.shares import share_limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_NORMAL = NormalDist()
_HEAVY = 0.25
_MANY, _MANY_POWER = 200, 0.14
_FEW, _FEW_POWER = 100, 0.07


def student(z: float, rows: Array) -> Array:
    """Widen a normal quantile to Student's t with rows - 1 degrees of freedom (Cornish & Fisher 1960)."""
    nu = np.maximum(rows - 1, 1)
    # t = z + (z³ + z) / 4ν + (5 z⁵ + 16 z³ + 3 z) / 96ν² + O(ν⁻³)
    first = (z**3 + z) / (4 * nu)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)
    return np.asarray(z + first + second)


def weighted_share_limits(rate: Array, n: Array, z: float) -> tuple[Array, Array]:
    """Return limits for a share whose variance was estimated from weights (Korn & Graubard 1998).

    The effective number of rows is made smaller by the ratio of the normal quantile to Student's, squared.

    `rate`: in [0, 1], shape [G]; `n`: the effective number of rows, which also gives the degrees of freedom, shape [G];
    `z`: the normal quantile.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return share_limits(rate, n * (z / student(z, n)) ** 2, z)


def unseen(n: Array, z: float) -> Array:
    """Return the largest share of the population that n rows miss altogether with the tail probability of z.

    (1 - share)^n = tail: 3.7 / n for z = 1.96 (the "rule of three" at a two-sided level).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.expm1(np.log(_NORMAL.cdf(-abs(z))) / n))


def heavy(skewness: Array, n: Array) -> NDArray[np.bool_]:
    """Return where the tails are too heavy for a mean's limits to be trusted.

    `skewness`: of the mean: the rows' skewness over √n, shape [G]. It is near 1 where one row makes up the whole
    variance; `n`: the number of rows, shape [G]; returns true above 0.25; above 0.25 (200 / n)^0.14 with more than 200
    rows, since light tails fall as 1 / √n and heavy ones do not; above 0.25 (n / 100)^0.07 with fewer than 100, since
    few rows seldom show their tail. Calibrated by simulation on twelve distributions (benchmarks/coverage_study.py).
    """
    return np.asarray(np.abs(skewness) > _bound(n), dtype=np.bool_)


def _bound(n: Array) -> Array:
    rows = np.maximum(n, 1)
    return np.asarray(_HEAVY * np.minimum(1, np.minimum((_MANY / rows) ** _MANY_POWER, (rows / _FEW) ** _FEW_POWER)))


def tilted(skewness: Array, t: Array) -> tuple[Array, Array]:
    """Return how many standard errors the lower and the upper limit lie from the estimate.

    Those of a gamma variable of this skewness (Wilson & Hilferty 1931): the side of the longer tail is longer.

    `skewness`: of the estimate, shape [G]; `t`: the quantile that both are without skewness, shape [G].
    """
    tilt = np.clip(np.abs(skewness), 1e-9, 1.0)
    # quantiles of a gamma are (1 - γ²/36 ± t γ/6)³; the limits divide the estimate by them
    far = 2 / tilt * (np.maximum(1 - tilt**2 / 36 - t * tilt / 6, 0.05) ** -3 - 1)
    near = 2 / tilt * (1 - (1 - tilt**2 / 36 + t * tilt / 6) ** -3)
    return np.where(skewness > 0, near, far), np.where(skewness > 0, far, near)


def mean_limits(
    mean: Array, error: Array, skewness: Array, n: Array, seen: tuple[Array, Array], z: float
) -> tuple[Array, Array]:
    """Return limits for a mean, shapes [G].

    Student's limits are moved as those of a gamma variable of the same skewness (Wilson & Hilferty 1931), and each end
    is `widened` by what a share of unseen rows could add: the share times the distance to the end of the range that was
    seen.

    `mean`, `error`: the mean and its standard error; `skewness`: of the mean: Σ r³ / (Σ r²)^1.5 over the rows' weighted
    residuals r; `n`: the number of rows, or the effective number under weights; `seen`: the smallest and the largest
    value that rows may have; `z`: the normal quantile.
    """
    share = unseen(n, z)
    halves = tilted(skewness, student(z, n))
    ends = []
    for side, end in ((-1, seen[0]), (1, seen[1])):
        hidden = share * np.maximum(side * (end - mean), 0)
        ends.append(mean + side * widened(error * halves[int(side > 0)], hidden, side * skewness, n))
    return ends[0], ends[1]


def widened(half: Array, hidden: Array, skewness: Array, n: Array) -> Array:
    """Add to one half of an interval what unseen rows could add, shape [G].

    The two are added as fourth powers, so that the smaller one hardly counts. Toward a long tail the second is added in
    full besides, up to twice where tails are about as heavy as may be.

    `half`, `hidden`: half the width without unseen rows, and what they could add; `skewness`: of the estimate, positive
    where the long tail is on this side; `n`: the number of rows.
    """
    more = np.where(skewness > 0, 2 * np.minimum(1, (np.abs(skewness) / _bound(n)) ** 4), 0.0)
    large, small = np.maximum(half, hidden), np.minimum(half, hidden)
    with np.errstate(all="ignore"):  # powers of the ratio: those of the halves may vanish or overflow
        both = np.where(large > 0, large * (1 + (small / large) ** 4) ** 0.25, 0.0)
    return np.asarray(np.maximum(both, half + more * hidden))


def bounded_mean_limits(
    mean: Array,
    error: Array,
    skewness: Array,
    n: Array,
    ends: tuple[float, float],
    reach: tuple[Array, Array],
    z: float,
) -> tuple[Array, Array]:
    """Return limits for a mean of values in a known range, shapes [G].

    Those of `mean_limits`, but never wider than the limits of a share: of all variables in [0, 1] with one mean the sum
    of 0s and 1s has the heaviest tails (Hoeffding 1956). Where no two rows differ, or tails are heavy and `reach` is
    less than the range, the limits of the share stand alone.

    `mean`, `error`, `skewness`, `n`, `z`: as for `mean_limits`; `ends`: the range of the values, finite; `reach`: how
    far unseen rows may lie, within the range: the `seen` of `mean_limits`.
    """
    low, high = mean_limits(mean, error, skewness, n, reach, z)
    length = ends[1] - ends[0]
    share = np.clip((mean - ends[0]) / length, 0, 1)
    least, most = (ends[0] + length * end for end in share_limits(share, n, z))
    partly = (reach[0] > ends[0]) | (reach[1] < ends[1])
    plain = (heavy(skewness, n) & partly) | ~(error > 0)
    return np.where(plain, least, np.maximum(low, least)), np.where(plain, most, np.minimum(high, most))
