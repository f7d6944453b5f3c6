"""The plugin `exponentiated-gradient`: parameters, checks, and the way from a table to a mixture."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import DataError, MissingExtraError
from fairkit.learners import INSTALLED
from fairkit.mitigators import Capability, FittedModel, Mitigator
from fairkit.parameters.declare import parameter
from fairkit_exponentiated_gradient.mixture import MixtureModel
from fairkit_exponentiated_gradient.oracle import Oracle, member_of
from fairkit_onnx.write.mixture import mixture_chance
from fairkit_repair.learners import check_target, encoder_for, fit_learner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups, Run, Table

    Array = NDArray[np.float64]

_NEGLIGIBLE = 1e-10

MOMENTS: Mapping[str, tuple[str, Mapping[str, tuple[int, ...]]]] = {
    "demographic_parity": ("DemographicParity", {"selection_rate": (0, 1)}),
    "equal_opportunity": ("TruePositiveRateParity", {"true_positive_rate": (1,)}),
    "predictive_equality": ("FalsePositiveRateParity", {"false_positive_rate": (0,)}),
    "equalized_odds": ("EqualizedOdds", {"true_positive_rate": (1,), "false_positive_rate": (0,)}),
}
"""fairlearn's class for each constraint, and which rates it bounds, each over rows with these outcomes."""


