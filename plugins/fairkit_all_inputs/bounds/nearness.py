"""A distance that weighs columns together: how far the choices of every block move somebody, for the loops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_all_inputs.bounds.arrays import Distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import Box, Layout

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

ROUNDED = 2.0**-30
"""Coordinates of a fair metric are rounded to this."""
INNER = 1e-6
"""By so much less than what is allowed, relatively, is a near point searched: raw values are rounded after it."""


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """What a block may add to the difference from somebody, by choice: p + t · axis for a number t in [low, high]."""

    cell: Ints  # the cell that a choice belongs to, shape [q]
    points: Floats  # p, shape [q, k]
    low: Floats  # shape [q]; both 0 where the choice is one vector
    high: Floats  # shape [q]; both 0 where the choice is one vector
    axis: Floats  # shape [k]
    step: float = 0.0  # of whole numbers, by how much t goes from one to the next, beginning at `low`; else 0


@dataclass(frozen=True, eq=False)
class Joint:
    """The squared distance ‖Σ_b (p + t · axis)‖² from somebody, with one choice of each block."""

    moves: Mapping[int, Moves]  # by block; a block without any is as near as any
    width: int  # k
    _allowed: dict[float, Box] = field(default_factory=dict)

    def allowed(self, layout: Layout, near: float) -> Box:
        """Return the box without cells that are too far whatever the other blocks are, in two rounds."""
        from fairkit_all_inputs.bounds import reaching

        if near not in self._allowed:
            grid, distance = layout.grid, loop_costs(layout, self, near)
            box = list(layout.full)

            def out(block: int, cell: int) -> bool:
                trial = layout.pack((*box[:block], 1 << cell, *box[block + 1 :]))
                return bool(reaching.far(trial, grid, distance))

            for _ in range(2):
                for block, move in self.moves.items():
                    cells = [c for c in range(int(layout.sizes[block])) if box[block] >> c & 1]
                    if layout.words[block] == 0:
                        kept = _range(cells, _start(move), lambda c, b=block: out(b, c))
                    else:
                        kept = [c for c in cells if not out(block, c)]
                    box[block] = sum(1 << c for c in kept) if kept else box[block] & -box[block]
                    if not kept:
                        break  # nothing is near: one cell, which is found to be far
            self._allowed[near] = tuple(box)
        return self._allowed[near]

    def point(self, layout: Layout, cells: tuple[int, ...], near: float) -> dict[int, tuple[int, float]]:
        """Return by block the choice and its number at a point of one cell each, as near as is found."""
        from fairkit_all_inputs.bounds import hulls

        distance = loop_costs(layout, self, near)
        packed = layout.pack(tuple(1 << cell for cell in cells))
        taken, moved = np.empty(len(cells), dtype=np.int64), np.empty(len(cells))
        on = hulls.opened(packed, layout.grid, distance)
        if hulls.nearest(on, distance.low, distance.high, distance, taken, moved) > distance.limits[1]:
            hulls.holds(on, distance.low, distance.high, distance, taken, moved)
        return {block: (int(taken[block] - distance.start[block]), float(moved[block])) for block in self.moves}

    def distance(self, added: Floats, blocks: int, near: float) -> Distance:
        """Return what the loops take."""
        start, cell, vector, low, high = [0], [], [], [], []
        unique: dict[bytes, int] = {}
        points: list[Floats] = []
        axes, steps = np.zeros((self.width, blocks)), np.zeros(blocks)
        for block in range(blocks):
            moves = self.moves.get(block)
            if moves is not None:
                for row in moves.points:
                    key = row.tobytes()
                    if key not in unique:
                        unique[key] = len(points)
                        points.append(row)
                    vector.append(unique[key])
                cell += moves.cell.tolist()
                low += moves.low.tolist()
                high += moves.high.tolist()
                axes[:, block], steps[block] = moves.axis, moves.step
            start.append(len(cell))
        matrix = np.ascontiguousarray(np.array(points, dtype=np.float64).reshape(-1, self.width).T)
        lows, highs, vectors = np.array(low), np.array(high), np.array(vector, dtype=np.int64)
        owner = np.repeat(np.arange(blocks), np.diff(start))
        square = (axes**2).sum(axis=0)
        own = matrix[:, vectors]
        inner = (own * axes[:, owner]).sum(axis=0)
        at = np.clip(-inner / np.where(square[owner] > 0, square[owner], 1.0), lows, highs)
        norms = ((own + at * axes[:, owner]) ** 2).sum(axis=0)
        slack = math.sqrt(self.width) * ROUNDED + 1e-12
        limits = np.array([2.0 * math.sqrt(near) * slack + slack**2 + 1e-12 * near, near * (1.0 - INNER)])
        return Distance(
            near, added, 1, np.array(start, dtype=np.int64), np.array(cell, dtype=np.int64), vectors, lows, highs,
            np.ascontiguousarray(np.stack([norms, at], axis=1)), steps, matrix, axes, limits, square,
        )  # fmt: skip


def _start(move: Moves) -> int:
    """Return the cell that holds the point nearest to somebody, by this block alone."""
    middle = np.clip(0.0, move.low, move.high)
    norms = ((move.points + middle[:, None] * move.axis) ** 2).sum(axis=1)
    return int(move.cell[norms.argmin()])


def _range(cells: list[int], start: int, out: Any) -> list[int]:
    """Return the cells that are not out, which lie side by side, by bisection from the nearest one."""
    start = min(max(start, cells[0]), cells[-1])
    if out(start):
        return [cell for cell in cells if not out(cell)]
    ends = []
    for last in (cells[0], cells[-1]):
        inner, outer = start, last
        if not out(last):
            ends.append(last)
            continue
        while abs(outer - inner) > 1:
            middle = (inner + outer) // 2
            inner, outer = (inner, middle) if out(middle) else (middle, outer)
        ends.append(inner)
    return list(range(ends[0], ends[1] + 1))


def loop_costs(layout: Layout, costs: Mapping[int, Floats] | Joint | None, near: float) -> Distance:
    """Return distances as the loops take them."""
    offset = layout.grid.offset
    added = np.zeros(int(offset[-1]))
    if isinstance(costs, Joint):
        return costs.distance(added, len(layout.sizes), near)
    for block, values in (costs or {}).items():
        added[offset[block] : offset[block] + len(values)] = values
    none, nothing, flat = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 0))
    pairs = np.zeros((0, 2))
    return Distance(
        near, added, 0, none, none, none, nothing, nothing, pairs, nothing, flat, flat, np.zeros(2), nothing
    )
