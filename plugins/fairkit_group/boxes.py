"""From bounds on each group's number to bounds on a disparity: what no assumption about the unknown can exceed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_group.rates import SelectionRate, TruePositiveRate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_NAMES = {cls.alias: cls.name for cls in (SelectionRate, TruePositiveRate)}
_PAIRS = ("true_positive_rate", "false_positive_rate")


@dataclass(frozen=True, slots=True)
class Box:
    """Each group's smallest and largest possible number, shapes [G]; NaN where it is not defined."""

    low: Array
    high: Array

    def known(self) -> Box:
        """Leave out groups whose number is not defined."""
        keep = np.isfinite(self.low) & np.isfinite(self.high)
        return Box(self.low[keep], self.high[keep])


def disparity_bounds(metric: str, boxes: Mapping[str, Box], reference: int | None = None) -> tuple[float, float] | None:
    """Return the smallest and largest value that a disparity can have.

    Each group's number lies in its box. For a rate, rows that raise one group's number are not those that
    lower another's, so that the largest difference is attained. Against a reference it is that of any other group.
    """
    if metric in boxes:  # over all rows
        return float(boxes[metric].low[0]), float(boxes[metric].high[0])
    if reference is not None:
        return _against(metric, boxes, reference)
    if metric in ("gap_max", "gap_rms") or metric.startswith("equalized_odds_"):
        return _joint(metric, boxes)
    for suffix, bounds in (
        ("_difference", _difference),
        ("_ratio", _ratio),
        ("_group_min", _smallest),
        ("_group_max", _largest),
    ):
        if metric.endswith(suffix):
            name = metric.removesuffix(suffix)
            box = boxes.get(_NAMES.get(name, name))
            return None if box is None or not len(box.known().low) else bounds(box.known())
    return None


def _against(metric: str, boxes: Mapping[str, Box], reference: int) -> tuple[float, float] | None:
    stem, _, kind = metric.rpartition("_")
    box = boxes.get("selection_rate" if metric == "impact_ratio" else _NAMES.get(stem, stem))
    if box is None or kind not in ("difference", "ratio"):
        return None
    low, high = (np.delete(end, reference) for end in (box.low, box.high))
    if kind == "difference":
        low, high = low - box.high[reference], high - box.low[reference]
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = low / box.high[reference], high / box.low[reference]
    if metric == "impact_ratio":  # of the group where it is lowest
        return float(np.nanmin(low)), float(np.nanmin(high))
    return float(np.nanmin(low)), float(np.nanmax(high))


def _joint(metric: str, boxes: Mapping[str, Box]) -> tuple[float, float] | None:
    if any(name not in boxes for name in _PAIRS):
        return None
    both = [boxes[name].known() for name in _PAIRS]
    if not all(len(box.low) for box in both):
        return None
    if metric == "equalized_odds_ratio":
        parts = [_ratio(box) for box in both]
        return min(p[0] for p in parts), min(p[1] for p in parts)
    parts = [_difference(box) for box in both]
    low, high = max(p[0] for p in parts), max(p[1] for p in parts)
    if metric == "gap_rms":  # between the larger gap over the root of 2, and the root of both squares' mean
        return low / 2**0.5, float(np.sqrt(np.mean([p[1] ** 2 for p in parts])))
    return low, high


def _pairs(first: Array, second: Array) -> tuple[Array, Array]:
    """Return first[a] and second[b] for every ordered pair of different groups."""
    a, b = np.nonzero(~np.eye(len(first), dtype=bool))
    return first[a], second[b]


def _difference(box: Box) -> tuple[float, float]:
    if len(box.low) < 2:
        return 0.0, 0.0
    top, bottom = _pairs(box.high, box.low)
    sure, most = _pairs(box.low, box.high)
    return float(max((sure - most).max(), 0.0)), float((top - bottom).max())


def _ratio(box: Box) -> tuple[float, float]:
    if len(box.low) < 2:
        return 1.0, 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.divide(*_pairs(box.low, box.high))
        high = np.divide(*_pairs(box.high, box.low))
    high = np.where(np.isfinite(high), high, 1.0)
    return float(np.nanmin(np.where(np.isfinite(low), low, 0.0))), float(min(high.min(), 1.0))


def _smallest(box: Box) -> tuple[float, float]:
    return float(box.low.min()), float(box.high.min())


def _largest(box: Box) -> tuple[float, float]:
    return float(box.low.max()), float(box.high.max())
