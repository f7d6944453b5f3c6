"""Small versions of each group's ROC and calibration curves, for charts: a function of the score table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import share_limits, two_sided

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.statistics import ScoreTable

    Array = NDArray[np.float64]

ROC_POINTS = 33
"""At most this many points of a curve are kept; the area is computed from the whole table."""

CALIBRATION_BINS = 10


def curves(table: ScoreTable, names: Sequence[str], confidence: float) -> dict[str, Any]:
    """Return the curves of every group as plain values."""
    return {
        "roc_band": [half for i in range(len(names)) for half in roc_band(table, i, confidence)],
        "roc": {name: roc_points(table.mass[:, i]) for i, name in enumerate(names)},
        "calibration": {name: calibration(table, i, confidence) for i, name in enumerate(names)},
    }


def roc_points(mass: Array) -> list[list[float]]:
    """Thin one group's ROC curve to points about evenly spaced along it."""
    total = mass.sum(axis=0)
    if not (total > 0).all():
        return []
    above = np.cumsum(mass[::-1], axis=0) / total
    path = np.vstack([np.zeros(2), above])
    along = path.sum(axis=1) / 2
    places = np.searchsorted(along, np.linspace(0, 1, ROC_POINTS) - 1e-12)
    keep = np.unique(np.clip(places, 0, len(path) - 1))
    return [[round(float(x), 5), round(float(y), 5)] for x, y in path[keep]]


def roc_band(table: ScoreTable, group: int, confidence: float) -> list[float]:
    """Return half widths of a band around one group's ROC curve: in false and in true positive rates.

    Each outcome's score distribution is within sqrt(log(2 / α') / (2 n)) of its own (Massart 1990) with confidence
    1 - α', the root of the confidence: together they hold the curve (Campbell 1994). Cells of scores hide nothing at
    the points that are shown.
    """
    mass, squares = table.mass[:, group].sum(axis=0), table.squares[:, group].sum(axis=0)
    if not (mass > 0).all():
        return [1.0, 1.0]
    half = np.sqrt(np.log(2 / (1 - np.sqrt(confidence))) / (2 * mass**2 / squares))
    return [round(float(part), 5) for part in np.minimum(half, 1)]


def calibration(table: ScoreTable, group: int, confidence: float) -> list[dict[str, Any]]:
    """Compare the mean score with the observed share, in ten bins of one group's scores."""
    mass, squares = table.mass[:, group], table.squares[:, group]
    values = table.middles
    place = np.clip((values * CALIBRATION_BINS).astype(np.int64), 0, CALIBRATION_BINS - 1)

    def total(parts: Array) -> Array:
        return np.bincount(place, parts, CALIBRATION_BINS).astype(np.float64)

    rows = mass[:, 0] + mass[:, 1]
    weight, favorable = total(rows), total(mass[:, 1])
    scores, square = total(rows * values), total(squares[:, 0] + squares[:, 1])
    filled = np.flatnonzero(weight > 0)
    share = favorable[filled] / weight[filled]
    low, high = share_limits(share, weight[filled] ** 2 / square[filled], two_sided(confidence))
    return [
        {
            "score": round(float(scores[b] / weight[b]), 5),
            "observed": round(float(share[i]), 5),
            "interval": [round(float(low[i]), 5), round(float(high[i]), 5)],
            "weight": round(float(weight[b]), 3),
        }
        for i, b in enumerate(filled)
    ]
