"""The open boxes of one pair of values, in regions: parts of the domain with trees merged anew for what is in reach."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.arrays import Best, Boxes, Grid, Objective, Open, Scratch, Sums
from fairkit_all_inputs.bounds.nearness import Joint, loop_costs
from fairkit_all_inputs.bounds.problem import LEAST, SCORE, Problem, pack_point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.classes.problem import ClassProblem
    from fairkit_all_inputs.bounds.merging import Merged

AS_THEY_ARE = 32
"""So many boxes are split with the trees as they are; then the search begins anew with merged ones."""
IN_A_REGION = 64
"""So many boxes are split before the trees are merged anew in each that is open."""
MOST_BOXES = 2**40
"""More boxes than any search splits."""
TURNS = 4
"""Rounds over the blocks of a climb from a point that is tried."""
A_MERGE = 16
"""A merge counts as so many boxes."""
FORESTS = ("first", "less", "more", "gap")
"""The first sum, the second negated, the second, and the difference."""

Groups = Mapping[str, Sequence[Sequence[int]]]
"""By one of `FORESTS`, which trees are added up, as places in the roots of the problem; the others are alone."""


@dataclass(eq=False)
class Splits:
    """The boxes of one pair, by number: what each was split at, and its bound; and from which on trees are merged."""

    split: NDArray[np.int64]
    masks: NDArray[np.int64]
    bounds: NDArray[np.float64]
    groups: Mapping[int, Groups] = field(default_factory=dict)


class Region:
    """A box in which trees are merged, and the open boxes in it."""

    def __init__(self, forests: Sequence[Merged], item: int, budget: int, grid: Grid) -> None:
        self.forests, self.item, self.budget = forests, item, budget
        self.sums = Sums.of(forests, grid)
        self.scratch = Scratch.of(int(np.diff(self.sums.group).max()), len(forests), grid)
        self.heap = np.full(1, item, dtype=np.int64)
        self.open = 1


class Question:
    """The open boxes of one question."""

    def __init__(
        self,
        problem: Problem | ClassProblem,
        kind: int,
        key: Sequence[int],
        costs: Mapping[int, NDArray[np.float64]] | Joint | None = None,
        near: float = math.inf,
    ) -> None:
        from fairkit_all_inputs.bounds.merging import Merged

        self.problem, self.key = problem, key
        forests = problem.forests(kind, key)
        layout, gap = problem.layout, forests[-1]
        self._grid, self._distance = layout.grid, loop_costs(layout, costs, near)
        self._whole = Sums.of([*forests, gap.negative], self._grid)
        # a tree whose difference is one number, but not 0, is in the base: the sums never take the same leaves
        self._whole.bases[-1] = float(gap.moved)
        classes = not isinstance(problem, Problem)
        self._objective = Objective(LEAST if classes else kind, float(problem.threshold or 0.0))
        # a proof of classes bounds trees one by one
        budget = MOST_BOXES if classes else AS_THEY_ARE
        self._boxes = Boxes.of(256, layout.width, self._grid.widest)
        self._boxes.cells[0] = layout.pack(self._allowed(costs))
        self._count, self._closed = 1, np.array([-math.inf])
        self._groups: dict[int, Groups] = {}
        self._waiting: list[tuple[float, int, Region]] = []
        self._region: Region | None = Region([Merged.of(forest) for forest in forests], 0, budget, self._grid)
        self._first = self._region
        self._boxes.bounds[0] = self._bound(self._region)

    def _allowed(self, costs: Mapping[int, NDArray[np.float64]] | Joint | None) -> tuple[int, ...]:
        """Leave out the cells that alone are too far."""
        layout, near = self.problem.layout, self._distance.near
        if near == math.inf:
            return layout.full
        if isinstance(costs, Joint):
            return costs.allowed(layout, near)
        cells_by_block = []
        for start, size in zip(self._grid.offset.tolist(), layout.sizes.tolist(), strict=False):
            allowed = np.flatnonzero(self._distance.added[start : start + size] <= near)
            cells_by_block.append(sum(1 << c for c in allowed.tolist()))
        return tuple(cells_by_block)

    def _bound(self, region: Region) -> float:
        """Return the bound of a region's box."""
        from fairkit_all_inputs.bounds import objectives, reaching

        box = self._boxes.cells[region.item]
        if reaching.far(box, self._grid, self._distance):
            return -math.inf
        return float(objectives.box_bound(self._objective, region.sums, self._whole, box, self._grid, region.scratch))

    @property
    def top(self) -> float:
        """The largest bound of an open box."""
        most = -math.inf
        if self._region is not None and self._region.open:
            most = float(self._boxes.bounds[self._region.heap[0]])
        return max(most, -self._waiting[0][0]) if self._waiting else most

    @property
    def upper(self) -> float:
        """The largest bound of a box, open or closed."""
        return max(float(self._closed[0]), self.top)

    @property
    def root(self) -> float:
        """The bound of everything."""
        return float(self._boxes.bounds[0])

    def try_point(self, point: Sequence[int], best: Best) -> None:
        """Climb from a point, and keep what is better than the best."""
        from fairkit_all_inputs.bounds import climbing, objectives, reaching

        box = pack_point(self.problem.layout, point, self.problem.changing)
        if not reaching.settle(box, self._grid, self._distance):
            return
        about = self._objective, self._whole, box, self._grid, self._first.scratch
        start = objectives.value_at(*about)
        reached = climbing.improve(*about, self._distance, start, TURNS)
        if reached > best.value[0]:
            best.value[0], best.box[:] = reached, box

    def work(self, best: Best, steps: int, slack: float, enough: float) -> int:
        """Split some boxes and merge trees; return how much work that was, in boxes."""
        done = 0
        while done < steps and best.value[0] <= enough:
            region, least = self._region, best.value[0] + slack
            if region is None:
                if not self._waiting or -self._waiting[0][0] <= least:
                    break
                self._enter(least)
                done += A_MERGE
                continue
            done += self._search(region, best, min(steps - done, region.budget), slack, enough)
            top = float(self._boxes.bounds[region.heap[0]]) if region.open else -math.inf
            if top <= best.value[0] + slack:
                self._closed[0] = max(self._closed[0], top)
                self._region = None
            elif region.budget <= 0:
                self._leave(region)
        return done

    def _search(self, region: Region, best: Best, steps: int, slack: float, enough: float) -> int:
        from fairkit_all_inputs.bounds import loops

        before, boxes = self._count, self._boxes
        room = before + 2 * steps + 2
        if room > len(boxes.bounds):
            size = max(2 * len(boxes.bounds), room)
            self._boxes = boxes = Boxes.of(size, boxes.cells.shape[1], self._grid.widest, boxes)
        heap = np.zeros(region.open + steps + 2, dtype=np.int64)
        heap[: region.open] = region.heap[: region.open]
        region.heap, state = heap, np.array([before, region.open], dtype=np.int64)
        loops.search(
            self._objective, region.sums, self._whole, self._grid, region.scratch, self._distance, boxes,
            Open(heap, state, self._closed), best, steps, slack, enough,
        )  # fmt: skip
        self._count, region.open = int(state[0]), int(state[1])
        used = max((self._count - before) // 2, 1)
        region.budget -= used
        return used

    def _leave(self, region: Region) -> None:
        """Let the open boxes of a region wait to become regions of their own."""
        self._region = None
        bounds = self._boxes.bounds
        if region is self._first:  # from the beginning, with merged trees
            self._boxes.split[0], self._count, self._closed[0] = -1, 1, -math.inf
            for forest, places in zip(region.forests, self._places(), strict=True):
                forest.name(places)
            heapq.heappush(self._waiting, (-float(bounds[0]), 0, region))
            return
        for item in region.heap[: region.open].tolist():
            heapq.heappush(self._waiting, (-float(bounds[item]), item, region))

    def _enter(self, least: float) -> None:
        """Merge trees in the box with the largest bound, which becomes a region unless its bound is small now."""
        _, item, above = heapq.heappop(self._waiting)
        forests = [forest.inside(self._boxes.cells[item], self._grid) for forest in above.forests]
        region = Region(forests, item, IN_A_REGION, self._grid)
        told = {name: forest.told for name, forest in zip(FORESTS, forests, strict=True)}
        self._groups[item] = {name: groups for name, groups in told.items() if groups}
        bounds = self._boxes.bounds
        bounds[item] = min(self._bound(region), bounds[item])
        if bounds[item] > least:
            self._region = region
        else:
            self._closed[0] = max(self._closed[0], bounds[item])

    def _places(self) -> list[list[int]]:
        """Return by forest and tree its root's place in the problem."""
        problem, (first, second) = self.problem, self.key
        assert isinstance(problem, Problem)  # noqa: S101 -- trees of classes are not merged
        gap = problem.places(first, second)
        if self._objective.kind == SCORE:
            return [[], [], [], gap]
        one, two = problem.places(first), problem.places(second)
        return [one, two, two, gap]

    @property
    def splits(self) -> Splits:
        """What was split."""
        boxes, count = self._boxes, self._count
        return Splits(
            boxes.split[:count].copy(), boxes.masks[:count].copy(), boxes.bounds[:count].copy(), dict(self._groups)
        )  # fmt: skip
