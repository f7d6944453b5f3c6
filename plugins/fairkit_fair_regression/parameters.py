"""The parameters of fair regression, and what they say about a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.intervals import student, two_sided
from fairkit.mitigators import FittedModel, Prediction
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.read.outputs import MEMBER_SCORES, add_member_outputs, embed_weights
from fairkit_onnx.write.export import add_outputs, run_columns
from fairkit_onnx.write.graph import GraphBuilder, mixture_chance, stack_members
from fairkit_repair.learners import check_target

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.mitigators import Table
    from fairkit_fair_regression.learning import Member
    from fairkit_fair_regression.losses import Loss, Scale
    from fairkit_onnx.write.encode import Encoder

    Array = NDArray[np.float64]
    Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FairRegressionParameters:
    """Parameters of fair regression."""

    constraint: Literal["statistical_parity", "bounded_group_loss", "seo"] = parameter(
        "statistical_parity",
        help="statistical_parity: equal distributions of predictions; bounded_group_loss: a bound on every group's "
        "loss; seo: the baseline that fits the sensitive column and drops its part.",
        former_values={"sp": "statistical_parity", "bgl": "bounded_group_loss"},
    )
    tolerance: float = parameter(
        0.05,
        help="How far the distribution of predictions in a group may be from everybody's, at any value "
        "(statistical_parity; the number that audits call statistical_parity_ks).",
        minimum=0,
        maximum=1,
        former={"epsilon": 1},
    )
    zeta: float | None = parameter(
        None,
        help="The largest loss of a group (bounded_group_loss), for labels scaled to [0, 1]: squared error is "
        "halved, the logistic loss is log-loss / 10.01.",
        above=0,
    )
    bounds: Mapping[str, Any] = parameter(
        {}, help="A bound of its own for a group, in place of tolerance or zeta: bounds.GROUP=0.02."
    )
    slack: float = parameter(
        0.0,
        help="C: while training, the bound of a group of n rows is larger by C / sqrt(n), to allow for the "
        "noise of its rows; 0: none.",
        minimum=0,
    )
    loss: Literal["squared", "logistic", "absolute", "quantile", "poisson"] | None = parameter(
        None,
        help="Default: squared for numbers, logistic for two classes. poisson: the deviance of counts, or of "
        "rates such as claims per year (with the years as weights).",
    )
    quantile: float = parameter(0.5, help="Which quantile, with loss=quantile.", above=0, below=1)
    oracle: Literal["cs", "hinge", "ls", "loss"] | None = parameter(
        None,
        help="What the learner solves: cost-sensitive classification over all thresholds, the same with the hinge "
        "loss of one linear function (a linear program), least squares, or the loss itself; default: the loss "
        "itself where the learner can, else least squares.",
    )
    targets: Literal["predictions", "labels"] | None = parameter(
        None,
        help="What best responses aim at: the best value given the expected label (squared, logistic and "
        "poisson; their default) or given each row's label (as published).",
    )
    grid: int = parameter(40, help="N, the number of thresholds that predictions are rounded to.", minimum=2)
    label_range: tuple[float, ...] = parameter(
        (), help="The label's smallest and largest value, such as 0,4; default: those that occur."
    )
    rate_range: tuple[float, ...] = parameter(
        (),
        help="With loss=poisson: the smallest and largest rate to predict, such as 0.01,2; default: the mean label "
        "divided and multiplied by e^4, at most the largest label.",
        above=0,
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

    def check(self) -> None:
        """Refuse parameters that contradict each other."""
        if self.label_range and (len(self.label_range) != 2 or self.label_range[0] >= self.label_range[1]):
            raise ParameterError(
                f"fair-regression: label_range={_shown(self.label_range)} is no range; give two increasing numbers, "
                "such as label_range=0,4"
            )
        if self.constraint == "bounded_group_loss" and self.zeta is None:
            raise ParameterError(
                "fair-regression: constraint=bounded_group_loss needs zeta, the largest loss of a group for labels "
                "scaled to [0, 1], "
                "such as the parameter `zeta=0.02`"
            )
        if self.constraint != "statistical_parity" and self.oracle in ("cs", "hinge"):
            raise ParameterError(
                f"fair-regression: oracle={self.oracle} is for constraint=statistical_parity; leave it out"
            )
        self._check_rates()
        if self.slack == np.inf:
            raise ParameterError("fair-regression: slack must be a finite number")
        if self.slack and self.constraint == "seo":
            raise ParameterError("fair-regression: constraint=seo has no bounds: leave out slack")
        for name, value in self.bounds.items():
            if not isinstance(value, int | float) or not 0 <= value < np.inf:
                raise ParameterError(f"fair-regression: bounds.{name}={value!r} is no bound; give a number from 0")

    def _check_rates(self) -> None:
        rates = self.rate_range
        if rates and self.loss != "poisson":
            raise ParameterError("fair-regression: rate_range goes with loss=poisson: leave it out")
        if rates and (len(rates) != 2 or not np.e * rates[0] <= rates[1] < np.inf):
            raise ParameterError(
                f"fair-regression: rate_range={_shown(rates)} is no range of rates; give two increasing numbers, the "
                "second at least 2.72 times the first, such as rate_range=0.01,2"
            )
        if self.loss == "poisson" and self.label_range and self.label_range[0] < 0:
            raise ParameterError("fair-regression: with loss=poisson the label_range begins at 0 or above")

    @property
    def level(self) -> float:
        """The bound: tolerance or zeta."""
        return self.tolerance if self.constraint != "bounded_group_loss" else self.zeta or 0.0

    def group_bounds(self, level: float, names: tuple[str, ...], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return one bound per group: ε̂_a = ε_a + C / √n_a (theorem 2; the same for ζ_a in theorem 3)."""
        unknown = [name for name in self.bounds if name not in names]
        if unknown:
            hint = did_you_mean(unknown[0], names, what="groups")
            raise ParameterError(f"fair-regression: bounds names the group {unknown[0]!r}. {hint}")
        own = np.array([float(self.bounds.get(name, level)) for name in names])
        return np.asarray(own + self.slack / np.sqrt(np.maximum(rows, 1)))

    def check_table(self, table: Table) -> None:
        """Refuse tables that nothing can be learned from."""
        check_target(table)
        declared = self.label_range
        if not declared:
            return
        low, high = declared
        outside = (table.target < low) | (table.target > high)
        if outside.any():
            raise DataError(
                f"{table.name}: {int(outside.sum())} of {len(table)} labels leave the declared range {low:g} to "
                f"{high:g} (they go from {table.target.min():g} to {table.target.max():g}); widen label_range, or "
                "fix the data"
            )


