"""Rates of all rows where only some rows have an outcome: two shares in each group, from labels, and their limits.

Every row has a group, a decision and usually a score; some rows have the outcome. With q the share of favorable
decisions of a group (all rows), a = P(Y=1 | D=1) and b = P(Y=1 | D=0) (labels) every rate of decisions follows:
TPR = q a / (q a + (1-q) b), accuracy = q a + (1-q)(1-b), and so on. The score only sharpens a and b: a regression
estimator over two phases (Cochran 1977, ch. 7; Robins, Rotnitzky & Zhao 1994; power-tuned as in Angelopoulos et al.
2023), whose slope is 0 where labels are few. For any score, right or wrong, the estimate is consistent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import (
    Spread,
    possible_difference,
    possible_ratio,
    ratio_limits,
    spread_difference,
    spread_ratio,
    two_sided,
)
from fairkit.limits import FEW, chi_square_tail, clopper_pearson, share_limits, wilson
from fairkit.metrics import Estimate, Metric, Rate
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ends = tuple[Array, Array]

CELLS = 256
"""Score cells of a pair (a group and a decision); the score is used at the middle of its cell."""

LEAST_LABELS, LEAST_EACH = 20, 5  # without so many labels, and labels of either outcome, the slope on the score is 0
FALL_BACK = 10  # with fewer counted labels today's interval of the labelled rows alone stands
SUSPECT = 0.001  # labels that lean so much would come up once in a thousand draws
_EXACT = 20  # inside a sum, limits of fewer labels are exact
_ROWS, _LABELS, _YES, _DRAWN, _W, _W2, _V, _V2, _VY, _V2Y, _CHANCE, _SPREAD = range(12)
_PLAIN = 4  # columns where neither weights nor probabilities differ


@dataclass(frozen=True, slots=True)
class LabelTotals:
    """Rows, labels and favorable outcomes by group, decision and score cell; whole numbers, which add up exactly."""

    sums: Array  # [G, 2, CELLS, 4]: rows, labels, favorable, drawn; [..., 12] with weights or probabilities

    def __add__(self, right: LabelTotals) -> LabelTotals:
        return LabelTotals(self.sums + right.sums)

    def pooled(self) -> LabelTotals:
        """All groups as one."""
        return LabelTotals(self.sums.sum(axis=0, keepdims=True))

    def pairs(self, column: int) -> Array:
        """Return one column by group and decision, shape [G, 2]."""
        return np.asarray(self.sums[..., column].sum(axis=2))

    @property
    def complete(self) -> bool:
        """Whether every row has its outcome."""
        return bool((self.sums[..., _ROWS] == self.sums[..., _LABELS]).all())


def label_totals(
    groups: NDArray[np.int64],
    n_groups: int,
    decision: Array,
    outcome: Array,
    known: NDArray[np.bool_],
    *,
    score: Array | None = None,
    weights: Array | None = None,
    chance: Array | None = None,
    drawn: NDArray[np.bool_] | None = None,
    stated: bool = True,
) -> LabelTotals:
    """Total rows; `chance` is each row's probability of a label, where it differs inside a pair, shapes [n].

    It is `stated` for all rows, or right for the labelled ones alone.
    """
    pair = 2 * groups + (decision > 0.5)
    at = pair * CELLS
    if score is not None:
        with np.errstate(invalid="ignore"):
            cell = np.nan_to_num(np.clip(score, 0, 1) * CELLS)
        at = at + np.minimum(cell.astype(np.int64), CELLS - 1)
    size = n_groups * 2 * CELLS
    labelled = at[known]
    yes = np.asarray(outcome[known] > 0.5)
    rows = labelled if drawn is None else at[drawn]
    columns = [np.bincount(part, minlength=size) for part in (at, labelled, labelled[yes], rows)]
    if weights is not None or chance is not None:
        w = np.ones(len(at)) if weights is None else weights
        p = np.ones(len(at)) if chance is None else chance
        v, y = (w / p)[known], yes.astype(np.float64)
        every = ((at, w), (at, w**2), (labelled, v), (labelled, v**2), (labelled, v * y), (labelled, v**2 * y))
        columns += [np.bincount(where, what, size) for where, what in (*every, (at, p), (at, stated * p * (1 - p)))]
    sums = np.stack(columns, axis=1).astype(np.float64)
    return LabelTotals(sums.reshape(n_groups, 2, CELLS, len(columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Two shares of favorable outcomes in each group, b among refused and a among selected: axis 1 is the decision."""

    rows: Array  # rows of each pair, Kish's number under weights, shape [G, 2] as all that follow
    labels: Array
    favorable: Array  # labels with the favorable outcome, Kish's number of them
    value: Array  # NaN without labels
    worth: Array  # how many labels these labels are worth, between the labels and the rows
    slope: Array  # λ
    selected: Array  # q, shape [G]
    total: Array  # rows of each group, shape [G]
    missing: Array  # the share of drawn rows without an outcome, shape [G, 2]
    odds: float = 1.0  # Γ: by how much the odds of a label may differ between the outcomes of a pair
    no_better: bool = False  # whether refused people are taken to be no better than selected ones

    def ends(self, exact: Callable[[Array, Array, float], Ends], z: float) -> tuple[Ends, Ends]:
        """Return the limits of b and of a under Γ, which a and b may be said not to exceed."""
        has_labels = self.labels > 0
        low, high = np.zeros_like(self.value), np.ones_like(self.value)
        if has_labels.any():
            low[has_labels], high[has_labels] = exact(self.value[has_labels], self.worth[has_labels], z)
        # odds of a label that differ by Γ: l / (l + Γ (1 - l)) and Γ h / (Γ h + 1 - h)
        low = low / (low + self.odds * (1 - low))
        high = self.odds * high / (self.odds * high + 1 - high)
        if self.no_better:
            high[:, 0] = np.minimum(high[:, 0], high[:, 1])
            low[:, 0] = np.minimum(low[:, 0], high[:, 0])
        return (low[:, 0], high[:, 0]), (low[:, 1], high[:, 1])

    def corners(self) -> list[Shares]:
        """Return what is possible where outcomes are unknown without a design: each such share at both its ends.

        The share of a pair without a label lies in [0, 1]; where drawn rows have no outcome, all of them may have
        either (Manski 2003; Horowitz & Manski 1995).
        """
        none = (self.labels == 0) | (self.missing > 0)
        if not none.any():
            return [self]
        at: list[Shares] = [self]
        for d in (0, 1):
            if none[:, d].any():
                at = [corner._moved(d, none[:, d], end) for corner in at for end in (0.0, 1.0)]
        return at

    def _moved(self, decision: int, where: NDArray[np.bool_], end: float) -> Shares:
        value, worth, labels = self.value.copy(), self.worth.copy(), self.labels.copy()
        empty = where & (labels[:, decision] == 0)
        s = self.missing[:, decision]
        share = np.nan_to_num(value[:, decision]) * (1 - s) + s * end
        value[where, decision] = np.where(empty, end, share)[where]
        worth[empty, decision] = labels[empty, decision] = np.inf
        if self.no_better and decision == 0 and end == 1.0:
            value[where, 0] = np.minimum(value[where, 0], np.nan_to_num(value[where, 1], nan=1.0))
        return replace(self, value=value, worth=worth, labels=labels)


