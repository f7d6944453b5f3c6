"""The plugin `budro`: parameters, checks, and the way from a table to a fitted model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import MissingExtraError, ParameterError
from fairkit.mitigators import Capability, FittedModel, Mitigator, Prediction, Run, Table
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.trees import add_ensemble, xgboost_trees
from fairkit_repair.learners import check_target, encoder_for, fit_learner
from fairkit_similarity.metric import directions_parameter, strength_parameter
from fairkit_similarity.training import refuse_directions

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_budro.boosting import BoostingRows, GapWatch, Trained
    from fairkit_budro.plans import Fixed, Geometry, Plan
    from fairkit_onnx.file import OnnxModel
    from fairkit_onnx.write.encode import Encoder
    from fairkit_similarity.metric import FairMetric


FEW_ROWS = 3_000
"""Below this one thread is faster than several."""

_OWN = {
    "learning_rate": ("eta",),
    "reg_lambda": ("lambda",),
    "max_depth": (),
    "min_child_weight": (),
    "n_estimators": ("num_boost_round", "num_round"),
}
_REFUSED = {
    "objective": "BuDRO is its own objective",
    "num_class": "the label tells the classes",
    "base_score": "scores start at 0: the class balance is in the trees",
    "scale_pos_weight": "give balanced=true or false, or weights for the rows",
    "booster": "BuDRO grows trees, with gbtree",
    "enable_categorical": "categories are one-hot columns",
    "multi_strategy": "one tree for each class has a form in ONNX",
    "eval_metric": "the inner maximum is reported as it is",
    "seed": "give the run's seed, which is kept in the report",
    "random_state": "give the run's seed, which is kept in the report",
    "nthread": "give the run's threads",
    "n_jobs": "give the run's threads",
}


class BuDRO(Mitigator):
    """Gradient boosting that is individually fair, on stock XGBoost.

    Every tree is fitted to the worst case of the scores before it: the distribution of people that raises the mean
    loss most when each may be replaced, at a mean squared fair distance of at most epsilon, by others of the training
    rows who keep his label. A model with small loss there treats similar people alike.
    """

    name = "budro"
    stage = "in"
    tasks = ("binary", "multiclass")
    capabilities = (Capability(constraints=("performance_gap",), dial="target_gap", steps=(1.0,), trainings=20),)
    citation = "Vargo, Zhang, Yurochkin, Sun: Individually fair gradient boosting, ICLR 2021, arXiv:2103.16785"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """Parameters of BuDRO."""

        epsilon: float = parameter(
            0.1, help="The budget: how far people may move, mean squared fair distance.", minimum=0
        )
        plan: Literal["exact", "entropic", "sampled"] = parameter(
            "exact",
            help="The worst case: exact; smoothed by an entropy (few distinct rows); with its multiplier found on "
            "sampled rows (the paper's algorithm 2).",
        )
        exact_every: int = parameter(
            10,
            help="With more than 4,096 distinct rows, search all rows in every so many rounds, and in the others each "
            "row's 256 nearest and its latest answers; 1: always all.",
            minimum=1,
        )
        gamma: float = parameter(5e-5, help="Strength of the entropy (plan=entropic), in units of the loss.", above=0)
        sample: int = parameter(2_000, help="Rows that are drawn in a round (plan=sampled).", minimum=1)
        fair_metric: str = parameter(
            "subspace",
            help="The fair metric: learned from the sensitive columns (subspace), or the file of a saved one.",
            former={"metric": 1},
        )
        strength: float = strength_parameter(1e-6)
        directions: tuple[str, ...] | None = directions_parameter()
        balanced: bool = parameter(True, help="Let every class weigh as much as the most frequent one in the trees.")
        target_gap: float | None = parameter(
            None,
            help="Keep the trees up to the last round whose certified gap (its upper confidence bound, at epsilon) on "
            "validation rows is at most this.",
            above=0,
        )
        validation_share: float = parameter(
            0.2, help="Share of the rows that target_gap is measured on.", above=0, below=1
        )
        n_estimators: int = parameter(120, help="Trees after the first one, which is plain.", minimum=1)
        learning_rate: float = parameter(0.02, help="XGBoost's learning rate.", above=0)
        max_depth: int = parameter(6, help="XGBoost's depth of a tree.", minimum=0)
        reg_lambda: float = parameter(1.0, help="XGBoost's lambda, on the scale of weights that sum to n.", minimum=0)
        min_child_weight: float = parameter(
            5.0, help="XGBoost's min_child_weight, on the scale of weights that sum to n.", minimum=0
        )
        first_round: Mapping[str, Any] = parameter(
            {}, help="XGBoost's parameters in the first, plain round, such as first_round.lambda=1."
        )
        xgboost: Mapping[str, Any] = parameter({}, help="Any other parameter of XGBoost, such as xgboost.max_bin=64.")

    def check(self) -> None:
        """Refuse XGBoost parameters that contradict the method, and plans that cannot be."""
        names = {alias: name for name, aliases in _OWN.items() for alias in (name, *aliases)}
        for key in self.parameters.xgboost:
            if key in names:
                raise ParameterError(f"budro: give {names[key]} itself instead of xgboost.{key}")
        for key in (*self.parameters.xgboost, *self.parameters.first_round):
            if key in _REFUSED:
                raise ParameterError(f"budro: the XGBoost parameter {key} cannot be set: {_REFUSED[key]}")
        refuse_directions("budro", self.parameters.fair_metric, self.parameters.directions)
        if self.parameters.plan == "entropic" and self.parameters.epsilon == 0:
            raise ParameterError(
                "budro: the entropic plan needs an epsilon above 0: it always spends a little; use plan=exact"
            )

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        self.learner(run)
        check_target(table)
        run = _with_threads(run, len(table))
        from fairkit_budro.plans import find_geometry

        train, validation_rows = self._split(table, validation, run)
        parameters = self.parameters
        geometry = find_geometry(train, parameters.fair_metric, parameters.strength, parameters.directions)
        if geometry is None:
            return self.baseline(table, run)
        return self._fit(train, validation_rows, geometry, run)

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train stock XGBoost, with the same weights of the classes."""
        check_target(table)
        factors = _factors(table, self.parameters.balanced)[table.target.astype(np.int64)]
        return fit_learner("xgboost", table.with_weights(table.row_weights() * factors), run)

    def _split(self, table: Table, validation: Table | None, run: Run) -> tuple[Table, Table | None]:
        """Return training rows, and validation rows where a gap is aimed at."""
        if self.parameters.target_gap is None:
            return table, None
        if validation is not None:
            return table, validation
        from fairkit_repair.mitigation.choose import stratified

        held_out = stratified(table.target.astype(np.int64), self.parameters.validation_share, run.rng())
        return table.take(~held_out), table.take(held_out)

    def _fit(self, train: Table, validation: Table | None, geometry: Geometry, run: Run) -> FittedModel:
        from fairkit_budro import boosting

        encoder = encoder_for("xgboost", train)
        rows = self._rows(encoder, train)
        problem = self._problem(geometry, rows)
        settings = boosting.BoostingSettings(
            rounds=self.parameters.n_estimators,
            params=self._xgboost(run, rows.classes),
            first=self.parameters.first_round,
        )
        watch = None if validation is None else self._watch(validation, geometry, encoder, run)
        trained = boosting.train(rows, self._plan(problem, run), settings, watch=watch, progress=run.progress)
        return BuDROModel(
            encoder=encoder,
            booster=trained.booster,
            task=train.task,
            metric=geometry.metric,
            audit_metric=geometry.audited,
            epsilon=self.parameters.epsilon,
            details=_details(trained, geometry, problem, watch),
            notes=() if watch is None else watch.notes(),
        )

    def _rows(self, encoder: Encoder, table: Table) -> BoostingRows:
        from fairkit_budro.boosting import BoostingRows

        weights = table.row_weights()
        return BoostingRows(
            matrix=encoder.transform(table.columns),
            labels=table.target.astype(np.int64),
            mass=weights / weights.sum(),
            factors=_factors(table, self.parameters.balanced),
        )

    def _problem(self, geometry: Geometry, rows: BoostingRows) -> Fixed:
        from fairkit_budro.plans import Fixed
        from fairkit_similarity.transport import Support

        return Fixed(
            support=Support(geometry.metric.transform(geometry.columns)),
            labels=rows.labels,
            mass=rows.mass,
            epsilon=self.parameters.epsilon,
            classes=rows.classes,
        )

    def _plan(self, problem: Fixed, run: Run) -> Plan:
        from fairkit_budro import plans

        chosen = self.parameters
        if chosen.plan == "entropic":
            return plans.EntropicPlan(problem, chosen.gamma)
        if chosen.plan == "sampled":
            return plans.SampledPlan(problem, chosen.exact_every, chosen.sample, run.rng())
        return plans.ExactPlan(problem, chosen.exact_every)

    def _watch(self, validation: Table, geometry: Geometry, encoder: Encoder, run: Run) -> GapWatch:
        from fairkit_budro.boosting import GapWatch
        from fairkit_budro.plans import raw_columns

        return GapWatch(
            matrix=encoder.transform(validation.columns),
            z=geometry.metric.transform(raw_columns(validation)[0]),
            labels=validation.target.astype(np.int64),
            weights=validation.row_weights(),
            epsilon=self.parameters.epsilon,
            target=float(self.parameters.target_gap),
            seed=run.seed,
        )

    def _xgboost(self, run: Run, classes: int) -> dict[str, Any]:
        chosen = self.parameters
        many = {"objective": "multi:softprob", "num_class": classes}
        return {
            "tree_method": "hist",
            "verbosity": 0,
            "seed": run.seed,
            "base_score": 0.5,
            "eta": chosen.learning_rate,
            "max_depth": chosen.max_depth,
            "lambda": chosen.reg_lambda,
            "min_child_weight": chosen.min_child_weight,
            **({} if run.threads is None else {"nthread": run.threads}),
            **({"objective": "binary:logistic"} if classes == 2 else many),
            **chosen.xgboost,
        }


