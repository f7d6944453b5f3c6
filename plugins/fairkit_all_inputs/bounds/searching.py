"""Anytime answers to one question: a witness, an upper bound, and the tree of splits that proves it.

The open boxes of a pair of values are in regions: parts of the domain with trees merged anew for what is in reach.
"""

from __future__ import annotations

import heapq
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import MissingExtraError
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_all_inputs.bounds.forest import Best, Boxes, Grid, Objective, Open, Scratch, Sums
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, Problem, pack_point, point_of
from fairkit_onnx.structure.cells import Listed, Numbers, listed_block, numbers_block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import Layout
    from fairkit_all_inputs.bounds.merging import Merged


AS_THEY_ARE = 32
"""So many boxes are split with the trees as they are; then the search begins anew with merged ones."""
IN_A_REGION = 64
"""So many boxes are split before the trees are merged anew in each that is open."""
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

    def __init__(self, problem: Problem, kind: int, key: Sequence[int]) -> None:
        from fairkit_all_inputs.bounds.merging import Merged

        self.problem, self.key = problem, key
        forests = problem.forests(kind, key)
        layout, gap = problem.layout, forests[-1]
        self._grid = layout.grid
        self._whole = Sums.of([*forests, gap.negative], self._grid)
        # a tree whose difference is one number, but not 0, is in the base: the sums never take the same leaves
        self._whole.bases[-1] = float(gap.moved)
        self._objective = Objective(kind, float(problem.threshold or 0.0))
        self._boxes = Boxes.of(256, layout.width, self._grid.widest)
        self._boxes.cells[0] = layout.pack(layout.full)
        self._count, self._closed = 1, np.array([-math.inf])
        self._groups: dict[int, Groups] = {}
        self._waiting: list[tuple[float, int, Region]] = []
        self._region: Region | None = Region([Merged.of(forest) for forest in forests], 0, AS_THEY_ARE, self._grid)
        self._first = self._region
        self._boxes.bounds[0] = self._bound(self._region)

    def _bound(self, region: Region) -> float:
        """Return the bound of a region's box."""
        from fairkit_all_inputs.bounds import loops

        box = self._boxes.cells[region.item]
        return float(loops.box_bound(self._objective, region.sums, self._whole, box, self._grid, region.scratch))

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
        from fairkit_all_inputs.bounds import loops

        box = pack_point(self.problem.layout, point, self.problem.changing)
        about = self._objective, self._whole, box, self._grid, self._first.scratch
        reached = loops.improve(*about, loops.value_at(*about), TURNS)
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
            self._objective, region.sums, self._whole, self._grid, region.scratch, boxes,
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
        notes = {name: forest.told for name, forest in zip(FORESTS, forests, strict=True)}
        self._groups[item] = {name: groups for name, groups in notes.items() if groups}
        bounds = self._boxes.bounds
        bounds[item] = min(self._bound(region), bounds[item])
        if bounds[item] > least:
            self._region = region
        else:
            self._closed[0] = max(self._closed[0], bounds[item])

    def _places(self) -> list[list[int]]:
        """Return by forest and tree its root's place in the problem."""
        problem, (first, second) = self.problem, self.key
        gap = problem.places(first, second)
        if self._objective.kind == SCORE:
            return [[], [], [], gap]
        ones, others = problem.places(first), problem.places(second)
        return [ones, others, others, gap]

    @property
    def splits(self) -> Splits:
        """What was split."""
        boxes, count = self._boxes, self._count
        return Splits(
            boxes.split[:count].copy(), boxes.masks[:count].copy(), boxes.bounds[:count].copy(), dict(self._groups)
        )  # fmt: skip


