"""From the answers to findings: each is an interval that holds the truth, and what shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import FairkitError, ParameterError
from fairkit.inputs.networks.problem import NetworkProblem
from fairkit.inputs.problem import CHANCE, FLIP, SCORE, Problem, plain
from fairkit.inputs.proof import packed, unpacked
from fairkit.inputs.questions import AnyProblem, answer, log_of, proved
from fairkit.inputs.searching import Answer
from fairkit_all_inputs.asked import Asked
from fairkit_all_inputs.distances import loaded, summed
from fairkit_all_inputs.domains import domains_of
from fairkit_all_inputs.opened import opened
from fairkit_all_inputs.people import nearby, shares
from fairkit_all_inputs.records import Record, logs_near, opened_record, save_record
from fairkit_all_inputs.witness import ask, described, read

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext
    from fairkit.results.findings import Finding
    from fairkit_all_inputs.collect import People
    from fairkit_all_inputs.parameters import Parameters

QUESTIONS = {
    FLIP: "all_inputs_flip",
    SCORE: "all_inputs_score_change",
    CHANCE: "all_inputs_probability_change",
}
SHARE = "all_inputs_flippable"
STARTS = 50
"""People from whom the search for a witness begins."""

_BOUNDS = (
    "The interval is no confidence interval: its ends are bounds that hold for every input of the domain."
)
_MEANING = {
    FLIP: "1: there is an input whose decision changes with these columns alone; 0: it is proved that there is none.",
    SCORE: "The largest change of the sum that the score is made of, over all inputs of the domain.",
    CHANCE: "The largest change of the score as a probability, over all inputs of the domain.",
}


def findings(
    told: Parameters, changing: Sequence[str], people: People, context: AuditContext
) -> list[Finding]:
    """Answer every question that the model's task has."""
    asked = Asked(told=told, changing=changing, people=people, context=context)
    if not any(column in context.scorer.columns for column in changing):
        return _unused(asked, f"The model does not read {', '.join(changing)}: no input changes its answer.")
    model = opened(context)
    columns = list(context.scorer.columns)
    features = model.sources({name: values[:3] for name, values in people.columns.items()})
    domains, notes = domains_of(people, columns, [c for c in changing if c in columns], features, told)
    problem = model.problem(domains, len(domains) - 1, features)
    if not problem.pairs or not problem.touching:
        part = "No unit has a weight of" if isinstance(problem, NetworkProblem) else "No tree splits between"
        return _unused(asked, f"{part} the values of {', '.join(changing)}: no input changes its answer.")
    _refuse(told, problem)
    if told.fair_metric is not None:
        metric = loaded(told.fair_metric, context.dataset.columns)
        asked = replace(asked, metric=summed(metric, problem, told.fair_metric))
    record = opened_record(asked, problem) if context.signed and told.near is not None else None
    notes = [*notes, *_about(domains)]
    kinds = [SCORE] if problem.threshold is None else [FLIP, SCORE]
    kinds += [CHANCE] if problem.logistic else []
    found: list[Finding] = []
    logs, claims, witnesses = {}, {}, {}
    starts = _starts(problem, people) if told.near is None else []
    for number, kind in enumerate(kinds):
        name = QUESTIONS[kind]
        context.progress(f"all-inputs: {name} (the first run compiles)", number, len(kinds) + 1)
        checked = _checked(asked, problem, kind, notes, record)
        if checked is not None:
            found.append(checked)
            continue
        nearest: Mapping[str, Any] | None = None
        each: list[Answer] = []
        if told.near is None:
            got = answer(problem, kind, effort=asked.effort, starts=starts)
            # to climb in the probability costs all trees: from the largest changes of the score alone
            starts = [got.point] if kind == SCORE and got.point is not None else starts
        else:
            got, nearest, each = nearby(problem, kind, people, told, asked.effort, asked.metric)
        finding, log, claim = _finding(asked, problem, kind, got, notes, nearest)
        found.append(finding)
        if each and finding.interval != (1.0, 1.0):
            log = logs_near(problem, each, got.upper)
        logs[name], claims[name] = log, claim
        witnesses[name] = finding.evidence.get("witness")
    if FLIP in kinds:
        context.progress(f"all-inputs: {SHARE}", len(kinds), len(kinds) + 1)
        found.append(_share(asked, problem, notes, none=found[0].interval == (0.0, 0.0)))
    if told.save_proof and not context.signed and not isinstance(problem, NetworkProblem):
        save_record(asked, problem, logs, claims, witnesses)
    return found


