"""The questions, whatever the model is: sums of trees, sums of columns, or several classes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fairkit_all_inputs.bounds import proof
from fairkit_all_inputs.bounds.classes.problem import ClassProblem
from fairkit_all_inputs.bounds.classes.proof import proved_classes
from fairkit_all_inputs.bounds.problem import FLIP, Problem
from fairkit_all_inputs.bounds.searching import Answer, Effort, SumSearch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.nearness import Joint

AnyProblem = Problem | ClassProblem


def answer(
    problem: AnyProblem,
    kind: int,
    *,
    effort: Effort | None = None,
    starts: Sequence[Sequence[int]] = (),
    costs: Mapping[int, NDArray[np.float64]] | Joint | None = None,
    near: float = math.inf,
    floor: float = -math.inf,
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
    search = SumSearch(problem, kind, costs, near, floor, late)
    search.climb(starts, late)
    done = 0.0
    while done < effort.boxes and search.best <= search.enough and search.open and not late():
        done += search.step(effort.boxes - done)
        if says is not None:
            says(search.best, search.upper)
    return search.answered(int(done))


def proved(problem: AnyProblem, kind: int, log: proof.Log) -> float:
    """Return the upper bound that a log proves, over all pairs."""
    if isinstance(problem, ClassProblem):
        return proved_classes(problem, log)
    return proof.proved(problem, kind, log)


def log_of(problem: AnyProblem, answered: Answer) -> proof.Log:
    """Return the splits that prove the upper bound of an answer."""
    return proof.log_of(problem.layout, answered, whole=problem.points)
