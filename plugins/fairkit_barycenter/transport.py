"""The map of every group's predictions to the barycenter of all groups: increasing and piecewise linear.

With Q_a and F_a the quantile function and the distribution function of group a's predictions and π_a its share,
``T_a(f) = Σ_b π_b Q_b(F_a(f))`` (Chzhen, Denis, Hebiri, Oneto and Pontil 2020, theorem 2.3): of all predictions with
the same distribution in every group these have the least mean squared distance from f.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit_onnx.write.graph import GraphBuilder
    from fairkit_onnx.write.grouping import GroupCodes

NEAREST = 1e-4
"""Knots nearer than this share of the range become one: the map's slope would magnify rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """One increasing map for each group of one sensitive column; other values keep their prediction."""

    codes: GroupCodes  # how raw columns become one of K groups
    start: NDArray[np.float32]
    end: NDArray[np.float32]

    def apply(self, values: NDArray[np.float32], columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Map predictions, shape [n]."""
        group = self.codes.transform(columns)
        mapped = np.empty_like(values)
        for code in np.unique(group):
            rows = group == code
            mapped[rows] = along(values[rows], self.start[code], self.end[code])
        return mapped

    def add_to(self, graph: GraphBuilder, values: str) -> str:
        """Put the map into a graph: [rows, 1] to [rows, 1]."""
        codes = graph.reshape(self.codes.add_to(graph), [-1])
        start = graph.node("Gather", [graph.constant(self.start), codes], axis=0)
        end = graph.node("Gather", [graph.constant(self.end), codes], axis=0)
        past = graph.node("Cast", [graph.node("GreaterOrEqual", [values, start])], to=7)
        count = graph.node("ReduceSum", [past, graph.constant([1], np.int64)], keepdims=1)
        last = self.start.shape[1] - 1
        low = graph.node(
            "Max", [graph.node("Sub", [count, graph.constant([[1]], np.int64)]), graph.constant([[0]], np.int64)]
        )
        low = graph.node("Min", [low, graph.constant([[last - 1]], np.int64)])
        high = graph.node("Add", [low, graph.constant([[1]], np.int64)])
        x0, x1, y0, y1 = (
            graph.node("GatherElements", [table, place], axis=1)
            for table, place in ((start, low), (start, high), (end, low), (end, high))
        )
        slope = graph.node("Div", [graph.node("Sub", [y1, y0]), graph.node("Sub", [x1, x0])])
        return graph.node("Add", [y0, graph.node("Mul", [slope, graph.node("Sub", [values, x0])])])


def along(values: NDArray[np.float32], start: NDArray[np.float32], end: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map values along one piecewise linear map, in single precision as in the graph; shape [n]."""
    low = np.clip(np.searchsorted(start, values, side="right") - 1, 0, len(start) - 2)
    slope = (end[low + 1] - end[low]) / (start[low + 1] - start[low])
    return np.asarray(end[low] + slope * (values - start[low]), dtype=np.float32)


def learn(
    values: NDArray[np.float64], codes: GroupCodes, groups: NDArray[np.int64], weights: NDArray[np.float64], knots: int
) -> Transport:
    """Learn the maps from predictions."""
    count = len(codes.names)
    levels = (np.arange(knots) + 0.5) / knots
    quantiles = np.stack(
        [quantile(values[groups == group], weights[groups == group], levels) for group in range(count)]
    )
    shares = np.bincount(groups, weights, minlength=count) / weights.sum()
    middle = shares @ quantiles
    unit = max(float(np.ptp(values)), 1e-12)
    maps = [_knots(own, middle, unit) for own in quantiles] + [(np.array([0.0, 1.0]), np.array([0.0, 1.0]))]
    longest = max(len(start) for start, _ in maps)
    padded = [_padded(start, end, longest, unit) for start, end in maps]
    return Transport(
        codes=codes,
        start=np.stack([start for start, _ in padded]).astype(np.float32),
        end=np.stack([end for _, end in padded]).astype(np.float32),
    )


def quantile(
    values: NDArray[np.float64], weights: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weighted quantiles at levels in (0, 1), linear between the middles of the rows' weights."""
    order = np.argsort(values, kind="stable")
    mass = weights[order]
    middle = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    return np.interp(levels, middle, values[order])


def largest_distance(values: NDArray[np.float64], groups: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    """Return the largest difference between a group's distribution function and everybody's, in [0, 1]."""
    order = np.argsort(values, kind="stable")
    sorted_values, own, mass = values[order], groups[order], weights[order]
    last = np.append(sorted_values[1:] > sorted_values[:-1], True)
    everybody = np.cumsum(mass)[last] / mass.sum()
    worst = 0.0
    for group in range(int(groups.max()) + 1):
        part = np.where(own == group, mass, 0.0)
        if part.sum() > 0:
            worst = max(worst, float(np.abs(np.cumsum(part)[last] / part.sum() - everybody).max()))
    return worst


def _knots(
    start: NDArray[np.float64], end: NDArray[np.float64], unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Make one knot of those that are too near, at their means; add the ends, from where the slope is 1."""
    place = np.concatenate([[0], np.cumsum(np.diff(start) > NEAREST * unit)])
    sizes = np.bincount(place)
    start, end = np.bincount(place, start) / sizes, np.bincount(place, end) / sizes
    return np.concatenate([[start[0] - unit], start, [start[-1] + unit]]), np.concatenate(
        [[end[0] - unit], end, [end[-1] + unit]]
    )


def _padded(
    start: NDArray[np.float64], end: NDArray[np.float64], length: int, unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Go on with slope 1 to so many knots."""
    more = unit * np.arange(1, length - len(start) + 1)
    return np.concatenate([start, start[-1] + more]), np.concatenate([end, end[-1] + more])
