"""Planes above and below the difference of a unit at two runs, and the mixture of them that bounds best in a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.inputs.networks.boxes import DIGITS, Opened
from fairkit.inputs.networks.layers import RELU, Layer, applied
from fairkit.inputs.networks.relaxed import Lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ROUNDS = 8
"""How often a box's mixture is moved to what is tightest at its own maximum."""


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """Planes p · (z - z') + q · z + r · z' + s above (or below) y(z) - y(z'): arrays [4, K, B, n] of p, q, r, s."""

    above: Floats
    below: Floats


def planes(
    kind: NDArray[np.int8], first: Lines, second: Lines, apart: Lines, ends: Sequence[Floats]
) -> Planes:
    """Return the planes of a layer's units.

    Parameters
    ----------
    kind
        By unit.
    first, second, apart
        Lines around the units of both runs, and around their differences.
    ends
        The least and the most of the sums z, of z', and of z - z', six arrays of the shape [B, n].
    """
    turned = Lines(apart.high, -apart.high_at, apart.low, -apart.low_at, apart.gap)
    other = _above(kind, second, first, turned, [*ends[2:4], *ends[:2], -ends[5], -ends[4]])
    p, q, r, s = other  # above y' - y, of z' - z, z' and z
    return Planes(_above(kind, first, second, apart, ends), np.stack([p, -r, -q, -s]))


def _above(
    kind: NDArray[np.int8], first: Lines, second: Lines, apart: Lines, ends: Sequence[Floats]
) -> Floats:
    """Planes above: of the difference alone; of the two runs' lines; and of min(relu(z), the largest z - z').

    The last: y - y' <= relu(z), and <= d = max(0, most of z - z'), so the line through (least z, 0), (d, d) is above.
    Where z - z' <= -e < 0: y' - y >= min(max(z', 0), e), which is above the line through (0, 0) and (most z', e).
    """
    least, _, _, most_other, _, widest = ends
    nothing = np.zeros_like(least)
    relu = kind == RELU
    alone = [apart.high, nothing, nothing, apart.high_at]
    runs = [nothing, first.high, -second.low, first.high_at - second.low_at]
    flat = [nothing, first.high, nothing, first.high_at - np.where(relu, 0.0, second.low_at)]
    rising = [nothing, first.high, -np.ones_like(least), first.high_at]
    for option in (flat, rising):  # relu(z') >= 0 and >= z'
        for place in range(4):
            option[place] = np.where(relu, option[place], runs[place])
    reach = np.maximum(widest, 0.0)
    crossing = relu & (least < 0.0)
    tilt = np.where(crossing, reach / np.maximum(reach - least, 1e-300), 0.0)
    capped = [nothing, tilt, nothing, np.where(crossing, -tilt * least, reach)]
    fall = -widest
    falling = relu & (widest < 0.0) & (most_other > fall)
    drop = np.where(falling, fall / np.maximum(most_other, 1e-300), 0.0)
    capped = [
        np.where(falling, 0.0, np.where(relu, capped[0], alone[0])),
        np.where(falling, 0.0, np.where(relu, capped[1], alone[1])),
        np.where(falling, -drop, np.where(relu, capped[2], alone[2])),
        np.where(falling, 0.0, np.where(relu, capped[3], alone[3])),
    ]
    return np.stack([np.stack(option) for option in (alone, flat, rising, capped)], axis=1)


@dataclass(slots=True, eq=False)
class Followed:
    """A bound of the difference in boxes, and where it comes from.

    Attributes
    ----------
    gap, shared
        The bound, shape [B], and the inputs' weights, shape [B, d].
    weights
        By layer the weights of differences and of both runs' values, shape [B, n] each.
    """

    gap: Floats
    shared: Floats
    weights: list[tuple[Floats, Floats, Floats]]


