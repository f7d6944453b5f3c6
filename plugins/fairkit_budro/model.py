"""A BuDRO model in memory, and its way into one ONNX file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.mitigators import FittedModel, Prediction
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.trees import add_ensemble, xgboost_trees

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_onnx.write.encode import Encoder
    from fairkit_similarity.metric import FairMetric


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
        found, outputs, base = xgboost_trees(self.booster)
        count = max(outputs, default=0) + 1
        start = base if len(base) == count else base * count
        margin = add_ensemble(graph, matrix, found, outputs=outputs, base=start)
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
