"""Findings: the worst difference between pairs of groups, on average over contexts and in the worst one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.intervals import clopper_pearson, student, two_sided
from fairkit.results.findings import Finding, GroupValue, StratumValue
from fairkit.support.lazy_dataclass import asdict, dataclass
from fairkit_correspondence.answers import OUTCOMES, Answers, Parameters, cost_of, digest_of, recorded_values
from fairkit_correspondence.client import confidence_at
from fairkit_correspondence.planning import ENOUGH_DOCUMENTS, ENOUGH_NAMES, PLANNED_NAMES, Parts, Spread, limits, parts
from fairkit_correspondence.requests import requests_digest

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.results.findings import Interval

    Array = NDArray[np.float64]


DIFFERENCE, CHANGED, REFUSALS, PLACEBO = MEASURES = (
    "correspondence_difference", "changed_documents", "refusal_rate_difference", "placebo_difference",
)  # fmt: skip
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

    def limits(self, confidence: float, *, fixed: bool) -> Interval:
        """Return the interval: its lower end with all open answers against the first group, its upper for it."""
        (low, high), (other_low, other_high) = (limits(b, confidence, fixed=fixed) for b in self.bounds)
        return min(low, other_low), max(high, other_high)


@dataclass(frozen=True)
class Statement:
    """Everything that is said about one way to split people."""

    answers: Answers
    sensitive: str
    parameters: Parameters
    context: AuditContext
    table: pa.Table

    @cached_property
    def placebo(self) -> tuple[int, int] | None:
        """The placebo arm and its group."""
        if not self.parameters.placebo:
            return None
        groups = self.answers.groups
        arm, _, group = self.parameters.placebo.partition("=")
        if not {arm, group} <= set(groups) or arm == group:
            raise ParameterError(
                f"correspondence.placebo={self.parameters.placebo!r} names no two groups of {self.sensitive!r} "
                f"({', '.join(groups)}); write PLACEBO=GROUP"
            )
        return groups.index(arm), groups.index(group)

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of groups that are compared, without the placebo arm."""
        neutral = self.placebo[0] if self.placebo else -1
        groups = [g for g in range(len(self.answers.groups)) if g != neutral]
        if len(groups) < 2:
            raise DataError(
                f"{self.context.dataset.name}: {self.sensitive!r} has one group besides the placebo arm; two are due"
            )
        return list(combinations(groups, 2))

    def compare(self, pair: tuple[int, int], context: int | None = None, *, open_only: bool = False) -> Comparison:
        """Return one comparison."""
        cells = self.answers.cells(*pair, context, open_only=open_only)
        low = parts(cells, 0.0)
        return Comparison(*pair, context, (low, parts(cells, 1.0) if (cells.high > cells.low).any() else low))

    @cached_property
    def averaged(self) -> list[Comparison]:
        """Every pair, averaged over the contexts."""
        return [self.compare(pair) for pair in self.pairs]

    @cached_property
    def by_context(self) -> list[Comparison]:
        """Every pair in every context."""
        if len(self.answers.contexts) == 1:
            return [Comparison(c.first, c.second, 0, c.bounds) for c in self.averaged]
        return [self.compare(p, c) for c in range(len(self.answers.contexts)) for p in self.pairs]

    def level(self, confidence: float) -> float:
        """Return the confidence of one interval at this look."""
        return confidence_at(max(self.answers.look, 1), self.answers.looks, confidence)

    def pair_limits(self, comparison: Comparison, confidence: float, among: int = 1) -> Interval:
        """Return one pair's interval: `among` of them hold together."""
        level = self.level(1 - (1 - confidence) / among)
        return comparison.limits(level, fixed=self.parameters.names == "fixed")

    def worst(self, comparisons: list[Comparison], confidence: float) -> Interval:
        """Return an interval of the largest |difference|.

        Upper end: the largest of the pairs' own ends (Berger 1982: no correction). Lower end: the largest lower limit,
        where all pairs' intervals hold together.
        """
        own = [self.pair_limits(c, confidence) for c in comparisons]
        together = [self.pair_limits(c, confidence, len(comparisons)) for c in comparisons]
        high = max(max(abs(low), abs(high)) for low, high in own)
        return max(0.0, *(max(low, -high) for low, high in together)), high

    @cached_property
    def recorded(self) -> dict[str, list[str]]:
        """What the table says about who answered."""
        return recorded_values(self.table)

    @cached_property
    def doubt(self) -> str | None:
        """Why no verdict may be made; None where one may."""
        answers, models, reasons = self.answers, self.recorded.get("stated_model", ()), []
        fewest = min(answers.names_of(g) for pair in self.pairs for g in pair)
        if self.parameters.names == "sampled" and fewest < ENOUGH_NAMES:
            reasons.append(
                f"{fewest} names cannot stand for a group; {ENOUGH_NAMES} do, {PLANNED_NAMES} are planned "
                "(or declare `correspondence.names=fixed`: a statement about these names)"
            )
        elif self.parameters.names == "sampled":
            even = min(answers.even_names(g) for pair in self.pairs for g in pair)
            if even < ENOUGH_NAMES / 2:  # a random share of the questions makes counts uneven, by less than this
                reasons.append(
                    f"a few names have most of the answers of a group: {fewest} names count as {even:.0f}, and half of "
                    f"{ENOUGH_NAMES} are needed"
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
        if len(models) > 1:
            reasons.append(f"more than one model answered ({' and '.join(models)})")
        return "; ".join(reasons) or None

    @cached_property
    def drift(self) -> dict[str, Any] | None:
        """Early against late answers."""
        return drift(self.answers)

    @cached_property
    def means(self) -> Any:
        """The mean answer by document, context and group."""
        return group_means(self.answers)

    def finding(self, metric: str, value: float, at: Callable[[float], Interval], **more: Any) -> Finding:
        """Return a finding; what `more` does not say is the statement's own."""
        settings, answers, confidence = self.parameters, self.answers, self.context.confidence
        shared: dict[str, Any] = {"names": settings.names, "documents": settings.documents}
        shared |= {"refused": settings.refused} if settings.refused != "bounds" else {}
        shared |= {"adjust": list(settings.adjust)} if settings.adjust else {}
        shared |= {"look": answers.look, "looks": answers.looks} if answers.looks > 1 else {}
        more = {"better": "lower", "inconclusive": self.doubt} | more
        return Finding(
            auditor="correspondence", metric=metric, sensitive=self.sensitive, value=value, interval=at(confidence),
            confidence=confidence, interval_at=at, parameters=shared | more.pop("parameters", {}), **more,
        )  # fmt: skip

    def largest(self, metric: str, comparisons: list[Comparison], **more: Any) -> Finding:
        """Return the largest |difference| of some comparisons, under one bound."""
        value = max(abs(comparison.value) for comparison in comparisons)
        return self.finding(metric, value, lambda level: self.worst(comparisons, level), **more)

    def group_values(self, means: Any, rows: Any = True, among: tuple[int, ...] = ()) -> tuple[GroupValue, ...]:
        """Return each group's mean with its rows, of all groups or of some."""
        group, names = self.answers.group, self.answers.groups
        return tuple(
            GroupValue(group=names[g], rows=int((rows & (group == g)).sum()), value=float(means[g]))
            for g in among or range(len(names))
        )


def findings(statement: Statement) -> list[Finding]:
    """Return the findings of one way to split people."""
    worst = statement.parameters.worst == "context"
    headline = statement.largest(
        DIFFERENCE,
        statement.by_context if worst else statement.averaged,
        groups=statement.group_values(np.nanmean(np.nanmean(statement.means, axis=1), axis=0)),
        parameters={"worst": "context"} if worst else {},
        evidence=_evidence(statement),
        notes=_notes(statement),
    )
    contexts = [_per_context(statement)] if len(statement.answers.contexts) > 1 and not worst else []
    return [headline, *contexts, _changed(statement), _refusals(statement), *_placebo(statement)]


def _per_context(statement: Statement) -> Finding:
    """Return the worst context under one bound; the strata are the worst pair's in each context."""
    answers, comparisons = statement.answers, statement.by_context
    top = max(comparisons, key=lambda c: abs(c.value))
    pair = (top.first, top.second) if top.value >= 0 else (top.second, top.first)
    means, strata = np.nanmean(statement.means, axis=0), []
    for c, name in enumerate(answers.contexts):
        here, rows = statement.compare(pair, c), answers.context == c
        ends = statement.pair_limits(here, statement.context.confidence)
        groups = statement.group_values(means[c], rows, pair)
        strata.append(StratumValue(stratum=name, rows=int(rows.sum()), value=here.value, interval=ends, groups=groups))
    return statement.largest(
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
    differ = np.any([changed(answers, means, *pair) for pair in statement.pairs], axis=0)
    share, size = float(differ.mean()), len(differ)

    def at(confidence: float) -> Interval:
        z = two_sided(statement.level(confidence))
        low, high = clopper_pearson(np.array([share]), np.array([float(size)]), z)
        return float(low[0]), float(high[0])

    shown = [example for pair in statement.pairs for example in examples(answers, means, *pair)]
    shown = sorted(shown, key=lambda pair: -abs(pair["answers"][0] - pair["answers"][1]))[:5]
    largest = max(float(np.abs(average.bounds[0].differences).max()) for average in statement.averaged)
    evidence = {"changed_answers": shown, "largest": largest, "equal_everywhere": all_equal(answers)}
    note = (
        "The share of documents whose answers differ between groups, draws and names included; two wordings of one "
        "group differ as well (see the placebo)."
    )
    return statement.finding(CHANGED, share, at, evidence=evidence, notes=(note,), inconclusive=None)


def _refusals(statement: Statement) -> Finding:
    """Return the largest difference of the shares that were refused, unreadable or cut off."""
    answers = statement.answers
    counts = {
        f"{name}: {kind}": int(((answers.group == g) & (answers.outcome == index)).sum())
        for g, name in enumerate(answers.groups)
        for index, kind in enumerate(OUTCOMES[:-1])
    }
    return statement.largest(
        REFUSALS,
        [statement.compare(pair, open_only=True) for pair in statement.pairs],
        groups=statement.group_values([answers.open[answers.group == g].mean() for g in range(len(answers.groups))]),
        evidence={"refusals": counts},
    )


def _placebo(statement: Statement) -> list[Finding]:
    """Return the difference that a neutral edit makes, if there is one."""
    if statement.placebo is None:
        return []
    arm, group = (statement.answers.groups[g] for g in statement.placebo)
    notes = (f"{arm!r} is a neutral edit of {group!r}: models react to those as well.",)
    pairs = [statement.compare(statement.placebo)]
    return [statement.largest(PLACEBO, pairs, better="none", notes=notes)]


def _evidence(statement: Statement) -> dict[str, Any]:
    answers, context = statement.answers, statement.context
    shown = [*statement.averaged, *(statement.by_context if len(answers.contexts) > 1 else ())]
    rng = context.rng(f"placebo {statement.sensitive}")
    neutral = statement.placebo[0] if statement.placebo else -1
    groups = {name: g for g, name in enumerate(answers.groups)}
    splits = {name: placebo(answers, g, rng) for name, g in groups.items() if g != neutral}
    counts = {"documents": len(answers.documents), "contexts": len(answers.contexts), "answers": len(answers.low),
              "unfinished": answers.unfinished}  # fmt: skip
    counts |= {f"names of {name}": answers.names_of(g) for name, g in groups.items()}
    record = {
        "correspondence_pairs": {k: v for pair in shown for k, v in _pair_numbers(statement, pair).items()},
        "placebo_splits": {name: value for name, value in splits.items() if value is not None},
        "counts": counts,
        "variances": asdict(Spread.of_pilot(*(answers.cells(*pair) for pair in statement.pairs))),
        "documents_sha256": digest_of(answers.documents),
        "names_sha256": digest_of([f"{group}\t{name}" for name, group in answers.names]),
    }
    if answers.tokens is not None and not np.isnan(answers.tokens).all():
        means = {name: np.nanmean(answers.tokens[answers.group == g]) for name, g in groups.items()}
        record["prompt_tokens"] = {name: float(value) for name, value in means.items()}
    if statement.drift is not None:
        record["drift"] = statement.drift
    if statement.recorded:
        record["served"] = {key: ", ".join(values) for key, values in statement.recorded.items()}
    requests = requests_digest(statement.table)
    return record | ({} if requests is None else {"requests_sha256": requests, "cost": cost_of(statement.table)})


def _pair_numbers(statement: Statement, one: Comparison) -> dict[str, float]:
    """Return value, low and high of a pair: plain numbers by name, which certificates keep."""
    groups = statement.answers.groups
    low, high = statement.pair_limits(one, statement.context.confidence)
    where = "all contexts" if one.context is None else statement.answers.contexts[one.context]
    name = f"{groups[one.first]} - {groups[one.second]}, {where}"
    return {f"{name}: {key}": number for key, number in (("value", one.value), ("low", low), ("high", high))}


def _notes(statement: Statement) -> tuple[str, ...]:
    answers, parameters, confidence = statement.answers, statement.parameters, statement.context.confidence
    fixed = parameters.names == "fixed"
    names = "these very names, which is no statement about a group" if fixed else "names like these"
    documents = "these very documents" if parameters.documents == "fixed" else "documents like these"
    notes = [
        f"About {names}, on {documents}, in these contexts, and about what was served on these days.",
        "The interval treats documents as a sample; names are taken as they are."
        if fixed
        else "The interval treats documents and names as samples that cross; names differ in more than group: class, "
        "age, religion.",
    ]
    if answers.looks > 1:
        notes.append(
            f"Look {answers.look} of {answers.looks} planned ones: the interval is at "
            f"{statement.level(confidence):.4%} so that all looks hold together."
        )
    if answers.unfinished:
        notes.append(f"{answers.unfinished:,} documents are not finished and do not count.")
    return tuple(notes)


# What stands beside a difference: placebo splits, drift while the answers came in, and documents that change.


SPLITS = 200
DRIFT_LEVEL = 0.99
_CHUNK = 2_000


def placebo(answers: Answers, group: int, rng: np.random.Generator) -> float | None:
    """Return the root mean square difference between two random halves of one group's names, in [0, 1].

    What a difference between names of the *same* group looks like; None where no document has two names.
    """
    rows = answers.group == group
    names, local = np.unique(answers.name[rows], return_inverse=True)
    if len(names) < 2:
        return None
    half = np.zeros((len(names), SPLITS))
    for split in range(SPLITS):
        half[rng.permutation(len(names))[: len(names) // 2], split] = 1
    document, y = answers.document[rows], answers.middle[rows]
    total, used = np.zeros(SPLITS), np.zeros(SPLITS)
    for start in range(0, len(answers.documents), _CHUNK):
        here = (document >= start) & (document < start + _CHUNK)
        flat = (document[here] - start) * len(names) + local[here]
        sums, counts = (
            np.bincount(flat, w, _CHUNK * len(names)).reshape(_CHUNK, -1) for w in (y[here], np.ones(len(flat)))
        )
        first, many = sums @ half, counts @ half
        second, rest = sums.sum(1)[:, None] - first, counts.sum(1)[:, None] - many
        both = (many > 0) & (rest > 0)
        gap = first / np.maximum(many, 1) - second / np.maximum(rest, 1)
        total, used = total + (gap * both).sum(axis=0), used + both.sum(axis=0)
    return float(np.sqrt(np.mean((total / used) ** 2))) if (used > 0).all() else None


def drift(answers: Answers) -> dict[str, Any] | None:
    """Return late minus early answers of the same documents, at the 1 % level; None where the order is not known."""
    if answers.order is None or np.isnan(answers.order).any():
        return None
    cell = answers.context * len(answers.groups) + answers.group
    residual = answers.middle - (np.bincount(cell, answers.middle) / np.maximum(np.bincount(cell), 1))[cell]
    # early and late: before and after the middle of the look in which a document was asked about
    middle = [np.median(answers.order[answers.block == b]) for b in range(int(answers.block.max()) + 1)]
    early = answers.order <= np.array(middle)[answers.block]
    with np.errstate(invalid="ignore"):
        before, after = (
            np.bincount(answers.document, residual * part, len(answers.documents))
            / np.bincount(answers.document, part, len(answers.documents))
            for part in (early.astype(float), (~early).astype(float))
        )
    gaps = (after - before)[~np.isnan(after - before)]
    if len(gaps) < 2:
        return None
    shift, half = shift_of(gaps, DRIFT_LEVEL)
    ends = {"shift": shift, "low": shift - half, "high": shift + half}
    return {**ends, "level": 1 - DRIFT_LEVEL, "found": abs(shift) > half}


def shift_of(gaps: Array, confidence: float) -> tuple[float, float]:
    """Return the mean of differences on the same questions, and the half width of its interval (Student's t)."""
    t = float(student(two_sided(confidence), np.array([float(len(gaps))]))[0])
    return float(gaps.mean()), t * float(gaps.std(ddof=1) / math.sqrt(len(gaps)))


def group_means(answers: Answers) -> Array:
    """Return the mean answer by document, context and group, NaN where there is none, shape [T, C, G]."""
    shape = (len(answers.documents), len(answers.contexts), len(answers.groups))
    flat = np.ravel_multi_index((answers.document, answers.context, answers.group), shape)
    size = math.prod(shape)
    with np.errstate(invalid="ignore"):
        means = np.bincount(flat, answers.middle, size) / np.bincount(flat, minlength=size)
    return np.asarray(means.reshape(shape))


def changed(answers: Answers, means: Array, first: int, second: int) -> NDArray[np.bool_]:
    """Return on which documents two groups' answers differ, shape [T].

    Answers that are all yes or no differ where their means do; others where one group's mean is at least 1/2 and the
    other's below.
    """
    left, right = means[:, :, first], means[:, :, second]
    whole = np.isin(answers.low[answers.outcome == 0], (0.0, 1.0)).all()
    differ = left != right if whole else (left >= 0.5) != (right >= 0.5)
    return np.asarray((differ & ~np.isnan(left) & ~np.isnan(right)).any(axis=1))


def examples(answers: Answers, means: Array, first: int, second: int, most: int = 5) -> list[dict[str, Any]]:
    """Return the documents, by their names or digests, on which two groups' mean answers differ most."""
    gap = np.nan_to_num(means[:, :, first] - means[:, :, second])
    order = np.argsort(-np.abs(gap), axis=None, kind="stable")[:most]
    places = [(int(flat) // gap.shape[1], int(flat) % gap.shape[1]) for flat in order if gap.flat[flat]]
    return [
        {
            "document": answers.documents[t],
            "context": answers.contexts[c],
            "groups": [answers.groups[first], answers.groups[second]],
            "answers": [float(means[t, c, first]), float(means[t, c, second])],
        }
        for t, c in places
    ]


def all_equal(answers: Answers) -> int:
    """Return how many documents have the same answer everywhere: instructions in a text can cause that."""
    low, high = np.full(len(answers.documents), np.inf), np.full(len(answers.documents), -np.inf)
    np.minimum.at(low, answers.document, answers.middle)
    np.maximum.at(high, answers.document, answers.middle)
    return int((low == high).sum())
