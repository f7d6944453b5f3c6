"""Upper bounds of a network's sums, and of their difference at two values of what changes, in many boxes at once.

Each layer's sums are bounded by lines, followed back to the features (CROWN, Zhang et al. 2018). Differences of the two
runs are followed back on their own wherever that is tighter: they begin as constants (differential verification,
Paulsen et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.inputs.networks.differences import bounded, planes
from fairkit.inputs.networks.layers import CURVED, RELU, SIGMOID, TANH, Layer, applied
from fairkit.inputs.networks.relaxed import Lines, difference_lines, lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.inputs.networks.boxes import Opened

    Floats = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Ranges:
    """Of the two runs and their difference, by layer: the sums' ends, shape [B, n] each."""

    least: tuple[list[Floats], list[Floats]]
    most: tuple[list[Floats], list[Floats]]
    low: list[Floats]
    high: list[Floats]
    lines: tuple[list[Lines], list[Lines]]
    differences: list[Lines]


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What is known of a box for a pair of values, shape [B] each.

    Attributes
    ----------
    first
        At least the sum at the first value.
    least, most
        Ends of the sum at the second value.
    gap
        At least the difference, the first less the second.
    error
        How far the runtime's sums may be off, each.
    still
        Whether both runs take the same numbers from some layer on: then the runtime's sums are equal.
    weights
        By which a corner of the box is chosen in which the difference may be large, shape [B, d].
    influence
        How much would be gained where each feature is known better, per unit, shape [B, d].
    """

    first: Floats
    least: Floats
    most: Floats
    gap: Floats
    error: Floats
    still: NDArray[np.bool_]
    weights: Floats
    influence: Floats


def bounds(layers: Sequence[Layer], opened: Opened, sides: tuple[Floats, Floats], whole: bool) -> Bounds:
    """Bound boxes for a pair of values.

    Parameters
    ----------
    layers
        The last has one sum.
    opened
        The boxes.
    sides
        What the changing block adds to the features at either value, shape [d].
    whole
        Whether the sums themselves are wanted, and not the difference only.
    """
    found = _ranges(layers, opened, sides)
    last = layers[-1]
    depth = len(layers) - 1
    start = last.weights[None, :, :]
    gap, weights, influence = _gap(layers, found, opened, sides)
    nothing = np.zeros(len(opened.low))
    first, most, least = nothing, nothing, nothing
    if whole:
        first = _followed(layers, found.lines[0], depth, start, opened, sides[0])[:, 0] + last.bias[0]
        most = _followed(layers, found.lines[1], depth, start, opened, sides[1])[:, 0] + last.bias[0]
        least = last.bias[0] - _followed(layers, found.lines[1], depth, -start, opened, sides[1])[:, 0]
        gap = np.minimum(gap, first - least)
    error, still = _rounding(layers, found, opened, sides)
    return Bounds(first, least, most, gap, error, still, weights, influence)


def _ranges(layers: Sequence[Layer], opened: Opened, sides: tuple[Floats, Floats]) -> Ranges:
    """Bound every hidden layer's sums, in order."""
    found = Ranges(([], []), ([], []), [], [], ([], []), [])
    for depth, layer in enumerate(layers[:-1]):
        start = layer.weights[None, :, :]
        for run in (0, 1):
            most = _followed(layers, found.lines[run], depth, start, opened, sides[run]) + layer.bias
            least = layer.bias - _followed(layers, found.lines[run], depth, -start, opened, sides[run])
            if depth:
                values = [
                    applied(layers[depth - 1].kind, ends[run][-1]) for ends in (found.least, found.most)
                ]
                plus, minus = np.maximum(layer.weights, 0.0), np.minimum(layer.weights, 0.0)
                most = np.minimum(most, values[1] @ plus.T + values[0] @ minus.T + layer.bias)
                least = np.maximum(least, values[0] @ plus.T + values[1] @ minus.T + layer.bias)
            most = np.maximum(most, least)  # they may cross by the last digit
            found.least[run].append(least)
            found.most[run].append(most)
            found.lines[run].append(lines(layer.kind, least, most))
        high = _differing(layers, found.differences, depth, start, sides)
        low = -_differing(layers, found.differences, depth, -start, sides)
        high = np.minimum(high, found.most[0][-1] - found.least[1][-1])
        low = np.maximum(low, found.least[0][-1] - found.most[1][-1])
        high = np.maximum(high, low)
        found.low.append(low)
        found.high.append(high)
        least, most = (
            np.minimum(found.least[0][-1], found.least[1][-1]),
            np.maximum(found.most[0][-1], found.most[1][-1]),
        )
        found.differences.append(difference_lines(layer.kind, least, most, low, high))
    return found


