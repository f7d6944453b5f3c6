"""What a certificate says, checked without a search: its witness is run, and the bounds of its boxes recomputed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, FairkitError
from fairkit_all_inputs.bounds.problem import FLIP, SCORE
from fairkit_all_inputs.bounds.proof import unpacked
from fairkit_all_inputs.bounds.questions import AnyProblem, proved
from fairkit_all_inputs.bounds.searching import Answer
from fairkit_all_inputs.checking import contradictions
from fairkit_all_inputs.terms import BOUNDS, QUESTIONS, interval_of, meaning, meet, state_of
from fairkit_all_inputs.witness import ask, described, differs, read

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit_all_inputs.records import Record
    from fairkit_all_inputs.scope import AuditScope


def checked(
    scope: AuditScope,
    problem: AnyProblem,
    kind: int,
    notes: Sequence[str],
    record: Record | None,
    label: str | None = None,
) -> Finding | None:
    """Check what a certificate says: run its witness, recompute the bounds of its boxes; None where that fails.

    With `near`, the witness and the logs are those of the file of `save_proof`. A finding that fails is searched for
    again, and then differs from what was signed, or repeats it.
    """
    signed = scope.signed(QUESTIONS[kind], label)
    if signed is None or signed.interval is None or (scope.told.near is not None and record is None):
        return None
    evidence = dict(signed.evidence)
    for why in contradictions(signed):
        raise DataError(f"all-inputs: the certificate's {signed.metric}: {why}")
    if record is not None and record.witnesses.get(QUESTIONS[kind]):
        evidence["witness"] = record.witnesses[QUESTIONS[kind]]
    try:
        lower, upper = _confirmed(scope, problem, kind, evidence, record)
    except (FairkitError, KeyError, TypeError, ValueError):
        return None
    decided = upper - lower <= meet(problem, kind, lower)
    evidence |= {"decided": decided, "rounding": problem.rounding}
    said = [meaning(kind, label, scope), BOUNDS, *notes, *state_of(scope, decided=decided)]
    parameters = None if label is None else {"class": label}
    return scope.finding(QUESTIONS[kind], lower, upper, evidence, said, parameters)


def _confirmed(
    scope: AuditScope, problem: AnyProblem, kind: int, evidence: dict[str, Any], record: Record | None
) -> tuple[float, float]:
    """Return the interval that a witness and a log show; the evidence takes what they give now."""
    lower, upper = -math.inf, math.inf
    told = evidence.get("witness")
    if isinstance(told, list):
        raise ValueError("the witness is left out, because it has somebody's values")
    if told is not None:
        first, second = read(told)
        said = ask(scope.context.scorer, [first, second], scope.people.columns)
        again = described(first, second, said, scope.context.scorer.classes)
        evidence["witness"] = again if record is None else [again]
        rows = {
            n: np.array([first[n], second[n]], dtype=v.dtype) for n, v in scope.people.columns.items() if n in first
        }
        points = np.stack([block.cells_of(rows) for block in problem.blocks], axis=1)
        free = [place for place in range(points.shape[1]) if place != problem.changing]
        if (points < 0).any() or (points[0, free] != points[1, free]).any():
            raise ValueError("the witness leaves the domain, or more than the named columns change")
        if record is not None and not record.holds(points[0]):
            raise ValueError("the witness is near nobody")
        if kind == FLIP:
            if not differs(said):
                raise ValueError("the witness does not flip")
            return 1.0, 1.0
        f, g = problem.sums(points)
        lower = float(f - g) if kind == SCORE else 1 / (1 + math.exp(-f)) - 1 / (1 + math.exp(-g))
    if evidence.get("problem_sha256") != problem.sha256:
        raise ValueError("the log is about other cells or trees")
    if record is not None:
        upper = record.proved(kind, QUESTIONS[kind])
    else:
        upper = proved(problem, kind, unpacked(evidence["proof"]))
    tolerance = 1e-9 * max(1.0, abs(upper))
    if upper > evidence["proved"] + tolerance:
        raise ValueError("a box of the log has a larger bound than was signed")
    upper = float(evidence["proved"])
    answered = Answer(kind=kind, lower=lower, upper=upper, pair=None, point=None)
    return interval_of(problem, kind, answered, found=False)
