"""The factor with which several groups are compared with one: Dunnett's quantile for any precision of the groups."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_NORMAL = NormalDist()
_GRID = np.linspace(-40, 40, 80_001)
_STEPS = 50


@functools.cache
def _cdf() -> Array:
    """Return the normal distribution function on the grid."""
    return np.array([_NORMAL.cdf(x) for x in _GRID.tolist()])


def dunnett_quantile(ratios: Sequence[float], confidence: float) -> float:
    """Return the factor that makes all differences to one reference hold at once (Dunnett 1955).

    With independent estimates the differences D_g to the reference have correlations λ_g λ_h, where
    λ_g² = v_ref / (v_ref + v_g). Given the reference's own deviation x the differences are independent:
    P(max |T_g| ≤ c) = ∫ φ(x) Π_g [Φ((c + λ_g x) / √(1 - λ_g²)) - Φ((-c + λ_g x) / √(1 - λ_g²))] dx.
    """
    rounded = tuple(sorted(round(float(min(max(ratio, 0.0), 0.999)), 3) for ratio in ratios))
    return _solved(rounded, confidence)


@functools.lru_cache(maxsize=4_096)
def _solved(ratios: tuple[float, ...], confidence: float) -> float:
    if len(ratios) <= 1:
        return _NORMAL.inv_cdf(0.5 + confidence / 2)
    x = np.linspace(-8, 8, 801)
    phi = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    same, counts = np.unique(np.array(ratios), return_counts=True)
    slope, scale = np.sqrt(same)[:, None], np.sqrt(1 - same)[:, None]
    cdf = _cdf()

    def probability(c: float) -> float:
        high = np.interp((c + slope * x) / scale, _GRID, cdf)
        low = np.interp((-c + slope * x) / scale, _GRID, cdf)
        inside = np.clip(high - low, 0, 1) ** counts[:, None]
        return float(np.trapezoid(phi * inside.prod(axis=0), x))

    low, high = 0.0, _NORMAL.inv_cdf(0.5 + confidence ** (1 / len(ratios)) / 2) + 1e-9
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < confidence else (low, middle)
    return high
