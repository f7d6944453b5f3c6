"""What is measured of each group: what a row adds to the tables, and how sums become a number and its opposite."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairkit.limits import student
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


ONE = 2.0**30
"""Fractions, and weights over the largest, are added up as whole multiples of 1 / ONE: in any order alike."""

Kind = Literal["rate", "loss", "residual"]

STATES, SOFT, RESIDUAL, LOSS = "states", "soft", "residual", "loss"
_WIDTHS = {
    (STATES, False): 4,
    (SOFT, False): 12, (SOFT, True): 12,
    (RESIDUAL, False): 3, (RESIDUAL, True): 5,
    (LOSS, False): 2, (LOSS, True): 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measure:
    """A number about a group."""

    name: str  # as users know it
    kind: Kind  # a `rate` or a mean `loss` is compared with the rest of the rows; a `residual` is outcome minus score
    worse: int
    needs: frozenset[str]  # what must be known of a row: `outcome`, `decision`, `score`
    over: tuple[int, ...] = (1, 1, 1, 1)
    counted: tuple[int, ...] = (0, 0, 0, 0)

    def statistic(self, soft: bool) -> str:
        """Return the name of the statistic that it is made from."""
        return {"rate": SOFT if soft else STATES, "loss": LOSS, "residual": RESIDUAL}[self.kind]


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("selection_rate", "rate", -1, frozenset({"decision"}), (1, 1, 1, 1), (0, 1, 0, 1)),
        Measure("true_positive_rate", "rate", -1, frozenset({"outcome", "decision"}), (0, 0, 1, 1), (0, 0, 0, 1)),
        Measure("false_positive_rate", "rate", 0, frozenset({"outcome", "decision"}), (1, 1, 0, 0), (0, 1, 0, 0)),
        Measure("error_rate", "rate", 1, frozenset({"outcome", "decision"}), (1, 1, 1, 1), (0, 1, 1, 0)),
        Measure("mean_loss", "loss", 1, frozenset({"outcome", "score"})),
        Measure("calibration_residual", "residual", 1, frozenset({"outcome", "score"})),
    )
}  # fmt: skip


def width_of(statistic: str, *, weighted: bool) -> int:
    """Return how many sums a statistic has for each cell."""
    return _WIDTHS[statistic, weighted]


def values_of(
    statistic: str,
    outcome: Array,
    decision: Array | None,
    score: Array | None,
    loss: Array | None,
    weights: Array | None,
) -> NDArray[Any]:
    """Return the rows' contributions to the tables: uint8 states, shape [n], or int64 sums, shape [n, J]."""
    if statistic == STATES:
        assert decision is not None  # noqa: S101 -- asked for only where there are decisions
        return (2 * (outcome > 0.5) + (decision > 0.5)).astype(np.uint8)
    w = np.ones(len(outcome)) if weights is None else weights
    ones = (w > 0) / ONE  # a row; one without weight is none
    if statistic == SOFT:
        assert decision is not None  # noqa: S101 -- as above
        sums = [ones, w, w * decision, w**2, w**2 * decision, w**2 * decision**2]
        positive = outcome > 0.5
        parts = [np.where(positive == side, one, 0.0) for side in (False, True) for one in sums]
    elif statistic == RESIDUAL:
        assert score is not None  # noqa: S101 -- as above
        parts = [ones, w, w * outcome, w * score, w**2]
        parts = parts if weights is not None else [ones, outcome, score]
    else:
        assert loss is not None  # noqa: S101 -- as above
        parts = [ones, w, w * loss, w**2] if weights is not None else [ones, loss]
    return np.rint(np.stack(parts, axis=1) * ONE).astype(np.int64)


def planes(measure: Measure, tables: NDArray[np.int64], *, weighted: bool, soft: bool) -> Array:
    """Turn sums by cell into those that the measure reads: rows and the denominator's rows first."""
    whole = tables.astype(np.float64)
    if measure.kind == "rate":
        over, counted = np.array(measure.over, float), np.array(measure.counted, float)
        if not soft:
            return np.asarray(whole @ np.stack([np.ones(4), over, counted], axis=1))
        return _soft_planes(whole, over, counted)
    rows = whole[:, :1]
    rest = whole[:, 1:] / ONE
    return np.concatenate([rows, rows, rest], axis=1)


