"""From the answers to findings: each is an interval that holds the truth, and what shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError
from fairkit_all_inputs.bounded_models import opened
from fairkit_all_inputs.bounds.classes.problem import ClassProblem
from fairkit_all_inputs.bounds.compiling import Compilation
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, Problem
from fairkit_all_inputs.bounds.proof import packed
from fairkit_all_inputs.bounds.proof_file import proof_file
from fairkit_all_inputs.bounds.questions import AnyProblem, answer, log_of
from fairkit_all_inputs.bounds.searching import Effort, unsearched
from fairkit_all_inputs.bounds.sums import problem_of
from fairkit_all_inputs.checking import VERSION
from fairkit_all_inputs.distances import taken
from fairkit_all_inputs.domains import domains_of
from fairkit_all_inputs.metrics import metric_of
from fairkit_all_inputs.people import nearby, shares
from fairkit_all_inputs.records import digest_of_people, logs_near, opened_record, people_near, save_record
from fairkit_all_inputs.replaying import Replay, confirmed, inside_of, replayed
from fairkit_all_inputs.scope import AuditScope
from fairkit_all_inputs.signed import checked as checked_anew
from fairkit_all_inputs.terms import BOUNDS, QUESTIONS, SHARE, interval_of, meaning, meet, state_of
from fairkit_all_inputs.weighed import Weighed
from fairkit_all_inputs.witnesses import of_somebody, run_witness
from fairkit_onnx.structure.trees import TreeModel

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext
    from fairkit.results.findings import Finding
    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_all_inputs.collect import People
    from fairkit_all_inputs.distances import Summed
    from fairkit_all_inputs.parameters import Parameters
    from fairkit_onnx.structure.encoded import Encoded

STARTS = 50
"""People from whom the search for a witness begins."""
LEAST = -1e300
"""A bound of boxes none of which can flip, as a number that JSON has."""


def findings(
    parameters: Parameters, changing: Sequence[str], people: People, context: AuditContext, began: float
) -> list[Finding]:
    """Answer every question that the model's task has; `began` is when the audit did, from which `seconds` count."""
    scope = AuditScope(told=parameters, changing=changing, people=people, context=context, began=began)
    if not any(column in context.scorer.columns for column in changing):
        return _unused(scope, f"The model does not read {', '.join(changing)}: no input changes its answer.")
    model = opened(context)
    columns = list(context.scorer.columns)
    features = model.sources({name: values[:3] for name, values in people.columns.items()})
    domains, notes = domains_of(people, columns, [c for c in changing if c in columns], features, parameters)
    problem = problem_of(model, domains, len(domains) - 1, features)
    if not problem.pairs or not problem.of(FLIP).touching:
        return _untouched(scope, model, problem)
    _refuse(parameters, problem)
    scope = _measured(scope, problem)
    record = opened_record(scope, problem) if context.signed and parameters.near is not None else None
    replay, searched = _replayed_and_compiled(scope, model, problem)
    scope = replace(scope, searched=searched)
    notes = [*notes, *_about(domains), *replay.notes()]
    questions = _questions(problem)
    results, logs, witnesses = [], {}, {}
    saves = bool(parameters.save_proof) and isinstance(problem, Problem)
    people_at = people_near(scope, problem) if saves and parameters.near is not None else []
    starts = _starts(problem.of(FLIP), people) if parameters.near is None else []
    for number, (kind, subproblem, label) in enumerate(questions):
        name = QUESTIONS[kind]
        context.progress(_doing(name), number, len(questions) + 1)
        checked = checked_anew(scope, subproblem, kind, notes, record, label)
        if checked is not None:
            results.append(checked if label is not None else confirmed(scope, subproblem, kind, checked, replay))
            continue
        left = len(questions) - number + (questions[0][0] == FLIP and parameters.near is not None)
        says = _says(context, name, number, len(questions) + 1)
        finding, logs[name], got = _searched(scope, subproblem, kind, notes, starts, says, label, scope.effort(left))
        if label is None:  # the sums of several classes are not in a file's outputs
            finding = confirmed(scope, subproblem, kind, finding, replay)
        if kind == SCORE and label is None and parameters.near is None and got.point is not None:
            starts = [got.point]  # to climb in the probability costs all trees: from the score's alone
        digests = {"people_sha256": digest_of_people(people_at)} if people_at else {}
        results.append(replace(finding, evidence={**finding.evidence, **digests}))
        witnesses[name] = finding.evidence.get("witness")
    if questions[0][0] == FLIP:
        context.progress(f"all-inputs: {SHARE}", len(questions), len(questions) + 1)
        results.append(_share(scope, problem.of(FLIP), notes, none=results[0].interval == (0.0, 0.0)))
    if not context.signed and isinstance(problem, Problem) and isinstance(model, TreeModel) and saves:
        save_record(scope, proof_file(problem, model, features, logs), people_at, witnesses)
    return results


