"""From a point of a search to a witness: raw values, run by the model itself, and whether they are somebody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_all_inputs.bounds.problem import plain
from fairkit_all_inputs.witness import ask, described, differs, read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit_all_inputs.bounds.questions import AnyProblem
    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_all_inputs.scope import AuditScope


def pair_of(
    problem: AnyProblem, got: Answer, nearest: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the raw values of a witness, those nearest to somebody where they are given."""
    assert got.pair is not None  # noqa: S101 -- asked for with a witness
    assert got.point is not None  # noqa: S101
    sides = []
    for cell in got.pair:
        point = list(got.point)
        point[problem.changing] = cell
        raw = problem.raw(point)
        for block, at in zip(problem.blocks, point, strict=True):
            for name in block.columns:
                if nearest is not None and name in nearest:
                    raw[name] = plain(nearest[name][at])
        sides.append(raw)
    return sides[0], sides[1]


def run_witness(
    scope: AuditScope, problem: AnyProblem, got: Answer, nearest: Mapping[str, Any] | None, *, flip: bool
) -> dict[str, Any] | None:
    """Run a witness; None where there is none, or where rounding keeps it from flipping."""
    if got.point is None:
        return None
    first, second = pair_of(problem, got, nearest)
    said = ask(scope.context.scorer, [first, second], scope.people.columns)
    if flip and not differs(said):
        return None
    return described(first, second, said, scope.context.scorer.classes)


def of_somebody(scope: AuditScope, witness: Mapping[str, Any]) -> bool:
    """Tell whether a witness was made from somebody's values, or happens to have them."""
    if scope.told.near is not None:
        return True
    for row in read(witness):
        same = np.ones(len(scope.people.rows), dtype=np.bool_)
        for name, value in row.items():
            same &= np.array([plain(cell) == value for cell in scope.people.columns[name].tolist()], dtype=np.bool_)
        if same.any():
            return True
    return False