def _factors(table: Table, balanced: bool) -> NDArray[np.float64]:
    """Return the classes' weights in the trees, shape (K,): 1 for the most frequent class."""
    count = max(len(table.classes), int(table.target.max()) + 1)
    weight = np.bincount(table.target.astype(np.int64), weights=table.row_weights(), minlength=count)
    if not balanced:
        return np.ones(count)
    factors: NDArray[np.float64] = np.divide(weight.max(), weight, out=np.ones(count), where=weight > 0)
    return factors


def _with_threads(run: Run, rows: int) -> Run:
    """Import what is heavy, and give numba as many threads as XGBoost; one where rows are few.

    The two libraries' threads take turns in every round. On few rows that costs more than they gain.
    """
    try:
        import xgboost  # noqa: F401 - the first to start its threads
    except ImportError as error:
        raise MissingExtraError("xgboost", "budro") from error
    try:
        import numba
    except ImportError as error:
        raise MissingExtraError("numba", "budro") from error
    threads = 1 if run.threads is None and rows < FEW_ROWS else run.threads
    most = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    numba.set_num_threads(most if threads is None else max(1, min(threads, most)))
    return dataclasses.replace(run, threads=threads)


def _details(trained: Trained, geometry: Geometry, problem: Fixed, watch: GapWatch | None) -> dict[str, Any]:
    """Return the path of training as plain values."""
    path = trained.path
    return {
        "metric_sha256": geometry.metric.sha256,
        "distinct_rows": len(problem.support.first),
        "trees": int(trained.booster.num_boosted_rounds()),
        "path": {
            name: [getattr(moment, name) for moment in path]
            for name in ("value", "loss", "cost", "eta", "searched", "shortfall")
        },
        **({} if watch is None else {"validation": watch.record()}),
    }


