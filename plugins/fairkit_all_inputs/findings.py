"""From the answers to findings: each is an interval that holds the truth, and what shows it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.auditing.needs import NO_GROUPS
from fairkit.auditors import AuditContext, Auditor
from fairkit.errors import DataError, FairkitError, ModelError, ParameterError, did_you_mean
from fairkit.intervals import two_sided
from fairkit.limits import clopper_pearson, weighted_share_limits
from fairkit.metrics import Headline, Term
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, problem_of
from fairkit_all_inputs.bounds.proof import log_of, packed, proved, save_proof, unpacked
from fairkit_all_inputs.bounds.searching import Answer, Compilation, answer, unsearched
from fairkit_all_inputs.domains import (
    BOUNDS,
    MEANING,
    QUESTIONS,
    SHARE,
    AuditScope,
    Parameters,
    People,
    domain_texts,
    domains_of,
    interval_of,
    meet,
    narrowed_of,
    state_of,
)
from fairkit_all_inputs.replaying import (
    Replay,
    ask,
    cells_of,
    confirmed,
    described,
    differs,
    inside_of,
    of_somebody,
    read,
    replayed,
    run_witness,
)
from fairkit_onnx.read.scorer import OnnxScorer
from fairkit_onnx.structure.linear import LinearModel, read_linear
from fairkit_onnx.structure.trees import TreeModel, read_trees

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions, Scorer
    from fairkit.results.findings import Finding
    from fairkit_all_inputs.bounds.problem import Problem


VERSION = 3
"""Of what is proved and how; a certificate of another version is refused."""
EVIDENCE = ("version", "decided", "boxes", "rounding", "witness", "proved", "problem_sha256", "proof")
STARTS = 50
"""People from whom the search for a witness begins."""
LEAST = -1e300
"""A bound of boxes none of which can flip, as a number that JSON has."""


def opened(context: AuditContext) -> TreeModel | LinearModel:
    """Read the model behind a scorer in a form that is bounded."""
    scorer = context.scorer
    if not isinstance(scorer, OnnxScorer):
        raise ModelError(
            f"all-inputs: {scorer.info.name} is no ONNX file, so what is inside is not known; export it to ONNX"
        )
    model: TreeModel | LinearModel | None = read_trees(scorer, grouped=True) or read_linear(scorer, grouped=True)
    if model is None:
        kinds = sorted({node.op_type for node in scorer.model.proto.graph.node})
        raise ModelError(
            f"all-inputs: {scorer.info.name} is not understood (its nodes are {', '.join(kinds)}); sums of "
            "trees and linear models are; for a network run alpha,beta-CROWN on the ONNX file"
        )
    return model


def not_plain(scorer: Scorer) -> str | None:
    """Say why nothing can be said of every input of a file; None where it is plain, or no file."""
    broken = scorer.shown.broken if isinstance(scorer, OnnxScorer) and scorer.model.content is not None else None
    return None if broken is None else f"{scorer.info.name} is no plain file ({broken})"


def findings(
    parameters: Parameters, changing: Sequence[str], people: People, context: AuditContext, began: float
) -> list[Finding]:
    """Answer every question that the model's task has; `began` is when the audit did, from which `seconds` count."""
    scope = AuditScope(told=parameters, changing=changing, people=people, context=context, began=began)
    if not any(column in context.scorer.columns for column in changing):
        return _unused(scope, f"The model does not read {', '.join(changing)}: no input changes its answer.")
    broken = not_plain(context.scorer)
    if broken is not None:
        unknown: Any = {"value": None, "interval": None, "interval_at": None, "evidence": {"version": VERSION}}
        return [replace(finding, **unknown, inconclusive=broken) for finding in _unused(scope, f"Not shown: {broken}.")]
    model = opened(context)
    columns = list(context.scorer.columns)
    features = model.sources({name: values[:3] for name, values in people.columns.items()})
    domains, notes = domains_of(people, columns, [c for c in changing if c in columns], features, parameters)
    problem = problem_of(model, domains, len(domains) - 1, features)
    scope = replace(scope, domain=domain_texts(domains))
    if not problem.pairs or not problem.of(FLIP).touching:
        why = f"No tree splits between the values of {', '.join(changing)}: no input changes its answer."
        results = _unused(scope, why)
        replay = replayed(scope, model, problem)
        kinds = {name: kind for kind, name in QUESTIONS.items()}
        return [confirmed(scope, problem, kinds.get(result.metric, -1), result, replay) for result in results]
    if parameters.save_proof:
        _refuse_proof(problem)
    replay, searched = _replayed_and_compiled(scope, model, problem)
    scope = replace(scope, searched=searched, narrowed=narrowed_of(domains, people, features, parameters))
    notes += replay.notes()
    kinds_asked = [SCORE] if problem.threshold is None else [FLIP, SCORE]
    kinds_asked += [CHANCE] if problem.logistic else []
    results, logs = [], {}
    starts = _starts(problem.of(FLIP), people)
    for number, kind in enumerate(kinds_asked):
        name, rows = QUESTIONS[kind], problem.of(kind)
        context.progress(f"all-inputs: {name} (the first run compiles)", number, len(kinds_asked) + 1)
        finding = _checked(scope, rows, kind, notes)
        if finding is None:
            if scope.searched:
                says = _says(context, name, number, len(kinds_asked) + 1)
                effort = scope.effort(len(kinds_asked) - number)
                got = answer(rows, kind, effort=effort, starts=starts, says=says)
            else:
                got = unsearched(rows, kind)
            finding, logs[name] = _finding(scope, rows, kind, got, notes)
            if kind == SCORE and got.point is not None:
                starts = [got.point]  # to climb in the probability costs all trees: from the score's alone
        results.append(confirmed(scope, rows, kind, finding, replay))
    if kinds_asked[0] == FLIP:
        context.progress(f"all-inputs: {SHARE}", len(kinds_asked), len(kinds_asked) + 1)
        results.append(_share(scope, problem.of(FLIP), notes))
    if not context.signed and parameters.save_proof and isinstance(model, TreeModel):
        save_proof(parameters.save_proof, problem, model, features, logs)
    return results


