"""The boxes of one pair of values: their bounds, how each is split, and the best input that was seen in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.inputs.forest import BITS
from fairkit.inputs.networks.layers import output
from fairkit.inputs.networks.problem import NetworkProblem, objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TRIES = 24
"""Cells of a block at which a climb looks."""
MANY, FEW = 2_000, 4
"""Inputs that are drawn, and climbs that begin at the best of them."""


class Tree:
    """The boxes of one pair, by number, with their bounds and splits.

    Parameters
    ----------
    problem, kind, pair
        The question.
    costs, near
        By block, the distance that each of its cells adds, and how much is allowed.
    shown
        By block, the features of each cell at the values that a witness would have; None: at the cells' ends.
    best
        Inputs up to this are of no interest.
    """

    def __init__(
        self,
        problem: NetworkProblem,
        kind: int,
        pair: tuple[int, int],
        costs: Mapping[int, Floats] | None,
        near: float,
        shown: Sequence[Floats] | None,
        best: float,
    ) -> None:
        self.problem, self.kind, self.pair, self.near, self.shown = problem, kind, pair, near, shown
        self.costs = costs or {}
        self.sides = problem.sides(pair)
        self.threshold = problem.threshold if problem.threshold is not None else 0.0
        width = problem.layout.width
        words = max(1, int(problem.layout.words.max(initial=0)))
        self.boxes = np.zeros((0, width), dtype=np.int64)
        self.split = np.zeros((0, 3), dtype=np.int64)
        self.masks = np.zeros((0, words), dtype=np.int64)
        self.bounds, self.extra = np.zeros(0), np.zeros(0)
        self.best = best
        self.point: tuple[int, ...] = ()
        self.values: dict[str, Any] = {}
        self.count = 0
        self.add(self._allowed())

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
            for name in ("boxes", "split", "masks", "bounds", "extra"):
                old = getattr(self, name)
                made = np.zeros((size, *old.shape[1:]), dtype=old.dtype)
                made[: len(old)] = old
                setattr(self, name, made)
        return slice(first, self.count)

    @property
    def total(self) -> Floats:
        """The bounds with rounding."""
        return np.asarray(self.bounds[: self.count] + self.extra[: self.count])

    def add(self, packed: NDArray[np.int64]) -> range:
        """Bound boxes, look at a corner of each, and choose where each would be split; return their numbers."""
        most, extra, weights, influence = self.problem.bound(self.kind, self.pair, packed)
        most = np.where(self._cheapest(packed) > self.near, -np.inf, most)
        place = self._room(len(packed))
        self.boxes[place], self.bounds[place], self.extra[place] = packed, most, extra
        self.split[place] = -1
        self._choose(place, weights, influence)
        self._corners(packed[most > self.best], weights[most > self.best])
        return range(place.start, place.stop)

    def _cheapest(self, packed: NDArray[np.int64]) -> Floats:
        total = np.zeros(len(packed))
        for block, cost in self.costs.items():
            total += np.where(self.problem.cells.mask(packed, block), cost, np.inf).min(axis=1)
        return total

    def _choose(self, place: slice, weights: Floats, influence: Floats) -> None:
        """Choose the block whose width matters most, and its middle: of numbers by size, of sets by what they add."""
        cells, layout = self.problem.cells, self.problem.layout
        packed = self.boxes[place]
        opened = cells.opened(packed)
        width = (opened.high - opened.low) * influence
        scores = np.full((len(packed), len(cells.features)), -1.0)
        masks = opened.masks
        for block, mask in masks.items():
            own = width[:, cells.features[block]]
            scores[:, block] = np.where(mask.sum(axis=1) > 1, own.max(axis=1, initial=0.0), -1.0)
        chosen = scores.argmax(axis=1)
        left = scores.max(axis=1) >= 0.0
        for block in np.unique(chosen[left]).tolist():
            rows = np.flatnonzero((chosen == block) & left)
            numbers = rows + place.start
            at = int(layout.place[block])
            self.split[numbers, 0] = block
            if layout.words[block] == 0:
                self.split[numbers, 1] = (packed[rows, at] + packed[rows, at + 1]) // 2 + 1
                continue
            values = weights[rows][:, cells.features[block]] @ cells.first[block].T
            values = np.where(masks[block][rows], values, -np.inf)
            half = (masks[block][rows].sum(axis=1) + 1) // 2
            rank = np.argsort(np.argsort(-values, axis=1, kind="stable"), axis=1)
            upper = (rank < half[:, None]) & masks[block][rows]
            for word in range(int(layout.words[block])):
                some = upper[:, word * BITS : (word + 1) * BITS]
                self.masks[numbers, word] = some @ (np.int64(1) << np.arange(some.shape[1]))

    def halves(self, numbers: NDArray[np.int64]) -> range:
        """Split boxes; return the numbers of the halves."""
        layout = self.problem.layout
        children = np.repeat(self.boxes[numbers], 2, axis=0)
        for row, number in enumerate(numbers.tolist()):
            block, key, _ = self.split[number].tolist()
            at, words = int(layout.place[block]), int(layout.words[block])
            if words == 0:
                children[2 * row, at + 1], children[2 * row + 1, at] = key - 1, key
            else:
                mask = self.masks[number, :words]
                children[2 * row, at : at + words] &= mask
                children[2 * row + 1, at : at + words] &= ~mask
        self.split[numbers, 2] = self.count + 2 * np.arange(len(numbers))
        return self.add(children)

    def _corners(self, packed: NDArray[np.int64], weights: Floats) -> None:
        """Look at the input of each box in which lines see the largest difference."""
        if not len(packed):
            return
        opened = self.problem.cells.opened(packed)
        _, chosen, top = opened.corners(weights)
        if self.costs:
            chosen = self._nearer(chosen, opened.masks)
        worth = self._worth(chosen, top)
        self._keep(worth, chosen, top)

    def _nearer(self, chosen: NDArray[np.int64], masks: Mapping[int, NDArray[np.bool_]]) -> NDArray[np.int64]:
        """Move the blocks that cost most to their cheapest cells, until the distance is small enough."""
        rows = np.arange(len(chosen))
        cheap, own = chosen.copy(), np.zeros(chosen.shape)
        least = np.zeros(len(chosen))
        for block, cost in self.costs.items():
            values = np.where(masks[block], cost, np.inf)
            cheap[:, block] = values.argmin(axis=1)
            own[:, block] = cost[chosen[:, block]] - values[rows, cheap[:, block]]
            least += values[rows, cheap[:, block]]
        order = np.argsort(own, axis=1, kind="stable")
        total = np.cumsum(np.take_along_axis(own, order, axis=1), axis=1) + least[:, None]
        fits = np.zeros(chosen.shape, dtype=np.bool_)
        np.put_along_axis(fits, order, total <= self.near, axis=1)
        return np.where(fits, chosen, cheap)

    def _worth(self, chosen: NDArray[np.int64], top: NDArray[np.bool_]) -> Floats:
        """Return the objective of inputs given by cells and their ends, shape [n]; too far: minus infinity."""
        features = self._features(chosen, top)
        cost = sum((cost[chosen[:, block]] for block, cost in self.costs.items()), np.zeros(len(chosen)))
        first, second = (output(self.problem.layers, features + side) for side in self.sides)
        return np.where(cost <= self.near, objective(self.kind, first, second, self.threshold), -np.inf)

    def _keep(self, worth: Floats, chosen: NDArray[np.int64], top: NDArray[np.bool_]) -> None:
        place = int(worth.argmax())
        if worth[place] <= self.best:
            return
        self.best = float(worth[place])
        cells = chosen[place].tolist()
        cells[self.problem.changing] = self.pair[0]
        self.point, self.values = tuple(cells), {}
        for block, cell in enumerate(cells):
            if block != self.problem.changing:
                self.values |= self.problem.value(block, cell, bool(top[place, block]))

    def scatter(self) -> None:
        """Climb from the best of many inputs, the same ones always."""
        rng = np.random.default_rng(0)
        sizes = self.problem.layout.sizes
        chosen = rng.integers(0, sizes, size=(MANY, len(sizes)))
        top = rng.random(chosen.shape) < 0.5
        for place in np.argsort(-self._worth(chosen, top), kind="stable")[:FEW].tolist():
            self.climb(chosen[place], top[place])

    def climb(self, point: Sequence[int], top: NDArray[np.bool_] | None = None, rounds: int = 3) -> None:
        """Move one block at a time from a point to where the objective is best."""
        cells = self.problem.cells
        chosen = np.array(point, dtype=np.int64)[None, :]
        top = np.zeros(chosen.shape, dtype=np.bool_) if top is None else top[None, :]
        reached = float(self._worth(chosen, top)[0])
        for _ in range(rounds):
            before = reached
            for block in [*cells.ranges, *cells.lists]:
                size = int(self.problem.layout.sizes[block])
                some = np.unique(np.linspace(0, size - 1, min(size, TRIES)).astype(np.int64))
                many, tops = np.repeat(chosen, 2 * len(some), axis=0), np.repeat(top, 2 * len(some), axis=0)
                many[:, block] = np.tile(some, 2)
                tops[:, block] = np.arange(len(many)) >= len(some)
                worth = self._worth(many, tops)
                place = int(worth.argmax())
                if worth[place] > reached:
                    reached, chosen, top = float(worth[place]), many[[place]], tops[[place]]
            if reached <= before:
                break
        self._keep(np.array([reached]), chosen, top)

    def _features(self, chosen: NDArray[np.int64], top: NDArray[np.bool_]) -> Floats:
        cells = self.problem.cells
        found = np.repeat(cells.fixed[None, :], len(chosen), axis=0)
        for block, mine in enumerate(cells.features):
            if block == cells.changing:
                found[:, mine] = 0.0
                continue
            at = chosen[:, block]
            if self.shown is not None:
                found[:, mine] = self.shown[block][at]
                continue
            found[:, mine] = np.where(top[:, block, None], cells.last[block][at], cells.first[block][at])
        return found