def _shown(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)


# A mixture of predictors in memory, in the label's unit, and as one graph.


EDGE = 1e-4
"""How near to a threshold, in steps of the grid, float32 may put a prediction on the other side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FairRegressionModel(FittedModel):
    """Predictors with weights behind one encoder: every row draws the predictor that it gets."""

    encoder: Encoder  # from raw columns to features
    members: Sequence[Member]  # the mixture's models
    weights: tuple[float, ...]  # their shares
    scale: Scale  # the label's unit
    loss: Loss  # what was minimised
    task: Task  # what the numbers mean
    unconstrained: Member | None = None  # the predictor without constraints, for the price; None where there is none
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def member_scores(self, columns: Columns) -> Array:
        """Return every member's prediction in the label's unit, shape [n, k]."""
        return self.scale.to_label(self.scale.snapped(self._raw(columns)))

    def predict(self, columns: Columns) -> Prediction:
        """Return the mean prediction, and in a binary task the chance of the favorable decision.

        The mean is not what a row gets: that is one member's prediction, drawn with the weights (`draw`).
        """
        return self._prediction(self.member_scores(columns))

    def draw(self, columns: Columns, u: Array) -> Array:
        """Return each row's prediction for draws u in [0, 1), shape [n]: what the exported file's `score` is."""
        scores, weights = (self.member_scores(columns), np.broadcast_to(self.weights, (len(u), len(self.weights))))
        if self.task == "binary":
            order = np.argsort(-scores, axis=1, kind="stable")
            scores = np.take_along_axis(scores, order, axis=1)
            weights = np.take_along_axis(weights, order, axis=1)
        drawn = (np.cumsum(weights, axis=1)[:, :-1] <= u[:, None]).sum(axis=1)
        return np.asarray(scores[np.arange(len(u)), drawn])

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph over the raw columns; the members share the encoder."""
        graph = GraphBuilder()
        matrix, width = self.encoder.add_to(graph), len(self.encoder.names)
        raw = stack_members(graph, [member.add_to(graph, matrix, width) for member in self.members])
        scores = self.scale.add_to(graph, raw)
        if len(self.members) == 1:
            add_outputs(graph, scores, self.task)
            return graph.build()
        add_member_outputs(graph, scores, self.weights, self.task)
        proto = graph.build()
        embed_weights(proto, self.weights)
        return proto

    def runner(self, proto: onnx.ModelProto) -> Callable[[Columns], Mapping[str, Any]]:
        """Run the graph for all members at once; on the edge of the grid either side is right."""
        from fairkit_onnx.file import open_session

        session = open_session(proto)

        def run(columns: Columns) -> Mapping[str, Any]:
            computed = run_columns(session, columns)
            scores = np.asarray(computed.get(MEMBER_SCORES, computed["score"]), dtype=np.float64)
            if self.scale.grid is not None:
                raw = self._raw(columns)
                steps = raw * self.scale.grid.size
                near = np.abs(steps - np.round(steps)) <= EDGE * np.maximum(1.0, np.abs(steps))
                scores = np.where(near, self.scale.to_label(self.scale.snapped(raw)), scores)
            predicted = self._prediction(scores)
            outputs = {"score": predicted.score.reshape(-1, 1)}
            if "decision_probability" in computed:
                outputs["decision_probability"] = computed["decision_probability"]
            return outputs

        return run

    def held_out(self, table: Table, confidence: float) -> Mapping[str, Any]:
        """Measure the price against the unconstrained predictor on held-out rows."""
        if self.unconstrained is None:
            return {}
        plain = dataclasses.replace(self.scale, grid=None)
        before = plain.to_label(plain.snapped(self.unconstrained.predict(self.encoder.transform(table.columns))))
        members = self.member_scores(table.columns)
        cost = price(table.target, before, members, self.weights, table.weights, confidence)
        low, high = cost["interval"]
        note = (
            f"On the held-out rows the root mean squared error goes from {cost['before']:.5g} without the constraint "
            f"to {cost['after']:.5g}: a price of {cost['difference']:.3g} [{low:.3g}, {high:.3g}]."
        )
        return {"price": cost, "notes": [note]}

    def _raw(self, columns: Columns) -> Array:
        matrix = self.encoder.transform(columns)
        return np.stack([member.predict(matrix) for member in self.members], axis=1)

    def _prediction(self, scores: Array) -> Prediction:
        mean = scores @ np.array(self.weights)
        if self.task != "binary":
            return Prediction(score=mean)
        return Prediction(score=mean, decision_probability=mixture_chance(scores, self.weights))


def price(
    labels: Array, before: Array, members: Array, shares: Sequence[float], weights: Array | None, confidence: float
) -> dict[str, Any]:
    """Return the price of the constraint in root mean squared error, with a paired interval."""
    first = (before - labels) ** 2
    second = ((members - labels[:, None]) ** 2) @ np.array(shares)
    roots = [float(np.sqrt(np.average(rows, weights=weights))) for rows in (first, second)]
    # by the delta method: d √m = dm / (2 √m), of each row's two squares
    scaled = second / (2 * max(roots[1], 1e-300)) - first / (2 * max(roots[0], 1e-300))
    size = np.ones(len(scaled)) if weights is None else weights
    error = float(np.sqrt((size**2 * (scaled - np.average(scaled, weights=weights)) ** 2).sum()) / size.sum())
    half = float(student(two_sided(confidence), np.array([float(len(scaled))]))[0]) * error
    difference = roots[1] - roots[0]
    return {
        "metric": "root_mean_squared_error",
        "before": roots[0],
        "after": roots[1],
        "difference": difference,
        "interval": [difference - half, difference + half],
        "confidence": confidence,
    }