def _refuse(told: Parameters, problem: AnyProblem) -> None:
    """Refuse parameters that mean nothing to a model of this kind."""
    if told.save_proof and isinstance(problem, NetworkProblem):
        raise ParameterError(
            "all-inputs: save_proof writes trees over cells, and this model is a network: its log is in the "
            "certificate, and `fairkit verify --recompute` checks it; leave save_proof out"
        )
    if problem.points and told.near:
        raise ParameterError("all-inputs: near is understood for trees; leave it out for a linear model")


def _unused(asked: Asked, why: str) -> list[Finding]:
    """Say at once that nothing changes."""
    regression = asked.context.scorer.task == "regression"
    names = [QUESTIONS[SCORE]] if regression else [QUESTIONS[FLIP], QUESTIONS[SCORE], SHARE]
    return [asked.finding(name, 0.0, 0.0, {"boxes": 0, "decided": True}, (why,)) for name in names]


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
    threshold = (
        problem.threshold if problem.threshold is not None and math.isfinite(problem.threshold) else 0.0
    )
    most = max(2, STARTS // len(problem.pairs))
    order = np.argsort(np.abs(problem.sums(cells) - threshold), kind="stable")[:most]
    return [tuple(row) for row in cells[order].tolist()]


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
                elif got.values is not None and name in got.values:
                    raw[name] = got.values[name]
        sides.append(raw)
    return sides[0], sides[1]


def _witness(
    asked: Asked, problem: AnyProblem, got: Answer, nearest: Mapping[str, Any] | None, *, flip: bool
) -> dict[str, Any] | None:
    """Run a witness; None where there is none, or where rounding keeps it from flipping."""
    if got.point is None:
        return None
    first, second = pair_of(problem, got, nearest)
    said = ask(asked.context.scorer, [first, second], asked.people.columns)
    if flip and (said.decision is None or said.decision[0] == said.decision[1]):
        return None
    return described(first, second, said)


def _of_somebody(asked: Asked, witness: Mapping[str, Any]) -> bool:
    """Tell whether a witness was made from somebody's values, or happens to have them."""
    if asked.told.near is not None:
        return True
    for row in read(witness):
        same = np.ones(len(asked.people.rows), dtype=np.bool_)
        for name, value in row.items():
            same &= np.array(
                [plain(cell) == value for cell in asked.people.columns[name].tolist()], dtype=np.bool_
            )
        if same.any():
            return True
    return False


def _finding(
    asked: Asked,
    problem: AnyProblem,
    kind: int,
    got: Answer,
    notes: Sequence[str],
    nearest: Mapping[str, Any] | None,
) -> tuple[Finding, Any, float]:
    """Return the finding, the log of its upper bound, and the bound that it proves."""
    witness = _witness(asked, problem, got, nearest, flip=kind == FLIP)
    lower, upper = _interval(problem, kind, got, found=witness is not None)
    decided = upper - lower <= _meet(problem, kind, lower)
    evidence: dict[str, Any] = {"decided": decided, "boxes": got.boxes, "rounding": problem.rounding}
    if witness is not None:
        # what stands in a list does not go into a certificate: it may be somebody's row
        evidence["witness"] = [witness] if _of_somebody(asked, witness) else witness
    log: Any = {}
    if asked.told.near is not None and math.isfinite(got.upper) and isinstance(problem, Problem):
        evidence |= {"proved": got.upper, "problem_sha256": problem.sha256}
    if asked.told.near is None and not (kind == FLIP and lower == 1.0):
        log = log_of(problem, got)
        text = packed(log)
        if text is not None:
            evidence |= {"proof": text, "proved": got.upper, "problem_sha256": problem.sha256}
        else:
            notes = [*notes, "The proof log is too long for a certificate: whoever checks it searches again."]
    said = [_MEANING[kind], _BOUNDS, *notes, *_state(asked, decided=decided)]
    return asked.finding(QUESTIONS[kind], lower, upper, evidence, said), log, got.upper


def _interval(problem: AnyProblem, kind: int, got: Answer, *, found: bool) -> tuple[float, float]:
    """Return bounds that hold for the model as the runtime rounds it."""
    rounding = problem.rounding if got.rounding is None else got.rounding
    if kind == FLIP:
        if found:
            return 1.0, 1.0
        return (0.0, 0.0) if got.upper <= -rounding else (0.0, 1.0)
    lower = max(got.lower, 0.0)
    if kind == SCORE:
        return lower, max(got.upper, 0.0) + 2.0 * rounding
    return lower, min(1.0, max(got.upper, 0.0) + 0.5 * rounding + 1e-6)


def _meet(problem: AnyProblem, kind: int, lower: float) -> float:
    return 2.1 * problem.rounding + 1e-6 * max(1.0, lower) + (2e-5 if kind == CHANCE else 0.0)


def _state(asked: Asked, *, decided: bool) -> list[str]:
    if decided:
        return []
    limit = f"{asked.told.boxes:,} boxes" + (
        "" if asked.told.seconds is None else f" or {asked.told.seconds:g} s"
    )
    return [
        f"Not decided with {limit}: the truth lies in the interval. More work narrows it (`all-inputs.boxes=N`)."
    ]


def _checked(
    asked: Asked, problem: AnyProblem, kind: int, notes: Sequence[str], record: Record | None
) -> Finding | None:
    """Check what a certificate says: run its witness, recompute the bounds of its boxes; None where that fails.

    With `near`, the witness and the logs are those of the file of `save_proof`. A finding that fails is searched for
    again, and then differs from what was signed, or repeats it.
    """
    signed = asked.signed(QUESTIONS[kind])
    if signed is None or signed.interval is None or (asked.told.near is not None and record is None):
        return None
    evidence = dict(signed.evidence)
    if record is not None and record.witnesses.get(QUESTIONS[kind]):
        evidence["witness"] = record.witnesses[QUESTIONS[kind]]
    try:
        lower, upper = _confirmed(asked, problem, kind, evidence, record)
    except (FairkitError, KeyError, TypeError, ValueError):
        return None
    decided = upper - lower <= _meet(problem, kind, lower)
    evidence |= {"decided": decided, "rounding": problem.rounding}
    said = [_MEANING[kind], _BOUNDS, *notes, *_state(asked, decided=decided)]
    return asked.finding(QUESTIONS[kind], lower, upper, evidence, said)


def _confirmed(
    asked: Asked, problem: AnyProblem, kind: int, evidence: dict[str, Any], record: Record | None
) -> tuple[float, float]:
    """Return the interval that a witness and a log show; the evidence takes what they give now."""
    lower, upper = -math.inf, math.inf
    told = evidence.get("witness")
    if isinstance(told, list):
        raise ValueError("the witness is left out, because it has somebody's values")
    if told is not None:
        first, second = read(told)
        said = ask(asked.context.scorer, [first, second], asked.people.columns)
        again = described(first, second, said)
        evidence["witness"] = again if record is None else [again]
        rows = {
            n: np.array([first[n], second[n]], dtype=v.dtype)
            for n, v in asked.people.columns.items()
            if n in first
        }
        points = np.stack([block.cells_of(rows) for block in problem.blocks], axis=1)
        free = [place for place in range(points.shape[1]) if place != problem.changing]
        if (points < 0).any() or (points[0, free] != points[1, free]).any():
            raise ValueError("the witness leaves the domain, or more than the named columns change")
        if record is not None and not record.holds(points[0]):
            raise ValueError("the witness is near nobody")
        f, g = problem.sums_of(rows, points)
        if kind == FLIP:
            if said.decision is None or said.decision[0] == said.decision[1]:
                raise ValueError("the witness does not flip")
            return 1.0, 1.0
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
    own = 0.0 if isinstance(problem, NetworkProblem) else None  # a network's bounds contain the rounding
    answered = Answer(kind=kind, lower=lower, upper=upper, pair=None, point=None, rounding=own)
    return _interval(problem, kind, answered, found=False)


def _share(asked: Asked, problem: AnyProblem, notes: Sequence[str], *, none: bool) -> Finding:
    near = asked.told.near or 0.0
    got = shares(problem, asked.people, asked.told, asked.context, asked.metric, none=none)
    sampled = len(asked.people.rows) < asked.people.count
    said = [
        "The share of people for whom an input within the distance flips, themselves included; undecided people count "
        "for the upper end only.",
        (
            f"Of {len(asked.people.rows):,} people drawn at random from {asked.people.count:,}: the interval covers "
            f"the draw, too ({'Clopper & Pearson' if got.weights is None else 'with the effective number of people'})."
            if sampled
            else _BOUNDS
        ),
        *(() if got.weights is None else ("Each person counts by weight.",)),
        *notes,
    ]
    evidence = {
        "flippable": int(got.flips.sum()),
        "undecided": int(got.open.sum()),
        "people": len(got.flips),
        "boxes": got.boxes,
    }
    finding = asked.finding(
        SHARE, *got.interval(asked.context.confidence, sampled=sampled), evidence, said, {"near": near}
    )
    return replace(
        finding,
        value=got.ends[0],
        interval_at=lambda confidence: got.interval(confidence, sampled=sampled),
    )
