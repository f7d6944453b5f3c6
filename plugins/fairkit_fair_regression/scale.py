"""Predictions in [0, 1] and the label's unit: rounding to the grid and scaling, in numpy and in a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_fair_regression.losses import STEEPNESS, Rates, to_probability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_fair_regression.grid import Grid
    from fairkit_onnx.write.graph import GraphBuilder

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From predictions in [0, 1] to the label's unit and back."""

    low: float  # the label's range
    high: float  # the label's range
    chances: bool  # whether predictions stand for probabilities (logistic loss)
    grid: Grid | None  # where predictions are rounded down to the grid plus α/2; None where they are only clipped
    rates: Rates | None = None

    def to_unit(self, labels: Array) -> Array:
        """Return labels in [0, 1]."""
        return np.asarray((labels - self.low) / (self.high - self.low))

    def snapped(self, predictions: Array) -> Array:
        """Round down to the grid plus α/2, or clip; any shape."""
        if self.grid is None:
            return np.clip(predictions, 0.0, 1.0)
        return np.asarray(self.grid.values[self.grid.levels(predictions)])

    def to_label(self, predictions: Array) -> Array:
        """Return rounded predictions in the label's unit."""
        if self.rates is not None:
            return self.rates.to_rate(predictions)
        linked = to_probability(predictions) if self.chances else predictions
        return np.asarray(self.low + (self.high - self.low) * linked)

    def add_to(self, graph: GraphBuilder, predictions: str) -> str:
        """Round and scale predictions [rows, k] in a graph."""
        low, high = graph.constant([[0.0]]), graph.constant([[1.0]])
        clipped = graph.node("Min", [graph.node("Max", [predictions, low]), high])
        if self.grid is not None:
            steps = graph.node("Mul", [clipped, self.grid.size])
            level = graph.node("Cast", [graph.node("Floor", [steps])], to=7)
            return graph.node("Gather", [graph.constant(self.to_label(self.grid.values)), level], axis=0)
        if self.rates is not None:
            span, start = graph.constant([[self.rates.span]]), graph.constant([[self.rates.low]])
            return graph.node("Mul", [graph.node("Exp", [graph.node("Mul", [clipped, span])]), start])
        if self.chances:
            centred = graph.node("Sub", [clipped, 0.5])
            clipped = graph.node("Sigmoid", [graph.node("Mul", [centred, 2 * STEEPNESS])])
        if (self.low, self.high) == (0.0, 1.0):
            return clipped
        scaled = graph.node("Mul", [clipped, self.high - self.low])
        return graph.node("Add", [scaled, self.low])
