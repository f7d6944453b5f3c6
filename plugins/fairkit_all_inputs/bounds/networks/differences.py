"""Planes above and below the difference of a unit at two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.networks.relaxed import Lines
from fairkit_onnx.structure.networks.layers import RELU

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """Planes p · (z - z') + q · z + r · z' + s above (or below) y(z) - y(z'): arrays [4, K, B, n] of p, q, r, s."""

    above: Floats
    below: Floats


def planes(kind: NDArray[np.int8], first: Lines, second: Lines, apart: Lines, ends: Sequence[Floats]) -> Planes:
    """Return the planes of a layer's units."""
    turned = Lines(apart.high, -apart.high_at, apart.low, -apart.low_at, apart.gap)
    other = _above(kind, second, first, turned, [*ends[2:4], *ends[:2], -ends[5], -ends[4]])
    p, q, r, s = other  # above y' - y, of z' - z, z' and z
    return Planes(_above(kind, first, second, apart, ends), np.stack([p, -r, -q, -s]))


def _above(kind: NDArray[np.int8], first: Lines, second: Lines, apart: Lines, ends: Sequence[Floats]) -> Floats:
    """Planes above: of the difference alone; of the two runs' lines; and of min(relu(z), the largest z - z').

    The last: y - y' <= relu(z), and <= d = max(0, most of z - z'), so the line through (least z, 0), (d, d) is above.
    Where z - z' <= -e < 0: y' - y >= min(max(z', 0), e), which is above the line through (0, 0) and (most z', e).
    """
    least, _, _, most_other, _, widest = ends
    nothing = np.zeros_like(least)
    relu = kind == RELU
    alone = [apart.high, nothing, nothing, apart.high_at]
    # y is below its upper line in z and y' above its lower line in z'
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
