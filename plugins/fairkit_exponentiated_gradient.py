"""Exponentiated gradient as fairlearn has it: a randomized mixture of classifiers under a parity constraint."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from fairkit.errors import DataError, MissingExtraError
from fairkit.hookspecs import hookimpl
from fairkit.learners import INSTALLED
from fairkit.mitigators import Capability, FittedModel, Mitigator, Prediction
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.write.estimators import add_estimator, score_estimator
from fairkit_onnx.write.export import add_outputs
from fairkit_onnx.write.graph import GraphBuilder, add_mixture_outputs, mixture_chance, stack_members
from fairkit_repair.learners import check_target, encoder_for, fit_estimator, fit_learner

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups, Run, Table
    from fairkit_onnx.write.encode import Encoder

    Array = NDArray[np.float64]
    Matrix = NDArray[np.float32]


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator `exponentiated-gradient`."""
    return [ExponentiatedGradient]


# The plugin `exponentiated-gradient`: parameters, checks, and the way from a table to a mixture.


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
        weights = np.array([reduction.weights_[index] for index in reduction.predictors_.index], dtype=np.float64)
        weights = np.where(weights > _NEGLIGIBLE, weights, 0.0)
        kept = [index for index, weight in enumerate(weights) if weight]
        shares = weights[kept] / weights[kept].sum()
        members = [member_of(reduction.predictors_.iloc[index]) for index in kept]
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


# Classifiers with weights: in memory, and as one graph whose decisions are drawn.


class Member(Protocol):
    """One classifier of the mixture."""

    def scores(self, matrix: Matrix) -> Array:
        """Return scores in [0, 1], shape [n]; favorable from 1/2 on."""
        ...

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Put it into a graph; gives scores of shape [rows, 1]."""
        ...


@dataclass(frozen=True, slots=True)
class Learned:
    """A fitted estimator."""

    estimator: Any

    def scores(self, matrix: Matrix) -> Array:
        """Return probabilities under the weights of this best response."""
        return score_estimator(self.estimator, matrix, "binary")

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return the same probabilities."""
        return add_estimator(graph, matrix, self.estimator, "binary", width=width)


@dataclass(frozen=True, slots=True)
class Constant:
    """The same decision for everybody: the best response where all rows ask for one side."""

    value: float

    def scores(self, matrix: Matrix) -> Array:
        """Return 0 or 1, shape [n]."""
        return np.full(len(matrix), self.value)

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return as many values as there are rows."""
        missing = graph.node("Cast", [graph.node("IsNaN", [matrix])], to=1)
        zeros = graph.node("MatMul", [missing, graph.constant(np.zeros((width, 1)))])
        return graph.node("Add", [zeros, self.value])


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureModel(FittedModel):
    """Classifiers with weights behind one encoder: every decision draws the classifier that makes it."""

    encoder: Encoder
    members: Sequence[Member]
    weights: tuple[float, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Return the mean score, and the weight of the members that accept."""
        matrix = self.encoder.transform(columns)
        scores = np.stack([member.scores(matrix) for member in self.members], axis=1)
        chance = mixture_chance(scores, self.weights)
        return Prediction(score=scores @ np.array(self.weights), decision_probability=chance)

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph over the raw columns; the members share the encoder."""
        graph = GraphBuilder()
        matrix, width = self.encoder.add_to(graph), len(self.encoder.names)
        scores = stack_members(graph, [member.add_to(graph, matrix, width) for member in self.members])
        if len(self.members) == 1:
            add_outputs(graph, scores, "binary")
        else:
            add_mixture_outputs(graph, scores, self.weights)
        return graph.build()


# The best responses: any learner behind what fairlearn takes for an estimator.


class Oracle:
    """What fairlearn calls an estimator: cost-sensitive classification by a learner, on the training rows alone.

    fairlearn hands it row numbers in place of features, and asks every classifier for its decisions on these
    same rows several times: they are scored once.
    """

    def __init__(self, learner: str, table: Table, encoder: Encoder, run: Run, settings: Mapping[str, Any]) -> None:
        self.learner, self.encoder, self.run, self.settings = learner, encoder, run, settings
        self.matrix = encoder.transform(table.columns)
        self.calls = [0]
        """How often a learner was asked, counted over all clones."""

    def __sklearn_clone__(self) -> Oracle:
        """Return another one on the same rows; nothing is copied."""
        clone = object.__new__(Oracle)
        clone.__dict__ = dict(self.__dict__)
        return clone

    def fit(self, _: Any, targets: Any, sample_weight: Any) -> Oracle:
        """Learn which rows to accept; targets 0 or 1, shape [n], weights as their costs."""
        self.calls[0] += 1
        self.run.progress("training classifiers", self.calls[0], max(100, self.calls[0] + 1))
        self.member = Learned(
            fit_estimator(
                self.learner,
                self.matrix,
                np.asarray(targets, dtype=np.float64),
                weights=np.asarray(sample_weight, dtype=np.float64),
                task="binary",
                run=self.run,
                categorical=self.encoder.categorical,
                settings=self.settings,
            )
        )
        self.decisions = (self.member.scores(self.matrix) >= 0.5).astype(np.int64)
        return self

    def predict(self, _: Any) -> NDArray[np.int64]:
        """Return the decisions on the training rows, shape [n]."""
        return self.decisions


def member_of(predictor: Any) -> Member:
    """Take what fairlearn keeps: an oracle's answer, or its own constant."""
    if isinstance(predictor, Oracle):
        return predictor.member
    return Constant(float(predictor.constant))