class ExponentiatedGradient(Mitigator):
    """The reduction to cost-sensitive classification: the least error under bounds on rates, by any learner.

    fairlearn's ``ExponentiatedGradient``, as one file: a mixture of classifiers with weights, whose decision
    is drawn by `u`. The bounds hold on the training rows, for the drawn decisions.
    """

    name = "exponentiated-gradient"
    stage = "in"
    citation = (
        "Agarwal, Beygelzimer, Dudík, Langford, Wallach: A Reductions Approach to Fair Classification, "
        "ICML 2018, arXiv:1803.02453"
    )
    learners = ("lightgbm", "xgboost", "logistic", "forest", "mlp", INSTALLED)
    capabilities = tuple(
        Capability(
            constraints=(name,),
            settings={"constraint": name},
            dial="tolerance",
            steps=(0.0, 0.5),
            randomized=True,
            trainings=30,
        )
        for name in MOMENTS
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """See `ExponentiatedGradient`."""

        constraint: Literal["demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds"] = (
            parameter(
                "demographic_parity",
                help="Alike shares of favorable decisions, true positive rates, false positive rates, or both rates.",
                former_values={"false_positive_rate_parity": "predictive_equality"},
            )
        )
        tolerance: float = parameter(
            0.02,
            help="The largest difference allowed between two groups: each group's rate is kept within half of it "
            "from everybody's (fairlearn's difference_bound).",
            minimum=0,
            maximum=2,
            former={"epsilon": 2},
        )
        sensitive: str | None = parameter(
            None, help="The split to constrain, such as sex+race; default: the only one, else all crossed."
        )
        iterations: int = parameter(50, help="The most iterations.", minimum=1)
        nu: float | None = parameter(
            None, help="The duality gap to reach; default: fairlearn's, from the error's noise.", above=0
        )
        multiplier_bound: float = parameter(
            100.0, help="B, the most that the bounds may cost together (1 / fairlearn's eps).", above=0
        )
        settings: Mapping[str, Any] = parameter(
            {}, help="Parameters of the learner's library, such as settings.n_estimators=50."
        )

    def fit(self, table: Table, run: Run, **_: object) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        reductions = _fairlearn()
        learner = self.learner(run)
        check_target(table)
        groups = table.only_groups(self.parameters.sensitive)
        self._check(table, groups)
        oracle = Oracle(learner, table, encoder_for(learner, table), run, self.parameters.settings)
        moment, _rates = MOMENTS[self.parameters.constraint]
        reduction = reductions.ExponentiatedGradient(
            oracle,
            getattr(reductions, moment)(difference_bound=self.parameters.tolerance / 2),
            eps=1 / self.parameters.multiplier_bound,
            max_iter=self.parameters.iterations,
            nu=self.parameters.nu,
        )
        rows = np.arange(len(table)).reshape(-1, 1)
        with warnings.catch_warnings():
            # what fairlearn asks of pandas is between the two
            warnings.filterwarnings("ignore", module=r"fairlearn\.")
            reduction.fit(rows, table.target.astype(np.int64), sensitive_features=groups.codes)
        return self._model(reduction, oracle, table, groups)

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the same learner once, without bounds."""
        return fit_learner(self.learner(run), table, run, settings=self.parameters.settings)

    def _check(self, table: Table, groups: Groups) -> None:
        """Refuse what fairlearn cannot see: weights, and groups without an outcome that a rate is over."""
        if table.weights is not None and table.weights.min() < table.weights.max():
            raise DataError(
                f"{table.name}: exponentiated-gradient takes no row weights, as fairlearn's has none; leave the "
                "weights out, or use fair-regression or fairgbm"
            )
        cells = np.bincount(2 * groups.codes + table.target.astype(np.int64), minlength=2 * len(groups.names))
        for rate, outcomes in MOMENTS[self.parameters.constraint][1].items():
            for group, row in zip(groups.names, cells.reshape(-1, 2), strict=True):
                if len(outcomes) == 1 and row.sum() and not row[outcomes[0]]:
                    raise DataError(
                        f"{table.name}: the group {group!r} has no rows that the {rate.replace('_', ' ')} is over; "
                        "merge groups, add rows, or use constraint=demographic_parity"
                    )

    def _model(self, reduction: Any, oracle: Oracle, table: Table, groups: Groups) -> MixtureModel:
        weights = np.array([reduction.weights_[place] for place in reduction.predictors_.index], dtype=np.float64)
        weights = np.where(weights > _NEGLIGIBLE, weights, 0.0)
        kept = [place for place, weight in enumerate(weights) if weight]
        shares = weights[kept] / weights[kept].sum()
        members = [member_of(reduction.predictors_.iloc[place]) for place in kept]
        chance = mixture_chance(np.stack([m.scores(oracle.matrix) for m in members], axis=1), shares.tolist())
        rates = self._rates(chance, table, groups)
        violation = max(abs(rate - every["all"]) for every in rates.values() for rate in every.values())
        converged = bool(reduction.best_gap_ <= reduction.nu)
        return MixtureModel(
            encoder=oracle.encoder,
            members=tuple(members),
            weights=tuple(shares.tolist()),
            details={
                "constraint": self.parameters.constraint,
                "tolerance": self.parameters.tolerance,
                "learner": oracle.learner,
                "groups": list(groups.names),
                "weights": shares.tolist(),
                "gap": float(reduction.best_gap_),
                "converged": converged,
                "iterations": int(reduction.last_iter_) + 1,
                "oracle_calls": int(reduction.n_oracle_calls_),
                "rates": rates,
                "violation": max(0.0, violation - self.parameters.tolerance / 2),
            },
            notes=self._caveats(len(members), converged, reduction, violation),
        )

    def _rates(self, chance: Array, table: Table, groups: Groups) -> dict[str, dict[str, float]]:
        """Return the bounded rates of the mixture on the training rows: everybody's and each group's."""
        rates = {}
        for rate, outcomes in MOMENTS[self.parameters.constraint][1].items():
            over = np.isin(table.target, outcomes)
            rates[rate] = {"all": float(chance[over].mean())} | {
                name: float(chance[over & (groups.codes == code)].mean())
                for code, name in enumerate(groups.names)
                if (over & (groups.codes == code)).any()
            }
        return rates

    def _caveats(self, members: int, converged: bool, reduction: Any, distance: float) -> tuple[str, ...]:
        notes = []
        if members > 1:
            notes.append(
                f"The model is a mixture of {members} classifiers: draw u in [0, 1) for each person, such as a hash "
                "of an id; the bound holds for the drawn decisions, and the score is the members' mean, no "
                "calibrated probability."
            )
        if not converged:
            notes.append(
                f"The duality gap is still {reduction.best_gap_:.2g} after {reduction.last_iter_ + 1} iterations: a "
                "better "
                "mixture may exist (iterations allows more, nu says what is enough)."
            )
        if distance > self.parameters.tolerance / 2 + 0.005:
            notes.append(
                f"On the training rows a group's rate is {distance:.3g} from everybody's; half of the tolerance is "
                f"{self.parameters.tolerance / 2:g}."
            )
        return tuple(notes)


def _fairlearn() -> Any:
    import importlib

    try:
        return importlib.import_module("fairlearn.reductions")
    except ImportError as error:
        raise MissingExtraError("fairlearn", "exponentiated-gradient") from error
