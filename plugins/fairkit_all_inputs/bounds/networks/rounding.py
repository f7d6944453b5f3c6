"""How far the runtime's float32 sums may be from those of the reals, in boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit_onnx.structure.networks.layers import CURVED, RELU, SIGMOID, TANH, Layer, applied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.boxes import BoxRanges
    from fairkit_all_inputs.bounds.networks.relaxed import Ranges

    Floats = NDArray[np.float64]


def rounding(
    layers: Sequence[Layer], ranges: Ranges, boxes: BoxRanges, sides: tuple[Floats, Floats]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return how far either of the runtime's sums may be off, and whether both are the same number."""
    size = boxes.size + np.maximum(np.abs(sides[0]), np.abs(sides[1]))
    errors = [np.zeros_like(size), np.zeros_like(size)]
    sizes = [size, size]
    differs = np.repeat((sides[0] != sides[1])[None, :], len(size), axis=0)
    still: NDArray[np.bool_] = np.asarray(~differs.any(axis=1))
    for depth, layer in enumerate(layers):
        errors = [layer.error(error, size) for error, size in zip(errors, sizes, strict=True)]
        if depth == len(layers) - 1:
            break
        # a sum differs between the runs only where an input with a weight in it does
        differs = differs.astype(np.float64) @ (layer.spread > 0).T.astype(np.float64) > 0
        dead = np.ones(differs.shape, dtype=np.bool_)
        for run in (0, 1):
            least, most, error = ranges.least[run][depth], ranges.most[run][depth], errors[run]
            off = (layer.kind == RELU) & (most + error <= 0.0)
            dead &= off
            # Lipschitz constants: 1/4 of the sigmoid, 1 of relu and tanh
            steep = np.where(layer.kind == SIGMOID, 0.25 * error, error)
            curved = (layer.kind == SIGMOID) | (layer.kind == TANH)
            errors[run] = np.where(off, 0.0, np.where(curved, steep + CURVED, error))
            ends = applied(layer.kind, least), applied(layer.kind, most)
            sizes[run] = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        differs &= ~dead
        still = np.logical_or(still, ~differs.any(axis=1), dtype=np.bool_)
    return np.asarray(np.maximum(errors[0], errors[1])[:, 0]), np.asarray(still)
