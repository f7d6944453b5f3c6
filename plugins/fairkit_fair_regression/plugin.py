"""The plugin `fair-regression`: parameters, checks, and the way from a table to a mixture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from fairkit.capabilities import FRACTIONS
from fairkit.errors import ParameterError
from fairkit.mitigators import Capability, FittedModel, Mitigator, Run, Table
from fairkit.results.rules import Rule
from fairkit_fair_regression.parameters import FairRegressionParameters

if TYPE_CHECKING:
    from fairkit_fair_regression.training import Training
    from fairkit_onnx.file import OnnxModel


class FairRegression(Mitigator):
    """Fair regression by reductions: the least loss under statistical parity or bounded group losses.

    Trains a mixture of predictors, by any learner, whose predictions have nearly the same distribution in
    every group (``constraint=statistical_parity``), or whose loss stays below a bound in every group
    (``constraint=bounded_group_loss``).
    Who uses the file draws `u`, which picks the predictor; audits are exact, from the weights.
    """

    name = "fair-regression"
    stage = "in"
    tasks = ("regression", "binary")
    citation = "Agarwal, Dudík, Wu: Fair Regression, ICML 2019, arXiv:1905.12843"
    learners = ("lightgbm", "xgboost", "linear", "logistic", "forest")
    together = ("tolerance", "zeta")
    capabilities = (
        Capability(
            constraints=("statistical_parity",), dial="tolerance", steps=FRACTIONS[1:], randomized=True, trainings=30
        ),
        Capability(
            constraints=("bounded_group_loss",),
            settings={"constraint": "bounded_group_loss"},
            dial="zeta",
            steps=(0.05, 0.1),
            of_limit=False,
            randomized=True,
            trainings=30,
        ),
    )

    Parameters = FairRegressionParameters  # type: ignore[assignment]

    def __init__(self, parameters: Any = None, *, estimator: Any = None) -> None:
        self.estimator = estimator
        """A scikit-learn estimator in place of a learner's name."""
        super().__init__(parameters)

    def check(self) -> None:
        """Refuse parameters that contradict each other."""
        self.parameters.check()

    def promises(self) -> Sequence[Rule]:
        """Name the bound on the distance of distributions, under parity without slack."""
        chosen = self.parameters
        if chosen.constraint != "statistical_parity" or chosen.slack:
            return ()
        most = max([chosen.level, *(float(value) for value in chosen.bounds.values())])
        return (Rule(metric="statistical_parity_ks", max=most),)

    def learner(self, run: Run) -> str:
        """Return the learner's name, or the estimator's type."""
        base = self._base(run)
        return base if isinstance(base, str) else type(base).__name__

    def _base(self, run: Run) -> Any:
        """Return the learner: a name, or an estimator with fit and predict."""
        base_learner: Any = getattr(run.learner, "estimator", run.learner)
        if self.estimator is not None and base_learner is not None:
            raise ParameterError("fair-regression: give a learner or an estimator, not both")
        estimator = self.estimator if self.estimator is not None else base_learner
        if estimator is None or isinstance(estimator, str):
            if estimator is None and self.parameters.constraint == "seo":
                return "linear"
            return super().learner(run)
        if not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
            raise ParameterError(
                f"fair-regression: a {type(estimator).__name__} has no fit and predict; give a learner's name or an "
                "estimator of scikit-learn's kind"
            )
        return estimator

    def training(self, table: Table, run: Run) -> Training:
        """Return a training run: the table is checked, and brought into the form of the solver."""
        from fairkit_fair_regression.training import Training

        return Training.prepare(self.parameters, self._base(run), table, run)

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        return self.training(table, run).fit()

    @classmethod
    def fit_together(
        cls,
        methods: Sequence[Self],
        table: Table,
        run: Run,
        *,
        validation: Table | None = None,
        model: OnnxModel | None = None,
    ) -> Sequence[FittedModel]:
        """Solve for all bounds with the same predictors; see `TrainsTogether`."""
        first = methods[0]
        bound = "zeta" if first.parameters.constraint == "bounded_group_loss" else "tolerance"
        levels = [method.parameters.level for method in methods]
        rest = [dataclasses.replace(method.parameters, **{bound: levels[0]}) for method in methods]
        shared = len(set(levels)) == len(methods) and all(one == rest[0] for one in rest)
        if first.parameters.constraint == "seo" or not shared:
            return [method.fit(table, run, validation=validation, model=model) for method in methods]
        return first.training(table, run).fit_each(levels)

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train one predictor with the same learner and loss, without constraints."""
        return self.training(table, run).unconstrained()
