"""A FairGBM in memory: one booster, read after one or several numbers of trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.mitigators import FittedModel, Prediction
from fairkit_onnx.write.export import add_outputs
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.mixture import add_mixture_outputs, add_prefix_sums, mixture_chance
from fairkit_onnx.write.trees import add_ensemble, lightgbm_trees

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx
    from numpy.typing import NDArray

    from fairkit_fairgbm.select import Choice
    from fairkit_onnx.write.encode import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class FairGBMModel(FittedModel):
    """An encoder, a booster whose trees add to `start`, and a distribution over numbers of trees."""

    encoder: Encoder
    booster: Any
    start: float
    choice: Choice
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns; the score of a mixture is its members' mean probability."""
        scores = 0.5 * (1 + np.tanh(0.5 * self.margins(self.encoder.transform(columns))))
        weights = self.choice.weights
        return Prediction(score=scores @ np.array(weights), decision_probability=mixture_chance(scores, weights))

    def margins(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the log-odds of every chosen iterate, shape [n, members]."""
        margins = np.empty((len(matrix), len(self.choice.rounds)))
        total = np.full(len(matrix), self.start)
        before = 0
        for member, rounds in enumerate(self.choice.rounds):
            part = self.booster.predict(matrix, raw_score=True, start_iteration=before, num_iteration=rounds - before)
            total = total + part
            margins[:, member] = total
            before = rounds
        return margins

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph; the iterates of a mixture share their trees."""
        graph = GraphBuilder()
        matrix = self.encoder.add_to(graph)
        ends = np.array(self.choice.rounds)
        found = lightgbm_trees(self.booster, rounds=int(ends[-1]))
        outputs = [int(np.searchsorted(ends, place, side="right")) for place in range(len(found))]
        parts = add_ensemble(graph, matrix, found, outputs=outputs, base=[self.start] + [0.0] * (len(ends) - 1))
        scores = graph.node("Sigmoid", [add_prefix_sums(graph, parts, len(ends))])
        if len(ends) == 1:
            add_outputs(graph, scores, "binary")
        else:
            add_mixture_outputs(graph, scores, self.choice.weights)
        return graph.build()
