"""Upper bounds of a network's sums, and of their difference at two values of what changes, in many boxes at once.

Each layer's sums are bounded by lines, followed back to the features (CROWN, Zhang et al. 2018). Differences of the two
runs are followed back on their own wherever that is tighter: they begin as constants (differential verification,
Paulsen et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.networks.aims import Aim, chance
from fairkit_all_inputs.bounds.networks.differences import Planes, planes
from fairkit_all_inputs.bounds.networks.fixed_units import by_layer, hold, unsettled
from fairkit_all_inputs.bounds.networks.mixtures import better_of, bounded
from fairkit_all_inputs.bounds.networks.programme import small, solved
from fairkit_all_inputs.bounds.networks.relaxed import Lines, Ranges, difference_lines, lines
from fairkit_all_inputs.bounds.networks.rounding import rounding
from fairkit_all_inputs.bounds.networks.vertices import Vertices, value, vertices
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE
from fairkit_onnx.structure.networks.layers import Layer, applied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.boxes import BoxRanges

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What is known of a box for a pair of values, shape [B] each."""

    first: Floats  # at least the sum at the first value
    least: Floats  # ends of the sum at the second value
    most: Floats  # ends of the sum at the second value
    gap: Floats  # at least the difference, the first less the second, or what `aim` asks for
    error: Floats  # how far the runtime's sums may be off, each
    still: NDArray[np.bool_]
    empty: NDArray[np.bool_]  # whether no input of the box has the signs of its split units
    weights: Floats  # by which a corner of the box is chosen in which the difference may be large, shape [B, d]
    influence: Floats  # how much would be gained where each feature is known better, per unit, shape [B, d]
    units: Floats
    sums: Sequence[tuple[Floats, Floats]]
    rates: tuple[Floats, Floats]
    points: NDArray[np.int64]


def bounds(
    layers: Sequence[Layer],
    boxes: BoxRanges,
    sides: tuple[Floats, Floats],
    whole: bool,
    unit_signs: NDArray[np.int8] | None = None,
    aim: Aim | None = None,
    target: float = np.inf,
) -> Bounds:
    """Bound boxes for a pair of values."""
    signs = None if unit_signs is None else by_layer(layers, unit_signs.astype(np.float64))
    ranges = _ranges(layers, boxes, sides, signs)
    last = layers[-1]
    depth = len(layers) - 1
    start = last.weights[None, :, :]
    nothing = np.zeros(len(boxes.low))
    first, most, least = nothing, nothing, nothing
    if whole:
        first = _followed(layers, ranges.lines[0], depth, start, boxes, sides[0])[:, 0] + last.bias[0]
        most = _followed(layers, ranges.lines[1], depth, start, boxes, sides[1])[:, 0] + last.bias[0]
        least = last.bias[0] - _followed(layers, ranges.lines[1], depth, -start, boxes, sides[1])[:, 0]
    aim = aim or Aim(SCORE, (0.0, 0.0))
    some = _planes(layers, ranges)
    got = bounded(layers, ranges.lines, some, Aim(SCORE, (0.0, 0.0)) if aim.kind == CHANCE else aim, boxes, sides)
    points, reached = None, np.zeros(len(boxes.low), dtype=np.bool_)
    if aim.kind != FLIP and small(layers):
        above = got.most if aim.kind == SCORE else chance(first, least, most, np.minimum(got.most, first - least))
        points, reached = solved(layers, corners(layers, ranges), got, boxes, sides, (above > target) & ~ranges.empty)
    drops = value(layers, corners(layers, ranges), boxes, sides, got.sums, got.rates)[1] if points is not None else None
    if aim.kind == CHANCE:
        lowest = last.bias[0] - _followed(layers, ranges.lines[0], depth, -start, boxes, sides[0])[:, 0]
        aim = replace(aim, ends=(np.minimum(lowest, first), first, np.minimum(least, most), most))
        got.most = chance(first, least, most, np.minimum(got.most, first - least))
        got = better_of(got, bounded(layers, ranges.lines, some, aim, boxes, sides))
    error, still = rounding(layers, ranges, boxes, sides)
    return Bounds(
        first=first,
        least=least,
        most=most,
        gap=np.minimum(got.most, first - least) if whole and aim.kind == SCORE else got.most,
        error=error,
        still=still,
        empty=np.asarray(ranges.empty),
        weights=got.shared,
        influence=_influence(layers, ranges, got.lost),
        units=np.where(reached[:, None], -1.0, unsettled(layers, ranges, drops)),
        sums=got.sums,
        rates=got.rates,
        points=np.zeros((0, len(boxes.cells.features)), dtype=np.int64) if points is None else points,
    )