# A BuDRO model in memory, and its way into one ONNX file.


@dataclass(frozen=True, slots=True, kw_only=True)
class BuDROModel(FittedModel):
    """An encoder, a booster whose trees add to 0, and the fair metric that it was trained under.

    Decisions are made on margins: with small learning rates all probabilities are within a few units of single
    precision of 1/2, where the margin still tells rows apart.
    """

    encoder: Encoder
    booster: Any
    task: Task
    metric: FairMetric | None  # none where nothing was projected out: then it is plain XGBoost
    audit_metric: bool  # whether the metric reads raw columns of the data alone, so that an audit can use it
    epsilon: float  # the budget of training, at which the certificate is given before and after
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def margins(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return log-odds, shape (n,), or one margin for each class, shape (n, K)."""
        import xgboost

        found = self.booster.predict(xgboost.DMatrix(matrix), output_margin=True)
        return np.asarray(found, dtype=np.float64)

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns."""
        margins = self.margins(self.encoder.transform(columns))
        if self.task == "multiclass":
            powers = np.exp(margins - margins.max(axis=1, keepdims=True))
            return Prediction(score=powers / powers.sum(axis=1, keepdims=True))
        score = 0.5 * (1.0 + np.tanh(0.5 * margins))
        return Prediction(score=score, decision_probability=(margins >= 0.0).astype(np.float64))

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph over the raw columns."""
        graph = GraphBuilder()
        matrix = self.encoder.add_to(graph)
        trees, outputs, base = xgboost_trees(self.booster)
        count = max(outputs, default=0) + 1
        start = base if len(base) == count else base * count
        margin = add_ensemble(graph, matrix, trees, outputs=outputs, base=start)
        if self.task == "multiclass":
            graph.output("probabilities", graph.node("Softmax", [margin], axis=1), width=None)
            return graph.build()
        graph.output("score", graph.node("Sigmoid", [margin]))
        decided = graph.node("GreaterOrEqual", [margin, 0.0])
        graph.output("decision_probability", graph.node("Cast", [decided], to=1))
        graph.output("decision", graph.node("Cast", [decided], to=7), "int64")
        return graph.build()

    def audits(self, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Certify the performance gap under the metric and the budget of training."""
        if self.metric is None or not self.audit_metric:
            return {}
        path = folder / "fair-metric.json"
        self.metric.save(path)
        return {"restricted-dro": {"epsilon": (self.epsilon,), "fair_metric": str(path)}}

    def attachments(self, details: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the fair metric, to be written beside the file."""
        if self.metric is None:
            return {}
        return {".metric.json": json.dumps(self.metric.to_dict(), indent=1, sort_keys=True) + "\n"}
