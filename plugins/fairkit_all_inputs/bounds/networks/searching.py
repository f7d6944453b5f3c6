"""The search of a network: the open boxes of all pairs, in batches."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.networks.climbing import Climber
from fairkit_all_inputs.bounds.networks.programme import small
from fairkit_all_inputs.bounds.networks.tree import Tree
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP
from fairkit_all_inputs.bounds.regions import Splits
from fairkit_all_inputs.bounds.searching import CLOSE, Answer
from fairkit_onnx.structure.cells import encode_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.problem import NetworkProblem

    Floats = NDArray[np.float64]

PRICE = 300_000
"""Multiplications that count as one box."""
PROGRAMME = 1.5e6, 2_600.0
"""Multiplications that a linear programme counts as: always, and by the square of the units."""
AT_ONCE = 2e7
"""Multiplications between two looks at the clock."""
MOST_STARTS = 8
"""Climbs, over all pairs."""


def work_of(problem: NetworkProblem) -> float:
    """Return the multiplications that a box takes."""
    widths = [problem.layers[0].weights.shape[1], *(len(layer.bias) for layer in problem.layers)]
    total = 0.0
    for depth in range(1, len(widths)):
        total += 6.0 * widths[depth] * sum(widths[i] * widths[i - 1] for i in range(1, depth))
        total += 4.0 * widths[depth] * widths[0]
    return total + (PROGRAMME[0] + PROGRAMME[1] * problem.units**2 if small(problem.layers) else 0.0)


def _shown(problem: NetworkProblem, values: Mapping[str, NDArray[np.generic]]) -> list[Floats]:
    """Return the features of each block's cells at some raw values."""
    blocks = [
        replace(block, values={name: values.get(name, own) for name, own in block.values.items()})
        for block in problem.blocks
    ]
    defaults = {name: own[0] for block in problem.blocks for name, own in block.values.items()}
    defaults = {name: own.item() if isinstance(own, np.generic) else own for name, own in defaults.items()}
    matrix, starts = encode_rows(blocks, problem.encode, defaults)
    wide = matrix.astype(np.float64)
    return [wide[starts[block] : starts[block + 1]][:, mine] for block, mine in enumerate(problem.cells.features)]


class NetworkSearch:
    """The open boxes of all pairs, the largest bound first."""

    def __init__(
        self,
        problem: NetworkProblem,
        kind: int,
        costs: Mapping[int, Floats] | None,
        near: float,
        floor: float,
        values: Mapping[str, NDArray[np.generic]] | None,
    ) -> None:
        floor = max(floor, 0.0) if kind == FLIP else floor
        shown = None if values is None else _shown(problem, values)
        self.trees = [Tree(Climber(problem, kind, pair, costs or {}, near, shown, floor)) for pair in problem.pairs]
        self.kind, self._far = kind, near < math.inf
        self.enough = problem.rounding + problem.band if kind == FLIP else math.inf
        self._work = work_of(problem)
        self.open: list[tuple[float, int, int]] = []
        self._ended = [-math.inf]

    def climb(self, starts: Sequence[Sequence[int]], late: Callable[[], bool]) -> None:
        """Climb from points, and from drawn ones where every distance is allowed; then open the first boxes."""
        some = np.array(starts[: max(1, MOST_STARTS // len(self.trees))], dtype=np.int64)
        for tree in self.trees if len(some) else ():
            if self.best <= self.enough and not late():
                tree.climber.climb(some, enough=self.enough)
        for tree in self.trees if not self._far else ():
            if self.best <= self.enough and not late():
                tree.climber.scatter(self.enough)
        for place, tree in enumerate(self.trees):
            self._push(place, range(tree.count))

    @property
    def best(self) -> float:
        """The best objective of an input."""
        return max(tree.best for tree in self.trees)

    @property
    def upper(self) -> float:
        """The largest bound of a box that is left, without rounding."""
        return max(-self.open[0][0] if self.open else -math.inf, *self._ended, -math.inf)

    @property
    def _slack(self) -> float:
        if self.kind == FLIP:
            return 0.0
        return CLOSE if self.kind == CHANCE else 1e-6 * max(1.0, abs(self.best))

    def _push(self, index: int, numbers: range) -> None:
        tree, limit = self.trees[index], self._limit
        for number in numbers:
            bound = float(tree.bounds[number])
            if bound <= limit:
                continue
            if tree.split[number, 0] < 0:
                self._ended.append(bound)  # one cell of each block
            else:
                heapq.heappush(self.open, (-bound, index, number))

    @property
    def _limit(self) -> float:
        if self.kind == FLIP:
            return 0.0  # bounds of flips contain the rounding
        return self.best + self._slack

    def step(self, boxes: float) -> float:
        """Split some boxes, at most so many; return how many."""
        price = max(1.0, self._work / PRICE)
        limit, taken, most = self._limit, 0, max(1, int(min(AT_ONCE / self._work, boxes / price)))
        chosen: dict[int, list[int]] = {}
        while self.open and taken < most:
            minus, index, number = heapq.heappop(self.open)
            if -minus <= limit:
                self.open.clear()
                break
            chosen.setdefault(index, []).append(number)
            taken += 1
        for index, numbers in chosen.items():
            self._push(index, self.trees[index].halves(np.array(numbers)))
        return price * taken

    def answered(self, boxes: int) -> Answer:
        """Return the answer: the best value, the proved upper bound, and the witness."""
        tree = max(self.trees, key=lambda one: one.best)
        upper = max(_proved(one) for one in self.trees)
        is_reached = bool(tree.climber.point)
        return Answer(
            kind=self.kind,
            lower=tree.best if is_reached else -math.inf,
            upper=max(upper, tree.best) if is_reached else upper,
            pair=tree.pair if is_reached else None,
            point=tree.climber.point if is_reached else None,
            values=tree.climber.values if is_reached else None,
            rounding=0.0,  # the bounds contain it
            splits={one.pair: Splits(one.split[: one.count], one.masks[: one.count], one.total) for one in self.trees},
            boxes=boxes,
        )


def _proved(tree: Tree) -> float:
    """Return the least bound that boxes prove: a box's own, or the larger one of its halves'."""
    split = tree.split[: tree.count]
    split[split[:, 2] < 0, 0] = -1  # chosen, and not split
    found = tree.total.copy()
    for number in np.flatnonzero(split[:, 0] >= 0)[::-1].tolist():
        child = split[number, 2]
        found[number] = min(found[number], max(found[child], found[child + 1]))
    return float(found[0])
