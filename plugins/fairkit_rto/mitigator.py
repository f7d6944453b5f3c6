"""The mitigator `rto`: parameters, what is chosen, what is reported."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Capability
from fairkit.parameters.declare import parameter
from fairkit.results.rules import Rule
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
from fairkit_rto.selection import Choice, Wishes, choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run
    from fairkit_repair.scored_rows import ScoredRows

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
        kept = rows.rate if chosen.constraint == "demographic_parity" else None
        wishes = Wishes(
            gamma=chosen.gamma,
            rho=kept if chosen.rho is None else chosen.rho,
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