def corners(layers: Sequence[Layer], found: Ranges) -> list[Vertices]:
    """Return the vertices of each hidden layer's units."""
    return [vertices(layer, ends) for layer, ends in zip(layers[:-1], _ends(found), strict=True)]


def _ends(found: Ranges) -> list[list[Floats]]:
    """Return by layer the least and the most of both runs' sums, and of their difference, shape [B, n] each."""
    shapes = [one.shape for one in found.least[0]]
    some = (found.least[0], found.most[0], found.least[1], found.most[1], found.low, found.high)
    return [[np.broadcast_to(one[place], shape) for one in some] for place, shape in enumerate(shapes)]


def _ranges(
    layers: Sequence[Layer],
    boxes: BoxRanges,
    sides: tuple[Floats, Floats],
    signs: Sequence[tuple[Floats, Floats]] | None = None,
) -> Ranges:
    """Bound every hidden layer's sums, in order."""
    ranges = Ranges(([], []), ([], []), [], [], ([], []), [], np.zeros(len(boxes.low), dtype=np.bool_))
    for depth, layer in enumerate(layers[:-1]):
        start = layer.weights[None, :, :]
        for run in (0, 1):
            most = _followed(layers, ranges.lines[run], depth, start, boxes, sides[run]) + layer.bias
            least = layer.bias - _followed(layers, ranges.lines[run], depth, -start, boxes, sides[run])
            if depth:
                values = [applied(layers[depth - 1].kind, ends[run][-1]) for ends in (ranges.least, ranges.most)]
                # interval arithmetic too: W⁺ u + W⁻ l + b is sometimes tighter than the lines
                plus, minus = np.maximum(layer.weights, 0.0), np.minimum(layer.weights, 0.0)
                most = np.minimum(most, values[1] @ plus.T + values[0] @ minus.T + layer.bias)
                least = np.maximum(least, values[0] @ plus.T + values[1] @ minus.T + layer.bias)
            most = np.maximum(most, least)  # they may cross by the last digit
            ranges.least[run].append(least)
            ranges.most[run].append(most)
        high = _differing(layers, ranges.differences, depth, start, sides)
        low = -_differing(layers, ranges.differences, depth, -start, sides)
        # z - z' lies between the ends of both runs' own ranges, too
        high = np.minimum(high, ranges.most[0][-1] - ranges.least[1][-1])
        low = np.maximum(low, ranges.least[0][-1] - ranges.most[1][-1])
        ranges.low.append(low)
        ranges.high.append(np.maximum(high, low))
        if signs is not None:
            hold(ranges, signs[depth])
        for run in (0, 1):
            ranges.lines[run].append(lines(layer.kind, ranges.least[run][-1], ranges.most[run][-1]))
        low, high = ranges.low[-1], ranges.high[-1]
        least, most = (
            np.minimum(ranges.least[0][-1], ranges.least[1][-1]),
            np.maximum(ranges.most[0][-1], ranges.most[1][-1]),
        )
        ranges.differences.append(difference_lines(layer.kind, least, most, low, high))
    return ranges


def _back(weights: Floats, line: Lines) -> tuple[Floats, Floats]:
    """Replace a layer's values by lines of its sums: weights of these and what is added, for an upper bound."""
    plus, minus = np.maximum(weights, 0.0), np.minimum(weights, 0.0)
    # an upper bound: positive weights take the upper line, negative ones the lower
    made = plus * line.high[:, None, :] + minus * line.low[:, None, :]
    more = plus @ line.high_at[:, :, None] + minus @ line.low_at[:, :, None]
    return made, more[:, :, 0]


def _followed(
    layers: Sequence[Layer], some: Sequence[Lines], depth: int, weights: Floats, boxes: BoxRanges, side: Floats
) -> Floats:
    """Return the largest weighted sums of the values before layer `depth`, shape [B, n]."""
    total: Floats = np.zeros((len(boxes.low), weights.shape[1]))
    for index in range(depth - 1, -1, -1):
        weights, more = _back(weights, some[index])
        total = total + more + weights @ layers[index].bias
        weights = weights @ layers[index].weights
    return np.asarray(total + weights @ side + boxes.most(weights))


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


def _planes(layers: Sequence[Layer], found: Ranges) -> list[Planes]:
    """Return the planes of each hidden layer."""
    return [
        planes(layer.kind, found.lines[0][place], found.lines[1][place], found.differences[place], ends)
        for place, (layer, ends) in enumerate(zip(layers[:-1], _ends(found), strict=True))
    ]


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
