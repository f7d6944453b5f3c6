"""Limits with exact tails, each at a level that holds for all groups at once, and quick bounds of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.limits.means import student

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.measures import Kind, Sides

    Array = NDArray[np.float64]

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Level:
    """How often the limits of one group may be wrong."""

    alpha: float  # α', of both limits together
    kind: Kind  # means of losses in [0, 1] have e times the binomial's tail (Bentkus 2004)
    weighted: bool = False  # whether sizes are effective ones: they are then made smaller as Student's t asks

    @property
    def critical(self) -> float:
        """The normal quantile of α' / 2: how many standard errors the limits are away from a common rate."""
        return -_NORMAL.inv_cdf(self.alpha / 2)

    @property
    def tail(self) -> float:
        """The tail of the binomial at each limit."""
        return self.alpha / 2 / (math.e if self.kind == "loss" else 1.0)

    @property
    def log(self) -> float:
        """The logarithm of 1 / tail."""
        return -math.log(self.tail)

    def sizes(self, n: Array) -> Array:
        """Return sizes as they are used."""
        if not self.weighted:
            return n
        # n (z / t)² (Korn & Graubard 1998)
        return np.asarray(n * (self.critical / student(self.critical, n)) ** 2)


def limits(sides: Sides, level: Level) -> tuple[Array, Array]:
    """Return exact limits of each group's difference, shape [G] each.

    Clopper & Pearson's (1934) limits for the group and for the rest, combined as by Newcombe (1998) and Donner & Zou
    (2012): D - √((p - l)² + (u' - q)²) and D + √((u - p)² + (q - l')²). A residual's are those of the outcomes'
    rate minus the mean score: outcomes with unequal chances have no heavier tails (Hoeffding 1956).
    """
    low, high = share_limits(sides.p, level.sizes(sides.n), level)
    if sides.q is None or sides.m is None:
        return low - sides.centre, high - sides.centre
    other_low, other_high = share_limits(sides.q, level.sizes(sides.m), level)
    # MOVER: squared distances from the estimates to their limits add up
    d = sides.p - sides.q
    return (
        np.maximum(d - np.hypot(sides.p - low, other_high - sides.q), -1.0),
        np.minimum(d + np.hypot(high - sides.p, sides.q - other_low), 1.0),
    )


def share_limits(p: Array, n: Array, level: Level) -> tuple[Array, Array]:
    """Return Clopper & Pearson's limits at the level's tail; counts that are no whole numbers use the beta's."""
    from scipy.special import betainccinv, betaincinv

    k = p * n
    near = np.rint(k)
    k = np.where(np.abs(k - near) < 1e-7, near, k)
    # Bentkus's tail is about whole counts: rounded outwards
    below, above = (np.floor(k), np.ceil(k)) if level.kind == "loss" else (k, k)
    with np.errstate(all="ignore"):
        # P(X >= k | p) = I_p(k, n - k + 1) and P(X <= k | p) = I_{1-p}(n - k, k + 1), each at the tail
        low = np.where(below > 0, betaincinv(np.maximum(below, 1e-300), n - below + 1, level.tail), 0.0)
        high = np.where(above < n, betainccinv(above + 1, np.maximum(n - above, 1e-300), level.tail), 1.0)
    return np.minimum(low, p), np.maximum(high, p)


def outer(sides: Sides, level: Level) -> tuple[Array, Array]:
    """Return limits that contain those of `limits`, and take no beta function.

    The binomial's tail is at most exp(-n kl(k/n, p)) (Chernoff), and kl(q, p) is at least (p - q)² / (2 v), v the
    largest x (1 - x) between q and p.
    """
    return _combined(sides, level, _wide)


def inner(sides: Sides, level: Level) -> tuple[Array, Array]:
    """Return limits inside those of `limits`: the tail is at least exp(-n kl) / √(8 n v) for 0 < k < n."""
    return _combined(sides, level, _tight)


def _combined(
    sides: Sides, level: Level, widths: Callable[[Array, Array, Level], tuple[Array, Array]]
) -> tuple[Array, Array]:
    down, up = widths(sides.p, level.sizes(sides.n), level)
    if sides.q is None or sides.m is None:
        d = sides.difference
        return d - down, d + up
    other_down, other_up = widths(sides.q, level.sizes(sides.m), level)
    d = sides.p - sides.q
    return d - np.hypot(down, other_up), d + np.hypot(up, other_down)


def _wide(p: Array, n: Array, level: Level) -> tuple[Array, Array]:
    rounding = 1.0 / n if level.kind == "loss" else 0.0
    ell, v, slope = level.log / n, p * (1 - p) + rounding, 1 - 2 * p
    # w² = 2 ℓ (v + s⁺ w): kl >= w² / 2 v', v' <= v + s⁺ w the variance at p + w, s = 1 - 2 p
    up, down = np.maximum(slope, 0.0) * ell, np.maximum(-slope, 0.0) * ell
    spread = 2 * ell * v
    return (
        np.minimum(down + np.sqrt(down**2 + spread) + rounding, p),
        np.minimum(up + np.sqrt(up**2 + spread) + rounding, 1 - p),
    )


def _tight(p: Array, n: Array, level: Level) -> tuple[Array, Array]:
    v = p * (1 - p)
    # P(X = k) >= exp(-n kl) / √(8 n v) (Ash 1965, lemma 4.7.1)
    ell = np.maximum(level.log - 0.5 * np.log(np.maximum(8 * n * v, 1.0)), 0.0) / n
    steep = np.abs(1 - 2 * p) * ell
    width = (np.sqrt(steep**2 + 2 * ell * v * (1 + 2 * ell)) - steep) / (1 + 2 * ell)
    return width, width
