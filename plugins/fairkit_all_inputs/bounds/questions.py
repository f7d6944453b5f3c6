"""The questions, whatever the model is: sums of trees, sums of columns, several classes, or networks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.errors import ParameterError
from fairkit_all_inputs.bounds import proof
from fairkit_all_inputs.bounds.classes.problem import ClassProblem
from fairkit_all_inputs.bounds.classes.proof import proved_classes
from fairkit_all_inputs.bounds.nearness import Joint
from fairkit_all_inputs.bounds.networks.problem import NetworkProblem
from fairkit_all_inputs.bounds.networks.proof import proved_network
from fairkit_all_inputs.bounds.networks.searching import NetworkSearch
from fairkit_all_inputs.bounds.problem import FLIP, Problem
from fairkit_all_inputs.bounds.searching import Answer, Effort, SumSearch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AnyProblem = Problem | NetworkProblem | ClassProblem


def answer(
    problem: AnyProblem,
    kind: int,
    *,
    effort: Effort | None = None,
    starts: Sequence[Sequence[int]] = (),
    costs: Mapping[int, NDArray[np.float64]] | Joint | None = None,
    near: float = math.inf,
    floor: float = -math.inf,
    values: Mapping[str, NDArray[Any]] | None = None,
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
    search: SumSearch | NetworkSearch
    if not isinstance(problem, NetworkProblem):
        search = SumSearch(problem, kind, costs, near, floor, late)
    elif isinstance(costs, Joint):
        raise ParameterError("the distance of a network's inputs adds up over columns")
    else:
        search = NetworkSearch(problem, kind, costs, near, floor, values)
    search.climb(starts, late)
    done = 0.0
    while done < effort.boxes and search.best <= search.enough and search.open and not late():
        done += search.step(effort.boxes - done)
        if says is not None:
            says(search.best, search.upper)
    return search.answered(int(done))


def proved(problem: AnyProblem, kind: int, log: proof.Log, claim: float = -math.inf) -> float:
    """Return the upper bound that a log proves, over all pairs; of a network with rounding.

    A box of a network whose bound is above the claim is looked at more closely.
    """
    if isinstance(problem, NetworkProblem):
        return proved_network(problem, kind, log, claim)
    if isinstance(problem, ClassProblem):
        return proved_classes(problem, log)
    return proof.proved(problem, kind, log)


def log_of(problem: AnyProblem, answered: Answer) -> proof.Log:
    """Return the splits that prove the upper bound of an answer."""
    return proof.log_of(problem.layout, answered, whole=problem.points)