def shares_of(totals: LabelTotals) -> Shares:
    """Estimate both shares of every group, with the score where labels allow it."""
    sums = totals.sums
    plain = sums.shape[-1] == _PLAIN
    f = (np.arange(CELLS) + 0.5) / CELLS
    w, w2 = (sums[..., _ROWS],) * 2 if plain else (sums[..., _W], sums[..., _W2])
    v, v2 = (sums[..., _LABELS],) * 2 if plain else (sums[..., _V], sums[..., _V2])
    vy, v2y = (sums[..., _YES],) * 2 if plain else (sums[..., _VY], sums[..., _V2Y])
    W, V, V2 = (part.sum(axis=2) for part in (w, v, v2))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = vy.sum(axis=2) / V
        f_all, f_labels = w @ f / W, v @ f / V
        kish = V**2 / V2
        rows = W**2 / w2.sum(axis=2)
        # Σ v² (y - p)² / (Σ v)²: what weights that go with the outcome do to a share
        square = (v2y.sum(axis=2) * (1 - 2 * mean) + mean**2 * V2) / V**2
        M = kish if plain else np.where(square > 0, np.minimum(kish, mean * (1 - mean) / square), kish)
        M, rows = np.where(V > 0, M, 0.0), np.where(W > 0, rows, 0.0)
        M = np.minimum(M, rows)
        yes = M * mean
        s_ff = v @ f**2 / V - f_labels**2
        s_fy = vy @ f / V - f_labels * mean
        usable = (M >= LEAST_LABELS) & (yes >= LEAST_EACH - 1e-9) & (M - yes >= LEAST_EACH - 1e-9) & (s_ff > 1e-12)
        slope = np.where(usable, s_fy / s_ff, 0.0)
        value = np.clip(mean + slope * (f_all - f_labels), 0, 1)
        # s² of the residuals y - c - λ f, as Σ v² r² / (Σ v)² times M² / (M - 2)
        r1, r0 = (y - (mean - slope * f_labels)[..., None] - slope[..., None] * f for y in (1.0, 0.0))
        residual = (v2y * r1**2 + (v2 - v2y) * r0**2).sum(axis=2) / V**2
        s2 = residual * M**2 / (M - 2)
        whole = mean * (1 - mean) * M / (M - 1)
        variance = s2 * (1 / M + (f_all - f_labels) ** 2 / (M * s_ff)) + np.maximum(whole - s2, 0) / rows
        # what a perfect record of M residuals cannot exclude: (1 - u)^M = α/2 with α = 0.05
        u = 1 - 0.025 ** (1 / M)
        variance = np.sqrt(variance**2 + (u / 1.96) ** 4)
        t = (M * value + 0.5) / (M + 1)
        worth = np.where(slope != 0, np.clip(t * (1 - t) / variance, M, np.maximum(rows, M)), M)
        drawn = totals.pairs(_DRAWN)
        missing = np.where(drawn > 0, 1 - totals.pairs(_LABELS) / drawn, 0.0)
        group = W.sum(axis=1)
        n = group**2 / w2.sum(axis=(1, 2))
        return Shares(
            rows=rows,
            labels=M,
            favorable=np.nan_to_num(yes),
            value=np.where(M > 0, value, np.nan),
            worth=worth,
            slope=slope,
            selected=W[:, 1] / group,
            total=np.nan_to_num(n),
            missing=np.clip(missing, 0, 1),
        )


