"""Choosing γ, ρ and ε on rows that the thresholds were not fitted to."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_rto.constraints import Setting, sorted_margins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from fairkit.postprocess import ScoredRows
    from fairkit_rto.constraints import Constraint

GAMMAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
RHO_SHIFTS = (0.0, -0.05, 0.05, -0.1, 0.1)
EPSILONS = (0.0, 0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A setting and what it gave on the validation rows.

    Attributes
    ----------
    setting
        γ, ρ and ε.
    violation
        By how much the constraint is missed there.
    accuracy
        Expected accuracy there.
    allowed
        The violation that was allowed: ε, or the tolerance, plus two standard errors.
    """

    setting: Setting
    violation: float
    accuracy: float
    allowed: float


def candidates(
    rows: ScoredRows, gamma: float | None, rho: float | None, epsilon: float | None, *, has_rho: bool
) -> list[Setting]:
    """List the settings to try: what is given is kept, what is not is taken from the paper's grids.

    The rates tried are the mean score, and the share of favorable outcomes + {0, ±.05, ±.1} within [0, 1].
    """
    rates: list[float | None] = [rho]
    if rho is None and has_rho:
        share = float(np.average(rows.favorable, weights=rows.weights))
        mean = float(np.average(rows.scores, weights=rows.weights))
        grid = [mean, *(share + shift for shift in RHO_SHIFTS)]
        rates = list(dict.fromkeys(rate for rate in grid if 0.0 <= rate <= 1.0))
    gammas = GAMMAS if gamma is None else (gamma,)
    epsilons = EPSILONS if epsilon is None else (epsilon,)
    return [Setting(gamma=g, rho=r, epsilon=e) for g, r, e in itertools.product(gammas, rates, epsilons)]


class _Judge:
    """Measures thresholds on validation rows: sorted once, each setting costs sums over the ramps."""

    def __init__(self, rows: ScoredRows, *, favorable_only: bool) -> None:
        self._good = sorted_margins(rows.take(rows.favorable > 0))
        self._bad = sorted_margins(rows.take(rows.favorable <= 0))
        self._favorable_only = favorable_only

    def __call__(self, thresholds: NDArray[np.float64], gamma: float) -> tuple[NDArray[np.float64], float]:
        """Give the groups' rates and the expected accuracy."""
        good = np.array([g.ramp(float(t), gamma)[0] for g, t in zip(self._good, thresholds, strict=False)])
        bad = np.array([g.ramp(float(t), gamma)[0] for g, t in zip(self._bad, thresholds, strict=False)])
        n_good = np.array([group.total for group in self._good])
        n_bad = np.array([group.total for group in self._bad])
        hits, rows = (good, n_good) if self._favorable_only else (good + bad, n_good + n_bad)
        rates = np.divide(hits, rows, out=np.full(len(rows), np.nan), where=rows > 0)
        return rates, float((good.sum() + (n_bad - bad).sum()) / (n_good.sum() + n_bad.sum()))


def choose(
    constraint: Constraint,
    fit: ScoredRows,
    validation: ScoredRows,
    settings: Iterable[Setting],
    *,
    favorable_only: bool = False,
    tolerance: float | None = None,
) -> Choice:
    """Choose the setting of the highest expected accuracy among those that meet ε on the validation rows.

    A setting meets ε when its violation there is at most ε plus two standard errors of a rate in the smallest
    group; where none does, the one with the smallest excess is taken.

    Parameters
    ----------
    constraint
        What the thresholds are held to.
    fit
        The rows to fit thresholds to.
    validation
        The rows to measure them on.
    settings
        What to try; of equals the first is taken.
    favorable_only
        Rates are of the rows with the favorable outcome, at fit and on validation.
    tolerance
        Measured in place of each setting's own ε.

    Returns
    -------
    Choice
        The setting and its figures on the validation rows.
    """
    groups = sorted_margins(fit.take(fit.favorable > 0) if favorable_only else fit)
    judge = _Judge(validation, favorable_only=favorable_only)
    margin = (validation.take(validation.favorable > 0) if favorable_only else validation).margin()
    tried = []
    for setting in settings:
        rates, accuracy = judge(constraint.thresholds(groups, setting), setting.gamma)
        allowed = (setting.epsilon if tolerance is None else tolerance) + margin
        tried.append(
            Choice(setting=setting, violation=constraint.violation(rates), accuracy=accuracy, allowed=allowed)
        )
    good = [choice for choice in tried if choice.violation <= choice.allowed]
    if good:
        return max(good, key=lambda choice: choice.accuracy)
    return min(tried, key=lambda choice: choice.violation - choice.allowed)
