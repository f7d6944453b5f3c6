"""The bound of each box of a proof log, computed anew without the loops of the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import CellTree
    from fairkit_all_inputs.bounds.regions import Groups

    Part = tuple[float, dict[int, int]]

MOST_PARTS = 5_000
"""A sum of trees with more leaves is refused."""
_NAMES = frozenset({"first", "less", "more", "gap"})


def checked(problem: Problem, record: Mapping[Any, Any]) -> Groups:
    """Return the groups of an entry of a log."""
    for name, groups in record.items():
        places = [place for group in groups for place in group]
        right = all(type(place) is int and 0 <= place < len(problem.roots) for place in places)
        if name not in _NAMES or not right or len(set(places)) < len(places):
            raise DataError(f"the proof log adds up trees that are not there, or twice, as {name!r}")
    return record


def largest(trees: Sequence[CellTree], boxes: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sum over trees of the largest value that each reaches in each box, shape [n]."""
    total = np.zeros(len(boxes))
    for tree in trees:
        best = np.full(len(boxes), -np.inf)
        waiting = [(0, np.arange(len(boxes)))]
        while waiting:
            node, rows = waiting.pop()
            if not len(rows):
                continue
            block = tree.block[node]
            if block < 0:
                best[rows] = np.maximum(best[rows], tree.value[node])
                continue
            for cells, child in ((tree.cells[node], tree.yes[node]), (tree.others[node], tree.no[node])):
                width = int(starts[block + 1] - starts[block])
                places = starts[block] + np.array([c for c in range(width) if cells >> c & 1], dtype=int)
                waiting.append((child, rows[boxes[np.ix_(rows, places)].any(axis=1)]))
        total += best
    return total


def _parts(tree: CellTree, reach: Sequence[int]) -> list[Part]:
    """Return the leaves of a tree that are in reach: the value, and the cells of each block that lead there."""
    parts: list[Part] = []
    waiting: list[tuple[int, dict[int, int]]] = [(0, {})]
    while waiting:
        node, needs = waiting.pop()
        block = tree.block[node]
        if block < 0:
            parts.append((tree.value[node], needs))
            continue
        for cells, child in ((tree.cells[node], tree.yes[node]), (tree.others[node], tree.no[node])):
            left = needs.get(block, reach[block]) & cells
            if left:
                waiting.append((child, {**needs, block: left}))
    return parts


def _added(left: Sequence[Part], right: Sequence[Part]) -> list[Part]:
    """Return the leaves of the sum of two trees."""
    sums = []
    for value, needs in left:
        for more, others in right:
            both = needs | {b: needs[b] & cells if b in needs else cells for b, cells in others.items()}
            if all(both.values()):
                sums.append((value + more, both))
    if len(sums) > MOST_PARTS:
        raise DataError(f"the proof log adds up trees to more than {MOST_PARTS} leaves")
    return sums


def _largest_of(parts: Sequence[Part], boxes: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest value of the leaves that each box reaches, shape [n]."""
    best = np.full(len(boxes), -np.inf)
    rows = np.arange(len(boxes))
    for value, needs in sorted(parts, key=lambda part: -part[0]):
        some = rows
        for block, cells in needs.items():
            places = starts[block] + np.array([c for c in range(cells.bit_length()) if cells >> c & 1])
            some = some[boxes[np.ix_(some, places)].any(axis=1)]
        best[some] = value
        rows = rows[best[rows] == -np.inf]
        if not len(rows):
            break
    return best


class Trees:
    """The trees of a question about one pair of values."""

    def __init__(self, problem: Problem, kind: int, pair: tuple[int, int]) -> None:
        self.problem, self.kind = problem, kind
        self.starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(np.int64)
        self.gap = problem.gap_trees_by_root(*pair)
        firsts = seconds = {}
        if kind != SCORE:
            firsts = {place: [tree] for place, tree in enumerate(problem.trees_at(pair[0]))}
            seconds = {place: [tree] for place, tree in enumerate(problem.trees_at(pair[1]))}
        self.first, self.more = firsts, seconds
        self.less = {place: [tree.negative for tree in trees] for place, trees in seconds.items()}

    def _most(
        self, trees: Mapping[int, Sequence[CellTree]], boxes: NDArray[np.bool_], groups: Sequence[Sequence[int]]
    ) -> NDArray[np.float64]:
        """Return an upper bound of the sum of trees in each box, those of a group taken together."""
        together = {place for group in groups for place in group}
        alone = [tree for place, some in trees.items() if place not in together for tree in some]
        total = largest(alone, boxes, self.starts)
        if not groups:
            return total
        everything = np.asarray(boxes.any(axis=0))
        reach = [
            sum(1 << c for c in np.flatnonzero(everything[a:b]).tolist())
            for a, b in zip(self.starts, self.starts[1:], strict=False)
        ]
        for group in groups:
            parts: list[Part] = [(0.0, {})]
            for place in group:
                for tree in trees.get(place, ()):
                    parts = _added(parts, _parts(tree, reach))
            total += _largest_of(parts, boxes, self.starts)
        return total

    def bounds(self, boxes: NDArray[np.bool_], groups: Groups) -> NDArray[np.float64]:
        """Return an upper bound of the objective in each box, shape [n]."""
        by_forest = {name: groups.get(name, ()) for name in _NAMES}
        gap = self._most(self.gap, boxes, by_forest["gap"])
        if self.kind == SCORE:
            return gap
        base = self.problem.base
        most_first = base + self._most(self.first, boxes, by_forest["first"])
        least_second = base - self._most(self.less, boxes, by_forest["less"])
        if self.kind == FLIP:
            threshold = self.problem.threshold if self.problem.threshold is not None else 0.0
            found = np.minimum(np.minimum(most_first - threshold, threshold - least_second), gap / 2.0)
            found[self._still(boxes, gap)] = -np.inf
            return found
        assert self.kind == CHANCE  # noqa: S101 -- the third question
        most_second = base + self._most(self.more, boxes, by_forest["more"])
        second = np.maximum(least_second, np.minimum(np.minimum(-gap / 2.0, most_second), most_first - gap))
        return _sigmoid(np.minimum(most_first, second + gap)) - _sigmoid(second)

    def _still(self, boxes: NDArray[np.bool_], gap: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the boxes in which no tree differs: the two sums are the same, rounded alike."""
        rows = np.flatnonzero(gap <= 0.0)
        for tree in (tree for some in self.gap.values() for tree in some):
            for one in (tree, tree.negative):
                rows = rows[largest([one], boxes[rows], self.starts) == 0.0] if len(rows) else rows
        return rows


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found
