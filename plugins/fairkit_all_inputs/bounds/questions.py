"""The questions, whatever the model is: sums of trees, sums of columns, several classes, or networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.errors import ParameterError
from fairkit_all_inputs.bounds import proof, searching
from fairkit_all_inputs.bounds.classes.problem import ClassProblem
from fairkit_all_inputs.bounds.classes.searching import answer_classes, proved_classes
from fairkit_all_inputs.bounds.nearness import Joint
from fairkit_all_inputs.bounds.networks.problem import NetworkProblem
from fairkit_all_inputs.bounds.networks.proof import log_of_network, proved_network
from fairkit_all_inputs.bounds.networks.searching import answer_network
from fairkit_all_inputs.bounds.problem import Problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.searching import Answer, Effort

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
    """Bound the largest value of an objective (see `fairkit_all_inputs.bounds.searching.answer`).

    `values` has by column the raw value of each cell that a witness near somebody would have; `says` is told the bounds
    so far.
    """
    if isinstance(problem, NetworkProblem):
        if isinstance(costs, Joint):
            raise ParameterError("the distance of a network's inputs adds up over columns")
        return answer_network(
            problem,
            kind,
            effort=effort,
            starts=starts,
            costs=costs,
            near=near,
            floor=floor,
            values=values,
            says=says,
        )
    if isinstance(problem, ClassProblem):
        return answer_classes(problem, effort=effort, starts=starts, costs=costs, near=near, floor=floor)
    return searching.answer(
        problem, kind, effort=effort, starts=starts, costs=costs, near=near, floor=floor, says=says
    )


def proved(problem: AnyProblem, kind: int, log: proof.Log, claim: float = -math.inf) -> float:
    """Return the upper bound that a log proves, over all pairs; of a network with rounding.

    A box of a network whose bound is above the claim is looked at more closely.

    Raises
    ------
    DataError
        It does not cover every pair and every input.
    """
    if isinstance(problem, NetworkProblem):
        return proved_network(problem, kind, log, claim)
    if isinstance(problem, ClassProblem):
        return proved_classes(problem, log)
    return proof.proved(problem, kind, log)


def log_of(problem: AnyProblem, answered: Answer) -> proof.Log:
    """Return the splits that prove the upper bound of an answer."""
    if isinstance(problem, NetworkProblem):
        return log_of_network(problem, answered)
    return proof.log_of(problem.layout, answered, whole=problem.points)