def share_inside(rate: Array, n: Array, z: float) -> Ends:
    """Return limits of a share inside a rate: Jeffreys' below `FEW` counted rows, Cai's (2005) beyond."""
    finite = np.where(np.isfinite(n), np.maximum(n, 1e-9), 1e12)
    low, high = wilson(rate, finite, z)
    skew = (z**2 - 1) * (1 - 2 * rate) / (6 * finite)
    low, high = np.clip(low - skew, 0, rate), np.clip(high - skew, rate, 1)
    few = np.minimum(rate, 1 - rate) * finite < FEW - 1e-9
    few &= np.isfinite(n)
    if few.any():
        r, m = rate[few], finite[few]
        # Jeffreys' limits are those of Clopper & Pearson half a count further in; at 0 and all as they are
        low[few] = clopper_pearson(np.where(r <= 0, 0.0, np.minimum(r + 0.5 / m, 1)), m, z)[0]
        high[few] = clopper_pearson(np.where(r >= 1, 1.0, np.maximum(r - 0.5 / m, 0)), m, z)[1]
        low, high = np.minimum(low, rate), np.maximum(high, rate)
    sure = ~np.isfinite(n)  # an end of what is possible, not an estimate
    return np.where(sure, rate, low), np.where(sure, rate, high)


def share_in_sum(rate: Array, n: Array, z: float) -> Ends:
    """Return limits of a share inside a sum: exact ones of fewer than 20 labels."""
    low, high = share_inside(rate, n, z)
    few = n < _EXACT
    if few.any():
        low[few], high[few] = clopper_pearson(rate[few], n[few], z)
    return low, high


