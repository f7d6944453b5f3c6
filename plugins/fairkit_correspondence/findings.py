"""Findings: the worst difference between pairs of groups, on average over contexts and in the worst one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.intervals import clopper_pearson, two_sided
from fairkit.results.findings import Finding
from fairkit.results.values import GroupValue, StratumValue
from fairkit_correspondence import evidence
from fairkit_correspondence.answers import OUTCOMES, Answers, digest_of
from fairkit_correspondence.interval import Parts, limits, parts
from fairkit_correspondence.looks import confidence_at, sequence_factor
from fairkit_correspondence.parameters import OPEN, Parameters
from fairkit_correspondence.planning import ENOUGH_DOCUMENTS, ENOUGH_NAMES, PLANNED_NAMES

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext
    from fairkit.results.values import Interval

DIFFERENCE, CHANGED, REFUSALS, PLACEBO = (
    "correspondence_difference",
    "changed_documents",
    "refusal_rate_difference",
    "placebo_difference",
)
_PLANNED_DOCUMENTS = 50


@dataclass(frozen=True)
class Comparison:
    """The difference of one pair of groups, in one context or (None) averaged over all.

    `bounds` are its parts with open answers against the first group and for it.
    """

    first: int
    second: int
    context: int | None
    bounds: tuple[Parts, Parts]

    @property
    def value(self) -> float:
        """The first group's mean answer minus the second's, open answers half way."""
        value = (self.bounds[0].value + self.bounds[1].value) / 2
        return value if abs(value) > 1e-12 else 0.0

    def limits(self, confidence: float, parameters: Parameters) -> Interval:
        """Return the interval: its lower end with all open answers against the first group, its upper for it."""
        fixed = parameters.names == "fixed"
        size = len(self.bounds[0].differences)
        factor = sequence_factor(size, confidence) if parameters.sequence else None
        ends = [limits(found, confidence, fixed=fixed, factor=factor) for found in self.bounds]
        return min(ends[0][0], ends[1][0]), max(ends[0][1], ends[1][1])


@dataclass(frozen=True)
class Statement:
    """Everything that is said about one way to split people."""

    answers: Answers
    sensitive: str
    parameters: Parameters
    confidence: float
    placebo: tuple[int, int] | None
    table: str
    recorded: dict[str, list[str]]
    cost: float = 0.0

    @functools.cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of groups that are compared, without the placebo arm."""
        neutral = self.placebo[0] if self.placebo else -1
        kept = [g for g in range(len(self.answers.groups)) if g != neutral]
        if len(kept) < 2:
            raise DataError(
                f"{self.table}: {self.sensitive!r} has one group besides the placebo arm; two are due"
            )
        return list(combinations(kept, 2))

    def compare(
        self, pair: tuple[int, int], context: int | None = None, *, open_only: bool = False
    ) -> Comparison:
        """Return one comparison."""
        cells = self.answers.cells(*pair, context, open_only=open_only)
        one = parts(cells, 0.0)
        same = not (cells.high > cells.low).any()
        return Comparison(*pair, context, (one, one if same else parts(cells, 1.0)))

    @functools.cached_property
    def averaged(self) -> list[Comparison]:
        """Every pair, averaged over the contexts."""
        return [self.compare(pair) for pair in self.pairs]

    @functools.cached_property
    def by_context(self) -> list[Comparison]:
        """Every pair in every context."""
        if len(self.answers.contexts) == 1:
            return [Comparison(c.first, c.second, 0, c.bounds) for c in self.averaged]
        return [self.compare(p, c) for c in range(len(self.answers.contexts)) for p in self.pairs]

    def level(self, confidence: float) -> float:
        """Return the confidence of one interval at this look."""
        if self.answers.looks == 1:
            return confidence
        return confidence_at(max(self.answers.look, 1), self.answers.looks, confidence)

    def pair_limits(self, comparison: Comparison, confidence: float, among: int = 1) -> Interval:
        """Return one pair's interval: `among` of them hold together."""
        return comparison.limits(self.level(1 - (1 - confidence) / among), self.parameters)

    def worst(self, comparisons: list[Comparison], confidence: float) -> Interval:
        """Return an interval of the largest |difference|.

        Upper end: the largest of the pairs' own ends (Berger 1982: no correction). Lower end: the largest lower limit,
        where all pairs' intervals hold together.
        """
        high = max(max(abs(end) for end in self.pair_limits(c, confidence)) for c in comparisons)
        low = 0.0
        for comparison in comparisons:
            least, most = self.pair_limits(comparison, confidence, len(comparisons))
            low = max(low, least, -most)
        return low, high

    @functools.cached_property
    def doubt(self) -> str | None:
        """Why no verdict may be made; None where one may."""
        answers, reasons = self.answers, []
        used = {g for pair in self.pairs for g in pair}
        counts = {g: len(np.unique(answers.name[answers.group == g])) for g in used}
        fewest = min(counts.values())
        if self.parameters.names == "sampled" and fewest < ENOUGH_NAMES:
            reasons.append(
                f"{fewest} names cannot stand for a group; {ENOUGH_NAMES} do, {PLANNED_NAMES} are planned "
                "(or declare `correspondence.names=fixed`: a statement about these names)"
            )
        if len(answers.documents) < ENOUGH_DOCUMENTS:
            reasons.append(
                f"{len(answers.documents)} documents cannot stand for others like them; {ENOUGH_DOCUMENTS} do, "
                f"{_PLANNED_DOCUMENTS} are planned"
            )
        if self.drift and self.drift["found"]:
            reasons.append(
                f"late answers differ from early ones by {self.drift['shift']:.3f}: the served model changed while "
                "it was asked"
            )
        if len(self.recorded.get("stated_model", ())) > 1:
            models = " and ".join(self.recorded["stated_model"])
            reasons.append(f"more than one model answered ({models})")
        return "; ".join(reasons) or None

    @functools.cached_property
    def drift(self) -> dict[str, Any] | None:
        """Early against late answers."""
        return evidence.drift(self.answers)

    @functools.cached_property
    def means(self) -> Any:
        """The mean answer by document, context and group."""
        return evidence.group_means(self.answers)


