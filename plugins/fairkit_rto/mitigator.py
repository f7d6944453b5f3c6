"""The mitigator `rto`: parameters, what is chosen, what is reported."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Capability
from fairkit.parameters import parameter
from fairkit.results.rules import Rule
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_onnx.write.rules import Piece
from fairkit_repair.postprocess import PostParameters, PostProcessor, Solution
from fairkit_rto.constraints import (
    Constraint,
    EqualRates,
    Setting,
    covariance_of,
    descended_thresholds,
    exact_thresholds,
    rates_of,
    sorted_margins,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run
    from fairkit_repair.scored_rows import ScoredRows
    from fairkit_rto.constraints import SortedScores


_FOLDS = 5
_MOST_ROWS = 500_000
"""Settings are chosen on at most so many rows; thresholds are solved on all."""


class RandomizedThresholds(PostProcessor):
    """Return for every group a threshold and a ramp beside it, so that all groups have the same rate.

    With f = 2p - 1 the chance of the favorable decision is h = clip((f - t_k)/γ, 0, 1), the minimiser of
    E[γ/2 h² - f h] subject to |mean of h in group k - ρ| ≤ ε/2; t_k is found exactly.
    """

    name = "rto"
    objectives = ("accuracy", "rate")
    citation = "Alabdulmohsin and Lucic, A near-optimal algorithm for debiasing trained models, NeurIPS 2021"
    capabilities = tuple(
        Capability(
            constraints=(name,),
            settings={"constraint": name},
            dial="tolerance",
            reads_group=True,
            randomized=True,
            trainings=0,
        )
        for name in ("demographic_parity", "equal_opportunity")
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PostParameters):
        """See `RandomizedThresholds`."""

        gamma: float | None = parameter(
            None, help="Width of the ramp on the scale of 2p - 1; default: chosen by cross validation.", minimum=1e-6
        )
        rho: float | None = parameter(
            None, help="The rate that every group gets; default: chosen by cross validation.", minimum=0, maximum=1
        )
        tolerance: float | None = parameter(
            0.0,
            help="The largest difference allowed between groups; none: chosen by cross validation.",
            minimum=0,
            former={"epsilon": 1},
        )
        slack: float = parameter(
            0.0, help="With tolerance=none: the difference allowed on held-out rows beside chance.", minimum=0
        )
        constraint: Literal["demographic_parity", "equal_opportunity", "covariance"] = parameter(
            "demographic_parity",
            help="Equal rates; equal rates among the favorable outcomes (not in the paper); or no covariance "
            "with the first sensitive column, of two values, within the groups of the others.",
        )
        solver: Literal["exact", "sgd"] = parameter(
            "exact", help="The exact solution, or the paper's stochastic gradient descent."
        )
        epochs: int = parameter(25, help="With solver=sgd: passes over the rows.", minimum=1)

    def check(self) -> None:
        """Refuse a rate where there is none."""
        if self.parameters.constraint == "covariance" and self.parameters.rho is not None:
            raise ParameterError("rto: constraint=covariance has no common rate; leave rho out")

    def promises(self) -> Sequence[Rule]:
        """Bound the difference of the constrained rates by the tolerance; a covariance is no rate."""
        if self.parameters.constraint == "covariance":
            return ()
        allowed = self.parameters.slack if self.parameters.tolerance is None else self.parameters.tolerance
        return (Rule(metric=f"{self.parameters.constraint}_difference", max=allowed),)

    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Choose what is not given, then find the thresholds on all rows."""
        favorable_only = self.parameters.constraint == "equal_opportunity"
        _check_rows(rows, self.parameters.min_group, favorable_only=favorable_only)
        constraint = covariance_of(rows) if self.parameters.constraint == "covariance" else EqualRates()
        setting, choice = self._setting(constraint, rows, validation, run)
        fitted = rows.take(rows.favorable > 0) if favorable_only else rows
        groups = sorted_margins(fitted)
        if self.parameters.solver == "sgd":
            thresholds = descended_thresholds(constraint, fitted, setting, self.parameters.epochs, run.rng())
        else:
            thresholds = exact_thresholds(constraint, groups, setting)
        rates = rates_of(groups, thresholds, setting.gamma)
        return Solution(
            pieces=tuple((_piece(float(threshold), setting.gamma),) for threshold in thresholds),
            details={
                **dataclasses.asdict(setting),
                "thresholds": _named(rows.names, thresholds),
                "rates": _named(rows.names, rates),
                "violation_on_fit_rows": constraint.violation(rates),
                **_validation(choice),
            },
            notes=_notes(rates_of(groups, 0.0 * thresholds, setting.gamma), setting),
        )

    def _setting(
        self, constraint: Constraint, rows: ScoredRows, validation: ScoredRows | None, run: Run
    ) -> tuple[Setting, Choice | None]:
        chosen = self.parameters
        # equal selection rates at the rate to keep; a common true positive rate is another number
        rate = rows.rate if chosen.constraint == "demographic_parity" else None
        wishes = Wishes(
            gamma=chosen.gamma,
            rho=rate if chosen.rho is None else chosen.rho,
            epsilon=chosen.tolerance,
            has_rho=isinstance(constraint, EqualRates),
            favorable_only=chosen.constraint == "equal_opportunity",
            tolerance=chosen.slack,
        )
        if wishes.given is not None:
            return wishes.given, None
        rng = run.rng()
        if len(rows) > _MOST_ROWS:
            rows = rows.take(np.sort(rng.choice(len(rows), _MOST_ROWS, replace=False)))
        folds = rows.folds(_FOLDS, rng) if validation is None else [(rows, validation)]
        choice = choose(constraint, rows, folds, wishes)
        return choice.setting, choice


