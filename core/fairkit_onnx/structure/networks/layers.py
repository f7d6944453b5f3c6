"""A network as layers: weights, what float32 may add to them, and the function of each unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SAME, RELU, SIGMOID, TANH = 0, 1, 2, 3
"""What a unit does to its sum."""
UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative."""
CURVED = 1e-6
"""By how much the runtime's Sigmoid and Tanh may differ from the exact ones: three times what was measured (3.3e-7)."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Sums z = weights · y + bias of the values before, and y' = kind(z)."""

    weights: Floats  # in the arithmetic of the reals, shapes [n, m] and [n]
    bias: Floats  # in the arithmetic of the reals, shapes [n, m] and [n]
    spread: Floats
    rough: Floats  # what the float32 arithmetic of the sums adds, shapes [n, m] and [n]
    base: Floats  # what the float32 arithmetic of the sums adds, shapes [n, m] and [n]
    kind: NDArray[np.int8]  # by unit, one of `SAME`, `RELU`, `SIGMOID`, `TANH`, shape [n]

    def error(self, before: Floats, size: Floats) -> Floats:
        """Return how far the runtime's sums may be off, shape [B, n]."""
        return np.asarray(before @ self.spread.T + (size + before) @ self.rough.T + self.base)


def applied(kind: NDArray[np.int8], sums: Floats) -> Floats:
    """Return the units' values, shape as `sums`."""
    found = np.where(kind == RELU, np.maximum(sums, 0.0), sums)
    if (kind == SIGMOID).any():
        found = np.where(kind == SIGMOID, 0.5 * (1.0 + np.tanh(0.5 * sums)), found)
    if (kind == TANH).any():
        found = np.where(kind == TANH, np.tanh(sums), found)
    return np.asarray(found)


def slope(kind: NDArray[np.int8], sums: Floats) -> Floats:
    """Return the derivative of each unit's function, shape as `sums`."""
    slopes = np.where(kind == RELU, (sums > 0.0).astype(np.float64), 1.0)
    if (kind == SIGMOID).any():
        half = np.tanh(0.5 * sums)
        slopes = np.where(kind == SIGMOID, 0.25 * (1.0 - half * half), slopes)
    if (kind == TANH).any():
        slopes = np.where(kind == TANH, 1.0 - np.tanh(sums) ** 2, slopes)
    return np.asarray(slopes)


def output(layers: Sequence[Layer], features: Floats) -> Floats:
    """Return the last layer's only sum, shape [n]."""
    values = features
    for layer in layers:
        values = applied(layer.kind, values @ layer.weights.T + layer.bias)
    return np.asarray(values[:, 0])


def gradient(layers: Sequence[Layer], features: Floats) -> Floats:
    """Return the derivative of the last layer's only sum by each feature, shape [n, d]; at a kink one of the two."""
    values, slopes = features, []
    for layer in layers:
        sums = values @ layer.weights.T + layer.bias
        slopes.append(slope(layer.kind, sums))
        values = applied(layer.kind, sums)
    found = slopes[-1][:, :1] * layers[-1].weights[:1]
    for layer, steep in zip(layers[-2::-1], slopes[-2::-1], strict=True):
        found = (found * steep) @ layer.weights
    return np.asarray(found)