def findings(statement: Statement, context: AuditContext, requests: str | None) -> list[Finding]:
    """Return the findings of one way to split people."""
    worst = statement.parameters.worst == "context"
    beside = _evidence(statement, context, requests)
    made = [
        _of_pairs(
            statement,
            DIFFERENCE,
            statement.by_context if worst else statement.averaged,
            groups=_group_values(statement, np.nanmean(np.nanmean(statement.means, axis=1), axis=0)),
            parameters={"worst": "context"} if worst else {},
            evidence=beside,
            notes=_notes(statement),
        )
    ]
    if len(statement.answers.contexts) > 1 and not worst:
        made.append(_per_context(statement))
    return [*made, _changed(statement), _refusals(statement), *_placebo(statement)]


def _finding(
    statement: Statement, metric: str, value: float, at: Callable[[float], Interval], **more: Any
) -> Finding:
    parameters = _shared(statement) | more.pop("parameters", {})
    told = {"better": "lower", "inconclusive": statement.doubt} | more
    return Finding(
        auditor="correspondence",
        metric=metric,
        sensitive=statement.sensitive,
        value=value,
        interval=at(statement.confidence),
        confidence=statement.confidence,
        parameters=parameters,
        interval_at=at,
        **told,
    )


def _of_pairs(statement: Statement, metric: str, comparisons: list[Comparison], **more: Any) -> Finding:
    """Return the largest |difference| of some comparisons, under one bound."""
    value = max(abs(one.value) for one in comparisons)
    return _finding(statement, metric, value, lambda level: statement.worst(comparisons, level), **more)


def _shared(statement: Statement) -> dict[str, Any]:
    answers, parameters = statement.answers, statement.parameters
    told: dict[str, Any] = {"names": parameters.names, "documents": parameters.documents}
    if parameters.refused != "bounds":
        told["refused"] = parameters.refused
    if parameters.adjust:
        told["adjust"] = list(parameters.adjust)
    if answers.looks > 1:
        told |= {"look": answers.look, "looks": answers.looks}
    if parameters.sequence:
        told["sequence"] = True
    return told


