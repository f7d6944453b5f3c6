"""The multipliers that bound best: the dual of a linear programme over the units' vertices, for small networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.networks.vertices import value
from fairkit_onnx.structure.networks.layers import RELU, SAME, applied, output

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.boxes import BoxRanges
    from fairkit_all_inputs.bounds.networks.mixtures import Bounded
    from fairkit_all_inputs.bounds.networks.vertices import Vertices
    from fairkit_onnx.structure.networks.layers import Layer

    Floats = NDArray[np.float64]

MOST_UNITS = 128
"""Networks with more hidden units are bounded without programmes."""
STEEP = 100.0
"""What a multiplier may be at most, in sizes of the last layer's weights: so that there is always an optimum."""


REACHED = 1e-3
"""What a bound may be above what an input reaches, relative, so that splits of units would not help."""
TOLERANCE = 1e-7
"""What is added to a bound by a programme, relative: another machine's may stop elsewhere."""


def small(layers: Sequence[Layer]) -> bool:
    """Tell whether boxes of a network are bounded by programmes: all units are linear or relu, and they are few."""
    hidden = sum(len(layer.bias) for layer in layers[:-1])
    return 0 < hidden <= MOST_UNITS and all(((layer.kind == RELU) | (layer.kind == SAME)).all() for layer in layers)