def share_alone(rate: Array, n: Array, z: float) -> Ends:
    """Return limits of a share that is a rate by itself, such as precision."""
    sure = ~np.isfinite(n)
    low, high = share_limits(rate, np.where(sure, 1e12, n), z)
    return np.where(sure, rate, low), np.where(sure, rate, high)


def cells_of(q: Array, a: Array, b: Array) -> Array:
    """Return the shares of (outcome 0, no), (outcome 0, yes), (outcome 1, no), (outcome 1, yes), shape [..., 4]."""
    return np.stack([(1 - q) * (1 - b), q * (1 - a), (1 - q) * b, q * a], axis=-1)


def values_of(metric: Metric, shares: Shares) -> Array:
    """Return the metric as a function of q, a and b; where a share is unknown the middle of what is possible."""
    ends = []
    for corner in shares.corners():
        b, a = corner.value.T
        with np.errstate(divide="ignore", invalid="ignore"):
            ends.append(np.asarray(metric.compute(cells_of(corner.selected, a, b)), dtype=np.float64))
    with np.errstate(invalid="ignore"):
        value = (np.fmin.reduce(ends) + np.fmax.reduce(ends)) / 2
    return np.where(shares.total > 0, value, np.nan)


def limits_of(metric: Metric, shares: Shares, z: float) -> Ends:
    """Return limits of a metric in every group: over all that is possible where some outcomes are unknown."""
    ends = [_limits(metric, corner, z) for corner in shares.corners()]
    with np.errstate(invalid="ignore"):
        return np.fmin.reduce([low for low, _ in ends]), np.fmax.reduce([high for _, high in ends])


def _limits(metric: Metric, shares: Shares, z: float) -> Ends:
    over = tuple(getattr(metric, "over", ())) if isinstance(metric, Rate) else ()
    counted = np.array(getattr(metric, "counted", (0, 0, 0, 0)), float) if over else np.zeros(4)
    with np.errstate(divide="ignore", invalid="ignore"):
        if over in ((0, 0, 1, 1), (1, 1, 0, 0)):
            return _odds(shares, z, favorable=over[3] == 1, selected=bool(counted[3] or counted[1]))
        if over in ((0, 1, 0, 1), (1, 0, 1, 0)):
            d = over[1]
            low, high = shares.ends(share_alone, z)[d]
            return (low, high) if counted[2 + d] else (1 - high, 1 - low)
        if over == (1, 1, 1, 1):
            return _sum(shares, z, counted)
        return _mover(metric, shares, z)


def _odds(shares: Shares, z: float, *, favorable: bool, selected: bool) -> Ends:
    """Limit TPR = 1 / (1 + r), r = (1-q)/q · b/a, or FPR with the outcomes turned: b/a by Donner & Zou (2012)."""
    (b_low, b_high), (a_low, a_high) = shares.ends(share_inside, z)
    b, a = np.nan_to_num(shares.value, nan=0.5).T
    if not favorable:
        b, b_low, b_high, a, a_low, a_high = 1 - b, 1 - b_high, 1 - b_low, 1 - a, 1 - a_high, 1 - a_low
    if shares.odds > 1:
        b, a = np.clip(b, b_low, b_high), np.clip(a, a_low, a_high)
    low, high = _ratio(b, (b_low, b_high), a, (a_low, a_high), z)
    if shares.no_better and favorable:
        low, high = np.minimum(low, 1), np.minimum(high, 1)
    q, n = shares.selected, shares.total
    low, high = _widened(b / a, low, high, z / np.sqrt(n * q * (1 - q)))
    odds = (1 - q) / q
    rate = 1 / (1 + odds * high), 1 / (1 + odds * low)
    return rate if selected else (1 - rate[1], 1 - rate[0])


def _ratio(p: Array, p_ends: Ends, q: Array, q_ends: Ends, z: float) -> Ends:
    """Return limits of p / q of two independent shares, group by group."""
    groups = len(p)

    def limits(_: float) -> Ends:
        return np.concatenate([p_ends[0], q_ends[0]]), np.concatenate([p_ends[1], q_ends[1]])

    first = np.arange(groups)
    return ratio_limits(np.concatenate([p, q]), limits, z, first, first + groups)