AT_ONCE = 500
"""Boxes between two looks at the clock."""
CLOSE = 1e-5
"""Probabilities that differ by so little are not told apart."""
SLACK = 1e-9
"""An upper bound that is above the best value by so much is closed; relative to the sums' size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a search may be."""

    boxes: int = 200_000  # how many boxes may be split
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What is known about the largest value of an objective."""

    kind: int  # which objective
    lower: float  # a lower bound of the largest value, in the arithmetic of the reals
    upper: float  # an upper one
    pair: tuple[int, int] | None
    point: tuple[int, ...] | None
    splits: Mapping[tuple[int, ...], Splits] = field(default_factory=dict)
    boxes: int = 0  # how many boxes were split


def _slack(problem: Problem, kind: int, questions: Sequence[Question]) -> float:
    if kind == FLIP:
        return 0.0
    if kind == CHANCE:
        return CLOSE
    size = sum(abs(question.root) for question in questions if math.isfinite(question.root))
    return float(SLACK * max(1.0, abs(problem.base) + size / len(questions)))


class SumSearch:
    """The search over all pairs of values: the pair with the largest bound first."""

    def __init__(self, problem: Problem, kind: int, late: Callable[[], bool]) -> None:
        try:
            import numba  # noqa: F401 -- the loops need it
        except ImportError as error:
            raise MissingExtraError("numba", "all-inputs") from error
        self.problem, self.kind = problem, kind
        self.questions: list[Question] = []
        for key in problem.pairs:
            if self.questions and late():
                break
            self.questions.append(Question(problem, kind, key))
        self.enough = 4.0 * problem.rounding if kind == FLIP else math.inf
        self._floor = -2.0 * problem.rounding - 1e-12 if kind == FLIP else -math.inf
        self._best = Best(np.array([self._floor, -math.inf]), np.zeros(problem.layout.width, dtype=np.int64))
        self._owner: Question | None = None
        self._slack = _slack(problem, kind, self.questions)

    @property
    def best(self) -> float:
        """The best value so far, or the largest that is of no interest."""
        return float(self._best.value[0])

    @property
    def upper(self) -> float:
        """The largest bound of a box of a question that was begun."""
        return max(question.upper for question in self.questions)

    @property
    def open(self) -> bool:
        """Whether a box is left that may hold more."""
        return max(question.top for question in self.questions) > self.best + self._slack

    def climb(self, starts: Sequence[Sequence[int]], late: Callable[[], bool]) -> None:
        """Climb from points."""
        for point in starts:
            for question in self.questions:
                if self.best > self.enough or late():
                    return
                before = self.best
                question.try_point(point, self._best)
                self._owner = question if self.best > before else self._owner

    def step(self, boxes: float) -> float:
        """Split some boxes, at most so many; return how many."""
        question = max(self.questions, key=lambda one: one.top)
        before = self.best
        done = question.work(self._best, min(AT_ONCE, int(boxes)), self._slack, self.enough)
        self._owner = question if self.best > before else self._owner
        return max(done, 1)

    def answered(self, boxes: int) -> Answer:
        """Return the answer: the best value, its point, and what was proved."""
        problem, owner = self.problem, self._owner
        lower = self.best if owner is not None else -math.inf
        upper = max(lower, float(self._best.value[1]), self.upper)
        if problem.points and self.kind != SCORE:
            upper = max([lower, *(question.root for question in self.questions)])
        splits: dict[tuple[int, ...], Splits] = {tuple(question.key): question.splits for question in self.questions}
        others = problem.pairs[len(self.questions) :]
        upper = max(upper, unsearched_upper(problem, self.kind)) if others else upper
        splits |= {tuple(key): closed_root(problem.layout, upper) for key in others}
        pair = (owner.key[0], owner.key[1]) if owner is not None else None
        return Answer(
            kind=self.kind,
            lower=lower,
            upper=upper if upper > -math.inf else self._floor,
            pair=pair,
            point=None if pair is None else point_of(problem.layout, self._best.box, problem.changing, pair[0]),
            splits=splits,
            boxes=boxes,
        )


def unsearched(problem: Problem, kind: int) -> Answer:
    """Return the bound without a search: the trees that split on the changing block, each by itself."""
    upper = unsearched_upper(problem, kind)
    splits = {tuple(key): closed_root(problem.layout, upper) for key in problem.pairs}
    return Answer(kind=kind, lower=-math.inf, upper=upper, pair=None, point=None, splits=splits)


def unsearched_upper(problem: Problem, kind: int) -> float:
    """Return an upper bound of an objective that needs no search."""
    return {SCORE: problem.widest, FLIP: problem.widest / 2.0, CHANCE: 1.0}[kind]


def closed_root(layout: Layout, upper: float) -> Splits:
    """Return the splits of a search that split nothing."""
    widest = max(1, int(layout.words.max(initial=0)))
    return Splits(np.full((1, 3), -1, dtype=np.int64), np.zeros((1, widest), dtype=np.int64), np.array([upper]))


def answer(
    problem: Problem,
    kind: int,
    *,
    effort: Effort | None = None,
    starts: Sequence[Sequence[int]] = (),
    says: Callable[[float, float], None] | None = None,
) -> Answer:
    """Bound the largest value of an objective over all inputs and all pairs of values, by branch and bound."""
    effort = effort or Effort()
    started = time.monotonic()

    def late() -> bool:
        return effort.seconds is not None and time.monotonic() - started > effort.seconds

    if not problem.pairs:
        none = 0.0 if kind != FLIP else -math.inf
        return Answer(kind=kind, lower=none, upper=none, pair=None, point=None)
    search = SumSearch(problem, kind, late)
    search.climb(starts, late)
    done = 0.0
    while done < effort.boxes and search.best <= search.enough and search.open and not late():
        done += search.step(effort.boxes - done)
        if says is not None:
            says(search.best, search.upper)
    return search.answered(int(done))


# The search is compiled once for each version and machine: in a process that can be stopped, where time is limited.


COMMAND = "from fairkit_all_inputs.bounds.searching import compile_loops; compile_loops()"


class Compilation:
    """The compilation of the loops that a problem needs, in a process of its own where they are not compiled yet."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if sys.executable and not _compiled():
            self._process = subprocess.Popen(
                [sys.executable, "-c", COMMAND], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def ready(self, seconds: float) -> bool:
        """Wait for its end; tell whether the loops are there. What was compiled until then is kept for later."""
        if self._process is None:
            return True
        try:
            code = self._process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            self.stop()
            return False
        return code == 0

    def stop(self) -> None:
        """End the process where it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _compiled() -> bool:
    """Tell whether numba's cache has the loops that take long."""
    try:
        from fairkit_all_inputs.bounds import loops, merging
    except ImportError:
        return True  # without numba, which is said elsewhere
    kernels: list[Any] = [loops.search, loops.improve, merging.join, merging.gains]
    try:
        return all(kernel.signatures or kernel._cache._cache_file._load_index() for kernel in kernels)
    except AttributeError:  # another numba keeps its cache in another way
        return False


def compile_loops() -> None:
    """Ask every question of a small model, so that numba compiles the loops and keeps them."""
    blocks = [
        listed_block(Listed(columns=("a",), values=((0,), (1,), (2,)))),
        numbers_block(Numbers(name="b", low=0.0, high=3.0), np.arange(4.0), np.float32),
        listed_block(Listed(columns=("c",), values=((0,), (1,)))),
    ]
    tests: list[tuple[int, int]] = []
    yes, no, value, roots = [], [], [], []
    for number in range(4):
        start = len(tests)
        roots.append(start)
        tests += [(2, 1), (0, 1 << number % 3), (1, 3), (-1, 0), (-1, 0), (-1, 0), (-1, 0)]
        yes += [start + 1, start + 3, start + 5, -1, -1, -1, -1]
        no += [start + 2, start + 4, start + 6, -1, -1, -1, -1]
        value += [0.0, 0.0, 0.0, 1.0 + number, -1.0, 0.5, -2.0 * number]
    problem = Problem(
        blocks=blocks, changing=2, tests=tests, yes=yes, no=no, value=value, roots=roots, base=0.0, rounding=1e-6,
        threshold=100.0, logistic=True,
    )  # fmt: skip
    effort = Effort(boxes=50)
    for kind in (SCORE, FLIP, CHANCE):
        answer(problem, kind, effort=effort, starts=[(0, 0, 0)])
    from fairkit_all_inputs.bounds.merging import Merged

    Merged.of(problem.gap(0, 1)).inside(problem.layout.pack(problem.layout.full), problem.layout.grid)
