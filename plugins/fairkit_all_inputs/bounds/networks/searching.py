"""Branch and bound over a network's boxes: a witness, an upper bound, and the tree of splits that proves it."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.networks.programme import small
from fairkit_all_inputs.bounds.networks.tree import Tree
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP
from fairkit_all_inputs.bounds.regions import Splits
from fairkit_all_inputs.bounds.searching import CLOSE, Answer, Effort
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


def answer_network(
    problem: NetworkProblem,
    kind: int,
    *,
    effort: Effort | None = None,
    starts: Sequence[Sequence[int]] = (),
    costs: Mapping[int, Floats] | None = None,
    near: float = math.inf,
    floor: float = -math.inf,
    values: Mapping[str, NDArray[np.generic]] | None = None,
    says: Callable[[float, float], None] | None = None,
) -> Answer:
    """Bound the largest value of an objective over all inputs and all pairs of values.

    Parameters
    ----------
    problem, kind, effort, starts, costs, near, floor, says
        As of `fairkit_all_inputs.bounds.searching.answer`. A box counts by its multiplications, as one for each
        `PRICE`.
    values
        By column, the raw value of each cell that a witness would have; default: the cells' ends.

    Returns
    -------
    Answer
        Its upper bound contains the runtime's rounding.
    """
    effort = effort or Effort()
    started = time.monotonic()
    if not problem.pairs:
        none = -math.inf if kind == FLIP else 0.0
        return Answer(kind=kind, lower=none, upper=none, pair=None, point=None)
    floor = max(floor, 0.0) if kind == FLIP else floor
    shown = None if values is None else _shown(problem, values)
    trees = [Tree(problem, kind, pair, costs, near, shown, floor) for pair in problem.pairs]
    enough = problem.rounding + problem.band if kind == FLIP else math.inf

    def undecided() -> bool:
        return max(one.best for one in trees) <= enough and not _late(started, effort)

    some = np.array(starts[: max(1, MOST_STARTS // len(trees))], dtype=np.int64)
    for tree in trees:
        if len(some) and undecided():
            tree.climber.climb(some, enough=enough)
    for tree in trees:
        if near == math.inf and undecided():
            tree.climber.scatter(enough)
    search = _Search(trees, kind)
    work, done = work_of(problem), 0.0
    price = max(1.0, work / PRICE)
    while done < effort.boxes and search.best <= enough and not _late(started, effort):
        done += price * search.step(max(1, int(min(AT_ONCE / work, (effort.boxes - done) / price))))
        if not search.open:
            break
        if says is not None:
            says(search.best, search.upper)
    return search.answered(int(done))


def _late(started: float, effort: Effort) -> bool:
    return effort.seconds is not None and time.monotonic() - started > effort.seconds


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
    return [
        wide[starts[block] : starts[block + 1]][:, mine] for block, mine in enumerate(problem.cells.features)
    ]


class _Search:
    """The open boxes of all pairs, the largest bound first."""

    def __init__(self, trees: Sequence[Tree], kind: int) -> None:
        self.trees, self.kind = trees, kind
        self.open: list[tuple[float, int, int]] = []
        self._ended = [-math.inf]
        for place, tree in enumerate(trees):
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

    def step(self, boxes: int) -> int:
        """Split some boxes; return how many."""
        limit, taken = self._limit, 0
        chosen: dict[int, list[int]] = {}
        while self.open and taken < boxes:
            minus, index, number = heapq.heappop(self.open)
            if -minus <= limit:
                self.open.clear()
                break
            chosen.setdefault(index, []).append(number)
            taken += 1
        for index, numbers in chosen.items():
            self._push(index, self.trees[index].halves(np.array(numbers)))
        return taken

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
            splits={
                one.pair: Splits(one.split[: one.count], one.masks[: one.count], one.total)
                for one in self.trees
            },
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