def followed(
    layers: Sequence[Layer],
    both: tuple[Sequence[Lines], Sequence[Lines]],
    mixed: Sequence[tuple[Floats, Floats]],
    opened: Opened,
    sides: tuple[Floats, Floats],
) -> Followed:
    """Follow the difference back to the features, with one plane for each unit, [4, B, n] above and below."""
    count = len(opened.low)
    delta = np.repeat(layers[-1].weights, count, axis=0)
    one, other = np.zeros_like(delta), np.zeros_like(delta)
    total: Floats = np.zeros(count)
    kept = []
    for place in range(len(layers) - 2, -1, -1):
        above, below = mixed[place]
        kept.append((delta, one, other))
        plus, minus = np.maximum(delta, 0.0), np.minimum(delta, 0.0)
        p, q, r, s = (plus * up + minus * down for up, down in zip(above, below, strict=True))
        total = total + s.sum(axis=1)
        for run, some, line in ((0, one, both[0][place]), (1, other, both[1][place])):
            plus, minus = np.maximum(some, 0.0), np.minimum(some, 0.0)
            total = total + (plus * line.high_at + minus * line.low_at).sum(axis=1)
            made = plus * line.high + minus * line.low
            if run == 0:
                q = q + made
            else:
                r = r + made
        total = total + (q + r) @ layers[place].bias
        delta, one, other = (some @ layers[place].weights for some in (p, q, r))
    total = total + delta @ (sides[0] - sides[1]) + one @ sides[0] + other @ sides[1]
    shared = one + other
    return Followed(total + opened.most(shared[:, None, :])[:, 0], shared, kept[::-1])


def bounded(
    layers: Sequence[Layer],
    both: tuple[Sequence[Lines], Sequence[Lines]],
    some: Sequence[Planes],
    opened: Opened,
    sides: tuple[Floats, Floats],
) -> tuple[Floats, Floats, list[Floats]]:
    """Bound the difference by mixtures of planes; each round adds those that are tightest at the maximum.

    Returns
    -------
    tuple
        The bound [B]; the inputs' weights [B, d]; by layer what each unit's planes lose at the maximum [B, n].
    """
    count = len(opened.low)
    hidden = len(layers) - 1
    choice = [np.zeros((2, *part.above.shape[1:])) for part in some]
    for mine in choice:
        mine[:, 0] = 1.0
    best = np.full(count, np.inf)
    weights = np.zeros((count, layers[0].weights.shape[1]))
    lost = [np.zeros((count, len(layer.bias))) for layer in layers[:-1]]
    for step in range(ROUNDS):
        mixed = [
            ((part.above * mine[0]).sum(axis=1), (part.below * mine[1]).sum(axis=1))
            for part, mine in zip(some, choice, strict=True)
        ]
        got = followed(layers, both, mixed, opened, sides)
        better = got.gap < best
        best = np.where(better, got.gap, best)
        weights[better] = got.shared[better]
        if not hidden:
            break
        inputs, _, _ = opened.corners(got.shared)
        first, second = inputs + sides[0], inputs + sides[1]
        for place, layer in enumerate(layers[:-1]):
            z, other = first @ layer.weights.T + layer.bias, second @ layer.weights.T + layer.bias
            first, second = applied(layer.kind, z), applied(layer.kind, other)
            at = np.stack([z - other, z, other, np.ones_like(z)])[:, None]
            above, below = (
                np.round((part * at).sum(axis=0), DIGITS) for part in (some[place].above, some[place].below)
            )
            lost[place] = np.where(
                better[:, None],
                _lost(
                    got.weights[place],
                    mixed[place],
                    at[:, 0],
                    (first, second),
                    (both[0][place], both[1][place]),
                ),
                lost[place],
            )
            share = 2.0 / (step + 2.0)
            for row, tight in ((0, above.argmin(axis=0)), (1, below.argmax(axis=0))):
                choice[place][row] *= 1.0 - share
                np.put_along_axis(
                    choice[place][row],
                    tight[None],
                    np.take_along_axis(choice[place][row], tight[None], 0) + share,
                    0,
                )
    return best, weights, lost


def _lost(
    weights: tuple[Floats, Floats, Floats],
    mixed: tuple[Floats, Floats],
    at: Floats,
    values: tuple[Floats, Floats],
    both: tuple[Lines, Lines],
) -> Floats:
    """Return by unit how far its planes and lines are above what it does at a point."""
    delta, *runs = weights
    above, below = ((plane * at).sum(axis=0) for plane in mixed)
    apart = values[0] - values[1]
    found = np.where(delta > 0, delta * (above - apart), delta * (below - apart))
    for mine, line, value, z in zip(runs, both, values, at[1:3], strict=True):
        up, down = line.high * z + line.high_at - value, line.low * z + line.low_at - value
        found = found + np.where(mine > 0, mine * up, mine * down)
    return np.asarray(np.maximum(found, 0.0))