def _soft_planes(whole: Array, over: Array, counted: Array) -> Array:
    """Return rows, the denominator's rows, base, Σ w e, Σ w², Σ w² e, Σ w² e², with e the counted part of a row."""
    sides = whole.reshape(-1, 2, 6)
    rows, scaled = sides[:, :, 0], sides[:, :, 1:] / ONE
    out = np.zeros((len(whole), 7))
    out[:, 0] = rows.sum(axis=1)
    for side in (0, 1):
        if not over[2 * side : 2 * side + 2].any():
            continue
        no, yes = counted[2 * side : 2 * side + 2]  # e = no + (yes - no) h
        w, wh, w2, w2h, w2hh = scaled[:, side].T
        slope = yes - no
        out[:, 1] += rows[:, side]
        out[:, 2] += w
        out[:, 3] += no * w + slope * wh
        out[:, 4] += w2
        out[:, 5] += no * w2 + slope * w2h
        # e² = no² + 2 no (yes - no) h + (yes - no)² h², and no² = no
        out[:, 6] += no * w2 + 2 * no * slope * w2h + slope**2 * w2hh
    return out


def softened(values: NDArray[Any]) -> NDArray[np.int64]:
    """Turn states of rows, uint8, shape [n], into the sums of randomized decisions, shape [n, 12]."""
    return np.asarray(_AS_SOFT[values])


def softened_tables(tables: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn counts of states, shape [..., 4], into the sums of randomized decisions, shape [..., 12]."""
    return np.asarray(tables @ _AS_SOFT)


def _as_soft() -> NDArray[np.int64]:
    unit = int(ONE)
    rows = np.zeros((4, 12), dtype=np.int64)
    for outcome in (0, 1):
        for yes in (0, 1):
            sums = [1, unit, unit * yes, unit, unit * yes, unit * yes]
            rows[2 * outcome + yes, 6 * outcome : 6 * outcome + 6] = sums
    return rows


_AS_SOFT = _as_soft()


@dataclass(frozen=True, slots=True)
class Sides:
    """Groups and what they are compared with."""

    p: Array
    n: Array
    q: Array | None  # the same outside; None for a residual
    m: Array | None
    centre: Array  # what is taken off: for a residual the mean score, shape [G]; else zeros
    rows: Array  # shape [G]

    @property
    def difference(self) -> Array:
        """Group minus rest, or outcome minus score, shape [G]."""
        return self.p - (self.centre if self.q is None else self.q)

    @property
    def rest(self) -> Array:
        """What the group is compared with, shape [G]."""
        return self.centre if self.q is None else self.q

    def take(self, places: NDArray[Any]) -> Sides:
        """Return some groups."""
        q, m = (None if sums is None else sums[places] for sums in (self.q, self.m))
        return Sides(self.p[places], self.n[places], q, m, self.centre[places], self.rows[places])


def sides(measure: Measure, sums: Array, total: Array, *, weighted: bool, soft: bool) -> Sides:
    """Turn sums into groups and what they are compared with."""
    with np.errstate(all="ignore"):
        if measure.kind == "residual":
            if not weighted:
                rows, _, y, s = sums
                return Sides(y / rows, rows, None, None, s / rows, rows)
            _, _, w, wy, ws, w2 = sums
            # (Σ w)² / Σ w² effective rows (Kish 1965)
            return Sides(wy / w, w**2 / w2, None, None, ws / w, sums[0])
        p, n = _mean(measure, sums, weighted, soft)
        q, m = _mean(measure, total[:, None] - sums, weighted, soft)
    return Sides(p, n, q, m, np.zeros_like(p), sums[0])


def _mean(measure: Measure, sums: Array, weighted: bool, soft: bool) -> tuple[Array, Array]:
    if measure.kind == "loss":
        if not weighted:
            return sums[2] / sums[0], sums[0]
        return sums[3] / sums[2], sums[2] ** 2 / sums[4]
    if not soft:
        return sums[2] / sums[1], sums[1]
    _, _, w, we, w2, w2e, w2ee = sums
    rate = np.clip(we / w, 0, 1)
    kish = w**2 / w2
    # Σ w² (e - rate)²: (Σ w)² times the linearised variance of the ratio Σ w e / Σ w
    square = w2ee - 2 * rate * w2e + rate**2 * w2
    tiny = square <= 1e-12 * w2
    # rows of a plain share with the same variance, never more than Kish's
    n = np.where(tiny, kish, np.minimum(kish, rate * (1 - rate) * w**2 / np.where(tiny, 1.0, square)))
    return rate, n


# Limits with exact tails, each at a level that holds for all groups at once, and quick bounds of them.


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
