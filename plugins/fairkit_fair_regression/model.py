"""A mixture of predictors in memory, in the label's unit, and as one graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.mitigators import FittedModel, Prediction
from fairkit_onnx.read.members import MEMBER_SCORES, add_member_outputs, embed_weights
from fairkit_onnx.write.export import add_outputs
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.mixture import mixture_chance, stack_members

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.mitigators import Table
    from fairkit_fair_regression.frontier import Frontier
    from fairkit_fair_regression.losses import Loss
    from fairkit_fair_regression.members import Member
    from fairkit_fair_regression.scale import Scale
    from fairkit_onnx.write.encode import Encoder

    Array = NDArray[np.float64]
    Columns = Mapping[str, NDArray[Any]]

EDGE = 1e-4
"""How near to a threshold, in steps of the grid, float32 may put a prediction on the other side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FairRegressionModel(FittedModel):
    """Predictors with weights behind one encoder: every row draws the predictor that it gets."""

    encoder: Encoder  # the mixture
    members: Sequence[Member]  # the mixture
    weights: tuple[float, ...]  # the mixture
    scale: Scale  # the label's unit
    loss: Loss  # what was minimised, and what the numbers mean
    task: Task  # what was minimised, and what the numbers mean
    unconstrained: Member | None = None  # the predictor without constraints, for the price; None where there is none
    frontier: Frontier | None = None  # all mixtures of a run over several bounds; None for one bound
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
        place = (np.cumsum(weights, axis=1)[:, :-1] <= u[:, None]).sum(axis=1)
        return np.asarray(scores[np.arange(len(u)), place])

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
        from fairkit_onnx.session import open_session
        from fairkit_onnx.write.runtime import run_columns

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
        """Measure the price against the unconstrained predictor, and the frontier, on held-out rows."""
        from fairkit_fair_regression.frontier import price, price_sentence

        matrix = self.encoder.transform(table.columns)
        labels = table.target
        record: dict[str, Any] = {}
        if self.unconstrained is not None:
            plain = dataclasses.replace(self.scale, grid=None)
            before = plain.to_label(plain.snapped(self.unconstrained.predict(matrix)))
            record["price"] = price(
                labels, before, self.member_scores(table.columns), self.weights, table.weights, confidence
            )
            record["notes"] = [price_sentence(record["price"])]
        if self.frontier is not None:
            record["frontier"] = self.frontier.with_test(matrix, table, confidence).to_dict()
        return record

    def attachments(self, details: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the frontier as JSON, to stand beside the file; the page of the mitigation draws it."""
        import json

        frontier = details.get("frontier")
        if frontier is None:
            return {}
        text = json.dumps(frontier, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return {".frontier.json": text}

    def _raw(self, columns: Columns) -> Array:
        matrix = self.encoder.transform(columns)
        return np.stack([member.predict(matrix) for member in self.members], axis=1)

    def _prediction(self, scores: Array) -> Prediction:
        mean = scores @ np.array(self.weights)
        if self.task != "binary":
            return Prediction(score=mean)
        return Prediction(score=mean, decision_probability=mixture_chance(scores, self.weights))
