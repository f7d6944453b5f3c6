"""What the rule is held to: equal rates between groups, or no covariance with an attribute in subgroups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError
from fairkit_rto.ramps import sort_groups
from fairkit_rto.sgd import Duals, sgd_thresholds, shuffled_epochs
from fairkit_rto.solver import covariance_multiplier, parity_threshold, parity_thresholds, ramp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_repair.scored_rows import ScoredRows
    from fairkit_rto.ramps import SortedScores


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
        rhos, epsilons = np.array([[one.rho or 0.0, one.epsilon] for one in settings]).T
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
            one, other = groups[inside], groups[outside]
            if one.total > 0 and other.total > 0:
                share = one.total / (one.total + other.total)
                for place, setting in enumerate(settings):
                    multiplier = covariance_multiplier(one, other, setting.gamma, setting.epsilon)
                    thresholds[place, [inside, outside]] = multiplier * (1.0 - share), -multiplier * share
        return thresholds

    def pooled(self, groups: list[SortedScores], own: NDArray[np.float64], setting: Setting) -> float:
        """Return for the whole population the rate that the groups' rules have together."""
        reached = sum(group.ramp(own[place, None], setting.gamma)[0][0] for place, group in enumerate(groups))
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
            for place, factor in ((inside, 1.0 - share), (outside, -share)):
                if place is not None:
                    owner[place], factors[place] = subgroup, factor
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
    places = {cell: place for place, cell in enumerate(cells)}
    pairs = tuple((places.get((values[1], *rest)), places.get((values[0], *rest))) for rest in subgroups)
    weight = np.bincount(rows.codes, rows.row_weights, minlength=len(rows.names) + 1).tolist()
    shares = tuple(_share(weight, inside, outside) for inside, outside in pairs)
    return ZeroCovariance(pairs=pairs, shares=shares)


def _share(weight: list[float], inside: int | None, outside: int | None) -> float:
    one = 0.0 if inside is None else weight[inside]
    other = 0.0 if outside is None else weight[outside]
    return one / (one + other) if one else 0.0


def exact_thresholds(constraint: Constraint, groups: list[SortedScores], setting: Setting) -> NDArray[np.float64]:
    """Return the exact thresholds of sorted margins f = 2p - 1, shape [K + 1], the last for the pooled population."""
    (own,) = constraint.thresholds(groups, [setting])
    return np.append(own, constraint.pooled(groups, own, setting))


def rates_of(groups: list[SortedScores], thresholds: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Return the mean of h in each group, shape [K]; NaN in an empty one."""
    return np.array(
        [
            group.ramp(thresholds[place, None], gamma)[0][0] / group.total if group.total > 0 else np.nan
            for place, group in enumerate(groups)
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
