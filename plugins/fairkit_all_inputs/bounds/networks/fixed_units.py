"""Units whose sums have one sign by a split: what that says about their ends, and which may be split next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit_onnx.structure.networks.layers import RELU, Layer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.relaxed import Ranges

    Floats = NDArray[np.float64]


def by_layer(layers: Sequence[Layer], flat: Floats) -> list[tuple[Floats, Floats]]:
    """Cut numbers of all units of both runs, shape [B, 2 · units], into layers."""
    ends = np.cumsum([0, *(len(layer.bias) for layer in layers[:-1])]).tolist()
    total = ends[-1]
    return [(flat[:, a:b], flat[:, total + a : total + b]) for a, b in itertools.pairwise(ends)]


def unsettled(layers: Sequence[Layer], ranges: Ranges, drops: Floats | None) -> Floats:
    """Return by unit how much a split of its sign lowers the bound, shape [B, units]; -1: settled."""
    if drops is None:
        return np.zeros((len(ranges.empty), 0))
    runs: tuple[list[Floats], list[Floats]] = ([], [])
    for place, layer in enumerate(layers[:-1]):
        for run in (0, 1):
            least, most = ranges.least[run][place], ranges.most[run][place]
            small = 1e-9 * (most - least)
            runs[run].append((layer.kind == RELU) & (least < -small) & (most > small))
    free = np.concatenate([*runs[0], *runs[1]], axis=1)
    return np.asarray(np.where(free, drops, -1.0))


def hold(ranges: Ranges, signs: tuple[Floats, Floats]) -> None:
    """Take the signs of split units into the last layer's ends, and what one run's ends say about the other's."""
    ends = [ranges.least[0], ranges.most[0], ranges.least[1], ranges.most[1]]
    scale = 1.0 + np.abs(ends[0][-1]) + np.abs(ends[1][-1]) + np.abs(ends[2][-1]) + np.abs(ends[3][-1])
    for run in (0, 1):
        least, most = ends[2 * run], ends[2 * run + 1]
        least[-1] = np.where(signs[run] > 0, np.maximum(least[-1], 0.0), least[-1])
        most[-1] = np.where(signs[run] < 0, np.minimum(most[-1], 0.0), most[-1])
    low, high = ranges.low[-1], ranges.high[-1]
    # z = z' + (z - z'): the ends of one run follow from the other's and from the difference's
    lows = np.maximum(ends[0][-1], ends[2][-1] + low), np.maximum(ends[2][-1], ends[0][-1] - high)
    highs = np.minimum(ends[1][-1], ends[3][-1] + high), np.minimum(ends[3][-1], ends[1][-1] - low)
    for run in (0, 1):
        ranges.empty = ranges.empty | (lows[run] > highs[run] + 1e-9 * scale).any(axis=1)
        ends[2 * run][-1], ends[2 * run + 1][-1] = lows[run], np.maximum(highs[run], lows[run])
    ranges.low[-1] = np.maximum(low, ends[0][-1] - ends[3][-1])
    ranges.high[-1] = np.maximum(np.minimum(high, ends[1][-1] - ends[2][-1]), ranges.low[-1])
