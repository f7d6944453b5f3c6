"""The mixture of planes that bounds an objective of two runs best in a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.networks.boxes import DIGITS
from fairkit_onnx.structure.networks.layers import applied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.aims import Aim
    from fairkit_all_inputs.bounds.networks.boxes import BoxRanges
    from fairkit_all_inputs.bounds.networks.differences import Planes
    from fairkit_all_inputs.bounds.networks.relaxed import Lines
    from fairkit_onnx.structure.networks.layers import Layer

    Floats = NDArray[np.float64]
    Pairs = list[tuple[Floats, Floats]]

ROUNDS = 8
"""How often a box's mixture is moved to what is tightest at its own maximum."""


@dataclass(slots=True, eq=False)
class Followed:
    """A bound of an objective in boxes, and where it comes from."""

    gap: Floats  # the bound, shape [B], and the inputs' weights, shape [B, d]
    shared: Floats  # the bound, shape [B], and the inputs' weights, shape [B, d]
    weights: list[tuple[Floats, Floats, Floats]]
    sums: Pairs


@dataclass(slots=True, eq=False)
class Bounded:
    """The best bound of boxes."""

    most: Floats  # the bound, shape [B]
    shared: Floats  # the inputs' weights, shape [B, d]
    lost: list[Floats]  # by layer what each unit's planes lose at the maximum, shape [B, n]
    sums: Pairs  # by layer the weights of both runs' sums, shape [B, n] each, and of the two outputs, shape [B] each
    rates: tuple[Floats, Floats]


def followed(
    layers: Sequence[Layer],
    both: tuple[Sequence[Lines], Sequence[Lines]],
    mixed: Sequence[tuple[Floats, Floats]],
    rates: tuple[Floats, Floats],
    boxes: BoxRanges,
    sides: tuple[Floats, Floats],
) -> Followed:
    """Follow a · f - b · g back to the features."""
    # a f - b g = c (f - g) + (a - c) f + (c - b) g with c = min(a, b)
    low = np.minimum(*rates)
    last = layers[-1].weights
    delta, first, second = (low[:, None] * last, (rates[0] - low)[:, None] * last, (low - rates[1])[:, None] * last)
    total = (rates[0] - rates[1]) * layers[-1].bias[0]
    weights, sums = [], []
    for depth in range(len(layers) - 2, -1, -1):
        above, below = mixed[depth]
        weights.append((delta, first, second))
        plus, minus = np.maximum(delta, 0.0), np.minimum(delta, 0.0)
        p, q, r, s = (plus * up + minus * down for up, down in zip(above, below, strict=True))
        total = total + s.sum(axis=1)
        made = []
        for run, some in enumerate((first, second)):
            line = both[run][depth]
            plus, minus = np.maximum(some, 0.0), np.minimum(some, 0.0)
            total = total + (plus * line.high_at + minus * line.low_at).sum(axis=1)
            made.append(plus * line.high + minus * line.low + (q, r)[run])
        q, r = made
        # p (z - z') + q z + r z': the weights of z and of z'
        sums.append((p + q, r - p))
        total = total + (q + r) @ layers[depth].bias
        delta, first, second = (some @ layers[depth].weights for some in (p, q, r))
    total = total + delta @ (sides[0] - sides[1]) + first @ sides[0] + second @ sides[1]
    shared = first + second
    return Followed(total + boxes.most(shared[:, None, :])[:, 0], shared, weights[::-1], sums[::-1])


def bounded(
    layers: Sequence[Layer],
    both: tuple[Sequence[Lines], Sequence[Lines]],
    some: Sequence[Planes],
    aim: Aim,
    boxes: BoxRanges,
    sides: tuple[Floats, Floats],
) -> Bounded:
    """Bound an objective by mixtures of planes; each round adds those that are tightest at the maximum."""
    count = len(boxes.low)
    choice = [np.zeros((2, *part.above.shape[1:])) for part in some]
    for mine in choice:
        mine[:, 0] = 1.0
    best = Bounded(
        np.full(count, np.inf),
        np.zeros((count, layers[0].weights.shape[1])),
        [np.zeros((count, len(layer.bias))) for layer in layers[:-1]],
        [(np.zeros((count, len(layer.bias))), np.zeros((count, len(layer.bias)))) for layer in layers[:-1]],
        (np.zeros(count), np.zeros(count)),
    )
    rates = aim.first(count)
    for step in range(ROUNDS):
        mixed = [
            ((part.above * mine[0]).sum(axis=1), (part.below * mine[1]).sum(axis=1))
            for part, mine in zip(some, choice, strict=True)
        ]
        got = followed(layers, both, mixed, rates, boxes, sides)
        got.gap = got.gap + aim.added(rates)
        better = got.gap < best.most
        _keep(best, got, rates, better)
        inputs, _, _ = boxes.corners(got.shared)
        runs = [inputs + sides[0], inputs + sides[1]]
        for depth, layer in enumerate(layers[:-1]):
            z, other = (values @ layer.weights.T + layer.bias for values in runs)
            runs = [applied(layer.kind, z), applied(layer.kind, other)]
            at = np.stack([z - other, z, other, np.ones_like(z)])
            its = both[0][depth], both[1][depth]
            now = _lost(got.weights[depth], mixed[depth], at, (runs[0], runs[1]), its)
            best.lost[depth] = np.where(better[:, None], now, best.lost[depth])
            _move(choice[depth], some[depth], at[:, None], 2.0 / (step + 2.0))
        last = layers[-1]
        f, g = ((y @ last.weights.T)[:, 0] + last.bias[0] for y in runs)
        # Frank-Wolfe in the weights of the outputs: toward what is best where the bound is reached
        rates = aim.next(rates, f, g, step)
    return best


def _move(choice: Floats, part: Planes, at: Floats, share: float) -> None:
    """Mix in the planes of a layer that are tightest at a point, [4, 1, B, n]."""
    above, below = (np.round((plane * at).sum(axis=0), DIGITS) for plane in (part.above, part.below))
    # a convex combination of planes above is above: any mixture is valid
    choice *= 1.0 - share
    for mine, tight in ((choice[0], above.argmin(axis=0)), (choice[1], below.argmax(axis=0))):
        np.put_along_axis(mine, tight[None], np.take_along_axis(mine, tight[None], 0) + share, 0)


def better_of(first_bound: Bounded, second_bound: Bounded) -> Bounded:
    """Return for each box what bounds it best."""
    left = first_bound.most <= second_bound.most

    def chosen(first: Floats, second: Floats) -> Floats:
        return np.where(left if first.ndim == 1 else left[:, None], first, second)

    return Bounded(
        chosen(first_bound.most, second_bound.most),
        chosen(first_bound.shared, second_bound.shared),
        [chosen(*some) for some in zip(first_bound.lost, second_bound.lost, strict=True)],
        [(chosen(a[0], b[0]), chosen(a[1], b[1])) for a, b in zip(first_bound.sums, second_bound.sums, strict=True)],
        (chosen(first_bound.rates[0], second_bound.rates[0]), chosen(first_bound.rates[1], second_bound.rates[1])),
    )


def _keep(best: Bounded, got: Followed, rates: tuple[Floats, Floats], better: NDArray[np.bool_]) -> None:
    best.most = np.where(better, got.gap, best.most)
    best.shared[better] = got.shared[better]
    for kept, new in [*zip(best.sums, got.sums, strict=True), (best.rates, rates)]:
        for one, other in zip(kept, new, strict=True):
            one[better] = other[better]


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