def _widened(value: Array, low: Array, high: Array, half: Array) -> Ends:
    """Add a part of the logarithm to the limits of a positive number, as a root of squares."""
    down, up = np.log(value / low), np.log(high / value)
    # √(d² + s²) - d, which vanishes where d is infinite
    more = [np.where(np.isfinite(d), np.hypot(d, half) - d, 0.0) for d in (down, up)]
    return low * np.exp(-more[0]), high * np.exp(more[1])


def _sum(shares: Shares, z: float, counted: Array) -> Ends:
    """Limit q x + (1-q) y by MOVER, x and y one of 0, 1, a share, and its complement."""
    ends = shares.ends(share_in_sum, z)
    q, n = shares.selected, shares.total
    parts = []
    for d in (1, 0):
        lost, won = counted[d], counted[2 + d]  # factors of outcome 0 and 1: won · s + lost · (1 - s)
        s, low, high = np.nan_to_num(shares.value[:, d], nan=0.5), *ends[d]
        s = np.clip(s, low, high)
        turn = [lost + (won - lost) * part for part in (s, low, high)]
        parts.append((turn[0], np.minimum(turn[1], turn[2]), np.maximum(turn[1], turn[2])))
    (x, x_low, x_high), (y, y_low, y_high) = parts
    point = q * x + (1 - q) * y
    noise = z**2 * (x - y) ** 2 * q * (1 - q) / n
    down = np.sqrt((q * (x - x_low)) ** 2 + ((1 - q) * (y - y_low)) ** 2 + noise)
    up = np.sqrt((q * (x_high - x)) ** 2 + ((1 - q) * (y_high - y)) ** 2 + noise)
    return np.maximum(point - down, 0), np.minimum(point + up, 1)


def _mover(metric: Metric, shares: Shares, z: float) -> Ends:
    """Limit any function of q, a and b by MOVER: each moves to its own limits while the others stay."""
    (b_low, b_high), (a_low, a_high) = shares.ends(share_inside, z)
    b, a = np.clip(np.nan_to_num(shares.value, nan=0.5).T, [b_low, a_low], [b_high, a_high])
    q, n = shares.selected, shares.total
    inside = (q > 0) & (q < 1)
    step = z / np.sqrt(np.where(inside, n * q * (1 - q), 1))
    q_ends = [np.where(inside, q / (q + (1 - q) * np.exp(side * step)), q) for side in (1, -1)]

    def value(*at: Array) -> Array:
        return np.asarray(metric.compute(cells_of(*at)), dtype=np.float64)

    point = value(q, a, b)
    down, up = np.zeros_like(point), np.zeros_like(point)
    for moved in (
        [value(q, end, b) for end in (a_low, a_high)],
        [value(q, a, end) for end in (b_low, b_high)],
        [value(end, a, b) for end in q_ends],
    ):
        change = np.nan_to_num(np.stack(moved) - point)
        down, up = np.hypot(down, np.maximum(-change.min(axis=0), 0)), np.hypot(up, np.maximum(change.max(axis=0), 0))
    return np.clip(point - down, *metric.range), np.clip(point + up, *metric.range)