def _check_rows(rows: ScoredRows, least: int, *, favorable_only: bool) -> None:
    if not favorable_only:
        return
    for group, name in enumerate(rows.names):
        count = int((rows.favorable[rows.codes == group] > 0).sum())
        if count < least:
            raise DataError(
                f"group {name!r} has {count} rows with the favorable outcome, fewer than min_group={least}; "
                "equal opportunity is learned from these rows: merge groups or lower the parameter `min_group=N`"
            )


def _piece(threshold: float, gamma: float) -> Piece:
    """Go from the scale of f = 2p - 1 to that of p."""
    return Piece(threshold=0.5 * (threshold + 1.0), width=0.5 * gamma)


def _named(names: tuple[str, ...], values: NDArray[np.float64]) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=False)}


def _validation(choice: Choice | None) -> dict[str, Any]:
    if choice is None:
        return {}
    return {
        "validation": {"violation": choice.violation, "allowed": choice.allowed, "expected_accuracy": choice.accuracy}
    }


def _notes(free: NDArray[np.float64], setting: Setting) -> tuple[str, ...]:
    """Say so where every group is moved the same way: parity does not ask for that."""
    low, high = float(np.nanmin(free)), float(np.nanmax(free))
    slack = 0.5 * setting.epsilon
    if setting.rho is None or low - slack <= setting.rho <= high + slack:
        return ()
    return (
        f"rho={setting.rho:.4g} lies outside the groups' own rates, {low:.4g} to {high:.4g}: "
        "every group's rate is moved in the same direction.",
    )


# Choosing γ, ρ and ε on rows that the thresholds were not fitted to.


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
    rho: float | None = None
    epsilon: float | None = 0.0
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
    favorable = _favorable(rows)
    rates = favorable.rates((favorable.scores >= 0.5).astype(float))
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
        self._good = [sorted_margins(_favorable(rows)) for _, rows in folds]
        self._bad = [sorted_margins(rows.take(rows.favorable <= 0)) for _, rows in folds]
        self._n_good, self._n_bad = (_totals(parts) for parts in (self._good, self._bad))
        self._margin = _margin([_favorable(rows) if only else rows for _, rows in folds])

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