def _refuse_proof(problem: Problem) -> None:
    """Refuse `save_proof` of a model whose trees are not those of the file."""
    linear = "is linear: its bound is the sum of its columns' parts, which `fairkit verify --recompute` adds up"
    ruled = "decides by a threshold for each group: `fairkit verify --recompute` checks the log in the certificate"
    if problem.points or problem.of(FLIP) is not problem:
        why = linear if problem.points else ruled
        raise ParameterError(f"all-inputs: save_proof writes the trees of a file, and this model {why}; leave it out")


def _replayed_and_compiled(scope: AuditScope, model: TreeModel | LinearModel, problem: Problem) -> tuple[Replay, bool]:
    """Run inputs through the file; where time is limited, the search is compiled meanwhile: tell whether it was."""
    if scope.told.seconds is None:
        return replayed(scope, model, problem), True
    compilation = Compilation()
    try:
        return replayed(scope, model, problem), compilation.ready(scope.seconds_left)
    finally:
        compilation.stop()


def _says(context: AuditContext, name: str, number: int, total: int) -> Callable[[float, float], None]:
    """Return a callback that reports the current bounds as progress."""

    def told(lower: float, upper: float) -> None:
        ends = {} if name == QUESTIONS[FLIP] else {"lower": lower, "upper": upper}
        context.progress(f"all-inputs: {name} (the first run compiles)", number, total, **ends)

    return told


def _unused(scope: AuditScope, why: str) -> list[Finding]:
    """Say at once that nothing changes."""
    regression = scope.context.scorer.task == "regression"
    names = [QUESTIONS[SCORE]] if regression else [QUESTIONS[FLIP], QUESTIONS[SCORE], SHARE]
    return [scope.finding(name, 0.0, 0.0, {"version": VERSION, "boxes": 0, "decided": True}, (why,)) for name in names]


