"""Looks at unfinished audits: how much confidence each of several planned looks may spend."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import two_sided

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_NORMAL = NormalDist()
_GRID = np.linspace(-8, 8, 1601)
_ERF = np.vectorize(_NORMAL.cdf)


@functools.lru_cache(maxsize=64)
def quantiles(looks: int, confidence: float) -> tuple[float, ...]:
    """Return the normal quantile of each of `looks` evenly spaced looks.

    Lan & DeMets (1983) with O'Brien and Fleming's spending, 2 - 2Φ(z/√s) of each tail at the share s of the documents;
    all looks together miss with probability 1 - `confidence`. Five looks at 95 %: 4.877, 3.357, 2.680, 2.290, 2.031.
    """
    if looks == 1:
        return (two_sided(confidence),)
    tail = (1 - confidence) / 2
    z = _NORMAL.inv_cdf(1 - tail / 2)
    shares = [(look + 1) / looks for look in range(looks)]
    spent = [2 * _NORMAL.cdf(-z / math.sqrt(share)) for share in shares]
    bounds: list[float] = []
    density: Array | None = None  # of the sum at the last look, where no look has ended the audit
    grid = _GRID
    for stage, step in enumerate(shares):
        scale = math.sqrt(step)
        due = spent[stage] - (spent[stage - 1] if stage else 0.0)
        if density is None:
            bound = _NORMAL.inv_cdf(1 - due)
        else:
            bound = _solve(density, grid, step - shares[stage - 1], scale, due)
        bounds.append(bound)
        inside = np.linspace(-bound * scale, bound * scale, 1601)
        if density is None:
            density = np.exp(-(inside**2) / (2 * step)) / math.sqrt(2 * math.pi * step)
        else:
            sd = math.sqrt(step - shares[stage - 1])
            kernel = np.exp(-((inside[:, None] - grid) ** 2) / (2 * sd**2)) / (sd * math.sqrt(2 * math.pi))
            density = np.asarray(np.trapezoid(kernel * density, grid, axis=1))
        grid = inside
    return tuple(bounds)


def _solve(density: Array, grid: Array, step: float, scale: float, due: float) -> float:
    """Return the bound that the sum crosses for the first time now with probability `due`, on one side."""

    def crossed(bound: float) -> bool:
        late = _ERF((grid - bound * scale) / math.sqrt(step))
        return float(np.trapezoid(density * late, grid)) > due

    return bisected(crossed, 0.5, 8.0)


def bisected(below: Callable[[float], bool], low: float, high: float) -> float:
    """Return the number between `low` and `high` up to which `below` holds."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def confidence_at(look: int, looks: int, confidence: float) -> float:
    """Return the confidence of the interval at look number `look` of `looks`, from 1."""
    return 2 * _NORMAL.cdf(quantiles(looks, confidence)[look - 1]) - 1
