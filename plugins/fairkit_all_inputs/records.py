"""The file of `save_proof`: trees over cells and logs, and with `near` what is near to whom, to be read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.support.files import write_atomic
from fairkit_all_inputs.bounds.nearness import Joint
from fairkit_all_inputs.bounds.problem import Problem
from fairkit_all_inputs.bounds.proof_near import proved_near, told_costs
from fairkit_all_inputs.bounds.questions import AnyProblem, log_of
from fairkit_all_inputs.distances import Costs, costs_near

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_all_inputs.scope import AuditScope

MOST_BYTES = 1_000_000_000
"""A larger file is not read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """What the file says about one problem, with the distances of the data at hand."""

    problem: Problem  # by person, the distances: computed anew, never read from the file
    costs: Sequence[Costs]  # by person, the distances: computed anew, never read from the file
    near: float  # by person, the distances: computed anew, never read from the file
    logs: Mapping[str, Any]  # by question, as the file has them
    witnesses: Mapping[str, Any]  # by question, as the file has them

    def proved(self, kind: int, question: str) -> float:
        """Return the upper bound that the logs prove."""
        return proved_near(self.problem, kind, self.logs[question], self.costs, self.near)

    def holds(self, point: NDArray[np.int64]) -> bool:
        """Tell whether cells are within the distance of somebody."""
        return any(sum(float(cost[point[block]]) for block, cost in costs.items()) <= self.near for costs in self.costs)


def _costs(scope: AuditScope, problem: AnyProblem) -> list[Costs]:
    people = scope.people
    found = [costs_near(problem, people, person, scope.metric)[0] for person in range(len(people.rows))]
    return [costs for costs in found if not isinstance(costs, Joint)]  # such are refused before


def opened_record(scope: AuditScope, problem: AnyProblem) -> Record | None:
    """Read the file where an audit is repeated; None where it is not there, or about something else."""
    if not scope.told.save_proof or not isinstance(problem, Problem) or scope.told.near is None:
        return None
    path = Path(scope.told.save_proof)
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["problem_sha256"] != problem.sha256:
            return None
        witnesses = {name: one[0] for name, one in told["witnesses"].items() if one}
        logs = dict(told["logs"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    costs = _costs(scope, problem)
    return Record(problem=problem, costs=costs, near=scope.told.near, logs=logs, witnesses=witnesses)


def logs_near(problem: AnyProblem, each: Sequence[Answer], upper: float) -> list[Any]:
    """Return the splits around each of the people that prove one bound; none for a network."""
    if not isinstance(problem, Problem):
        return []
    from dataclasses import replace

    return [log_of(problem, replace(one, upper=upper)) for one in each]


def people_near(scope: AuditScope, problem: AnyProblem) -> list[dict[str, Any]]:
    """Return by person the distances of the cells that are near, as plain JSON values."""
    near = scope.told.near
    assert near is not None  # noqa: S101 -- asked only then
    return [told_costs(costs, near) for costs in _costs(scope, problem)]


def digest_of_people(people: Sequence[Mapping[str, Any]]) -> str:
    """Return the digest of distances that a report has where a file holds them."""
    return hashlib.sha256(json.dumps(people, sort_keys=True).encode()).hexdigest()


def save_record(
    scope: AuditScope, file: dict[str, Any], people: Sequence[Mapping[str, Any]], witnesses: Mapping[str, Any]
) -> None:
    """Write the file; with `near` also what is near to whom."""
    record = dict(file)
    if scope.told.near is not None:
        record |= {"near": scope.told.near, "people": list(people), "witnesses": dict(witnesses)}
    path = Path(scope.told.save_proof or "")
    write_atomic(path, json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")
