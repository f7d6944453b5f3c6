"""Drawing lots: a method that leaves decisions to chance, and two ways to see it.

Everything here is by somebody else: it uses public names of fairkit only (docs/plugins/public-names.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import fairkit
from fairkit.charts import ChartTable, EvidenceChart
from fairkit.learners import EncodedRows, Learner
from fairkit.mitigators import FittedModel, Prediction, Run, Table
from fairkit.sources import Address, DataSource, Records
from fairkit_onnx.write.estimators import GraphEstimator, add_linear, add_link
from fairkit_repair.learners import fit_learner

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FAIRKIT_INTERFACE = 1
_FLOAT, _INT64 = 1, 7


class MeanMargin(fairkit.Mean):
    """The mean distance of the score from 1/2."""

    name = "mean_margin"
    better = "none"
    range = (0.0, 0.5)
    meaning = "0: the model is sure of nobody; 0.5: of everybody."
    needs = frozenset({"score"})

    def per_row(self, rows: fairkit.Rows) -> Floats:
        """Return the distance for each row."""
        return np.abs(rows.score - 0.5)


class Lots(fairkit.Auditor):
    """Says how many decisions are left to chance, and how much."""

    name = "lots"
    summary = "The share of decisions left to chance."
    tasks = frozenset({"binary"})

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set lots.KEY=VALUE."""

        certain: float = fairkit.parameter(
            0.0, help="A chance nearer than this to 0 or 1 counts as decided.", minimum=0, maximum=0.5
        )

    def measure(self, batch: Any, predictions: Any, context: fairkit.AuditContext) -> Floats:
        """Count rows, rows left to chance, and the variance that chance adds."""
        chance = predictions.decision
        drawn = np.minimum(chance, 1 - chance) > self.parameters.certain
        tenths = np.histogram(chance, bins=10, range=(0.0, 1.0))[0]
        return np.array([len(batch), drawn.sum(), (chance * (1 - chance)).sum(), *tenths], dtype=float)

    def findings(self, total: Floats, context: fairkit.AuditContext) -> list[fairkit.Finding]:
        """Return the share; it is of these very rows, so it has no interval."""
        rows, drawn, variance, *tenths = total.tolist()
        return [
            fairkit.Finding(
                auditor=self.name,
                metric="share_by_lot",
                value=drawn / rows,
                confidence=context.confidence,
                parameters={"certain": self.parameters.certain},
                evidence={"expected_changes_in_a_second_draw": 2 * variance, "chances": tenths},
                notes=("No interval: the share is of these very rows.",),
            )
        ]


class Chances(EvidenceChart):
    """How many rows get which chance."""

    name = "chances"
    title = "Rows by the chance that they get"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each tenth."""
        rows = [(f"{place / 10:.1f} to {(place + 1) / 10:.1f}", int(count)) for place, count in enumerate(value)]
        return ChartTable(columns=("chance", "rows"), rows=rows)

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any]:
        """Draw a bar for each tenth."""
        values = [{"chance": (place + 0.5) / 10, "rows": count} for place, count in enumerate(value)]
        x, y = {"field": "chance", "type": "quantitative"}, {"field": "rows", "type": "quantitative"}
        width = 280 if narrow else 480
        return {"data": {"values": values}, "mark": "bar", "width": width, "encoding": {"x": x, "y": y}}

    @classmethod
    def example(cls) -> list[float]:
        """Return counts of ten tenths."""
        return [3.0, 0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 4.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LotsModel(FittedModel):
    """A model whose decision is replaced by a lot with some chance."""

    inner: Any
    share: float
    rate: float
    details: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Mix the inner model's decision with the lot."""
        said = self.inner.predict(columns)
        chance = (1 - self.share) * said.decision_probability + self.share * self.rate
        return Prediction(score=said.score, decision_probability=chance)

    def to_onnx(self) -> onnx.ModelProto:
        """Return the inner model's graph with the lot behind it."""
        from fairkit_onnx.write.graph import GraphBuilder

        graph = GraphBuilder()
        inner = self.inner.to_onnx()
        kinds = {1: "float", 8: "string"}
        feeds = {
            entry.name: graph.input(entry.name, kinds[entry.type.tensor_type.elem_type]) for entry in inner.graph.input
        }
        outputs = graph.inline(inner, feeds)
        decided = graph.node("Mul", [outputs["decision_probability"], graph.constant([[1 - self.share]])])
        chance = graph.node("Add", [decided, graph.constant([[self.share * self.rate]])])
        drawn = graph.node("Less", [graph.input("u", "float"), chance])
        graph.output("score", outputs["score"])
        graph.output("decision_probability", chance)
        graph.output("decision", graph.node("Cast", [drawn], to=_INT64), "int64")
        return graph.build()


