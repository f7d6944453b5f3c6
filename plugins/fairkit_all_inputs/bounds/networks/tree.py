"""The boxes of one pair of values: their bounds, how each is split, and the best input that was seen in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.forest import BITS
from fairkit_all_inputs.bounds.problem import FLIP, SCORE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.bounds import Bounds
    from fairkit_all_inputs.bounds.networks.climbing import Climber

    Floats = NDArray[np.float64]

POINTS = 10_000
"""Boxes with fewer inputs, by cells, are split at columns only."""
POLISH = 10
"""How often the best input of a linear piece is looked for, from a new witness on."""


class Tree:
    """The boxes of one pair, by number, with their bounds and splits; `climber` looks for inputs in them."""

    def __init__(self, climber: Climber) -> None:
        self.climber, self.problem, self.kind = climber, climber.problem, climber.kind
        self.pair, self.costs, self.near = climber.pair, climber.costs, climber.near
        problem = self.problem
        width = problem.layout.width
        words = max(1, int(problem.layout.words.max(initial=0)))
        self.boxes = np.zeros((0, width), dtype=np.int64)
        self.held = np.zeros((0, 2 * problem.units), dtype=np.int8)
        self.split = np.zeros((0, 3), dtype=np.int64)
        self.masks = np.zeros((0, words), dtype=np.int64)
        self.bounds, self.extra = np.zeros(0), np.zeros(0)
        self.count = 0
        self.add(self._allowed(), np.zeros((1, 2 * problem.units), dtype=np.int8))

    @property
    def best(self) -> float:
        """The best objective of an input."""
        return self.climber.best

    def _allowed(self) -> NDArray[np.int64]:
        """Leave out the cells that alone are too far."""
        full = list(self.problem.layout.full)
        for block, cost in self.costs.items():
            full[block] = sum(1 << int(c) for c in np.flatnonzero(cost <= self.near)) or full[block]
        return self.problem.layout.pack(tuple(full))[None, :]

    def _room(self, more: int) -> slice:
        first = self.count
        self.count += more
        if self.count > len(self.bounds):
            size = max(2 * len(self.bounds), self.count, 1_024)
            for name in ("boxes", "held", "split", "masks", "bounds", "extra"):
                old = getattr(self, name)
                made = np.zeros((size, *old.shape[1:]), dtype=old.dtype)
                made[: len(old)] = old
                setattr(self, name, made)
        return slice(first, self.count)

    @property
    def total(self) -> Floats:
        """The bounds with rounding."""
        return np.asarray(self.bounds[: self.count] + self.extra[: self.count])

    def add(self, packed: NDArray[np.int64], held: NDArray[np.int8]) -> range:
        """Bound boxes, look at a corner of each, and choose where each would be split; return their numbers."""
        room = self._room(len(packed))
        self.boxes[room], self.held[room] = packed, held
        self.split[room] = -1
        split = held.any(axis=1)
        for rows in (np.flatnonzero(~split), np.flatnonzero(split)):
            if len(rows):
                self._bound(room.start + rows)
        return range(room.start, room.stop)

    def _bound(self, numbers: NDArray[np.int64]) -> None:
        packed = self.boxes[numbers]
        most, extra, bounds = self.problem.bound(self.kind, self.pair, packed, self.held[numbers], self.best)
        most = np.where(self._cheapest(packed) > self.near, -np.inf, most)
        self.bounds[numbers], self.extra[numbers] = most, extra
        self._choose(numbers, bounds)
        self._corners(packed[most > self.best], bounds.weights[most > self.best])
        if len(bounds.points) and not self.costs:
            better = self.climber.look(bounds.points, np.zeros(bounds.points.shape, dtype=np.bool_))
            for _ in range(POLISH if better else 0):
                if not self._polish():
                    break

    def _polish(self) -> bool:
        """Look at the best input among those at which the units have the signs of the best one so far."""
        signs = self.climber.signs()
        found = self.problem.bound(SCORE, self.pair, self.boxes[:1], signs, -np.inf)[2]
        return self.climber.look(found.points, np.zeros(found.points.shape, dtype=np.bool_))

    def _cheapest(self, packed: NDArray[np.int64]) -> Floats:
        total = np.zeros(len(packed))
        for block, cost in self.costs.items():
            total += np.where(self.problem.cells.mask(packed, block), cost, np.inf).min(axis=1)
        return total

    def _choose(self, numbers: NDArray[np.int64], bounds: Bounds) -> None:
        """Choose a unit's sign, of the last layer first; or the block whose width matters most, and its middle.

        A set is halved by what its cells add. Only small networks have units to split (see `bounds`).
        """
        cells, layout = self.problem.cells, self.problem.layout
        packed = self.boxes[numbers]
        opened = cells.opened(packed)
        width = (opened.high - opened.low) * bounds.influence
        scores = np.full((len(packed), len(cells.features)), -1.0)
        masks = opened.masks
        for block, mask in masks.items():
            own = width[:, cells.features[block]]
            scores[:, block] = np.where(mask.sum(axis=1) > 1, own.max(axis=1, initial=0.0), -1.0)
        if self.kind == FLIP and self.problem.rule is not None:
            least, most = self.problem.thresholds(self.pair[:1] * 2, masks)
            for block in set(self.problem.rule.blocks) & set(masks):
                scores[:, block] = np.where(scores[:, block] < 0, -1.0, np.maximum(scores[:, block], most - least))
        chosen, most = scores.argmax(axis=1), scores.max(axis=1)
        if bounds.units.shape[1]:
            scores_of = np.where(bounds.units >= 0.0, bounds.units + self.problem.last, -1.0)
            unit = scores_of.argmax(axis=1)
            left = sum((np.log(np.maximum(mask.sum(axis=1), 1)) for mask in masks.values()), np.zeros(len(packed)))
            sign = (scores_of.max(axis=1) >= 0.0) & ((left > np.log(POINTS)) | (most < 0.0))
            self.split[numbers[sign], 0] = len(cells.features) + unit[sign]
            most = np.where(sign, -1.0, most)
        for block in np.unique(chosen[most >= 0.0]).tolist():
            rows = np.flatnonzero((chosen == block) & (most >= 0.0))
            mine = numbers[rows]
            at = int(layout.place[block])
            self.split[mine, 0] = block
            if layout.words[block] == 0:
                self.split[mine, 1] = (packed[rows, at] + packed[rows, at + 1]) // 2 + 1
                continue
            values = bounds.weights[rows][:, cells.features[block]] @ cells.first[block].T
            values = np.where(masks[block][rows], values, -np.inf)
            half = (masks[block][rows].sum(axis=1) + 1) // 2
            rank = np.argsort(np.argsort(-values, axis=1, kind="stable"), axis=1)
            upper = (rank < half[:, None]) & masks[block][rows]
            for word in range(int(layout.words[block])):
                some = upper[:, word * BITS : (word + 1) * BITS]
                self.masks[mine, word] = some @ (np.int64(1) << np.arange(some.shape[1]))

    def halves(self, numbers: NDArray[np.int64]) -> range:
        """Split boxes; return the numbers of the halves."""
        layout, blocks = self.problem.layout, len(self.problem.cells.features)
        children, unit_signs = (np.repeat(self.boxes[numbers], 2, axis=0), np.repeat(self.held[numbers], 2, axis=0))
        for row, number in enumerate(numbers.tolist()):
            block, key, _ = self.split[number].tolist()
            if block >= blocks:
                unit_signs[2 * row, block - blocks], unit_signs[2 * row + 1, block - blocks] = -1, 1
                continue
            at, width = int(layout.place[block]), int(layout.words[block])
            if width == 0:
                children[2 * row, at + 1], children[2 * row + 1, at] = key - 1, key
            else:
                mask = self.masks[number, :width]
                children[2 * row, at : at + width] &= mask
                children[2 * row + 1, at : at + width] &= ~mask
        self.split[numbers, 2] = self.count + 2 * np.arange(len(numbers))
        return self.add(children, unit_signs)

    def _corners(self, packed: NDArray[np.int64], weights: Floats) -> None:
        """Look at the input of each box in which lines see the largest difference."""
        if not len(packed):
            return
        opened = self.problem.cells.opened(packed)
        _, chosen, top = opened.corners(weights)
        if self.costs:
            chosen = self.climber.nearer(chosen, opened.masks)
        self.climber.look(chosen, top)
