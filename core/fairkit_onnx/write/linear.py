"""An encoder followed by a matrix, computed in numpy and in a graph so that trees behind it see the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit_onnx.write.encode import Encoding
    from fairkit_onnx.write.graph import GraphBuilder

GRID = 2.0**20
"""Results are multiples of 1 / GRID: sums taken in another order differ in the sixteenth digit, these do not."""
_DOUBLE, _FLOAT = 11, 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearEncoding:
    """z = (x - center) · matrix behind an encoder.

    Products and sums are float64 and then rounded to a grid: a tree may split anywhere between two values,
    so that numpy and a graph must agree on every bit, in batches of any size.

    Attributes
    ----------
    encoder
        From raw columns to x, shape [n, d]; best with columns of about unit size.
    matrix
        Shape [d, k].
    center
        Shape [d].
    names
        The k columns of z.
    """

    encoder: Encoding
    matrix: NDArray[np.float64]
    center: NDArray[np.float64]
    names: list[str]

    @property
    def categorical(self) -> list[int]:
        """None: z holds numbers."""
        return []

    def transform(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Encode raw columns, each of shape [n], to z, shape [n, k]."""
        x = self.encoder.transform(columns).astype(np.float64)
        z = np.rint((x - self.center) @ self.matrix * GRID) / GRID
        return z.astype(np.float32)

    def add_to(self, graph: GraphBuilder) -> str:
        """Put the encoder and the product into a graph; gives the name of z, shape [rows, k]."""
        x = graph.node("Cast", [self.encoder.add_to(graph)], to=_DOUBLE)
        moved = graph.node("Sub", [x, graph.constant(self.center.reshape(1, -1), np.float64)])
        product = graph.node("MatMul", [moved, graph.constant(self.matrix, np.float64)])
        scaled = graph.node("Mul", [product, graph.constant([[GRID]], np.float64)])
        rounded = graph.node("Div", [graph.node("Round", [scaled]), graph.constant([[GRID]], np.float64)])
        return graph.node("Cast", [rounded], to=_FLOAT)
