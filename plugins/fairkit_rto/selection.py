"""Choosing γ, ρ and ε on rows that the thresholds were not fitted to."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit_rto.constraints import Setting, sorted_margins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_repair.scored_rows import ScoredRows
    from fairkit_rto.constraints import Constraint
    from fairkit_rto.ramps import SortedScores

GAMMAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
RHO_SHIFTS = tuple(round(0.01 * step, 2) for step in range(-15, 16))
EPSILONS = (0.0, 0.01, 0.02, 0.05, 0.1)
NEAR = 0.001
"""Rates whose expected accuracy is nearer to the best than this are averaged."""

Fold = tuple["ScoredRows", "ScoredRows"]
"""Rows to fit thresholds to, and rows to measure them on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A setting and what it gave on the held-out rows."""

    setting: Setting  # γ, ρ and ε
    violation: float  # by how much the constraint is missed there
    accuracy: float  # expected accuracy there
    allowed: float  # the violation that was allowed: ε, or the tolerance, plus two standard errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user gave; None stands for what is to be chosen."""

    gamma: float | None = None  # see `Setting`
    rho: float | None = None  # see `Setting`
    epsilon: float | None = 0.0  # see `Setting`
    has_rho: bool = True  # whether the constraint has a common rate
    favorable_only: bool = False  # rates are of the rows with the favorable outcome, at fit and on held-out rows
    tolerance: float = 0.0  # with ε to be chosen: the violation that is allowed on held-out rows, beside chance

    @property
    def given(self) -> Setting | None:
        """The setting, where nothing is left to choose."""
        if self.gamma is None or self.epsilon is None or (self.rho is None and self.has_rho):
            return None
        return Setting(gamma=self.gamma, rho=self.rho, epsilon=self.epsilon)

    def settings(self, rows: ScoredRows) -> list[Setting]:
        """List what to try: what is given is kept, what is not is taken from grids.

        γ and ε are the paper's. The rates are the mean score, and the share of favorable outcomes ± .15 in steps
        of .01 (the paper's steps of .05 up to ± .1 are among them), within [0, 1]. Among rows with the favorable
        outcome the common rate is a true positive rate: its grid goes from the lowest of the groups' own rates at the
        threshold 1/2, less .15, to the highest, plus .15.
        """
        rates: list[float | None] = [self.rho]
        if self.rho is None and self.has_rho:
            rates = [*(_hit_rates(rows) if self.favorable_only else _shares(rows))]
        gammas = GAMMAS if self.gamma is None else (self.gamma,)
        epsilons = EPSILONS if self.epsilon is None else (self.epsilon,)
        return [
            Setting(gamma=gamma, rho=rate, epsilon=epsilon)
            for gamma, rate, epsilon in itertools.product(gammas, rates, epsilons)
        ]


def _shares(rows: ScoredRows) -> list[float]:
    mean, share = (float(np.average(x, weights=rows.weights)) for x in (rows.scores, rows.favorable))
    return list(dict.fromkeys([mean, *_within(share, share)]))


def _hit_rates(rows: ScoredRows) -> list[float]:
    """Return rates around the groups' own true positive rates at the threshold 1/2."""
    own = _favorable(rows)
    rates = own.rates((own.scores >= 0.5).astype(float))
    return _within(float(np.nanmin(rates)), float(np.nanmax(rates)))


def _within(low: float, high: float) -> list[float]:
    """List the rates from low - .15 to high + .15, within [0, 1], .01 apart from low on."""
    above = [round(0.01 * step, 2) for step in range(1, 1 + int(np.ceil(100 * (high - low))))]
    shifts = [*(shift for shift in RHO_SHIFTS if shift <= 0), *above]
    top = max([0.0, *above])
    shifts += [round(top + shift, 2) for shift in RHO_SHIFTS if shift > 0]
    return [low + shift for shift in shifts if 0.0 <= low + shift <= 1.0]


