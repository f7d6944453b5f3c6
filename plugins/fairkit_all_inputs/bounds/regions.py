"""The open boxes of one pair of values, in regions: parts of the domain with trees merged anew for what is in reach."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.nearness import Joint, loop_costs
from fairkit_all_inputs.bounds.problem import SCORE, Problem, pack_point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.merging import Merged

AS_THEY_ARE = 32
"""So many boxes are split with the trees as they are; then the search begins anew with merged ones."""
IN_A_REGION = 64
"""So many boxes are split before the trees are merged anew in each that is open."""
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
    """A box in which trees are merged, and the open boxes in it.

    Parameters
    ----------
    forests
        As `FORESTS` names them, as they are in the box.
    item
        The number of the box.
    budget
        How many boxes may be split in it.
    """

    def __init__(self, forests: Sequence[Merged], item: int, budget: int, still: float) -> None:
        self.forests, self.item, self.budget = forests, item, budget
        first, less, more, gap = (forest.arrays for forest in forests)
        self.arrays = (first, less, more, gap)
        self.bases = np.array(
            [*(forest.base for forest in (forests[0], forests[1], forests[3], forests[2])), still]
        )
        self.heap = np.zeros(2 * budget + 4, dtype=np.int64)
        self.heap[0] = item
        self.open = 1


class Pairwise:
    """The open boxes of one pair of values.

    Parameters
    ----------
    problem, kind, pair
        The question.
    costs, near
        By block, the distance that each of its cells adds, or a distance of all blocks; and how much is allowed.
    """

    boxes: NDArray[np.int64]
    bounds: NDArray[np.float64]
    split: NDArray[np.int64]
    masks: NDArray[np.int64]

    def __init__(
        self,
        problem: Problem,
        kind: int,
        pair: tuple[int, int],
        costs: Mapping[int, NDArray[np.float64]] | Joint | None = None,
        near: float = math.inf,
    ) -> None:
        from fairkit_all_inputs.bounds.merging import Merged

        first, second = pair
        gap = problem.gap(first, second)
        if kind == SCORE:
            first_sum = less = more = problem.empty
        else:
            first_sum, more = problem.at(first), problem.at(second)
            less = more.negative
        self.problem, self.kind, self.pair, self.near = problem, kind, pair, near
        layout = problem.layout
        offset, self.cost = loop_costs(layout, costs, near)
        self._joint = costs if isinstance(costs, Joint) else None
        self._whole = (first_sum.arrays, less.arrays, gap.arrays, more.arrays, gap.negative.arrays)
        # a tree whose difference is one number, but not 0, is in the base: the sums never take the same leaves
        self._bases = np.array([first_sum.base, less.base, gap.base, more.base, float(gap.moved)])
        self._layout = (layout.place, layout.words, layout.sizes, offset)
        self._threshold = problem.threshold if problem.threshold is not None else 0.0
        self._widest = max(1, int(layout.words.max(initial=0)))
        self._grow(256)
        self.boxes[0] = layout.pack(self._allowed())
        self._count = 1
        self._closed = np.array([-math.inf])
        self._groups: dict[int, Groups] = {}
        self._waiting: list[tuple[float, int, Region]] = []
        forests = [Merged.of(forest) for forest in (first_sum, less, more, gap)]
        self._region: Region | None = Region(forests, 0, AS_THEY_ARE, self._bases[4])
        self._first = self._region
        self.bounds[0] = self._bound(self._region)

    def _allowed(self) -> tuple[int, ...]:
        """Leave out the cells that alone are too far."""
        if self.near == math.inf:
            return self.problem.layout.full
        if self._joint is not None:
            return self._joint.allowed(self.problem.layout, self.near)
        offset, sizes = self._layout[3], self.problem.layout.sizes
        found = []
        for block, size in enumerate(sizes.tolist()):
            mine = self.cost[0][offset[block] : offset[block] + size]
            found.append(sum(1 << c for c in np.flatnonzero(mine <= self.near).tolist()))
        return tuple(found)

    def _bound(self, region: Region) -> float:
        """Return the bound of a region's box."""
        from fairkit_all_inputs.bounds import kernels, objectives, reaching

        box = self.boxes[region.item]
        if reaching.far(box, *self._layout, self.cost, self.near):
            return -math.inf
        stack = np.empty(kernels.DEEP, dtype=np.int64)
        return float(
            objectives.box_bound(
                self.kind, *region.arrays, region.bases, self._whole, box, self._layout, stack, self._threshold,
                np.zeros(4),
            )
        )  # fmt: skip

    def _grow(self, size: int) -> None:
        """Make room for so many boxes."""
        width = self.problem.layout.width
        for name, count in {"boxes": width, "bounds": 0, "split": 3, "masks": self._widest}.items():
            shape = (size, count) if count else (size,)
            made = np.full(
                shape, -1 if name == "split" else 0, dtype=np.float64 if name == "bounds" else np.int64
            )
            old = getattr(self, name, None)
            if old is not None:
                made[: len(old)] = old
            setattr(self, name, made)

    @property
    def top(self) -> float:
        """The largest bound of an open box."""
        found = -math.inf
        if self._region is not None and self._region.open:
            found = float(self.bounds[self._region.heap[0]])
        return max(found, -self._waiting[0][0]) if self._waiting else found

    @property
    def upper(self) -> float:
        """The largest bound of a box, open or closed."""
        return max(float(self._closed[0]), self.top)

    def try_point(
        self, point: Sequence[int], best: NDArray[np.float64], box: NDArray[np.int64], rounds: int = 4
    ) -> None:
        """Climb from a point, and keep what is better than the best."""
        from fairkit_all_inputs.bounds import climbing, kernels, reaching

        packed = pack_point(self.problem.layout, point, self.problem.changing)
        if not reaching.settle(packed, *self._layout, self.cost, self.near):
            return
        stack = np.empty(kernels.DEEP, dtype=np.int64)
        start = climbing.value_at(
            self.kind, self._whole, self._bases, packed, self._layout, stack, self._threshold
        )
        got = climbing.improve(
            self.kind, self._whole, self._bases, packed, self._layout, stack, self._threshold, self.cost, self.near,
            start, rounds,
        )  # fmt: skip
        if got > best[0]:
            best[0], box[:] = got, packed

    def work(
        self, best: NDArray[np.float64], box: NDArray[np.int64], steps: int, slack: float, enough: float
    ) -> int:
        """Split some boxes and merge trees; return how much work that was, in boxes."""
        done = 0
        while done < steps and best[0] <= enough:
            region = self._region
            if region is None:
                if not self._waiting or -self._waiting[0][0] <= best[0] + slack:
                    break
                self._enter(best[0] + slack)
                done += A_MERGE
                continue
            done += self._search(region, best, box, min(steps - done, region.budget), slack, enough)
            top = float(self.bounds[region.heap[0]]) if region.open else -math.inf
            if top <= best[0] + slack:
                self._closed[0] = max(self._closed[0], top)
                self._region = None
            elif region.budget <= 0:
                self._leave(region)
        return done

    def _search(
        self,
        region: Region,
        best: NDArray[np.float64],
        box: NDArray[np.int64],
        steps: int,
        slack: float,
        enough: float,
    ) -> int:
        from fairkit_all_inputs.bounds import loops

        before = self._count
        if before + 2 * steps + 2 > len(self.boxes):
            self._grow(max(2 * len(self.boxes), before + 2 * steps + 2))
        state = np.array([before, region.open], dtype=np.int64)
        loops.search(
            self.kind, *region.arrays, region.bases, self._whole, self._bases, self._layout, self._threshold,
            self.cost, self.near, self.boxes, self.bounds, self.split, self.masks, region.heap, state, self._closed,
            best, box, steps, slack, enough,
        )  # fmt: skip
        self._count, region.open = int(state[0]), int(state[1])
        used = max((self._count - before) // 2, 1)
        region.budget -= used
        return used

    def _leave(self, region: Region) -> None:
        """Let the open boxes of a region wait to become regions of their own."""
        self._region = None
        if region is self._first:  # from the beginning, with merged trees
            self.split[0], self._count, self._closed[0] = -1, 1, -math.inf
            for forest, places in zip(region.forests, self._places(), strict=True):
                forest.name(places)
            heapq.heappush(self._waiting, (-float(self.bounds[0]), 0, region))
            return
        for item in region.heap[: region.open].tolist():
            heapq.heappush(self._waiting, (-float(self.bounds[item]), item, region))

    def _enter(self, least: float) -> None:
        """Merge trees in the box with the largest bound, which becomes a region unless its bound is small now."""
        _, item, above = heapq.heappop(self._waiting)
        forests = [forest.inside(self.boxes[item], self.problem.layout) for forest in above.forests]
        region = Region(forests, item, IN_A_REGION, self._bases[4])
        told = {name: forest.told for name, forest in zip(FORESTS, forests, strict=True)}
        self._groups[item] = {name: groups for name, groups in told.items() if groups}
        self.bounds[item] = min(self._bound(region), self.bounds[item])
        if self.bounds[item] > least:
            self._region = region
        else:
            self._closed[0] = max(self._closed[0], self.bounds[item])

    def _places(self) -> list[list[int]]:
        """Return by forest and tree its root's place in the problem."""
        first, second = self.pair
        gap = self.problem.places(first, second)
        if self.kind == SCORE:
            return [[], [], [], gap]
        one, two = self.problem.places(first), self.problem.places(second)
        return [one, two, two, gap]

    @property
    def splits(self) -> Splits:
        """What was split."""
        count = self._count
        return Splits(
            self.split[:count].copy(),
            self.masks[:count].copy(),
            self.bounds[:count].copy(),
            dict(self._groups),
        )