def solved(
    layers: Sequence[Layer],
    some: Sequence[Vertices],
    got: Bounded,
    boxes: BoxRanges,
    sides: tuple[Floats, Floats],
    wanted: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Bound f - g in the wanted boxes by programmes, where that is better."""
    rows = np.flatnonzero(wanted)
    made = [(one.copy(), two.copy()) for one, two in got.sums]
    points, reached = [], np.full(len(boxes.low), -np.inf)
    for row in rows.tolist():
        best = multipliers(layers, some, boxes, row, sides)
        if best is None:
            continue
        points.append(best[1])
        reached[row] = best[2]
        for target, new in zip(made, best[0], strict=True):
            target[0][row], target[1][row] = new
    if points:
        ones = np.ones(len(boxes.low))
        most = value(layers, some, boxes, sides, made, (ones, ones))[0]
        better = wanted & (most < got.most)
        got.most = np.where(better, most + TOLERANCE * (1.0 + np.abs(most)), got.most)
        for target, new in [*zip(got.sums, made, strict=True), (got.rates, (ones, ones))]:
            for run in (0, 1):
                target[run][better] = new[run][better]
        got.shared[better] = ((made[0][0] + made[0][1]) @ layers[0].weights)[better]
    near = REACHED * (1.0 + np.abs(reached))
    seen = np.array(points, dtype=np.int64).reshape(len(points), len(boxes.cells.features))
    return seen, np.asarray(reached >= got.most - near)


def multipliers(
    layers: Sequence[Layer], some: Sequence[Vertices], boxes: BoxRanges, row: int, sides: tuple[Floats, Floats]
) -> tuple[list[tuple[Floats, Floats]], NDArray[np.int64], float] | None:
    """Return the multipliers of both runs' sums, by layer shape [n], that bound f - g best in one box.

    With them come the cells, by block, beside the input at which the programme has its maximum, and f - g there.
    They are those of HiGHS, and nothing is proved by them:
    `fairkit_all_inputs.bounds.networks.vertices.value` is what does.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    inputs, low, high, groups = _inputs(layers[0], boxes, row)
    widths = [len(layer.bias) for layer in layers[:-1]]
    distinct = [_distinct(one, row) for one in some]
    count = sum(2 * width for width in widths)
    sizes = [inputs.shape[1], *(len(unit) for unit, _ in distinct)]
    starts = np.cumsum([0, *sizes]).tolist()
    total = starts[-1]
    sums = np.zeros((count, total + 2 * count))
    right = np.zeros(count)
    ones = [np.zeros(total + 2 * count) for _ in groups]
    for line, group in zip(ones, groups, strict=True):
        line[group] = 1.0
    goal = np.zeros(total + 2 * count)
    at = 0
    for depth, layer in enumerate(layers[:-1]):
        unit, vertex = distinct[depth]
        here = slice(starts[depth + 1], starts[depth + 2])
        whole = np.zeros((widths[depth], total + 2 * count))
        whole[unit, np.arange(here.start, here.stop)] = 1.0
        ones += list(whole)
        for run, z in enumerate((some[depth].first, some[depth].second)):
            rows = slice(at, at + widths[depth])
            sums[np.arange(at, at + widths[depth])[unit], np.arange(here.start, here.stop)] = z[vertex, row, unit]
            right[rows] = layer.bias
            if depth == 0:
                sums[rows, : inputs.shape[1]] = -inputs
                right[rows] += layer.weights @ sides[run]
            else:
                before_unit, before = distinct[depth - 1]
                values = (some[depth - 1].value_first, some[depth - 1].value_second)[run]
                sums[rows, starts[depth] : starts[depth + 1]] = (
                    -layer.weights[:, before_unit] * values[before, row, before_unit]
                )
            at += widths[depth]
    unit, vertex = distinct[-1]
    apart = some[-1].value_first - some[-1].value_second
    goal[starts[-2] : total] = -layers[-1].weights[0, unit] * apart[vertex, row, unit]
    sums[:, total : total + count], sums[:, total + count :] = np.eye(count), -np.eye(count)
    # slack variables at a steep price: the programme is feasible, its multipliers are bounded
    goal[total:] = STEEP * float(np.abs(layers[-1].weights).max(initial=0.0))
    matrix = csc_array(np.concatenate([sums, np.array(ones).reshape(-1, total + 2 * count)]))
    ends = np.zeros((total + 2 * count, 2))
    ends[:, 1] = np.inf
    ends[: len(low), 0], ends[: len(low), 1] = low, high
    solved = linprog(
        goal, A_eq=matrix, b_eq=np.concatenate([right, np.ones(len(ones))]), bounds=ends, method="highs-ds"
    )
    if solved.status != 0:
        return None
    found = -np.asarray(solved.eqlin.marginals, dtype=np.float64)
    cuts = np.cumsum([0, *(width for width in widths for _ in (0, 1))]).tolist()
    made = [
        (found[cuts[2 * k] : cuts[2 * k + 1]], found[cuts[2 * k + 1] : cuts[2 * k + 2]]) for k in range(len(widths))
    ]
    point = np.asarray(solved.x[: inputs.shape[1]])
    return made, _beside(boxes, row, point), _apart(layers, inputs @ point, sides)


def _apart(layers: Sequence[Layer], sums: Floats, sides: tuple[Floats, Floats]) -> float:
    """Return f - g for the first sums that an input makes without what the changing block adds."""
    found = []
    for side in sides:
        first = layers[0]
        values = applied(first.kind, sums + first.weights @ side + first.bias)
        found.append(float(output(layers[1:], values[None, :])[0]))
    return found[0] - found[1]


def _beside(boxes: BoxRanges, row: int, point: Floats) -> NDArray[np.int64]:
    """Return cells beside an input: the nearest of numbers, and the listed ones with the largest weights."""
    cells = boxes.cells
    chosen = np.zeros(len(cells.features), dtype=np.int64)
    listed = {int(f) for block in cells.lists for f in cells.features[block]}
    plain = [f for f in range(len(cells.fixed)) if f not in listed]
    for block in cells.ranges:
        mine = [plain.index(int(f)) for f in cells.features[block]]
        apart = np.abs(cells.first[block] - point[mine]).sum(axis=1)
        chosen[block] = np.where(boxes.masks[block][row], apart, np.inf).argmin()
    at = len(plain)
    for block in cells.lists:
        allowed = np.flatnonzero(boxes.masks[block][row])
        weights = point[at : at + len(allowed)]
        at += len(allowed)
        if not np.array_equal(cells.first[block], cells.last[block]):
            weights = weights + point[at : at + len(allowed)]
            at += len(allowed)
        chosen[block] = allowed[weights.argmax()]
    return chosen


def _inputs(layer: Layer, boxes: BoxRanges, row: int) -> tuple[Floats, Floats, Floats, list[NDArray[np.int64]]]:
    """Return the columns of the first sums, shape [n, v], their ends, and which add up to 1."""
    cells = boxes.cells
    parts, low, high, groups = [], [], [], []
    listed = {int(f) for block in cells.lists for f in cells.features[block]}
    plain = [f for f in range(len(cells.fixed)) if f not in listed]
    parts.append(layer.weights[:, plain])
    low.append(boxes.low[row, plain])
    high.append(boxes.high[row, plain])
    count = len(plain)
    for block in cells.lists:
        mine = cells.features[block]
        allowed = np.flatnonzero(boxes.masks[block][row])
        for ends in (cells.first, cells.last):
            if ends is cells.last and np.array_equal(cells.first[block], cells.last[block]):
                continue
            parts.append(layer.weights[:, mine] @ ends[block][allowed].T)
            low.append(np.zeros(len(allowed)))
            high.append(np.ones(len(allowed)))
        more = sum(part.shape[1] for part in parts) - count
        groups.append(np.arange(count, count + more))
        count += more
    return np.concatenate(parts, axis=1), np.concatenate(low), np.concatenate(high), groups


def _distinct(some: Vertices, row: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the unit and the number of each vertex, those that are there twice once."""
    first, second = some.first[:, row], some.second[:, row]
    unit, vertex = [], []
    for place in range(first.shape[1]):
        pairs = np.round(np.column_stack([first[:, place], second[:, place]]), 9)
        _, kept = np.unique(pairs, axis=0, return_index=True)
        unit.append(np.full(len(kept), place, dtype=np.int64))
        vertex.append(kept.astype(np.int64))
    return np.concatenate(unit), np.concatenate(vertex)
