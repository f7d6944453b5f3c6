"""Branch and bound for a change of the predicted class, and its proof."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, MissingExtraError
from fairkit_all_inputs.bounds.forest import Forest
from fairkit_all_inputs.bounds.nearness import Joint, loop_costs
from fairkit_all_inputs.bounds.problem import FLIP, pack_point, point_of
from fairkit_all_inputs.bounds.proof import boxes_of, filled
from fairkit_all_inputs.bounds.proof_bounds import largest
from fairkit_all_inputs.bounds.regions import Splits
from fairkit_all_inputs.bounds.searching import AT_ONCE, Answer, Effort

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.classes.problem import ClassProblem, Question
    from fairkit_all_inputs.bounds.forest import CellTree, Layout
    from fairkit_all_inputs.bounds.proof import Log

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


TINY = 1e-300
"""Less than any rounding: a bound to which it is added stays an upper one."""


def joined(forests: Sequence[Forest], layout: Layout) -> tuple[tuple[Any, ...], Ints, Floats]:
    """Return the arrays of several forests as one, where the trees of each begin, and their bases."""
    starts = np.concatenate([[0], np.cumsum([len(one.block) for one in forests])])
    mask_starts = np.concatenate([[0], np.cumsum([len(one.masks) for one in forests])])
    group = np.concatenate([[0], np.cumsum([len(one.roots) for one in forests])]).astype(np.int64)
    listed = layout.words > 0

    def moved(name: str) -> Ints:
        parts = [
            np.where(getattr(one, name) >= 0, getattr(one, name) + start, -1)
            for one, start in zip(forests, starts, strict=False)
        ]
        return np.concatenate(parts).astype(np.int64)

    cut = [
        one.cut + np.where((one.block >= 0) & listed[np.maximum(one.block, 0)], word, 0)
        for one, word in zip(forests, mask_starts, strict=False)
    ]
    arrays = (
        moved("roots"),
        np.concatenate([one.block for one in forests]),
        np.concatenate(cut).astype(np.int64),
        moved("yes"),
        moved("no"),
        moved("parent"),
        np.concatenate([one.value for one in forests]),
        np.concatenate([one.high for one in forests]),
        np.concatenate([one.masks for one in forests]),
    )
    return arrays, group, np.array([one.base for one in forests])


def sums_of(problem: ClassProblem, question: Question) -> list[tuple[list[CellTree], float]]:
    """Return the sums of which the least must be positive: margins at both cells, and half of the margin's change."""
    s, t, k, m = question
    others = range(len(problem.names))
    sums = []
    for cell, own in ((s, k), (t, m)):
        for other in others:
            if other != own:
                margin = problem.margin(own, other)
                sums.append((margin.trees_at(cell), margin.base))
    return sums


class _Asked:
    """The open boxes of one question."""

    def __init__(
        self,
        problem: ClassProblem,
        question: Question,
        costs: Mapping[int, Floats] | Joint | None,
        near: float,
    ) -> None:
        from fairkit_all_inputs.bounds import kernels, reaching
        from fairkit_all_inputs.bounds.classes import loops

        s, t, k, m = question
        layout = problem.layout
        classes = range(len(problem.names))
        forests = [problem.margin(k, other).at(s) for other in classes if other != k]
        forests += [problem.margin(m, other).at(t) for other in classes if other != m]
        gap = problem.margin(k, m).gap(s, t)
        # numbers of the changing columns alone are no trees of the gap; where they cancel the leaves still differ
        base = gap.base / 2.0 or (TINY if gap.moved else 0.0)
        half = Forest(
            gap.roots, gap.block, gap.cut, gap.yes, gap.no, gap.parent, gap.value / 2.0, gap.high / 2.0, gap.low / 2.0,
            gap.masks, base,
        )  # fmt: skip
        self.forest, self.group, self.bases = joined([*forests, half], layout)
        self.gaps = gap.arrays, gap.negative.arrays
        offset, self.cost = loop_costs(layout, costs, near)
        self.layout = (layout.place, layout.words, layout.sizes, offset)
        self.problem, self.question, self.near = problem, question, near
        self.widest = max(1, int(layout.words.max(initial=0)))
        self.boxes = np.zeros((0, layout.width), dtype=np.int64)
        self.bounds, self.heap = np.zeros(0), np.zeros(0, dtype=np.int64)
        self.split, self.masks = np.zeros((0, 3), dtype=np.int64), np.zeros((0, self.widest), dtype=np.int64)
        self.state = np.array([1, 1], dtype=np.int64)
        self._grow(64)
        full = costs.allowed(layout, near) if isinstance(costs, Joint) else layout.full
        self.boxes[0] = layout.pack(full)
        self._stack = np.empty(kernels.DEEP, dtype=np.int64)
        self._ends = np.zeros(len(self.bases))
        self.bounds[0] = loops.least_bound(
            self.forest, self.group, self.bases, *self.gaps, self.boxes[0], layout.place, layout.words, self._stack,
            self._ends,
        )  # fmt: skip
        if reaching.far(self.boxes[0], *self.layout, self.cost, near):
            self.bounds[0] = -math.inf

    def _grow(self, size: int) -> None:
        for name in ("boxes", "bounds", "split", "masks", "heap"):
            old = getattr(self, name)
            made = np.full((size, *old.shape[1:]), -1 if name == "split" else 0, dtype=old.dtype)
            made[: len(old)] = old
            setattr(self, name, made)

    @property
    def upper(self) -> float:
        """The largest bound of an open box."""
        return float(self.bounds[self.heap[0]]) if self.state[1] else -math.inf

    def climb(self, point: Sequence[int], best: Floats, box: Ints) -> None:
        """Climb from a point, and keep what is better than the best."""
        from fairkit_all_inputs.bounds import reaching
        from fairkit_all_inputs.bounds.classes import loops

        packed = pack_point(self.problem.layout, point, self.problem.changing)
        if not reaching.settle(packed, *self.layout, self.cost, self.near):
            return
        place, words, _, _ = self.layout
        start = loops.least_bound(
            self.forest, self.group, self.bases, *self.gaps, packed, place, words, self._stack, self._ends
        )
        got = loops.climb(
            self.forest, self.group, self.bases, *self.gaps, packed, self.layout, self._stack, self.cost, self.near,
            start, self._ends, 4,
        )  # fmt: skip
        if got > best[0]:
            best[0], box[:] = got, packed

    def work(self, best: Floats, box: Ints, steps: int, enough: float) -> int:
        """Split some boxes; return how many."""
        from fairkit_all_inputs.bounds.classes import loops

        before = int(self.state[0])
        if before + 2 * steps + 2 > len(self.boxes):
            self._grow(max(2 * len(self.boxes), before + 2 * steps + 2))
        loops.search_classes(
            self.forest, self.group, self.bases, *self.gaps, self.layout, self.cost, self.near, self.boxes, self.bounds,
            self.split, self.masks, self.heap, self.state, best, box, steps, enough,
        )  # fmt: skip
        return (int(self.state[0]) - before) // 2

    @property
    def splits(self) -> Splits:
        """What was split."""
        count = int(self.state[0])
        return Splits(self.split[:count].copy(), self.masks[:count].copy(), self.bounds[:count].copy())


