"""A model with adjusted class probabilities in memory, and as one graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.fitted import FittedModel, Prediction
from fairkit_onnx.write.estimators import add_estimator
from fairkit_onnx.write.export import TabularModel, add_outputs
from fairkit_onnx.write.graph import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_onnx.write.grouping import GroupCodes


@dataclass(frozen=True, slots=True, kw_only=True)
class ByGroup:
    """Terms p_c (1 - slope_gc) - shift_gc by the row's group g; a group that was not seen keeps p_c."""

    codes: GroupCodes  # how raw columns become one of the groups
    slope: NDArray[np.float32]  # shape [groups + 1, classes], the last row 0
    shift: NDArray[np.float32]  # shape [groups + 1, classes], the last row 0

    def terms(self, probabilities: NDArray[np.float32], columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the terms, shape [n, classes]."""
        codes = self.codes.transform(columns)
        return np.asarray(probabilities * (1 - self.slope[codes]) - self.shift[codes])

    def add_to(self, graph: GraphBuilder, probabilities: str) -> str:
        """Put the terms into a graph, [rows, classes]."""
        codes = graph.reshape(self.codes.add_to(graph), [-1])
        kept = graph.node("Gather", [graph.constant(1 - self.slope), codes], axis=0)
        shift = graph.node("Gather", [graph.constant(self.shift), codes], axis=0)
        return graph.node("Sub", [graph.node("Mul", [probabilities, kept]), shift])


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
    other = graph.node("Sub", [1.0, score])
    return graph.node("Concat", [other, score], axis=1)