def choose(constraint: Constraint, rows: ScoredRows, folds: Sequence[Fold], wishes: Wishes) -> Choice:
    """Choose the setting of the highest expected accuracy among those that meet ε on held-out rows.

    A setting meets ε when its violation there is at most ε plus two standard errors of a rate in the smallest
    group; where none does, the one with the smallest excess is taken.

    Of a common rate that is to be chosen the mean is taken over the admissible ones, at the best γ and ε, whose
    accuracy is within `NEAR` of the best. Accuracy is concave in the rate up to noise, and the middle of its top
    varies less from sample to sample than the place of its highest point.
    """
    judge = _Judge(constraint, folds, wishes)
    by_width = itertools.groupby(wishes.settings(rows), key=lambda setting: setting.gamma)
    choices = [choice for _, settings in by_width for choice in judge([*settings])]
    best = _best(choices)
    if best.setting.rho is None or best.violation > best.allowed:
        return best
    near = [
        choice.setting.rho
        for choice in choices
        if choice.setting.rho is not None
        and replace(choice.setting, rho=best.setting.rho) == best.setting
        and choice.accuracy >= best.accuracy - NEAR
        and choice.violation <= choice.allowed
    ]
    return replace(best, setting=replace(best.setting, rho=sum(near) / len(near)))


def _best(tried: Sequence[Choice]) -> Choice:
    """Take the most accurate of those within what is allowed, the first of equals, or the one nearest to it."""
    good = [choice for choice in tried if choice.violation <= choice.allowed]
    if good:
        return max(good, key=lambda choice: choice.accuracy)
    return min(tried, key=lambda choice: choice.violation - choice.allowed)


class _Judge:
    """Measures settings on held-out rows: these are sorted once, each setting costs sums over its ramps."""

    def __init__(self, constraint: Constraint, folds: Sequence[Fold], wishes: Wishes) -> None:
        self._constraint, self._wishes = constraint, wishes
        only = wishes.favorable_only
        self._fitted = [sorted_margins(_favorable(fit) if only else fit) for fit, _ in folds]
        self._good = [sorted_margins(_favorable(held)) for _, held in folds]
        self._bad = [sorted_margins(held.take(held.favorable <= 0)) for _, held in folds]
        self._n_good, self._n_bad = (_totals(parts) for parts in (self._good, self._bad))
        self._margin = _margin([_favorable(held) if only else held for _, held in folds])

    def __call__(self, settings: Sequence[Setting]) -> list[Choice]:
        """Fit settings of one γ on each fold's rows, measure on its held-out rows, add up."""
        gamma = settings[0].gamma
        good, bad = np.zeros((2, len(settings), len(self._n_good)))
        for fitted, ups, downs in zip(self._fitted, self._good, self._bad, strict=True):
            thresholds = self._constraint.thresholds(fitted, settings)
            good += np.stack([up.ramp(t, gamma)[0] for up, t in zip(ups, thresholds.T, strict=True)], axis=1)
            bad += np.stack([down.ramp(t, gamma)[0] for down, t in zip(downs, thresholds.T, strict=True)], axis=1)
        return [self._judged(*each) for each in zip(settings, good, bad, strict=True)]

    def _judged(self, setting: Setting, good: NDArray[np.float64], bad: NDArray[np.float64]) -> Choice:
        only = self._wishes.favorable_only
        hits, rows = (good, self._n_good) if only else (good + bad, self._n_good + self._n_bad)
        rates = np.divide(hits, rows, out=np.full(len(rows), np.nan), where=rows > 0)
        chosen = self._wishes.tolerance if self._wishes.epsilon is None else setting.epsilon
        agreed = good.sum() + (self._n_bad - bad).sum()
        return Choice(
            setting=setting,
            violation=self._constraint.violation(rates),
            accuracy=float(agreed / (self._n_good.sum() + self._n_bad.sum())),
            allowed=chosen + self._margin,
        )


def _favorable(rows: ScoredRows) -> ScoredRows:
    return rows.take(rows.favorable > 0)


def _totals(parts: Sequence[Sequence[SortedScores]]) -> NDArray[np.float64]:
    totals: NDArray[np.float64] = np.sum([[group.total for group in groups] for groups in parts], axis=0)
    return totals


def _margin(parts: Sequence[ScoredRows]) -> float:
    """Two standard errors of a rate over all the parts: their effective rows add up."""
    effective = np.sum([part.effective_rows() for part in parts], axis=0)
    return 1.0 / float(np.sqrt(effective[effective > 0].min())) if (effective > 0).any() else 1.0
