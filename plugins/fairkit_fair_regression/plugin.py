"""The plugin `fair-regression`: parameters, checks, and the way from a table to a mixture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.learners import check_target
from fairkit.mitigators import FittedModel, Mitigator, Run, Table
from fairkit.parameters.declare import parameter
from fairkit.results.policy import Rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.onnx.model import OnnxModel


class FairRegression(Mitigator):
    """Fair regression by reductions: the least loss under statistical parity or bounded group losses.

    Trains a mixture of predictors, by any learner, whose predictions have nearly the same distribution in
    every group (``constraint=sp``), or whose loss stays below a bound in every group (``constraint=bgl``).
    Who uses the file draws `u`, which picks the predictor; audits are exact, from the weights.
    """

    name = "fair-regression"
    stage = "in"
    tasks = ("regression", "binary")
    citation = "Agarwal, Dudík, Wu: Fair Regression, ICML 2019, arXiv:1905.12843"
    learners = ("lightgbm", "xgboost", "linear", "logistic", "forest")
    together = ("epsilon", "zeta")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """Parameters of fair regression."""

        constraint: Literal["sp", "bgl", "seo"] = parameter(
            "sp",
            help="sp: statistical parity; bgl: bounded group loss; seo: the baseline that fits the sensitive "
            "column and drops its part.",
        )
        epsilon: tuple[float, ...] = parameter(
            (0.05,),
            help="How far the distribution of predictions in a group may be from everybody's, at any value (sp); "
            "a list gives the whole frontier.",
            minimum=0,
            maximum=1,
        )
        zeta: tuple[float, ...] = parameter(
            (),
            help="The largest loss of a group (bgl), for labels scaled to [0, 1]: squared error is halved, the "
            "logistic loss is log-loss / 10.01; a list gives the whole frontier.",
            above=0,
        )
        bounds: Mapping[str, Any] = parameter(
            {}, help="A bound of its own for a group, in place of epsilon or zeta: bounds.GROUP=0.02."
        )
        choose: float | None = parameter(
            None, help="With a list: the bound whose mixture is the result; default the first of the list."
        )
        loss: Literal["squared", "logistic", "absolute", "quantile"] | None = parameter(
            None, help="Default: squared for numbers, logistic for two classes."
        )
        quantile: float = parameter(0.5, help="Which quantile, with loss=quantile.", above=0, below=1)
        oracle: Literal["cs", "ls", "loss"] | None = parameter(
            None,
            help="What the learner solves: cost-sensitive classification over all thresholds, least squares, or "
            "the loss itself; default: the loss itself where the learner can, else least squares.",
        )
        targets: Literal["predictions", "labels"] | None = parameter(
            None,
            help="What best responses aim at: the best value given the expected label (squared and logistic; "
            "their default) or given each row's label (as published).",
        )
        grid: int = parameter(
            40, help="N, the number of thresholds that predictions are rounded to.", minimum=2
        )
        label_range: tuple[float, ...] = parameter(
            (), help="The label's smallest and largest value, such as 0,4; default: those that occur."
        )
        sensitive: str | None = parameter(
            None, help="The split to constrain, such as sex+race; default: the only one, else all crossed."
        )
        nu: float | None = parameter(
            None, help="The duality gap to reach; default: half the standard error of the loss.", above=0
        )
        multiplier_bound: float = parameter(100.0, help="B, the most that a bound may cost.", above=0)
        iterations: int = parameter(50, help="The most iterations for one bound.", minimum=1)
        settings: Mapping[str, Any] = parameter(
            {}, help="Parameters of the learner's library, such as settings.n_estimators=50."
        )

    def __init__(self, parameters: Any = None, *, estimator: Any = None) -> None:
        self.estimator = estimator
        """A scikit-learn estimator in place of a learner's name."""
        super().__init__(parameters)

    def check(self) -> None:
        """Refuse parameters that contradict each other."""
        chosen = self.parameters
        if chosen.label_range and (
            len(chosen.label_range) != 2 or chosen.label_range[0] >= chosen.label_range[1]
        ):
            raise ParameterError(
                f"fair-regression: label_range={_shown(chosen.label_range)} is no range; give two increasing numbers, "
                "such as label_range=0,4"
            )
        if chosen.constraint == "bgl" and not chosen.zeta:
            raise ParameterError(
                "fair-regression: constraint=bgl needs zeta, the largest loss of a group for labels scaled to [0, 1], "
                "such as --set zeta=0.02"
            )
        if chosen.constraint == "bgl" and chosen.oracle == "cs":
            raise ParameterError("fair-regression: oracle=cs is for constraint=sp; leave it out")
        if chosen.constraint == "sp" and not chosen.epsilon:
            raise ParameterError("fair-regression: epsilon is empty; give one number or a list")
        self._check_list()

    def _check_list(self) -> None:
        listed = self.levels()
        if len(set(listed)) < len(listed):
            raise ParameterError(f"fair-regression: {_shown(listed)} names a bound twice")
        choose = self.parameters.choose
        if choose is not None and choose not in listed:
            raise ParameterError(
                f"fair-regression: choose={choose:g} is not in the list of bounds ({_shown(listed)})"
            )
        for name, value in self.parameters.bounds.items():
            if not isinstance(value, int | float) or not 0 <= value < np.inf:
                raise ParameterError(
                    f"fair-regression: bounds.{name}={value!r} is no bound; give a number from 0"
                )

    def levels(self) -> tuple[float, ...]:
        """Return the bounds of the run: epsilon or zeta."""
        found: tuple[float, ...] = (
            self.parameters.zeta if self.parameters.constraint == "bgl" else self.parameters.epsilon
        )
        return found

    def promises(self) -> Sequence[Rule]:
        """Name the bound on the distance of distributions, under parity."""
        chosen = self.parameters
        if chosen.constraint != "sp":
            return ()
        level = self.levels()[0] if chosen.choose is None else chosen.choose
        most = max([level, *(float(value) for value in chosen.bounds.values())])
        return (Rule(metric="statistical_parity_ks", maximum=most),)

    def learner(self, run: Run) -> str:
        """Return the learner's name, or the estimator's type."""
        base = self._base(run)
        return base if isinstance(base, str) else type(base).__name__

    def _base(self, run: Run) -> Any:
        """Return the learner: a name, or an estimator with fit and predict."""
        given: Any = run.learner
        if self.estimator is not None and given is not None:
            raise ParameterError("fair-regression: give a learner or an estimator, not both")
        found = self.estimator if self.estimator is not None else given
        if found is None or isinstance(found, str):
            if found is None and self.parameters.constraint == "seo":
                return "linear"
            return super().learner(run)
        if not (hasattr(found, "fit") and hasattr(found, "predict")):
            raise ParameterError(
                f"fair-regression: a {type(found).__name__} has no fit and predict; give a learner's name or an "
                "estimator of scikit-learn's kind"
            )
        return found

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        from fairkit_fair_regression.training import Training

        return Training.prepare(self, table, run).fit()

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
        """Solve for all bounds with the same predictors; see `Mitigator.fit_together`."""
        from fairkit_fair_regression.training import Training

        first = methods[0]
        bound = "zeta" if first.parameters.constraint == "bgl" else "epsilon"
        listed = [method.levels() for method in methods]
        levels = tuple(one[0] for one in listed if len(one) == 1)
        whole = [dataclasses.replace(method.parameters, **{bound: levels}) for method in methods]
        shared = len(set(levels)) == len(methods) > 1 and all(one == whole[0] for one in whole)
        if first.parameters.constraint == "seo" or not shared:
            return super().fit_together(methods, table, run, validation=validation, model=model)
        return Training.prepare(cls(whole[0], estimator=first.estimator), table, run).fit_each()

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train one predictor with the same learner and loss, without constraints."""
        from fairkit_fair_regression.training import Training

        return Training.prepare(self, table, run).unconstrained()

    def group_bounds(self, level: float, names: tuple[str, ...]) -> NDArray[np.float64]:
        """Return one bound per group.

        Raises
        ------
        ParameterError
            `bounds` names a group that the data lack.
        """
        unknown = [name for name in self.parameters.bounds if name not in names]
        if unknown:
            hint = did_you_mean(unknown[0], names, what="groups")
            raise ParameterError(f"fair-regression: bounds names the group {unknown[0]!r}. {hint}")
        return np.array([float(self.parameters.bounds.get(name, level)) for name in names])

    def check_table(self, table: Table) -> None:
        """Refuse tables that nothing can be learned from."""
        check_target(table)
        declared = self.parameters.label_range
        if not declared:
            return
        low, high = declared
        outside = (table.target < low) | (table.target > high)
        if outside.any():
            raise DataError(
                f"{table.name}: {int(outside.sum())} of {len(table)} labels leave the declared range {low:g} to "
                f"{high:g} (they go from {table.target.min():g} to {table.target.max():g}); widen label_range, or "
                "mend the data"
            )


def _shown(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)