def falls_back(metric: Metric, shares: Shares, even: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the groups whose labels are too few for this way, and whose labels have one probability, shape [G]."""
    over = tuple(getattr(metric, "over", ())) if isinstance(metric, Rate) else ()
    if over in ((0, 1, 0, 1), (1, 0, 1, 0)):
        return np.zeros(len(even), dtype=bool)
    either = shares.labels.min(axis=1) < FALL_BACK
    few = either
    if over in ((0, 0, 1, 1), (0, 1, 1, 1)):
        few = shares.favorable.sum(axis=1) < FALL_BACK - 1e-9
    elif over == (1, 1, 0, 0):
        few = (shares.labels - shares.favorable).sum(axis=1) < FALL_BACK - 1e-9
    one_sided = (shares.rows <= 0).any(axis=1)  # everybody has one decision
    return np.asarray((few | one_sided) & even)


def few_label_estimate(
    metric: Metric, totals: LabelTotals, today: Estimate | None, even: NDArray[np.bool_], shares: Shares | None = None
) -> Estimate:
    """Return a metric of all rows from few labels; `today` is its estimate from the labelled rows alone.

    `even` says in which groups every row has the same probability of a label: there, and where all rows are labelled,
    the labelled rows alone may stand.
    """
    shares = shares_of(totals) if shares is None else shares
    inner = metric_inside(metric)
    values, sizes = values_of(metric, shares), effective_rows(inner, shares)
    whole = (totals.pairs(_ROWS) == totals.pairs(_LABELS)).all(axis=1)
    as_today = np.zeros(len(even), dtype=bool) if today is None else falls_back(inner, shares, even) | whole
    as_today &= shares.odds == 1
    doubts: dict[int, str] = {}
    if today is not None and as_today.any():
        values = np.where(as_today, today.values, values)
        over = totals.pairs(_LABELS).sum(axis=1) if today.sizes is None else today.sizes
        sizes = np.where(as_today, over, sizes)
        doubts = {index: why for index, why in today.doubts.items() if as_today[index]}

    def limits(z: float) -> Ends:
        low, high = limits_of(inner, shares, z)
        if inner is not metric:  # F1 = 2 J / (1 + J) rises with the overlap J
            low, high = 2 * low / (1 + low), 2 * high / (1 + high)
        if today is not None and as_today.any():
            own = today.limits(z)
            low, high = np.where(as_today, own[0], low), np.where(as_today, own[1], high)
        return np.minimum(low, values), np.maximum(high, values)

    unknown = len(shares.corners()) > 1
    notes = ("The value is the middle of what the unknown outcomes allow, no estimate.",) * unknown
    return Estimate(values, limits, sizes=sizes, doubts=doubts, notes=notes, bounded=unknown)


def difference_between(estimate: Estimate, confidence: float) -> Spread:
    """Return the largest difference between groups; between ends that are possible where outcomes are unknown."""
    if not estimate.bounded:
        return spread_difference(estimate.values, estimate.limits, confidence)
    least, most = possible_difference(*estimate.limits(two_sided(confidence)))
    return Spread((least + most) / 2, least, most)


def ratio_between(estimate: Estimate, confidence: float) -> Spread:
    """Return the smallest ratio between groups in the same way."""
    if not estimate.bounded:
        return spread_ratio(estimate.values, estimate.limits, confidence)
    least, most = possible_ratio(*estimate.limits(two_sided(confidence)))
    return Spread((least + most) / 2, least, most)


def metric_inside(metric: Metric) -> Metric:
    """Return the rate that a metric is a rising function of: of F1 the overlap."""
    part: Any = getattr(metric, "overlap", None)
    return metric if part is None else part


def effective_rows(metric: Metric, shares: Shares) -> Array:
    """Return the rows whose own share would be as sure as this rate: p (1-p) / variance, by the delta method."""
    with np.errstate(all="ignore"):
        # shares moved half a count from 0 and 1, so that none has a variance of 0
        e = np.where(shares.worth > 0, shares.worth, np.nan)
        t = (np.nan_to_num(shares.value, nan=0.5) * e + 0.5) / (e + 1)
        t = np.where(np.isfinite(e), t, np.nan_to_num(shares.value, nan=0.5))
        (b, a), q, n = t.T, shares.selected, shares.total
        point = metric.compute(cells_of(q, a, b))
        variance = np.zeros_like(point)
        for which, spread in enumerate((q * (1 - q) / n, a * (1 - a) / e[:, 1], b * (1 - b) / e[:, 0])):
            step = [np.zeros_like(q) for _ in range(3)]
            step[which] = np.full_like(q, 1e-6)
            up, down = (metric.compute(cells_of(*(x + side * s for x, s in zip((q, a, b), step, strict=True))))
                        for side in (1, -1))  # fmt: skip
            slope = (up - down) / 2e-6
            variance = variance + np.where(np.abs(slope) > 1e-9, slope**2 * spread, 0.0)
        return np.asarray(np.where(variance > 0, point * (1 - point) / variance, shares.labels.sum(axis=1)))


def leaning(totals: LabelTotals, even: NDArray[np.bool_]) -> tuple[float | None, list[float | None]]:
    """Return the p-value that labels were drawn so, Bonferroni's over three tests, and each group's.

    Labelled rows are compared with all rows in decision × 5 score cells: hypergeometric chi-square where every row of a
    pair (or, `even`, of a group) has the same probability, else against the stated probabilities. Cells with fewer than
    5 expected labels, or rows without, are joined with the next one. None: too few labels for a comparison.
    """
    each: list[float | None] = []
    whole_value, whole_degrees = 0.0, 0
    trend = np.zeros(2)
    for sums, whole in zip(totals.sums, even, strict=True):
        stated = sums.shape[-1] > _PLAIN and sums[..., _SPREAD].sum() > 0
        blocks = [sums.reshape(-1, sums.shape[-1])] if whole or stated else list(sums)
        parts = [part for block in blocks if (part := _one_block(block, stated=stated)) is not None]
        value, degrees = sum(part[0] for part in parts), sum(part[1] for part in parts)
        trend += sum((_trend(block, stated=stated) for block in sums), np.zeros(2))
        each.append(chi_square_tail(value, degrees) if degrees else None)
        whole_value, whole_degrees = whole_value + value, whole_degrees + degrees
    probabilities = [p for p in each if p is not None]
    if not probabilities:
        return None, each
    tails = [min(probabilities) * len(probabilities), chi_square_tail(whole_value, whole_degrees)]
    tails += [chi_square_tail(trend[0] ** 2 / trend[1], 1)] if trend[1] > 0 else []
    return min(1.0, len(tails) * min(tails)), each


def _trend(cells: Array, *, stated: bool) -> Array:
    """Return by how much more labels lie in high fifths of a pair's scores than expected, and its variance."""
    fifth = _fifths(cells[:, _ROWS].reshape(1, -1)).astype(np.float64)
    rows, drawn = cells[:, _ROWS], cells[:, _DRAWN]
    N, M = rows.sum(), drawn.sum()
    if stated:
        return np.array([fifth @ (drawn - cells[:, _CHANCE]), fifth**2 @ cells[:, _SPREAD]])
    if not 0 < M < N:
        return np.zeros(2)
    mean = rows @ fifth / N
    return np.array([drawn @ (fifth - mean), rows @ (fifth - mean) ** 2 / N * M * (N - M) / (N - 1)])


def _one_block(cells: Array, *, stated: bool) -> tuple[float, int] | None:
    """Return chi-square and its degrees of freedom of rows [cells, K] with one probability, or stated ones."""
    rows, drawn = cells[:, _ROWS], cells[:, _DRAWN]
    chosen = _fifths(rows.reshape(-1, CELLS))
    n, m = np.bincount(chosen, rows), np.bincount(chosen, drawn)
    if stated:
        expected, spread = np.bincount(chosen, cells[:, _CHANCE]), np.bincount(chosen, cells[:, _SPREAD])
    else:
        N, M = n.sum(), m.sum()
        if not 0 < M < N:
            return None
        expected = M * n / N
        spread = expected * (N - M) / (N - 1)
    joined: list[Array] = []
    for row in np.stack([n, m, expected, spread], axis=1):
        if joined and min(joined[-1][2], joined[-1][0] - joined[-1][2]) < 5:
            joined[-1] = joined[-1] + row
        else:
            joined.append(row)
    if len(joined) > 1 and min(joined[-1][2], joined[-1][0] - joined[-1][2]) < 5:
        last = joined.pop()
        joined[-1] = joined[-1] + last
    table = np.array(joined)
    degrees = len(table) if stated else len(table) - 1
    if degrees < 1 or (stated and table[0, 2] < 5):
        return None
    return float(((table[:, 1] - table[:, 2]) ** 2 / table[:, 3]).sum()), degrees


def _fifths(rows: Array) -> NDArray[np.int64]:
    """Number the score cells of each pair by the fifth of its rows that they lie in, shape [pairs * CELLS]."""
    below = np.cumsum(rows, axis=1) - rows
    whole = np.maximum(rows.sum(axis=1, keepdims=True), 1)
    fifth = np.minimum((5 * (below + rows / 2) / whole).astype(np.int64), 4)
    return np.asarray((fifth + 5 * np.arange(len(rows))[:, None]).ravel())
