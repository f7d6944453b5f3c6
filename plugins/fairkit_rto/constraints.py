"""What the rule is held to: equal rates between groups, or no covariance with an attribute in subgroups."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fairkit_repair.scored_rows import ScoredRows

    Array = NDArray[np.float64]
    Rows = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The three numbers of a rule: width γ, common rate ρ (None without one), allowed difference ε."""

    gamma: float
    rho: float | None
    epsilon: float


class EqualRates:
    """Demographic parity; equal opportunity where the rows are those with the favorable outcome."""

    def thresholds(self, groups: list[SortedScores], settings: Sequence[Setting]) -> NDArray[np.float64]:
        """Return the exact thresholds of the K groups for settings of one γ, shape [S, K]; an empty group gets 0."""
        rhos, epsilons = np.array([[setting.rho or 0.0, setting.epsilon] for setting in settings]).T
        gamma = settings[0].gamma
        each = [
            parity_thresholds([group], gamma, rhos, epsilons) if group.total > 0 else np.zeros(len(settings))
            for group in groups
        ]
        return np.stack(each, axis=1)

    def pooled(self, groups: list[SortedScores], own: NDArray[np.float64], setting: Setting) -> float:
        """Solve all groups as one population."""
        return parity_threshold(groups, setting.gamma, setting.rho or 0.0, setting.epsilon)

    def violation(self, rates: NDArray[np.float64]) -> float:
        """Return the largest rate less the smallest."""
        return float(np.nanmax(rates) - np.nanmin(rates))

    def duals(self, groups: int, setting: Setting) -> Duals:
        """Return one constraint for each group, z = 1, b = ρ."""
        return Duals(
            owner=np.arange(groups), factors=np.ones(groups), offset=setting.rho or 0.0, slack=0.5 * setting.epsilon
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroCovariance:
    """No covariance of the decision with a binary attribute, within every subgroup (appendix E.1)."""

    pairs: tuple[tuple[int | None, int | None], ...]
    shares: tuple[float, ...]  # for every subgroup the share of its rows that have the attribute

    def thresholds(self, groups: list[SortedScores], settings: Sequence[Setting]) -> NDArray[np.float64]:
        """Solve each subgroup; where nobody is on one side nothing is asked for."""
        thresholds = np.zeros((len(settings), len(groups)))
        for inside, outside in self.pairs:
            if inside is None or outside is None:
                continue
            group_inside, group_outside = groups[inside], groups[outside]
            if group_inside.total > 0 and group_outside.total > 0:
                share = group_inside.total / (group_inside.total + group_outside.total)
                for index, setting in enumerate(settings):
                    multiplier = covariance_multiplier(group_inside, group_outside, setting.gamma, setting.epsilon)
                    thresholds[index, [inside, outside]] = multiplier * (1.0 - share), -multiplier * share
        return thresholds

    def pooled(self, groups: list[SortedScores], own: NDArray[np.float64], setting: Setting) -> float:
        """Return for the whole population the rate that the groups' rules have together."""
        reached = sum(group.ramp(own[index, None], setting.gamma)[0][0] for index, group in enumerate(groups))
        rho = float(reached) / sum(group.total for group in groups)
        return parity_threshold(groups, setting.gamma, rho, 0.0)

    def violation(self, rates: NDArray[np.float64]) -> float:
        """Return the largest |C(h, 1_S)| = ρ(1 - ρ) |rate in S - rate outside| over the subgroups."""
        gaps = [
            share * (1.0 - share) * abs(rates[inside] - rates[outside])
            for (inside, outside), share in zip(self.pairs, self.shares, strict=True)
            if inside is not None and outside is not None
        ]
        return float(np.nanmax(gaps)) if gaps else 0.0

    def duals(self, groups: int, setting: Setting) -> Duals:
        """Return one constraint for each subgroup, z = 1_S - ρ, b = 0."""
        owner, factors = np.zeros(groups, dtype=np.int64), np.zeros(groups)
        for subgroup, ((inside, outside), share) in enumerate(zip(self.pairs, self.shares, strict=True)):
            for index, factor in ((inside, 1.0 - share), (outside, -share)):
                if index is not None:
                    owner[index], factors[index] = subgroup, factor
        return Duals(owner=owner, factors=factors, offset=0.0, slack=setting.epsilon)


Constraint = EqualRates | ZeroCovariance


def covariance_of(rows: ScoredRows) -> ZeroCovariance:
    """Read the attribute off the first column of the split, and the subgroups off the others."""
    cells = [() if cell is None else cell for cell in rows.cells]
    values = sorted({cell[0] for cell in cells if cell})
    if len(values) != 2:
        raise DataError(
            "the covariance is with an attribute of two values, but the first sensitive column has "
            f"{len(values)}; put the binary one first (sex+race), or bin it with one edge (age:40)"
        )
    subgroups = sorted({cell[1:] for cell in cells if cell})
    places = {cell: index for index, cell in enumerate(cells)}
    pairs = tuple((places.get((values[1], *rest)), places.get((values[0], *rest))) for rest in subgroups)
    weight = np.bincount(rows.codes, rows.row_weights, minlength=len(rows.names) + 1).tolist()
    shares = tuple(_share(weight, inside, outside) for inside, outside in pairs)
    return ZeroCovariance(pairs=pairs, shares=shares)


def _share(weight: list[float], inside: int | None, outside: int | None) -> float:
    weight_inside = 0.0 if inside is None else weight[inside]
    weight_outside = 0.0 if outside is None else weight[outside]
    return weight_inside / (weight_inside + weight_outside) if weight_inside else 0.0


def exact_thresholds(constraint: Constraint, groups: list[SortedScores], setting: Setting) -> NDArray[np.float64]:
    """Return the exact thresholds of sorted margins f = 2p - 1, shape [K + 1], the last for the pooled population."""
    (thresholds,) = constraint.thresholds(groups, [setting])
    return np.append(thresholds, constraint.pooled(groups, thresholds, setting))


def rates_of(groups: list[SortedScores], thresholds: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Return the mean of h in each group, shape [K]; NaN in an empty one."""
    return np.array(
        [
            group.ramp(thresholds[index, None], gamma)[0][0] / group.total if group.total > 0 else np.nan
            for index, group in enumerate(groups)
        ]
    )


def sorted_margins(rows: ScoredRows) -> list[SortedScores]:
    """Sort the margins f = 2p - 1 of every group."""
    return sort_groups(2.0 * rows.scores - 1.0, rows.codes, len(rows.names), rows.weights)


def descended_thresholds(
    constraint: Constraint, rows: ScoredRows, setting: Setting, epochs: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the thresholds of algorithm 1, shape [K + 1]; the pooled one has the rate that they reach."""
    count = len(rows.names)
    fitted = rows.take((rows.codes < count) & (rows.row_weights > 0))
    margins, weights = 2.0 * fitted.scores - 1.0, fitted.row_weights / fitted.row_weights.mean()
    stream = shuffled_epochs((margins, fitted.codes, weights), epochs, rng)
    own = sgd_thresholds(stream, constraint.duals(count, setting), gamma=setting.gamma, steps=epochs * len(fitted))
    reached = float(np.average(ramp(margins, own[fitted.codes], setting.gamma), weights=weights))
    pooled = parity_threshold(sorted_margins(rows), setting.gamma, reached, 0.0)
    return np.array([*own, pooled])


# Sums of ramps over sorted scores, and the exact point where they reach a value.


FLAT = 1e-12
"""Rates that are nearer to each other than this count as equal."""

_MOST_STEPS = 200
_MASKED_GROUPS = 16


@dataclass(frozen=True, slots=True)
class SortedScores:
    """The scores of one group in increasing order, with running totals of weights, and of weights times scores."""

    scores: Array  # shape [n], increasing
    running: Array  # shape [n + 1]: the weight of the first i rows
    moments: Array  # shape [n + 1]: Σ w f of the first i rows

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.running[-1])

    def ramp(self, thresholds: Array, gamma: float) -> tuple[Array, Array]:
        """Return Σ w clip((f - t)/γ, 0, 1) and the weight of the rows on the slope, t < f < t + γ, for every t."""
        first = np.searchsorted(self.scores, thresholds, side="right")
        last = np.maximum(first, np.searchsorted(self.scores, thresholds + gamma, side="left"))
        sloped = self.running[last] - self.running[first]
        # rows above t + γ count 1, those on the slope (f - t) / γ
        above, moment = self.running[-1] - self.running[last], self.moments[last] - self.moments[first]
        return above + (moment - thresholds * sloped) / gamma, sloped


def sort_groups(
    scores: NDArray[np.floating], codes: NDArray[np.integer], groups: int, weights: NDArray[np.floating] | None = None
) -> list[SortedScores]:
    """Split scores into groups and sort each: O(n log n) time, one copy of the scores."""
    if groups > _MASKED_GROUPS:
        order = np.argsort(codes.astype(np.int32), kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(groups + 1))
        places: list[NDArray[np.integer] | NDArray[np.bool_]] = [order[a:b] for a, b in itertools.pairwise(bounds)]
        return [_sorted(scores, rows, weights) for rows in places]
    return [_sorted(scores, codes == group, weights) for group in range(groups)]


def _sorted(
    scores: NDArray[np.floating], rows: NDArray[np.integer] | NDArray[np.bool_], weights: NDArray[np.floating] | None
) -> SortedScores:
    values = scores[rows].astype(np.float64, copy=False)
    if weights is None:
        values.sort()
        return SortedScores(values, np.arange(len(values) + 1.0), _running(values))
    heavy = weights[rows].astype(np.float64, copy=False)
    order = np.argsort(values, kind="stable")
    order = order[heavy[order] > 0]
    heavy, values = heavy[order], values[order]
    return SortedScores(values, _running(heavy), _running(heavy * values))


def _running(values: Array) -> Array:
    return np.concatenate(([0.0], np.cumsum(values)))


@dataclass(frozen=True, slots=True)
class Term:
    """A part c · Σ w clip((f - s·t)/γ, 0, 1) of a sum that does not increase in t: c and s have one sign."""

    scores: SortedScores
    coefficient: float = 1.0
    scale: float = 1.0


def evaluate(terms: Sequence[Term], thresholds: Array, gamma: float) -> tuple[Array, Array]:
    """Return the sum of the terms at every t and its derivatives there, which are at most 0."""
    value, slope = np.zeros_like(thresholds), np.zeros_like(thresholds)
    for term in terms:
        part, sloped = term.scores.ramp(term.scale * thresholds, gamma)
        value += term.coefficient * part
        slope -= term.coefficient * term.scale * sloped / gamma
    return value, slope


def crossing(terms: Sequence[Term], gamma: float, targets: Array, low: Array, high: Array, *, start: Array) -> Array:
    """Return for every target the t from `low` to `high` where the sum of the terms is it, or the nearer bound.

    The sum is continuous, piecewise linear and does not increase. Newton's step from a point on the right piece
    ends on the root exactly; a bracket keeps the steps from other pieces in bounds, and where a step leaves it
    or the slope is 0 the bracket is halved. The search begins at `start`.
    """
    result, low, high = start.copy(), low.copy(), high.copy()
    left = np.arange(len(targets))  # those that are still searched
    for _ in range(_MOST_STEPS):
        at = result[left]
        value, slope = evaluate(terms, at, gamma)
        above = value > targets[left]
        low[left[above]], high[left[~above]] = at[above], at[~above]
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(slope < 0, at - (value - targets[left]) / slope, np.nan)
        bottom, top = low[left], high[left]
        following = np.where((bottom < step) & (step < top), step, 0.5 * (bottom + top))
        exact = value == targets[left]
        result[left] = np.where(exact, at, following)
        left = left[~exact & (bottom < following) & (following < top) & (following != at)]
        if not len(left):
            break
    return result


def middle_crossing(terms: Sequence[Term], gamma: float, means: Array, bounds: tuple[float, float]) -> Array:
    """Return the t where the sum of the terms is the mean per row, and the middle where a whole stretch has it.

    The ends of the stretch are where the mean is `FLAT` above and below; off a flat stretch these two lie
    on one line, or next to a kink, and their middle is the root to that accuracy.
    """
    total = sum(term.scores.total for term in terms)
    lowest, highest = np.full_like(means, bounds[0]), np.full_like(means, bounds[1])
    first = np.clip(np.zeros_like(means), bounds[0], bounds[1])
    left = crossing(terms, gamma, (means + FLAT) * total, lowest, highest, start=first)
    right = crossing(terms, gamma, (means - FLAT) * total, left, highest, start=left)
    return 0.5 * (left + right)


# Algorithm 1 of the RTO paper: thresholds by projected stochastic gradient descent.


_CHUNK = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Duals:
    """Constraints |mean of z h - b| ≤ slack, one for each pair λ, μ of dual variables."""

    owner: NDArray[np.int64]  # for each of G groups, the pair of its constraint, from 0, shape [G]
    factors: NDArray[np.float64]  # for each group, z, shape [G]
    offset: float  # b
    slack: float  # what is allowed on either side of it


def sgd_thresholds(stream: Iterable[Rows], duals: Duals, *, gamma: float, steps: int) -> NDArray[np.float64]:
    """Return the thresholds (λ - μ) z of the groups after one pass over a stream of rows, in its order.

    For each row with h = clip((f - (λ - μ) z)/γ, 0, 1), λ and μ those of its group's constraint::

        λ <- max(0, λ - η (slack + b - z h))
        μ <- max(0, μ - η (slack - b + z h))

    with the paper's rate η = .1 √(K/T). For equal rates, z = 1, b = ρ and slack = ε/2. A weighted row takes
    a step that is longer by its weight.
    """
    pairs = int(duals.owner.max()) + 1
    rate = 0.1 * math.sqrt(pairs / max(steps, 1))
    upper, lower = [0.0] * pairs, [0.0] * pairs
    owner, factors = duals.owner.tolist(), duals.factors.tolist()
    above, below = duals.slack + duals.offset, duals.slack - duals.offset
    for margins, codes, weights in stream:
        for margin, code, weight in zip(margins.tolist(), codes.tolist(), weights.tolist(), strict=True):
            pair, factor = owner[code], factors[code]
            moved = factor * min(max((margin - (upper[pair] - lower[pair]) * factor) / gamma, 0.0), 1.0)
            step = rate * weight
            upper[pair] = max(0.0, upper[pair] - step * (above - moved))
            lower[pair] = max(0.0, lower[pair] - step * (below + moved))
    gap = np.array(upper) - np.array(lower)
    thresholds: NDArray[np.float64] = gap[duals.owner] * duals.factors
    return thresholds


def shuffled_epochs(rows: Rows, epochs: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Yield the rows `epochs` times, each time in a new random order, in batches."""
    margins, codes, weights = rows
    for _ in range(epochs):
        order = rng.permutation(len(margins))
        for start in range(0, len(order), _CHUNK):
            part = order[start : start + _CHUNK]
            yield margins[part], codes[part], weights[part]


# The randomized threshold rule, solved exactly.


def ramp(margins: NDArray[np.floating], thresholds: NDArray[np.floating] | float, gamma: float) -> NDArray[np.float64]:
    """Return h = clip((f - t)/γ, 0, 1), the chance of the favorable decision."""
    return np.clip((np.asarray(margins, dtype=np.float64) - thresholds) / gamma, 0.0, 1.0)


def parity_thresholds(groups: Sequence[SortedScores], gamma: float, rhos: Array, epsilons: Array) -> Array:
    """Return thresholds for the rows of all the groups given, taken together as one population, for every rate."""
    terms = [Term(group) for group in groups]
    free = evaluate(terms, np.zeros(1), gamma)[0][0] / sum(group.total for group in groups)
    lowest = np.maximum(rhos - 0.5 * epsilons, 0.0)
    wanted = np.minimum(np.minimum(np.maximum(free, lowest), rhos + 0.5 * epsilons), 1.0)
    thresholds = np.zeros(len(rhos))
    moved = wanted != free
    if moved.any():
        thresholds[moved] = middle_crossing(terms, gamma, wanted[moved], (-1.0 - gamma, 1.0))
    return thresholds


def parity_threshold(groups: Sequence[SortedScores], gamma: float, rho: float, epsilon: float) -> float:
    """Return the threshold for one rate."""
    return float(parity_thresholds(groups, gamma, np.array([rho]), np.array([epsilon]))[0])


def covariance_multiplier(inside: SortedScores, outside: SortedScores, gamma: float, epsilon: float) -> float:
    """Return the multiplier t of the covariance variant (RTO, appendix E.1) in one subgroup.

    With z = 1_S - ρ, ρ the share of S in the subgroup, the constraint is |mean of z h| ≤ ε, that is
    |C(h, 1_S)| ≤ ε, and the rule h = clip((f - t z)/γ, 0, 1). The covariance is ρ(1 - ρ) times the
    difference of the two rates.
    """
    total = inside.total + outside.total
    share = inside.total / total
    terms = [Term(inside, 1.0 - share, 1.0 - share), Term(outside, -share, -share)]
    free = float(evaluate(terms, np.zeros(1), gamma)[0][0]) / total
    wanted = min(max(free, -epsilon), epsilon)
    if wanted == free:
        return 0.0
    reach = (1.0 + gamma) / min(share, 1.0 - share)
    return float(middle_crossing(terms, gamma, np.array([wanted]), (-reach, reach))[0])
