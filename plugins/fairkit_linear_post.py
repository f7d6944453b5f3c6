"""Linear post-processing: equal class rates for two or more classes, with or without reading the group."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

import fairkit
from fairkit.errors import DataError, MissingExtraError
from fairkit.fitted import Prediction
from fairkit.learners import INSTALLED
from fairkit.mitigators import Capability, FittedModel, Groups, Mitigator, Run, Table
from fairkit.parameters import parameter
from fairkit.results.rules import Rule
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.write.estimators import add_estimator
from fairkit_onnx.write.export import TabularModel, add_outputs
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.rules import GroupCodes
from fairkit_repair.learners import check_target, fit_learner
from fairkit_repair.scored_rows import even_folds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_onnx.file import OnnxModel


__all__ = ["LinearPost"]


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [LinearPost]


# The plugin `linear-post`: parameters, out-of-fold probabilities, and the rule that they give.


ConstraintName = Literal["demographic_parity", "equal_opportunity", "equalized_odds"]
CONSTRAINTS: tuple[ConstraintName, ...] = ("demographic_parity", "equal_opportunity", "equalized_odds")


class LinearPost(Mitigator):
    """Decide for the class of the largest probability after a correction that makes class rates equal.

    Trains any learner, fits the correction by a linear programme on out-of-fold probabilities, and keeps all rows for
    the learner. Deterministic, for two classes or more; it reads the group, or predicts it from the features.
    """

    name = "linear-post"
    stage = "in"
    tasks = ("binary", "multiclass")
    citation = (
        "Xian and Zhao, A unified post-processing framework for group fairness in classification, 2024, "
        "arXiv:2405.04025"
    )
    learners = ("lightgbm", "xgboost", "logistic", "forest", "mlp", INSTALLED)
    together: ClassVar[tuple[str, ...]] = ("tolerance",)
    capabilities = tuple(
        Capability(
            constraints=(name,),
            settings={"constraint": name, "read_group": reads},
            dial="tolerance",
            reads_group=reads,
            trainings=6 if reads else 12,
        )
        for reads in (True, False)
        for name in CONSTRAINTS
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """See `LinearPost`."""

        constraint: Literal["demographic_parity", "equal_opportunity", "equalized_odds"] = parameter(
            "demographic_parity",
            help="What must be equal between groups, for every class: the share of decisions for it; the same among "
            "people of this class; the same among them and among all others.",
        )
        tolerance: float = parameter(
            0.0, help="The largest difference allowed between groups, for every class.", minimum=0, maximum=1
        )
        read_group: bool = parameter(
            True,
            help="Whether the model reads the sensitive column. If not, a second model predicts the group from the "
            "features, and the sensitive column is no feature.",
        )
        sensitive: str | None = parameter(
            None, help="The sensitive column to work on, such as sex+race; default: all of them, crossed."
        )
        folds: int | None = parameter(
            None,
            help="Parts of the rows for out-of-fold probabilities; default: 10 of up to 20,000 rows, 5 of up to "
            "100,000, 3 of more.",
            minimum=2,
        )
        min_group: int = parameter(30, help="The least rows of a group in each class that a rate is over.", minimum=1)

    def promises(self) -> Sequence[Rule]:
        """Bound the difference of the constrained rates by the tolerance."""
        metric = f"{self.parameters.constraint}_difference"
        return (Rule(metric=metric, max=self.parameters.tolerance),)

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train out of fold, solve, and train on all rows."""
        return self.fit_together([self], table, run)[0]

    @classmethod
    def fit_together(
        cls,
        methods: Sequence[LinearPost],
        table: Table,
        run: Run,
        *,
        validation: Table | None = None,
        model: OnnxModel | None = None,
    ) -> Sequence[FittedModel]:
        """Train out of fold once, solve for every tolerance, and train on all rows once; see `fit`."""
        _need_scipy()
        check_target(table)
        first = methods[0]
        learner = first.learner(run)
        groups = table.only_groups(first.parameters.sensitive)
        classes = max(2, len(table.classes))
        first._check_sizes(table, groups, classes)
        if not first.parameters.read_group:
            table = _without(table, groups)
        seen = None if first.parameters.read_group else first._cells(table, groups, classes)
        probabilities, cells = first._out_of_fold(learner, table, groups, seen, run)
        rates, layout = first._rates(probabilities, cells, groups, classes)
        base = fit_learner(learner, table, run)
        second = None if seen is None else fit_learner(learner, seen, run)
        models = []
        for index, method in enumerate(methods):
            run.progress("linear programme", index, len(methods))
            multipliers = solve(probabilities, rates, table.row_weights(), method.parameters.tolerance)
            models.append(
                LinearPostModel(
                    base=base,
                    adjustment=first._adjustment(table, groups, second, multipliers, layout, classes),
                    task=table.task,
                    details=_details(groups, probabilities, rates, multipliers, table),
                )
            )
        return models

    def _check_sizes(self, table: Table, groups: Groups, classes: int) -> None:
        if len(groups.names) < 2:
            raise DataError(f"{table.name}: all rows are of one group of {groups.names[0]!r}; nothing to equalize")
        counts = np.bincount(
            groups.codes * classes + table.target.astype(np.int64), minlength=len(groups.names) * classes
        )
        cells = counts.reshape(-1, classes)
        if self.parameters.constraint == "demographic_parity":
            cells = cells.sum(axis=1, keepdims=True)
        group, cell = np.unravel_index(int(cells.argmin()), cells.shape)
        if cells.min() < self.parameters.min_group:
            of = "" if cells.shape[1] == 1 else f" of class {(table.classes or (0, 1))[cell]!r}"
            raise DataError(
                f"{table.name}: group {groups.names[group]!r} has {int(cells.min())} rows{of}, fewer than "
                f"min_group={self.parameters.min_group}; merge groups, add rows, or lower `min_group`"
            )

    def _cells(self, table: Table, groups: Groups, classes: int) -> Table:
        """Return the rows with the group as the label, or group by class where rates are over classes."""
        codes, names = groups.codes, list(groups.names)
        if self.parameters.constraint != "demographic_parity":
            codes = codes * classes + table.target.astype(np.int64)
            names = [f"{name} {index}" for name in names for index in range(classes)]
        return dataclasses.replace(
            table,
            target=codes.astype(np.float64),
            task="binary" if len(names) == 2 else "multiclass",
            classes=tuple(names),
        )

    def _out_of_fold(
        self, learner: str, table: Table, groups: Groups, seen: Table | None, run: Run
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return each row's probabilities by models that were not trained on it: of classes, and of cells."""
        from fairkit_repair.repairing.chance import out_of_folds

        cells = groups.codes * (int(table.target.max()) + 1) + table.target.astype(np.int64)
        fold = even_folds(cells, self.parameters.folds or _fold_count(len(table)), run.rng())

        def answers(train: Table, rest: Table, inside: NDArray[np.bool_]) -> list[NDArray[np.float32]]:
            pairs = [(train, rest)]
            if seen is not None:
                pairs.append((seen.take(~inside), seen.take(inside)))
            return [
                class_probabilities(fit_learner(learner, inside, run), outside.columns) for inside, outside in pairs
            ]

        probabilities, *others = out_of_folds(table, fold, answers, run.progress)
        return probabilities, others[0] if others else None

    def _rates(
        self, probabilities: NDArray[np.float64], cells: NDArray[np.float64] | None, groups: Groups, classes: int
    ) -> tuple[list[Rate], list[tuple[int, Literal["all", "in", "out"]]]]:
        """Return the rates, and of each its class and whether it is over all rows, the class, or the others."""
        count = len(groups.names)
        if cells is None:
            member = np.eye(count)[groups.codes]
            joint = member[:, :, None] * probabilities[:, None, :]
        elif self.parameters.constraint == "demographic_parity":
            member, joint = cells, np.empty((len(cells), count, 0))
        else:
            joint = cells.reshape(len(cells), count, classes)
            member = joint.sum(axis=2)
        events: tuple[Literal["all", "in", "out"], ...] = {
            "demographic_parity": ("all",),
            "equal_opportunity": ("in",),
            "equalized_odds": ("in", "out"),
        }[self.parameters.constraint]  # type: ignore[assignment]
        targets = range(classes) if classes > 2 else (1,)
        layout = [(target, event) for target in targets for event in events]
        chances = {
            (target, event): member
            if event == "all"
            else joint[:, :, target]
            if event == "in"
            else member - joint[:, :, target]
            for target, event in layout
        }
        return [Rate(target, chances[target, event]) for target, event in layout], layout

    def _adjustment(
        self,
        table: Table,
        groups: Groups,
        second: TabularModel | None,
        multipliers: NDArray[np.float64],
        layout: Sequence[tuple[int, Literal["all", "in", "out"]]],
        classes: int,
    ) -> ByGroup | ByFeatures:
        """Write the multipliers as α g_a + β P(a, class): taken from the probabilities of each class."""
        alpha, beta = np.zeros((2, len(groups.names), classes))
        for (target, event), multiplier in zip(layout, multipliers, strict=True):
            if event in ("all", "out"):
                alpha[:, target] += multiplier
            if event in ("in", "out"):
                beta[:, target] += multiplier if event == "in" else -multiplier
        if second is None:
            pad = ((0, 1), (0, 0))
            return ByGroup(
                codes=GroupCodes.learn(table.columns, groups),
                slope=np.pad(beta, pad).astype(np.float32),
                shift=np.pad(alpha, pad).astype(np.float32),
            )
        matrix = alpha
        if self.parameters.constraint != "demographic_parity":
            matrix = np.repeat(alpha[:, None, :], classes, axis=1) + beta[:, None, :] * np.eye(classes)
        return ByFeatures(model=second, matrix=matrix.reshape(-1, classes).astype(np.float32))


def _need_scipy() -> None:
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("scipy", "linear-post") from error


def _without(table: Table, groups: Groups) -> Table:
    """Return the rows without the sensitive columns among the features."""
    hidden = () if groups.split is None else groups.split.columns
    features = tuple(name for name in table.features if name not in hidden)
    if not features:
        raise DataError(f"{table.name}: without the sensitive columns no feature is left")
    return dataclasses.replace(table, features=features)


def _fold_count(rows: int) -> int:
    """Return how many parts: a model of few rows differs from that of all more, and so do its probabilities."""
    return 10 if rows <= 20_000 else 5 if rows <= 100_000 else 3


def _details(
    groups: Groups,
    probabilities: NDArray[np.float64],
    rates: Sequence[Rate],
    multipliers: NDArray[np.float64],
    table: Table,
) -> dict[str, Any]:
    """Return accuracy and class rates by group of the out-of-fold rows, before and after the rule."""
    weights, target = table.row_weights(), table.target.astype(np.int64)
    record: dict[str, Any] = {"groups": list(groups.names), "multipliers": multipliers.tolist()}
    for when, terms in (("before", probabilities), ("after", adjusted(probabilities, rates, multipliers))):
        decided = terms.argmax(axis=1)
        shares = np.zeros((len(groups.names), terms.shape[1]))
        np.add.at(shares, (groups.codes, decided), weights)
        record[when] = {
            "accuracy": float(np.average(decided == target, weights=weights)),
            "class_rates": (shares / shares.sum(axis=1, keepdims=True)).tolist(),
        }
    return {"out_of_fold": record}


# A model with adjusted class probabilities in memory, and as one graph.


@dataclass(frozen=True, slots=True, kw_only=True)
class ByGroup:
    """Terms p_c (1 - slope_gc) - shift_gc by the row's group g; a group that was not seen keeps p_c."""

    codes: GroupCodes  # how raw columns become one of the groups
    slope: NDArray[np.float32]  # shape [groups + 1, classes], the last row 0
    shift: NDArray[np.float32]  # the same shape

    def terms(self, probabilities: NDArray[np.float32], columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the terms, shape [n, classes]."""
        codes = self.codes.transform(columns)
        return np.asarray(probabilities * (1 - self.slope[codes]) - self.shift[codes])

    def add_to(self, graph: GraphBuilder, probabilities: str) -> str:
        """Put the terms into a graph, [rows, classes]."""
        codes = graph.reshape(self.codes.add_to(graph), [-1])
        share_kept = graph.node("Gather", [graph.constant(1 - self.slope), codes], axis=0)
        shift = graph.node("Gather", [graph.constant(self.shift), codes], axis=0)
        return graph.node("Sub", [graph.node("Mul", [probabilities, share_kept]), shift])


@dataclass(frozen=True, slots=True, kw_only=True)
class ByFeatures:
    """Terms p_c - Σ_k z_k matrix_kc, where z are a second model's probabilities of groups, or of groups by classes."""

    model: TabularModel  # the second model; it reads features alone
    matrix: NDArray[np.float32]  # shape [cells, classes]

    def terms(self, probabilities: NDArray[np.float32], columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the terms, shape [n, classes]."""
        return np.asarray(probabilities - class_probabilities(self.model, columns) @ self.matrix)

    def add_to(self, graph: GraphBuilder, probabilities: str) -> str:
        """Put the terms into a graph, [rows, classes]."""
        cells = add_probabilities(graph, self.model)
        return graph.node("Sub", [probabilities, graph.node("MatMul", [cells, graph.constant(self.matrix)])])


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPostModel(FittedModel):
    """A classifier that decides for the largest adjusted term."""

    base: TabularModel  # the classifier without constraints
    adjustment: ByGroup | ByFeatures  # what is taken from its probabilities
    task: Task  # binary or multiclass
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns: the terms above 0, in shares of their sum."""
        terms = self.adjustment.terms(class_probabilities(self.base, columns), columns)
        above = np.maximum(terms, 0) + (terms >= terms.max(axis=1, keepdims=True)) * np.float32(1e-6)
        shares = above / above.sum(axis=1, keepdims=True)
        if self.task == "multiclass":
            return Prediction(score=shares.astype(np.float64))
        score = shares[:, 1].astype(np.float64)
        return Prediction(score=score, decision_probability=(score >= 0.5).astype(np.float64))

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph over the raw columns."""
        graph = GraphBuilder()
        terms = self.adjustment.add_to(graph, add_probabilities(graph, self.base))
        top = graph.node("ReduceMax", [terms], axes=[1], keepdims=1)
        best = graph.node("Cast", [graph.node("GreaterOrEqual", [terms, top])], to=1)
        tiny = graph.node("Mul", [best, 1e-6])
        above = graph.node("Add", [graph.node("Relu", [terms]), tiny])
        total = graph.node("ReduceSum", [above, graph.constant([1], np.int64)], keepdims=1)
        shares = graph.node("Div", [above, total])
        if self.task == "binary":
            shares = graph.node("Gather", [shares, graph.constant([1], np.int64)], axis=1)
        add_outputs(graph, shares, self.task)
        return graph.build()


def class_probabilities(model: TabularModel, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Return the probabilities of all classes, shape [n, classes], in the graph's precision."""
    score = model.predict(columns).score.astype(np.float32)
    return score if score.ndim == 2 else np.stack([1 - score, score], axis=1)


def add_probabilities(graph: GraphBuilder, model: TabularModel) -> str:
    """Put a model's class probabilities into a graph, [rows, classes]."""
    matrix = model.encoder.add_to(graph)
    score = add_estimator(graph, matrix, model.estimator, model.task, width=len(model.encoder.names))
    if model.task == "multiclass":
        return score
    complement = graph.node("Sub", [1.0, score])
    return graph.node("Concat", [complement, score], axis=1)


# The linear programme of fair classification, solved in its dual: a few multipliers, whatever the rows.


STAGES = (0.05, 0.01, 0.002, 0.0005)
"""The widths within which the largest term is smoothed, one after the other."""
_PATIENCE = {"maxiter": 400, "ftol": 1e-11, "gtol": 1e-7, "maxcor": 30}


@dataclass(frozen=True, slots=True)
class Rate:
    """One rate that shall be equal between groups."""

    target: int  # the class whose decisions it counts
    chances: NDArray[np.float64]  # the probability that a row is of a group and in the event, shape [n, groups]


def solve(
    probabilities: NDArray[np.float64], rates: Sequence[Rate], weights: NDArray[np.float64], tolerance: float
) -> NDArray[np.float64]:
    """Return the multipliers λ / Z, shape [rates, groups]."""
    from scipy.optimize import minimize

    share = weights / weights.sum()
    sizes = np.stack([share @ rate.chances for rate in rates])  # [rates, groups]
    scaled = [rate.chances / size for rate, size in zip(rates, sizes, strict=True)]
    unit = float(sizes.min())
    multipliers = np.zeros(sizes.size)
    for width in STAGES:

        def value(x: NDArray[np.float64], width: float = width) -> tuple[float, NDArray[np.float64]]:
            return _dual(x.reshape(sizes.shape) * unit, probabilities, rates, scaled, share, tolerance, width, unit)

        multipliers = minimize(value, multipliers, jac=True, method="L-BFGS-B", options=dict(_PATIENCE)).x
    centered = _centered(multipliers.reshape(sizes.shape) * unit)
    return np.asarray(centered / sizes)


def adjusted(
    probabilities: NDArray[np.float64], rates: Sequence[Rate], multipliers: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the terms whose largest is the decision, shape [n, classes]."""
    terms = probabilities.copy()
    for rate, multiplier in zip(rates, multipliers, strict=True):
        terms[:, rate.target] -= rate.chances @ multiplier
    return terms


def _centered(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(values - values.mean(axis=1, keepdims=True))


def _dual(
    raw: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    rates: Sequence[Rate],
    scaled: Sequence[NDArray[np.float64]],
    share: NDArray[np.float64],
    tolerance: float,
    width: float,
    unit: float,
) -> tuple[float, NDArray[np.float64]]:
    """Return the smoothed dual and its derivative by the multipliers in units of `unit`, flat."""
    multipliers = _centered(raw)
    terms = probabilities.copy()
    for rate, multiplier, chances in zip(rates, multipliers, scaled, strict=True):
        terms[:, rate.target] -= chances @ multiplier
    top = terms.max(axis=1, keepdims=True)
    mass = np.exp((terms - top) / width)
    total = mass.sum(axis=1, keepdims=True)
    mass *= share[:, None] / total
    value = float(share @ (top[:, 0] + width * np.log(total[:, 0])))
    slope = -np.stack([chances.T @ mass[:, rate.target] for rate, chances in zip(rates, scaled, strict=True)])
    round_off = 1e-3 * width * unit
    length = np.sqrt(multipliers**2 + round_off**2)
    value += 0.5 * tolerance * float(length.sum())
    slope += 0.5 * tolerance * multipliers / length
    return value, (_centered(slope) * unit).ravel()