def _starts(problem: Problem, people: People) -> list[tuple[int, ...]]:
    """Return the people nearest to the threshold, by cells, whose every value lies in the domain."""
    cells = np.stack([block.cells_of(people.columns) for block in problem.blocks], axis=1)
    cells = np.unique(cells[(cells >= 0).all(axis=1)], axis=0)
    if not len(cells):
        return []
    threshold = problem.threshold if problem.threshold is not None and math.isfinite(problem.threshold) else 0.0
    most = max(2, STARTS // len(problem.pairs))
    order = np.argsort(np.abs(problem.sums(cells) - threshold), kind="stable")[:most]
    return [tuple(row) for row in cells[order].tolist()]


def _finding(scope: AuditScope, problem: Problem, kind: int, got: Answer, notes: Sequence[str]) -> tuple[Finding, Any]:
    """Return the finding, and the log of its upper bound."""
    witness = run_witness(scope, problem, got, flip=kind == FLIP)
    lower, upper = interval_of(problem, kind, got, found=witness is not None)
    settled = upper - lower <= meet(problem, kind, lower)
    evidence: dict[str, Any] = {
        "version": VERSION,
        "decided": settled,
        "boxes": got.boxes,
        "rounding": problem.rounding,
    }
    if witness is not None:
        # what stands in a list does not go into a certificate: it may be somebody's row
        evidence["witness"] = [witness] if of_somebody(scope, witness) else witness
    log: Any = {}
    if not (kind == FLIP and lower == 1.0):
        log = log_of(problem, got)
        text = packed(log)
        evidence |= {"proved": max(got.upper, LEAST), "problem_sha256": problem.sha256}
        if text is not None:
            evidence["proof"] = text
        else:
            notes = [*notes, "The proof log is too long for a certificate: whoever checks it searches again."]
    said = [MEANING[kind], BOUNDS, *notes, *state_of(scope, decided=settled)]
    return scope.finding(QUESTIONS[kind], lower, upper, evidence, said), log


def _checked(scope: AuditScope, problem: Problem, kind: int, notes: Sequence[str]) -> Finding | None:
    """Check what a certificate says: run its witness, recompute the bounds of its boxes; None where that fails.

    A finding that fails is searched for again, and then differs from what was signed, or repeats it.
    """
    signed = scope.signed(QUESTIONS[kind])
    if signed is None or signed.interval is None:
        return None
    evidence = {key: value for key, value in signed.evidence.items() if key in EVIDENCE}
    if signed.evidence.get("version") != VERSION:
        raise DataError(
            f"all-inputs: the certificate's {signed.metric} has a proof of version "
            f"{signed.evidence.get('version', 1)}, and {VERSION} is believed; certify the model anew"
        )
    try:
        lower, upper = _shown_again(scope, problem, kind, evidence)
    except (FairkitError, KeyError, TypeError, ValueError):
        return None
    settled = upper - lower <= meet(problem, kind, lower)
    evidence |= {"decided": settled, "rounding": problem.rounding}
    said = [MEANING[kind], BOUNDS, *notes, *state_of(scope, decided=settled)]
    return scope.finding(QUESTIONS[kind], lower, upper, evidence, said)


def _shown_again(scope: AuditScope, problem: Problem, kind: int, evidence: dict[str, Any]) -> tuple[float, float]:
    """Return the interval that a witness and a log show; the evidence takes what they give now."""
    lower = -math.inf
    witness = evidence.get("witness")
    if isinstance(witness, list):
        raise ValueError("the witness is left out, because it has somebody's values")
    if witness is not None:
        first, second = read(witness)
        said = ask(scope.context.scorer, [first, second], scope.people.columns)
        evidence["witness"] = described(first, second, said)
        rows = {
            n: np.array([first[n], second[n]], dtype=v.dtype) for n, v in scope.people.columns.items() if n in first
        }
        points = np.stack([block.cells_of(rows) for block in problem.blocks], axis=1)
        free = [index for index in range(points.shape[1]) if index != problem.changing]
        if (points < 0).any() or (points[0, free] != points[1, free]).any():
            raise ValueError("the witness leaves the domain, or more than the named columns change")
        if kind == FLIP:
            if not differs(said):
                raise ValueError("the witness does not flip")
            return 1.0, 1.0
        f, g = problem.sums(points)
        lower = float(f - g) if kind == SCORE else 1 / (1 + math.exp(-f)) - 1 / (1 + math.exp(-g))
    if evidence.get("problem_sha256") != problem.sha256:
        raise ValueError("the log is about other cells or trees")
    upper = proved(problem, kind, unpacked(evidence["proof"]))
    if upper > evidence["proved"] + 1e-9 * max(1.0, abs(upper)):
        raise ValueError("a box of the log has a larger bound than was signed")
    answered = Answer(kind=kind, lower=lower, upper=float(evidence["proved"]), pair=None, point=None)
    return interval_of(problem, kind, answered, found=False)


def _share(scope: AuditScope, problem: Problem, notes: Sequence[str]) -> Finding:
    """Return the share of the people looked at who flip: each is run at every value of what changes."""
    people = scope.people.some(np.flatnonzero(inside_of(problem, scope.people.columns)[""]))
    if not len(people.rows):
        said = ["None of the people looked at is in the domain: nothing is known.", *notes]
        return replace(scope.finding(SHARE, 0.0, 1.0, {"version": VERSION, "people": 0}, said), value=None)
    flips, weights = _flips(scope, problem, people), people.weights
    value = float(np.average(flips, weights=weights))
    sampled = len(scope.people.rows) < scope.people.count

    def interval(confidence: float) -> tuple[float, float]:
        if not sampled:
            return value, value
        z, share = two_sided(confidence), np.array([value])
        if weights is None:
            limits = clopper_pearson(share, np.array([float(len(flips))]), z)
        else:  # as many people as would say so much if all counted the same (Kish)
            size = float(weights.sum()) ** 2 / max(float((weights**2).sum()), 1e-300)
            limits = weighted_share_limits(share, np.array([size]), z)
        return float(limits[0][0]), float(limits[1][0])

    method = "Clopper & Pearson" if weights is None else "with the effective number of people"
    said = [
        "The share of people whose own decision flips when these columns alone change.",
        f"Of {len(people.rows):,} people drawn at random from {scope.people.count:,}: the interval covers the draw, "
        f"too ({method})."
        if sampled
        else BOUNDS,
        *(() if weights is None else ("Each person counts by weight.",)),
        *notes,
    ]
    evidence = {"version": VERSION, "flippable": int(flips.sum()), "people": len(flips)}
    finding = scope.finding(SHARE, *interval(scope.context.confidence), evidence, said)
    return replace(finding, value=value, interval_at=interval)


def _flips(scope: AuditScope, problem: Problem, people: People) -> NDArray[np.bool_]:
    """Tell whose decision changes, by person."""
    columns = {name: people.columns[name] for name in scope.context.scorer.columns}
    block, said = problem.blocks[problem.changing], []
    for cell in range(block.size):
        changed = dict(columns)
        for name in block.columns:
            value = block.values[name][cell]
            like = cells_of([{name: None if value is None else value}], {name: columns[name]})[name]
            changed[name] = np.repeat(like, len(people.rows))
        said.append(np.asarray(scope.context.scorer.predict(changed).decision))
    return np.asarray(np.ptp(np.stack(said), axis=0) > 0)


# The auditor: one pass over the rows for the domain and some people, then the questions.


class AllInputsAuditor(Auditor):
    """Asks of every input of a domain, not only of the people in the data, what a change of some columns can do.

    For a sum of trees f (or a linear model), two values s and s' of the columns that change, and every x
    that the other columns may hold:

        flip:           is there an x with f(x, s) >= θ > f(x, s')?
        score change:   max over x, s, s' of f(x, s) - f(x, s')

    and the same for the probability; besides, the share of people whose own decision flips. Each answer is
    an interval that holds the truth: its ends meet where it is decided. The lower end is an input that the model itself
    was run on; the upper end is a list of boxes that cover the domain, with a bound of each.
    """

    name: ClassVar[str] = "all-inputs"
    asks: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"weights"})
    unaffected_by: ClassVar[frozenset[str]] = NO_GROUPS
    summary: ClassVar[str] = "Whether any input at all changes its answer with a column: a witness, or a proof."
    terms: ClassVar[Mapping[str, Term]] = {
        "all_inputs_flip": Term(
            "a decision that depends on the group",
            "1: there is an input whose decision changes with these columns alone; 0: it is proved that there is none.",
        ),
        "all_inputs_score_change": Term(
            "largest change of the raw score",
            "The most that the sum behind the score can change, for any input, when these columns alone change.",
        ),
        "all_inputs_probability_change": Term(
            "largest change of the probability",
            "The most that the predicted probability can change, for any input, when these columns alone change.",
        ),
        "all_inputs_flippable": Term(
            "people whose decision could depend on the group",
            "The share of people whose own decision flips when these columns alone change.",
        ),
    }
    citation: ClassVar[str] = (
        "Chen et al. (2019), Robustness verification of tree-based models, NeurIPS; Devos, Meert & Davis (2021), "
        "Versatile verification of tree ensembles, ICML"
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "regression"})
    headlines: ClassVar[Mapping[str, Headline]] = {
        "all_inputs_flip": Headline(disparity=False),
        "all_inputs_score_change": Headline(disparity=False),
    }
    Parameters = Parameters

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.terms)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Name the columns that change."""
        return self._changing(context)

    def begin(self, context: AuditContext) -> None:
        """Look at the model before the rows are read: a graph that is not understood is refused at once."""
        self._began = time.monotonic()
        self._changing(context)
        reads = any(column in context.scorer.columns for column in self._changing(context))
        if reads and not_plain(context.scorer) is None:
            opened(context)

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> People:
        """Keep the columns' ranges and some people."""
        changing = self._changing(context)
        names = list(dict.fromkeys([*context.scorer.columns, *changing]))
        read = [column for column in changing if column in context.scorer.columns]
        return People.of(batch, names, self.parameters.people, context.seed, read)

    def findings(self, total: People, context: AuditContext) -> list[Finding]:
        """Answer the questions."""
        return findings(self.parameters, self._changing(context), total.in_order(), context, self._began)

    def _changing(self, context: AuditContext) -> list[str]:
        """The columns that change: as asked, else the sensitive ones that the model reads."""
        columns = list(self.parameters.columns)
        for column in columns:
            if column not in context.dataset.columns:
                hint = did_you_mean(column, context.dataset.columns, what="columns")
                raise ParameterError(f"all-inputs: the data has no column {column!r}. {hint}")
        if columns:
            return list(dict.fromkeys(columns))
        splits = context.dataset.roles.sensitive
        reads = set(context.scorer.columns)
        candidates = [column for split in splits for column in split.columns if column in reads]
        candidates = candidates[:1] if candidates else [split.columns[0] for split in splits][:1]
        if not candidates:
            raise ParameterError(
                "all-inputs: nothing was said to change; name columns with the parameter `all-inputs.columns=COLUMN`"
            )
        return candidates
