"""A bound from multipliers alone: each unit's part of it is reached at a vertex of what its two sums can be.

For every p, p' by unit, f - g is at most the largest sum over units of A y + A' y' - p z - p' z', plus what p and p'
weigh the features with; A and A' are the next layer's multipliers through its weights (Lagrangian duality). The sums z
and z' of the two runs lie in a hexagon; relu is linear in each of its quadrants, so that a vertex of these is best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_onnx.structure.networks.layers import RELU, Layer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.boxes import BoxRanges

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Vertices:
    """The vertices of a layer's units, shape [13, B, n] each: both sums, and both values."""

    first: Floats
    second: Floats
    value_first: Floats
    value_second: Floats


def vertices(layer: Layer, ends: Sequence[Floats]) -> Vertices:
    """Return the vertices of units whose sums z, z' and z - z' lie between six ends, shape [B, n] each.

    Each vertex is on a line z = least, most or 0, or z' = least, most or 0, at an end of it, or is the origin.
    """
    least, most, least2, most2, low, high = ends
    # z = z' + (z - z'): only ends that the other run and the difference allow
    least, most = np.maximum(least, least2 + low), np.minimum(most, most2 + high)
    least2, most2 = np.maximum(least2, least - high), np.minimum(most2, most - low)
    first_sums, second_sums = [], []
    for z in (least, most, np.clip(0.0, least, np.maximum(least, most))):
        first_sums += [z, z]
        second_sums += [np.maximum(least2, z - high), np.minimum(most2, z - low)]
    for z in (least2, most2, np.clip(0.0, least2, np.maximum(least2, most2))):
        first_sums += [np.maximum(least, z + low), np.minimum(most, z + high)]
        second_sums += [z, z]
    inside = (least <= 0) & (most >= 0) & (least2 <= 0) & (most2 >= 0) & (low <= 0) & (high >= 0)
    first_sums.append(np.where(inside, 0.0, first_sums[0]))
    second_sums.append(np.where(inside, 0.0, second_sums[0]))
    first, second = np.stack(first_sums), np.stack(second_sums)
    relu = layer.kind == RELU
    return Vertices(
        first, second, np.where(relu, np.maximum(first, 0.0), first), np.where(relu, np.maximum(second, 0.0), second)
    )


def value(
    layers: Sequence[Layer],
    some: Sequence[Vertices],
    boxes: BoxRanges,
    sides: tuple[Floats, Floats],
    sums: Sequence[tuple[Floats, Floats]],
    rates: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """Return an upper bound of a · f - b · g, shape [B], and how far each unit's sign would lower it.

    The second has the shape [B, 2 · units]: the larger loss of the two signs of each unit's sum, first of the one run,
    then of the other.
    """
    last = layers[-1]
    total = (rates[0] - rates[1]) * last.bias[0]
    drops: tuple[list[Floats], list[Floats]] = ([], [])
    for depth, layer in enumerate(layers[:-1]):
        if depth + 2 < len(layers):
            first_weights, second_weights = (some_sums @ layers[depth + 1].weights for some_sums in sums[depth + 1])
        else:
            first_weights, second_weights = (rates[0][:, None] * last.weights, -rates[1][:, None] * last.weights)
        p, q = sums[depth]
        at = some[depth]
        # weak duality: for any multipliers p, q of the sums the maximum over a unit's vertices bounds it
        worth = first_weights * at.value_first + second_weights * at.value_second - p * at.first - q * at.second
        most = worth.max(axis=0)
        total = total + most.sum(axis=1) + (p + q) @ layer.bias
        for drop, z in zip(drops, (at.first, at.second), strict=True):
            signs = [np.where(side, worth, -np.inf).max(axis=0) for side in (z <= 0.0, z >= 0.0)]
            drop.append(most - np.minimum(*signs))
    first = layers[0].weights
    p, q = sums[0] if len(layers) > 1 else (rates[0][:, None], -rates[1][:, None])
    total = total + p @ (first @ sides[0]) + q @ (first @ sides[1])
    total = total + boxes.most(((p + q) @ first)[:, None, :])[:, 0]
    flat = np.concatenate([*drops[0], *drops[1]], axis=1) if drops[0] else np.zeros((len(total), 0))
    return np.asarray(total), flat