def _back(weights: Floats, line: Lines) -> tuple[Floats, Floats]:
    """Replace a layer's values by lines of its sums: weights of these and what is added, for an upper bound."""
    plus, minus = np.maximum(weights, 0.0), np.minimum(weights, 0.0)
    made = plus * line.high[:, None, :] + minus * line.low[:, None, :]
    more = plus @ line.high_at[:, :, None] + minus @ line.low_at[:, :, None]
    return made, more[:, :, 0]


def _followed(
    layers: Sequence[Layer], some: Sequence[Lines], depth: int, weights: Floats, opened: Opened, side: Floats
) -> Floats:
    """Return the largest weighted sums of the values before layer `depth`, shape [B, n]."""
    total: Floats = np.zeros((len(opened.low), weights.shape[1]))
    for place in range(depth - 1, -1, -1):
        weights, more = _back(weights, some[place])
        total = total + more + weights @ layers[place].bias
        weights = weights @ layers[place].weights
    return np.asarray(total + weights @ side + opened.most(weights))


def _differing(
    layers: Sequence[Layer], some: Sequence[Lines], depth: int, weights: Floats, sides: tuple[Floats, Floats]
) -> Floats:
    """Return the largest weighted sums of the values' differences before layer `depth`, shape [B or 1, n]."""
    total: Floats = np.zeros((1, weights.shape[1]))
    for place in range(depth - 1, -1, -1):
        weights, more = _back(weights, some[place])
        total = total + more
        weights = weights @ layers[place].weights
    return np.asarray(total + weights @ (sides[0] - sides[1]))


def _gap(
    layers: Sequence[Layer], found: Ranges, opened: Opened, sides: tuple[Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    """Bound the difference; return it, the inputs' weights, and how much narrower features would help."""
    some = []
    for place, layer in enumerate(layers[:-1]):
        ends = [found.least[0][place], found.most[0][place], found.least[1][place], found.most[1][place]]
        ends += [np.broadcast_to(one[place], ends[0].shape) for one in (found.low, found.high)]
        first, second = found.lines[0][place], found.lines[1][place]
        some.append(planes(layer.kind, first, second, found.differences[place], ends))
    gap, weights, lost = bounded(layers, found.lines, some, opened, sides)
    return gap, weights, _influence(layers, found, lost)


def _rounding(
    layers: Sequence[Layer], found: Ranges, opened: Opened, sides: tuple[Floats, Floats]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return how far either of the runtime's sums may be off, and whether both are the same number."""
    size = opened.size + np.maximum(np.abs(sides[0]), np.abs(sides[1]))
    errors = [np.zeros_like(size), np.zeros_like(size)]
    sizes = [size, size]
    differs = np.repeat((sides[0] != sides[1])[None, :], len(size), axis=0)
    still: NDArray[np.bool_] = np.asarray(~differs.any(axis=1))
    for place, layer in enumerate(layers):
        errors = [layer.error(error, size) for error, size in zip(errors, sizes, strict=True)]
        if place == len(layers) - 1:
            break
        differs = differs.astype(np.float64) @ (layer.spread > 0).T.astype(np.float64) > 0
        dead = np.ones(differs.shape, dtype=np.bool_)
        for run in (0, 1):
            least, most, error = found.least[run][place], found.most[run][place], errors[run]
            off = (layer.kind == RELU) & (most + error <= 0.0)
            dead &= off
            steep = np.where(layer.kind == SIGMOID, 0.25 * error, error)
            curved = (layer.kind == SIGMOID) | (layer.kind == TANH)
            errors[run] = np.where(off, 0.0, np.where(curved, steep + CURVED, error))
            ends = applied(layer.kind, least), applied(layer.kind, most)
            sizes[run] = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        differs &= ~dead
        still = np.logical_or(still, ~differs.any(axis=1), dtype=np.bool_)
    return np.asarray(np.maximum(errors[0], errors[1])[:, 0]), np.asarray(still)


def _influence(layers: Sequence[Layer], found: Ranges, lost: Sequence[Floats]) -> Floats:
    """Share what units lose among the features, by how much each moves a unit's sum."""
    weights: Floats = np.zeros((1, len(layers[-2].bias) if len(layers) > 1 else layers[0].weights.shape[1]))
    for place in range(len(layers) - 2, -1, -1):
        one, two = found.lines[0][place], found.lines[1][place]
        width = found.most[0][place] - found.least[0][place]
        moved = weights * np.maximum(one.high, two.high) if place < len(layers) - 2 else 0.0
        weights = moved + lost[place] / np.maximum(width, 1e-12)
        weights = weights @ np.abs(layers[place].weights)
    return np.asarray(weights)
