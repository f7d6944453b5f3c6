"""Lines above and below the units of a layer, and their differences at two inputs, that hold in a box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_onnx.structure.networks.layers import RELU, SAME, SIGMOID, TANH, applied, slope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Of each unit y(z): low · z + low_at <= y <= high · z + high_at, shape [B, n] each; `gap`: how far apart."""

    low: Floats
    low_at: Floats
    high: Floats
    high_at: Floats
    gap: Floats


@dataclass(slots=True, eq=False)
class Ranges:
    """Of the two runs and their difference, by layer: the sums' ends, shape [B, n] each; `empty`: there are none."""

    least: tuple[list[Floats], list[Floats]]
    most: tuple[list[Floats], list[Floats]]
    low: list[Floats]
    high: list[Floats]
    lines: tuple[list[Lines], list[Lines]]
    differences: list[Lines]
    empty: NDArray[np.bool_]


def lines(kind: NDArray[np.int8], least: Floats, most: Floats) -> Lines:
    """Return lines around units whose sums lie between `least` and `most`, shape [B, n].

    A function whose slopes lie in [m, M] is above y(l) + m (z - l) and below y(u) + m (z - u). A convex one is below
    its chord (CROWN, Zhang et al. 2018).
    """
    at_least, at_most = applied(kind, least), applied(kind, most)
    width = np.maximum(most - least, 1e-300)
    chord = (at_most - at_least) / width
    crossing = (kind == RELU) & (least < 0.0) & (most > 0.0)
    flat, _ = slopes(kind, least, most)
    # a crossing relu: slope 0 or 1 below, whichever leaves the smaller area (DeepPoly, Singh et al. 2019)
    low = np.where(crossing, (most > -least).astype(np.float64), flat)
    low_at = np.where(crossing, 0.0, at_least - low * least)
    # relu is convex: it is below its chord u (z - l) / (u - l)
    high = np.where(crossing, chord, flat)
    high_at = np.where(crossing, at_least - chord * least, at_most - flat * most)
    curved = (kind == SIGMOID) | (kind == TANH)
    if curved.any():
        middle = 0.5 * (least + most)
        touching, at_middle = slope(kind, middle), applied(kind, middle)
        # sigmoid and tanh are convex below 0 and concave above: tangent on one side, chord on the other
        bowl, dome = curved & (most <= 0.0), curved & (least >= 0.0)
        low = np.where(bowl, touching, np.where(dome, chord, low))
        low_at = np.where(bowl, at_middle - touching * middle, np.where(dome, at_most - chord * most, low_at))
        low_at = np.where(dome, np.minimum(low_at, at_least - chord * least), low_at)
        high = np.where(dome, touching, np.where(bowl, chord, high))
        high_at = np.where(dome, at_middle - touching * middle, np.where(bowl, at_least - chord * least, high_at))
        high_at = np.where(bowl, np.maximum(high_at, at_most - chord * most), high_at)
    gap = np.maximum((high - low) * least + high_at - low_at, (high - low) * most + high_at - low_at)
    return Lines(low, low_at, high, high_at, np.maximum(gap, 0.0))


def slopes(kind: NDArray[np.int8], least: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest slope of units between two sums, shape [B, n] each."""
    ends = slope(kind, least), slope(kind, most)
    # slopes of sigmoid and tanh rise up to 0 and fall from there: the least is at an end
    small = np.where(kind == RELU, (least >= 0.0).astype(np.float64), np.minimum(*ends))
    large = np.maximum(*ends)
    inside = (least < 0.0) & (most > 0.0)
    top = np.where(kind == SIGMOID, 0.25, 1.0)
    return small, np.where(inside & (kind != SAME), top, large)


def difference_lines(kind: NDArray[np.int8], least: Floats, most: Floats, low: Floats, high: Floats) -> Lines:
    """Return lines around y(z) - y(z') as functions of z - z', which lies between `low` and `high`, shape [B, n].

    Both sums lie between `least` and `most`. For z - z' >= 0 the difference lies between the smallest and the largest
    slope times it, for z - z' <= 0 the other way round.
    """
    small, large = slopes(kind, least, most)
    below = np.where(low >= 0.0, small, large)  # the slope of the lower bound at `low`
    above = np.where(high > 0.0, large, small)  # of the upper bound at `high`
    mixed = (low < 0.0) & (high > 0.0)
    width = np.where(mixed, high - low, 1.0)
    # mean value theorem: y(z) - y(z') = s (z - z') with a slope s in [small, large]
    down, up = (large, small), (small, large)
    tilt_low = np.where(mixed, (down[1] * high - down[0] * low) / width, below)
    tilt_high = np.where(mixed, (up[1] * high - up[0] * low) / width, above)
    low_at = np.where(mixed, np.minimum(down[0] * low - tilt_low * low, down[1] * high - tilt_low * high), 0.0)
    high_at = np.where(mixed, np.maximum(up[0] * low - tilt_high * low, up[1] * high - tilt_high * high), 0.0)
    gap = np.maximum((tilt_high - tilt_low) * low + high_at - low_at, (tilt_high - tilt_low) * high + high_at - low_at)
    return Lines(tilt_low, low_at, tilt_high, high_at, np.maximum(gap, 0.0))
