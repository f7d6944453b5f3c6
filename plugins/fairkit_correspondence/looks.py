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
_CDF = np.vectorize(_NORMAL.cdf)
LARGEST = 8.0
"""The largest bound: a confidence beyond it is 1 in floating point, and no interval has it."""


@functools.lru_cache(maxsize=64)
def quantiles(looks: int, confidence: float) -> tuple[float, ...]:
    """Return the normal quantile of each of `looks` evenly spaced looks.

    Lan & DeMets (1983) with O'Brien and Fleming's spending, 2 - 2Φ(z/√s) of each tail at the share s of the documents;
    all looks together miss with probability 1 - `confidence`. Five looks at 95 %: 4.877, 3.357, 2.680, 2.290, 2.031.
    """
    if looks == 1:
        return (two_sided(confidence),)
    z, sd, spent = _NORMAL.inv_cdf(1 - (1 - confidence) / 4), math.sqrt(1 / looks), 0.0
    # the distribution of the sum where no look has ended the audit: places with their weights
    place, weight, bounds = np.zeros(1), np.ones(1), []
    for share in (look / looks for look in range(1, looks + 1)):
        whole = 2 * _NORMAL.cdf(-z / math.sqrt(share))
        end = _end(place, weight, sd, whole - spent, LARGEST * math.sqrt(share))
        bounds.append(end / math.sqrt(share))
        inside = np.linspace(-end, end, 1601)
        density = np.exp(-(((inside[:, None] - place) / sd) ** 2) / 2) @ weight / (sd * math.sqrt(2 * math.pi))
        place, weight, spent = inside, density * (inside[1] - inside[0]), whole
        weight[[0, -1]] /= 2
    return tuple(bounds)


def _end(place: Array, weight: Array, sd: float, due: float, most: float) -> float:
    """Return what the sum exceeds after one more step of deviation `sd` with probability `due`; at most `most`."""
    return bisected(lambda end: weight @ _CDF((place - end) / sd) > due, 0.0, most)


def bisected(below: Callable[[float], bool], low: float, high: float) -> float:
    """Return the number between `low` and `high` up to which `below` holds."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def confidence_at(look: int, looks: int, confidence: float) -> float:
    """Return the confidence of the interval at look number `look` of `looks`, from 1."""
    return 2 * _NORMAL.cdf(quantiles(looks, confidence)[look - 1]) - 1