def answer_classes(
    problem: ClassProblem,
    *,
    effort: Effort | None = None,
    starts: Sequence[Sequence[int]] = (),
    costs: Mapping[int, Floats] | Joint | None = None,
    near: float = math.inf,
    floor: float = -math.inf,
) -> Answer:
    """Bound the least margin of the most certain change of the predicted class (see `searching.answer`, for a flip)."""
    try:
        import numba  # noqa: F401 -- the loops need it
    except ImportError as error:
        raise MissingExtraError("numba", "all-inputs") from error
    effort = effort or Effort()
    started = time.monotonic()

    def late() -> bool:
        return effort.seconds is not None and time.monotonic() - started > effort.seconds

    if not problem.pairs:
        return Answer(kind=FLIP, lower=-math.inf, upper=-math.inf, pair=None, point=None)
    enough = 4.0 * problem.rounding
    floor = max(floor, -2.0 * problem.rounding - 1e-12)
    best, best_box = np.array([floor, -math.inf]), np.zeros(problem.layout.width, dtype=np.int64)
    searches = [_Asked(problem, question, costs, near) for question in problem.questions]
    owner, total = -1, 0
    for point in starts:
        for index, search in enumerate(searches):
            if best[0] > enough or late():
                break
            before = float(best[0])
            search.climb(point, best, best_box)
            owner = index if best[0] > before else owner
    while total < effort.boxes and best[0] <= enough and not late():
        index = int(np.argmax([one.upper for one in searches]))
        if searches[index].upper <= best[0]:
            break
        before = float(best[0])
        done = searches[index].work(best, best_box, min(AT_ONCE, effort.boxes - total), enough)
        total += max(done, 1)
        owner = index if best[0] > before else owner
    upper = max(
        [float(best[0]) if owner >= 0 else -math.inf, float(best[1]), *(one.upper for one in searches)]
    )
    pair = point_found = None
    if owner >= 0:
        pair = searches[owner].question[:2]
        point_found = point_of(problem.layout, best_box, problem.changing, pair[0])
    return Answer(
        kind=FLIP,
        lower=float(best[0]) if owner >= 0 else -math.inf,
        upper=upper if upper > -math.inf else floor,
        pair=pair,
        point=point_found,
        splits={one.question: one.splits for one in searches},
        boxes=total,
    )


def proved_classes(problem: ClassProblem, log: Log) -> float:
    """Return the upper bound that a log proves, over all questions.

    Raises
    ------
    DataError
        It does not cover every question and every input.
    """
    keys = [",".join(map(str, question)) for question in problem.questions]
    if set(log) != set(keys):
        raise DataError(
            f"the proof log is about {len(set(log))} changes of a class, and there are {len(keys)}"
        )
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(np.int64)
    upper = -math.inf
    for question, key in zip(problem.questions, keys, strict=True):
        boxes = np.concatenate([some for some, _ in boxes_of(problem.plain, log[key])])
        boxes = boxes[filled(boxes, starts)]
        s, t, k, m = question
        gaps = problem.margin(k, m).gap_trees(s, t)
        least = largest(gaps, boxes, starts) / 2.0
        for trees, base in sums_of(problem, question):
            least = np.minimum(least, base + largest(trees, boxes, starts))
        moving = np.zeros(len(boxes))
        for tree in gaps:
            moving += np.abs(largest([tree], boxes, starts)) + np.abs(largest([tree.negative], boxes, starts))
        least[moving == 0.0] = -math.inf
        upper = max(upper, float(least.max(initial=-math.inf)))
    return upper