def _per_context(statement: Statement) -> Finding:
    """Return the worst context under one bound; the strata are the worst pair's in each context."""
    answers, comparisons = statement.answers, statement.by_context
    top = max(comparisons, key=lambda c: abs(c.value))
    pair = (top.first, top.second) if top.value >= 0 else (top.second, top.first)
    means = np.nanmean(statement.means, axis=0)
    strata = []
    for c, name in enumerate(answers.contexts):
        here = statement.compare(pair, c)
        strata.append(
            StratumValue(
                stratum=name,
                rows=int((answers.context == c).sum()),
                value=here.value,
                interval=statement.pair_limits(here, statement.confidence),
                groups=_group_values(statement, means[c], answers.context == c, pair),
            )
        )
    return _of_pairs(
        statement,
        DIFFERENCE,
        comparisons,
        parameters={"strata": "context"},
        within=("context",),
        strata=tuple(strata),
        evidence={"highest_group": answers.groups[pair[0]], "lowest_group": answers.groups[pair[1]]},
        notes=("The worst context and the worst pair of groups under one bound.",),
    )


def _changed(statement: Statement) -> Finding:
    """Return the share of documents on which some pair's answers differ, with exact limits."""
    answers, means = statement.answers, statement.means
    differ = np.any([evidence.changed(answers, means, *pair) for pair in statement.pairs], axis=0)
    share, size = float(differ.mean()), len(differ)

    def at(confidence: float) -> Interval:
        z = two_sided(statement.level(confidence))
        low, high = clopper_pearson(np.array([share]), np.array([float(size)]), z)
        return float(low[0]), float(high[0])

    shown = [one for pair in statement.pairs for one in evidence.examples(answers, means, *pair)]
    shown = sorted(shown, key=lambda one: -abs(one["answers"][0] - one["answers"][1]))[:5]
    largest = max(float(np.abs(one.bounds[0].differences).max()) for one in statement.averaged)
    beside = {"changed_answers": shown, "largest": largest, "equal_everywhere": evidence.all_equal(answers)}
    note = (
        "The share of documents whose answers differ between groups, draws and names included; two wordings of one "
        "group differ as well (see the placebo)."
    )
    return _finding(statement, CHANGED, share, at, evidence=beside, notes=(note,), inconclusive=None)


def _refusals(statement: Statement) -> Finding:
    """Return the largest difference of the shares that were refused, unreadable or cut off."""
    answers = statement.answers
    rates = [float(answers.open[answers.group == g].mean()) for g in range(len(answers.groups))]
    return _of_pairs(
        statement,
        REFUSALS,
        [statement.compare(pair, open_only=True) for pair in statement.pairs],
        groups=_group_values(statement, rates),
        evidence={"refusals": _outcome_counts(answers)},
    )


def _placebo(statement: Statement) -> list[Finding]:
    """Return the difference that a neutral edit makes, if there is one."""
    if statement.placebo is None:
        return []
    first, second = (statement.answers.groups[g] for g in statement.placebo)
    note = f"{first!r} is a neutral edit of {second!r}: models react to those as well."
    comparisons = [statement.compare(statement.placebo)]
    return [_of_pairs(statement, PLACEBO, comparisons, better="none", notes=(note,))]


def _group_values(
    statement: Statement, means: Any, rows: Any = True, among: tuple[int, ...] = ()
) -> tuple[GroupValue, ...]:
    """Return each group's mean with its rows, of all groups or of some."""
    answers = statement.answers
    return tuple(
        GroupValue(
            group=answers.groups[g], rows=int((rows & (answers.group == g)).sum()), value=float(means[g])
        )
        for g in among or range(len(answers.groups))
    )


