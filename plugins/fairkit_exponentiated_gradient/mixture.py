"""Classifiers with weights: in memory, and as one graph whose decisions are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.mitigators import FittedModel, Prediction
from fairkit_onnx.write.estimators import add_estimator, score_estimator
from fairkit_onnx.write.export import add_outputs
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.mixture import add_mixture_outputs, mixture_chance, stack_members

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.write.encode import Encoder

    Array = NDArray[np.float64]
    Matrix = NDArray[np.float32]


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
