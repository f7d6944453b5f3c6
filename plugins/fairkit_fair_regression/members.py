"""Predictors of a mixture: predictions in [0, 1] from encoded rows, in memory and in a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit_fair_regression.losses import STEEPNESS, Rates, from_probability
from fairkit_onnx.write.estimators import add_estimator, score_estimator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_onnx.write.graph import GraphBuilder

    Array = NDArray[np.float64]
    Matrix = NDArray[np.float32]


class Member(Protocol):
    """One predictor."""

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions, shape [n]; they may leave [0, 1] and are clipped by whoever uses them."""
        ...

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Put the predictor into a graph; gives predictions of shape [rows, 1]."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same prediction for everybody: in parity by itself."""

    value: float

    def predict(self, matrix: Matrix) -> Array:
        """Return the value, shape [n]."""
        return np.full(len(matrix), self.value)

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return as many values as there are rows."""
        zeros = graph.node("MatMul", [matrix, graph.constant(np.zeros((width, 1)))])
        finite = graph.node("Where", [graph.node("IsNaN", [zeros]), 0.0, zeros])
        return graph.node("Add", [finite, self.value])


@dataclass(frozen=True, slots=True)
class Values:
    """A regression."""

    estimator: Any

    def predict(self, matrix: Matrix) -> Array:
        """Return the regression's values, shape [n]."""
        return score_estimator(self.estimator, matrix, "regression")

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return the regression's values."""
        return add_estimator(graph, matrix, self.estimator, "regression", width=width)


@dataclass(frozen=True, slots=True)
class Chances:
    """A classifier, whose probabilities p stand for predictions (logit(p) / C + 1) / 2."""

    estimator: Any

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions, shape [n]."""
        return from_probability(score_estimator(self.estimator, matrix, "binary"))

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return predictions; probabilities of 0 and 1 become the ends."""
        raw = add_estimator(graph, matrix, self.estimator, "binary", width=width)
        # onnxruntime adds a forest's trees in another order for one row than for many: the sum may exceed 1 by rounding
        chance = graph.node("Min", [graph.node("Max", [raw, 0.0]), 1.0])
        rest = graph.node("Sub", [1.0, chance])
        logit = graph.node("Sub", [graph.node("Log", [chance]), graph.node("Log", [rest])])
        scaled = graph.node("Mul", [logit, 0.5 / STEEPNESS])
        moved = graph.node("Add", [scaled, 0.5])
        return graph.node("Min", [graph.node("Max", [moved, 0.0]), 1.0])


@dataclass(frozen=True, slots=True)
class Logs:
    """A regression of rates, or of their logarithms, which stand for predictions (log μ - log low) / L."""

    estimator: Any  # a regression
    rates: Rates  # what predictions stand for
    logged: bool  # whether the regression gives logarithms

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions, shape [n]."""
        found = score_estimator(self.estimator, matrix, "regression")
        # a rate below the smallest one is clipped later anyway
        return self.rates.from_log(found if self.logged else np.log(np.maximum(found, self.rates.low / 2)))

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Return predictions."""
        found = add_estimator(graph, matrix, self.estimator, "regression", width=width)
        if not self.logged:
            found = graph.node("Log", [graph.node("Max", [found, self.rates.low / 2])])
        centred = graph.node("Sub", [found, float(np.log(self.rates.low))])
        return graph.node("Mul", [centred, 1 / self.rates.span])


@dataclass(frozen=True, slots=True)
class Counted:
    """A classifier of (row, threshold): the prediction is the share of thresholds that it lets the row reach."""

    estimator: Any
    count: int

    def predict(self, matrix: Matrix) -> Array:
        """Return predictions on the grid plus α/2, so that rounding cannot move them, shape [n]."""
        pairs = with_thresholds(matrix, self.count, 1 / self.count)
        reached = score_estimator(self.estimator, pairs, "binary").reshape(-1, self.count) >= 0.5
        return np.asarray(np.minimum((reached.sum(axis=1) + 0.5) / self.count, 1.0))

    def add_to(self, graph: GraphBuilder, matrix: str, width: int) -> str:
        """Repeat every row once for each threshold, classify, and count."""
        shape = graph.constant([1, self.count, 1], np.int64)
        rows = graph.node("Expand", [graph.node("Unsqueeze", [matrix, graph.constant([1], np.int64)]), shape])
        thresholds = np.float32(1 / self.count) * np.arange(1, self.count + 1, dtype=np.float32)
        first = graph.node("Slice", [rows, *(graph.constant([v], np.int64) for v in (0, 1, 2))])
        zeros = graph.node("Cast", [graph.node("IsNaN", [first])], to=1)
        none = graph.node("Mul", [zeros, graph.constant([0.0])])
        column = graph.node("Add", [none, graph.constant(thresholds.reshape(1, -1, 1))])
        pairs = graph.node("Concat", [rows, column], axis=2)
        flat = graph.node("Reshape", [pairs, graph.constant([-1, width + 1], np.int64)])
        chance = add_estimator(graph, flat, self.estimator, "binary", width=width + 1)
        reached = graph.node("Cast", [graph.node("GreaterOrEqual", [chance, 0.5])], to=1)
        table = graph.node("Reshape", [reached, graph.constant([-1, self.count], np.int64)])
        total = graph.node("MatMul", [table, graph.constant(np.full((self.count, 1), 1 / self.count))])
        return graph.node("Add", [total, 0.5 / self.count])


def with_thresholds(matrix: Matrix, count: int, step: float) -> Matrix:
    """Return every row once for each threshold, which becomes the last column: [n N, d + 1]."""
    thresholds = np.float32(step) * np.arange(1, count + 1, dtype=np.float32)
    repeated = np.repeat(matrix, count, axis=0)
    return np.column_stack([repeated, np.tile(thresholds, len(matrix))])
