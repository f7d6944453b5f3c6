"""Anytime answers to one question: a witness, an upper bound, and the tree of splits that proves it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import MissingExtraError
from fairkit_all_inputs.bounds.arrays import Best
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, Problem, point_of
from fairkit_all_inputs.bounds.regions import Question, Splits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.classes.problem import ClassProblem
    from fairkit_all_inputs.bounds.forest import Layout
    from fairkit_all_inputs.bounds.nearness import Joint

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
    lower: float  # bounds of the largest value, in the arithmetic of the reals
    upper: float  # bounds of the largest value, in the arithmetic of the reals
    pair: tuple[int, int] | None
    point: tuple[int, ...] | None
    splits: Mapping[tuple[int, ...], Splits] = field(default_factory=dict)
    boxes: int = 0  # how many boxes were split


def _slack(problem: Problem | ClassProblem, kind: int, questions: Sequence[Question]) -> float:
    if kind == FLIP or not isinstance(problem, Problem):
        return 0.0
    if kind == CHANCE:
        return CLOSE
    size = sum(abs(question.root) for question in questions if math.isfinite(question.root))
    return float(SLACK * max(1.0, abs(problem.base) + size / len(questions)))


class SumSearch:
    """The search of sums of trees, or of the least of several: the question with the largest bound first."""

    def __init__(
        self,
        problem: Problem | ClassProblem,
        kind: int,
        costs: Mapping[int, NDArray[np.float64]] | Joint | None,
        near: float,
        floor: float,
        late: Callable[[], bool],
    ) -> None:
        try:
            import numba  # noqa: F401 -- the loops need it
        except ImportError as error:
            raise MissingExtraError("numba", "all-inputs") from error
        self.problem, self.kind = problem, kind
        self.questions: list[Question] = []
        for key in problem.questions:
            if self.questions and late():
                break
            self.questions.append(Question(problem, kind, key, costs, near))
        self.enough = 4.0 * problem.rounding if kind == FLIP else math.inf
        self._floor = max(floor, -2.0 * problem.rounding - 1e-12 if kind == FLIP else -math.inf)
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
        others = problem.questions[len(self.questions) :]
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


def unsearched(problem: Problem | ClassProblem, kind: int) -> Answer:
    """Return the bound without a search: the trees that split on the changing block, each by itself."""
    upper = unsearched_upper(problem, kind)
    splits = {tuple(key): closed_root(problem.layout, upper) for key in problem.questions}
    return Answer(kind=kind, lower=-math.inf, upper=upper, pair=None, point=None, splits=splits)


def unsearched_upper(problem: Problem | ClassProblem, kind: int) -> float:
    """Return an upper bound of an objective that needs no search."""
    return {SCORE: problem.widest, FLIP: problem.widest / 2.0, CHANCE: 1.0}[kind]


def closed_root(layout: Layout, upper: float) -> Splits:
    """Return the splits of a search that split nothing."""
    widest = max(1, int(layout.words.max(initial=0)))
    return Splits(np.full((1, 3), -1, dtype=np.int64), np.zeros((1, widest), dtype=np.int64), np.array([upper]))