def _measured(scope: AuditScope, problem: AnyProblem) -> AuditScope:
    """Return the scope with the distance that the parameters name."""
    if scope.told.fair_metric is None:
        return scope
    metric = taken(metric_of(scope.told, scope.context), problem, scope.told.fair_metric)
    _refuse_weighed(scope.told, metric)
    return replace(scope, metric=metric)


def _untouched(scope: AuditScope, model: Encoded, problem: AnyProblem) -> list[Finding]:
    """Return the findings about a model that reads what changes and weighs it nowhere."""
    values = ", ".join(scope.changing)
    results = _unused(scope, f"No tree splits between the values of {values}: no input changes its answer.")
    replay = replayed(scope, model, problem)
    kinds = {name: kind for kind, name in QUESTIONS.items()}
    return [confirmed(scope, problem, kinds.get(one.metric, -1), one, replay) for one in results]


def _replayed_and_compiled(scope: AuditScope, model: Encoded, problem: AnyProblem) -> tuple[Replay, bool]:
    """Run inputs through the file; where time is limited, the search is compiled meanwhile: tell whether it was."""
    if scope.told.seconds is None:
        return replayed(scope, model, problem), True
    compilation = Compilation()
    try:
        return replayed(scope, model, problem), compilation.ready(scope.seconds_left)
    finally:
        compilation.stop()


def _searched(
    scope: AuditScope,
    problem: AnyProblem,
    kind: int,
    notes: Sequence[str],
    starts: Sequence[tuple[int, ...]],
    says: Callable[[float, float], None],
    label: str | None,
    effort: Effort,
) -> tuple[Finding, Any, Answer]:
    """Search for an answer; return the finding, the log of its upper bound, and the answer."""
    if not scope.searched:
        got = unsearched(problem, kind)
        return *_finding(scope, problem, kind, got, notes, None, label), got
    if scope.told.near is None:
        got = answer(problem, kind, effort=effort, starts=starts, says=says)
        return *_finding(scope, problem, kind, got, notes, None, label), got
    got, nearest, each = nearby(problem, kind, scope.people, scope.told, effort, scope.metric)
    finding, log = _finding(scope, problem, kind, got, notes, nearest, label)
    if each and finding.interval != (1.0, 1.0):
        log = logs_near(problem, each, got.upper)
    return finding, log, got


def _questions(problem: AnyProblem) -> list[tuple[int, AnyProblem, str | None]]:
    """Return the questions: what is asked, of which sum, and of which class."""
    if isinstance(problem, ClassProblem):
        return [
            (FLIP, problem, None),
            *((SCORE, problem.of_class(place), name) for place, name in enumerate(problem.names)),
        ]
    kinds = [SCORE] if problem.threshold is None else [FLIP, SCORE]
    return [(kind, problem.of(kind), None) for kind in [*kinds, *([CHANCE] if problem.logistic else [])]]


def _doing(name: str) -> str:
    return f"all-inputs: {name} (the first run compiles)"


def _says(context: AuditContext, name: str, number: int, total: int) -> Callable[[float, float], None]:
    """Return a callback that reports the current bounds as progress."""

    def told(lower: float, upper: float) -> None:
        ends = {} if name == QUESTIONS[FLIP] else {"lower": lower, "upper": upper}
        context.progress(_doing(name), number, total, **ends)

    return told


def _refuse(parameters: Parameters, problem: AnyProblem) -> None:
    """Refuse parameters that mean nothing to a model of this kind."""
    if parameters.save_proof and isinstance(problem, ClassProblem):
        raise ParameterError(
            "all-inputs: save_proof writes the trees of one sum, and this model has one for each class: its logs are "
            "in the certificate, and `fairkit verify --recompute` checks them; leave save_proof out"
        )
    if parameters.save_proof and problem.points:
        raise ParameterError(
            "all-inputs: save_proof writes the cells of trees, and this model is linear: its bound is the sum of its "
            "columns' parts, which `fairkit verify --recompute` adds up; leave save_proof out"
        )
    if parameters.save_proof and isinstance(problem, Problem) and problem.of(FLIP) is not problem:
        raise ParameterError(
            "all-inputs: save_proof writes the trees of the file, and this model decides by a threshold for each "
            "group: its log is in the certificate, and `fairkit verify --recompute` checks it; leave save_proof out"
        )
    if problem.points and parameters.near:
        raise ParameterError("all-inputs: near is understood for trees; leave it out for a linear model")


def _refuse_weighed(parameters: Parameters, metric: Summed | Weighed) -> None:
    """Refuse a distance that weighs columns together where only one that adds up is understood."""
    if not isinstance(metric, Weighed):
        return
    name = Path(parameters.fair_metric or "").name
    if parameters.save_proof:
        raise ParameterError(
            f"all-inputs: the fair metric {name} weighs columns together, and save_proof writes distances that add up "
            "over columns; leave save_proof out: `fairkit verify --recompute` searches again"
        )