def _outcome_counts(answers: Answers) -> dict[str, int]:
    return {
        f"{name}: {kind}": int(((answers.group == g) & (answers.outcome == OUTCOMES.index(kind))).sum())
        for g, name in enumerate(answers.groups)
        for kind in (OUTCOMES[0], *OPEN)
    }


def _evidence(statement: Statement, context: AuditContext, requests: str | None) -> dict[str, Any]:
    answers = statement.answers
    shown = [*statement.averaged, *(statement.by_context if len(answers.contexts) > 1 else ())]
    pairs = {name: number for one in shown for name, number in _pair_numbers(statement, one).items()}
    rng = context.rng(f"placebo {statement.sensitive}")
    splits = {
        name: evidence.placebo(answers, g, rng)
        for g, name in enumerate(answers.groups)
        if not (statement.placebo and g == statement.placebo[0])
    }
    found: dict[str, Any] = {
        "correspondence_pairs": pairs,
        "placebo_splits": {name: value for name, value in splits.items() if value is not None},
        "counts": {
            "documents": len(answers.documents),
            "contexts": len(answers.contexts),
            "answers": len(answers.low),
            "unfinished": answers.unfinished,
            **{
                f"names of {name}": len(np.unique(answers.name[answers.group == g]))
                for g, name in enumerate(answers.groups)
            },
        },
        "documents_sha256": digest_of(answers.documents),
        "names_sha256": digest_of([f"{group}\t{name}" for name, group in answers.names]),
    }
    if statement.drift is not None:
        found["drift"] = statement.drift
    if statement.recorded:
        found["served"] = {key: ", ".join(values) for key, values in statement.recorded.items()}
    if requests is not None:
        found |= {"requests_sha256": requests, "cost": statement.cost}
    return found


def _pair_numbers(statement: Statement, one: Comparison) -> dict[str, float]:
    """Return value, low and high of a pair: plain numbers by name, which certificates keep."""
    groups = statement.answers.groups
    low, high = statement.pair_limits(one, statement.confidence)
    where = "all contexts" if one.context is None else statement.answers.contexts[one.context]
    name = f"{groups[one.first]} - {groups[one.second]}, {where}"
    return {f"{name}: {key}": number for key, number in (("value", one.value), ("low", low), ("high", high))}


def _notes(statement: Statement) -> tuple[str, ...]:
    answers, parameters = statement.answers, statement.parameters
    of_names = (
        "these very names, which is no statement about a group"
        if parameters.names == "fixed"
        else "names like these"
    )
    documents = "these very documents" if parameters.documents == "fixed" else "documents like these"
    notes = [
        f"About {of_names}, on {documents}, in these contexts, and about what was served on these days.",
        "The interval treats documents and names as samples that cross; names differ in more than group: class, age, "
        "religion."
        if parameters.names == "sampled"
        else "The interval treats documents as a sample; names are taken as they are.",
    ]
    if answers.looks > 1:
        notes.append(
            f"Look {answers.look} of {answers.looks} planned ones: the interval is at "
            f"{statement.level(statement.confidence):.4%} so that all looks hold together."
        )
    if answers.unfinished:
        notes.append(f"{answers.unfinished:,} documents are not finished and do not count.")
    return tuple(notes)


def statement_of(
    answers: Answers,
    sensitive: str,
    parameters: Parameters,
    context: AuditContext,
    recorded: dict[str, list[str]],
    cost: float,
) -> Statement:
    """Return the statement about one way to split people.

    Raises
    ------
    ParameterError
        The placebo arm is no group of it.
    """
    arm = None
    if parameters.placebo:
        neutral, _, of = parameters.placebo.partition("=")
        absent = [name for name in (neutral, of) if name not in answers.groups]
        if absent or neutral == of:
            raise ParameterError(
                f"correspondence.placebo={parameters.placebo!r} names no two groups of {sensitive!r} "
                f"({', '.join(answers.groups)}); write PLACEBO=GROUP"
            )
        arm = (answers.groups.index(neutral), answers.groups.index(of))
    table = context.dataset.name
    return Statement(answers, sensitive, parameters, context.confidence, arm, table, recorded, cost)