class DrawLots(fairkit.Mitigator):
    """Replace a share of a learner's decisions by lots with one chance for everybody.

    The difference between the groups' selection rates is at most 1 - share, whatever the learner does.
    """

    name = "lots"
    stage = "in"
    tasks = ("binary",)
    citation = "Nobody, Drawing lots, 2024"
    learners = ("logistic", "lightgbm")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set KEY=VALUE."""

        share: float = fairkit.parameter(0.95, help="The share of decisions made by lot.", minimum=0, maximum=1)

    def fit(self, table: Table, run: Run, **_: object) -> FittedModel:
        """Train the learner; the lot's chance is the share of favorable outcomes."""
        inner = fit_learner(self.learner(run), table, run)
        rate = float(np.average(table.target, weights=table.weights))
        return LotsModel(inner=inner, share=self.parameters.share, rate=rate, details={"chance_of_the_lot": rate})

    def promises(self) -> Sequence[fairkit.Rule]:
        """Bound the difference by what is not left to chance."""
        return (fairkit.Rule(metric="demographic_parity_difference", max=1 - self.parameters.share),)


@dataclass(frozen=True, slots=True)
class CentroidModel(GraphEstimator):
    """Class probabilities by the distance to each class's mean: softmax of 2 x c - c c, since x x is in all of them."""

    coefficients: Floats
    intercept: Floats

    def score(self, matrix: NDArray[np.float32], task: str) -> Floats:
        """Return probabilities; in a binary task that of the second class."""
        margin = matrix.astype(float) @ self.coefficients.T + self.intercept
        powers = np.exp(margin - margin.max(axis=1, keepdims=True))
        shares = powers / powers.sum(axis=1, keepdims=True)
        return shares[:, 1] if task == "binary" else shares

    def add_to(self, graph: Any, matrix: str, task: str, width: int) -> str:
        """Add the margins and their link."""
        if task == "binary":
            difference = self.coefficients[1] - self.coefficients[0]
            margin = add_linear(graph, matrix, difference, self.intercept[1] - self.intercept[0])
        else:
            margin = add_linear(graph, matrix, self.coefficients, self.intercept)
        return add_link(graph, margin, task)


class Centroids(Learner):
    """Whoever is nearer to a class's mean is likelier of this class."""

    name = "centroids"
    tasks = ("binary", "multiclass")
    scaled = True
    citation = "Nobody, Centroids, 2024"

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> CentroidModel:
        """Take the weighted means; ``settings.sharpness`` says how sure the model is."""
        sharpness = float(settings.pop("sharpness", 0.5))
        if settings:
            raise fairkit.ParameterError(f"centroids has no setting {next(iter(settings))!r}")
        weights = np.ones(len(rows.target)) if rows.weights is None else rows.weights
        inside = [rows.target == one for one in range(int(rows.target.max()) + 1)]
        means = np.stack([np.average(rows.matrix[own], axis=0, weights=weights[own]) for own in inside])
        mass = np.array([weights[own].sum() for own in inside])
        prior = np.log(np.maximum(mass / mass.sum(), 1e-9))
        return CentroidModel(sharpness * 2 * means, prior - sharpness * (means**2).sum(axis=1))


@fairkit.hookimpl
def fairkit_metrics() -> list[type[fairkit.Metric]]:
    """Offer the metric."""
    return [MeanMargin]


@fairkit.hookimpl
def fairkit_auditors() -> list[type[fairkit.Auditor]]:
    """Offer the auditor."""
    return [Lots]


@fairkit.hookimpl
def fairkit_learners() -> list[type[Learner]]:
    """Offer the learner."""
    return [Centroids]


@fairkit.hookimpl
def fairkit_evidence_charts() -> list[type[EvidenceChart]]:
    """Offer the chart."""
    return [Chances]


class Drawn(DataSource):
    """People drawn by lot, as many as the address says: lots:100."""

    name = "drawn"
    schemes = ("lots",)
    options: ClassVar[Mapping[str, str]] = {"seed": "Which draw; 0 without it."}

    def open(self, address: Address) -> Records:
        """Draw them."""
        import pyarrow as pa

        if not address.location.isdigit():
            raise fairkit.DataError(f"{address.text} says no number of people")
        rng = np.random.default_rng(int(address.options.get("seed", "0")))
        count = int(address.location)
        table = pa.table({"sex": rng.choice(["f", "m"], count), "won": rng.integers(0, 2, count)})
        origin = {"kind": self.name, "address": address.text}
        return Records(name="people", schema=table.schema, batches=table.to_batches(), origin=origin)

    @classmethod
    def example(cls, folder: Path) -> str:
        """Return the address of forty."""
        return "lots:40"


@fairkit.hookimpl
def fairkit_sources() -> list[type[DataSource]]:
    """Offer the source."""
    return [Drawn]


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [DrawLots]
