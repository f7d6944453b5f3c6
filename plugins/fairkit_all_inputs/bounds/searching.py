"""Anytime answers to one question: a witness, an upper bound, and the tree of splits that proves it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import MissingExtraError
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, Problem, point_of
from fairkit_all_inputs.bounds.regions import Pairwise, Splits

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
    """How much work a search may be.

    Attributes
    ----------
    boxes
        How many boxes may be split.
    seconds
        How long it may take; None: no limit. With one, bounds of undecided questions depend on the machine.
    """

    boxes: int = 200_000
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What is known about the largest value of an objective.

    Attributes
    ----------
    kind
        Which objective.
    lower, upper
        Bounds of the largest value, in the arithmetic of the reals.
    pair, point
        The two cells of the changing block, and the cells of all blocks, that give `lower`; None: no input was found.
    splits
        By pair (and classes), the tree of splits of its boxes (see `fairkit_all_inputs.bounds.proof`).
    boxes
        How many boxes were split.
    rounding
        What float32 may add to the upper bound; None: as the problem says.
    values
        By column that stays, the raw values of the point where a cell alone does not say them.
    """

    kind: int
    lower: float
    upper: float
    pair: tuple[int, int] | None
    point: tuple[int, ...] | None
    splits: Mapping[tuple[int, ...], Splits] = field(default_factory=dict)
    boxes: int = 0
    rounding: float | None = None
    values: Mapping[str, Any] | None = None


def _late(started: float, effort: Effort) -> bool:
    return effort.seconds is not None and time.monotonic() - started > effort.seconds


def _slack(problem: Problem, kind: int, questions: Sequence[Pairwise]) -> float:
    if kind == FLIP:
        return 0.0
    if kind == CHANCE:
        return CLOSE
    size = sum(abs(question.bounds[0]) for question in questions if math.isfinite(question.bounds[0]))
    return float(SLACK * max(1.0, abs(problem.base) + size / len(questions)))


def answer(
    problem: Problem,
    kind: int,
    *,
    effort: Effort | None = None,
    starts: Sequence[Sequence[int]] = (),
    costs: Mapping[int, NDArray[np.float64]] | Joint | None = None,
    near: float = math.inf,
    floor: float = -math.inf,
    says: Callable[[float, float], None] | None = None,
) -> Answer:
    """Bound the largest value of an objective over all inputs and all pairs of values.

    Parameters
    ----------
    problem, kind
        The question: `SCORE`, `FLIP` or `CHANCE`.
    effort
        How much work it may be.
    starts
        Points to climb from, by a cell of each block.
    costs, near
        By block, the distance that each of its cells adds, or a distance of all blocks; and how much is allowed.
    floor
        Values up to this are of no interest: boxes below it are closed.
    says
        Is told the bounds so far.

    Returns
    -------
    Answer
        For `FLIP` the search ends at the first input that flips in spite of rounding, or once there can be none.
    """
    effort = effort or Effort()
    started = time.monotonic()
    if not problem.pairs:
        none = 0.0 if kind != FLIP else -math.inf
        return Answer(kind=kind, lower=none, upper=none, pair=None, point=None)
    questions = _begun(problem, kind, costs, near, lambda: _late(started, effort))
    enough = 4.0 * problem.rounding if kind == FLIP else math.inf
    floor = max(floor, -2.0 * problem.rounding - 1e-12 if kind == FLIP else -math.inf)
    best = np.array([floor, -math.inf])
    boxes = [np.zeros(problem.layout.width, dtype=np.int64) for _ in questions]
    best_found: tuple[float, int] = (-math.inf, -1)
    total = 0

    def keep(index: int) -> None:
        nonlocal best_found
        if best[0] > max(best_found[0], floor):
            best_found = (float(best[0]), index)

    for point in starts:
        for index, question in enumerate(questions):
            if best_found[0] > enough or _late(started, effort):
                break
            question.try_point(point, best, boxes[index])
            keep(index)
    slack = _slack(problem, kind, questions)
    while total < effort.boxes and best_found[0] <= enough:
        tops = [question.top for question in questions]
        index = int(np.argmax(tops))
        if tops[index] <= best[0] + slack:
            break
        if _late(started, effort):
            break
        before = boxes[index].copy(), best[0]
        steps = min(AT_ONCE, effort.boxes - total)
        total += max(questions[index].work(best, boxes[index], steps, slack, enough), 1)
        if best[0] == before[1]:
            boxes[index] = before[0]
        keep(index)
        if says is not None:
            says(max(best_found[0], floor), max(question.upper for question in questions))
    upper = max([best_found[0], float(best[1]), *(question.upper for question in questions)])
    if problem.points and kind != SCORE:
        upper = max([best_found[0], *(float(question.bounds[0]) for question in questions)])
    splits: dict[tuple[int, ...], Splits] = {question.pair: question.splits for question in questions}
    others = problem.pairs[len(questions) :]
    upper = max(upper, unsearched_upper(problem, kind)) if others else upper
    splits |= {both: closed_root(problem.layout, upper) for both in others}
    pair = point_found = None
    if best_found[1] >= 0:
        pair = questions[best_found[1]].pair
        point_found = point_of(problem.layout, boxes[best_found[1]], problem.changing, pair[0])
    return Answer(
        kind=kind,
        lower=best_found[0],
        upper=upper if upper > -math.inf else floor,
        pair=pair,
        point=point_found,
        splits=splits,
        boxes=total,
    )


def _begun(
    problem: Problem,
    kind: int,
    costs: Mapping[int, NDArray[np.float64]] | Joint | None,
    near: float,
    late: Callable[[], bool],
) -> list[Pairwise]:
    """Return the open boxes of each pair, as far as there is time; of the first one always."""
    try:
        import numba  # noqa: F401 -- the loops need it
    except ImportError as error:
        raise MissingExtraError("numba", "all-inputs") from error
    found: list[Pairwise] = []
    for pair in problem.pairs:
        if found and late():
            break
        found.append(Pairwise(problem, kind, pair, costs, near))
    return found


def unsearched(problem: Problem | ClassProblem, kind: int) -> Answer:
    """Return the bound without a search: the trees that split on the changing block, each by itself."""
    upper = unsearched_upper(problem, kind)
    keys = problem.pairs if isinstance(problem, Problem) else problem.questions
    splits = {tuple(key): closed_root(problem.layout, upper) for key in keys}
    return Answer(kind=kind, lower=-math.inf, upper=upper, pair=None, point=None, splits=splits)


def unsearched_upper(problem: Problem | ClassProblem, kind: int) -> float:
    """Return an upper bound of an objective that needs no search."""
    return {SCORE: problem.widest, FLIP: problem.widest / 2.0, CHANCE: 1.0}[kind]


def closed_root(layout: Layout, upper: float) -> Splits:
    """Return the splits of a search that split nothing."""
    widest = max(1, int(layout.words.max(initial=0)))
    return Splits(
        np.full((1, 3), -1, dtype=np.int64), np.zeros((1, widest), dtype=np.int64), np.array([upper])
    )