def _unused(scope: AuditScope, why: str) -> list[Finding]:
    """Say at once that nothing changes."""
    regression = scope.context.scorer.task == "regression"
    names = [QUESTIONS[SCORE]] if regression else [QUESTIONS[FLIP], QUESTIONS[SCORE], SHARE]
    return [scope.finding(name, 0.0, 0.0, {"version": VERSION, "boxes": 0, "decided": True}, (why,)) for name in names]


def _about(domains: Sequence[Any]) -> list[str]:
    whole = [one.name for one in domains if getattr(one, "whole", False)]
    if not whole:
        return []
    return [f"Whole numbers only, as in the data: {', '.join(whole)}."]


def _starts(problem: AnyProblem, people: People) -> list[tuple[int, ...]]:
    """Return the people nearest to the threshold, by cells, whose every value lies in the domain."""
    cells = np.stack([block.cells_of(people.columns) for block in problem.blocks], axis=1)
    cells = np.unique(cells[(cells >= 0).all(axis=1)], axis=0)
    if not len(cells):
        return []
    threshold = problem.threshold if problem.threshold is not None and math.isfinite(problem.threshold) else 0.0
    most = max(2, STARTS // len(problem.pairs))
    sums = problem.sums(cells)
    if sums.ndim == 2:  # how far the class is ahead
        sums = np.ptp(np.sort(sums, axis=1)[:, -2:], axis=1)
    order = np.argsort(np.abs(sums - threshold), kind="stable")[:most]
    return [tuple(row) for row in cells[order].tolist()]


def _finding(
    scope: AuditScope,
    problem: AnyProblem,
    kind: int,
    got: Answer,
    notes: Sequence[str],
    nearest: Mapping[str, Any] | None,
    label: str | None,
) -> tuple[Finding, Any]:
    """Return the finding, and the log of its upper bound."""
    witness = run_witness(scope, problem, got, nearest, flip=kind == FLIP)
    lower, upper = interval_of(problem, kind, got, found=witness is not None)
    decided = upper - lower <= meet(problem, kind, lower)
    evidence: dict[str, Any] = {
        "version": VERSION,
        "decided": decided,
        "boxes": got.boxes,
        "rounding": problem.rounding,
    }
    if witness is not None:
        # what stands in a list does not go into a certificate: it may be somebody's row
        evidence["witness"] = [witness] if of_somebody(scope, witness) else witness
    log: Any = {}
    if scope.told.near is not None and math.isfinite(got.upper) and isinstance(problem, Problem):
        evidence |= {"proved": got.upper, "problem_sha256": problem.sha256}
    if scope.told.near is None and not (kind == FLIP and lower == 1.0):
        log = log_of(problem, got)
        text = packed(log)
        evidence |= {"proved": max(got.upper, LEAST), "problem_sha256": problem.sha256}
        if text is not None:
            evidence["proof"] = text
        else:
            notes = [*notes, "The proof log is too long for a certificate: whoever checks it searches again."]
    said = [meaning(kind, label, scope), BOUNDS, *notes, *state_of(scope, decided=decided)]
    parameters = None if label is None else {"class": label}
    return scope.finding(QUESTIONS[kind], lower, upper, evidence, said, parameters), log


def _share(scope: AuditScope, problem: AnyProblem, notes: Sequence[str], *, none: bool) -> Finding:
    near = scope.told.near or 0.0
    people = scope.people.some(np.flatnonzero(inside_of(problem, scope.people.columns)[""]))
    if not len(people.rows):
        said = ["None of the people looked at is in the domain: nothing is known.", *notes]
        return replace(
            scope.finding(SHARE, 0.0, 1.0, {"version": VERSION, "people": 0}, said, {"near": near}), value=None
        )
    effort = scope.effort() if scope.searched else Effort(seconds=0.0)
    got = shares(problem, people, scope.told, scope.context, scope.metric, none=none, effort=effort)
    sampled = len(scope.people.rows) < scope.people.count
    said = [
        "The share of people for whom an input within the distance flips, themselves included; undecided people count "
        "for the upper end only.",
        (
            f"Of {len(people.rows):,} people drawn at random from {scope.people.count:,}: the interval covers "
            f"the draw, too ({'Clopper & Pearson' if got.weights is None else 'with the effective number of people'})."
            if sampled
            else BOUNDS
        ),
        *(() if got.weights is None else ("Each person counts by weight.",)),
        *notes,
    ]
    evidence = {
        "version": VERSION,
        "flippable": int(got.flips.sum()),
        "undecided": int(got.open.sum()),
        "people": len(got.flips),
        "boxes": got.boxes,
    }
    finding = scope.finding(
        SHARE, *got.interval(scope.context.confidence, sampled=sampled), evidence, said, {"near": near}
    )
    return replace(finding, value=got.ends[0], interval_at=lambda confidence: got.interval(confidence, sampled=sampled))
