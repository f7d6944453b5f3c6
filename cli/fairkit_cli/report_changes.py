"""Two reports, of two tables or of two models: how every number differs, from the intervals of both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit.errors import ParameterError
from fairkit.results.comparisons import Change, Comparison, outcome_of
from fairkit.results.policy import judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule
    from fairkit.results.subjects import ModelInfo
    from fairkit.results.values import Interval


def compare_reports(before: Report, after: Report, policy: Sequence[Rule] = (), *, alone: bool = True) -> Comparison:
    """Compare every number that two reports share; there may be none where others are compared besides.

    The reports are taken as independent: of other rows, as of two months. The interval of a difference is made from
    those of the two numbers (Newcombe's method 10). Two models on the same rows are compared far more sharply by
    `fairkit.compare`, which pairs the rows.
    """
    if before.confidence != after.confidence:
        raise ParameterError(
            f"the reports have the confidences {before.confidence:g} and {after.confidence:g}; compare reports of one "
            "confidence"
        )
    known = {finding.key: finding for finding in before.findings}
    shared = [(known[f.key], f) for f in after.findings if f.key in known]
    if alone and not shared:
        raise ParameterError("the two reports have no number in common; audit with the same auditors and columns")
    return Comparison(
        models=_named(before, after),
        data=after.data,
        changes=(tuple(change for one, other in shared for change in _changes(one, other)),),
        confidence=after.confidence,
        notes=tuple(_notes(before, after, len(shared))),
        warnings=tuple(
            f"{when}: {text}" for when, one in (("before", before), ("after", after)) for text in one.warnings
        ),
        policy=tuple(judge(policy, one.findings, confidence=one.confidence)[0] for one in (before, after) if policy),
        title=f"{_carried(before, after)}{_subject(before)}; then {_subject(after)}",
    )


def _named(before: Report, after: Report) -> tuple[ModelInfo, ModelInfo]:
    """Return the models under names that tell them apart: their own, else those of the tables."""
    names = (before.model.name, after.model.name)
    if names[0] == names[1]:
        names = (before.data.name, after.data.name)
    if names[0] == names[1]:
        names = ("before", "after")
    return replace(before.model, name=names[0]), replace(after.model, name=names[1])


def _changes(before: Finding, after: Finding) -> Iterator[Change]:
    shared: dict[str, Any] = {
        "metric": before.metric, "sensitive": before.sensitive, "better": before.better, "reference": before.reference,
        "within": before.within, "parameters": dict(before.parameters),
    }  # fmt: skip
    undecided = bool(before.inconclusive or after.inconclusive)
    yield _change((before.value, before.interval), (after.value, after.interval), shared, undecided=undecided)
    known = {group.group: group for group in before.groups}
    if not before.metric.endswith("_difference") or not before.plain:
        return
    for group in after.groups:
        if group.group in known:
            past = known[group.group]
            shared |= {"metric": before.metric.removesuffix("_difference"), "group": group.group, "better": "none"}
            yield _change((past.value, past.interval), (group.value, group.interval), shared, undecided=undecided)


def _change(
    before: tuple[float | None, Interval | None],
    after: tuple[float | None, Interval | None],
    shared: Mapping[str, Any],
    *,
    undecided: bool,
) -> Change:
    interval = _interval(before, after)
    outcome = "undecided" if interval is None or undecided else outcome_of(*interval, shared["better"])
    return Change(before=before[0], after=after[0], interval=interval, outcome=outcome, **shared)


def _interval(
    one: tuple[float | None, Interval | None], other: tuple[float | None, Interval | None]
) -> Interval | None:
    """Return the interval of other minus one for two independent numbers."""
    (x, first), (y, second) = one, other
    if x is None or y is None or first is None or second is None:
        return None
    low = y - x - math.hypot(y - second[0], first[1] - x)
    high = y - x + math.hypot(second[1] - y, x - first[0])
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _subject(report: Report) -> str:
    return f"{report.model.name} on {report.data.name}, {report.data.rows:,} rows"


def _carried(before: Report, after: Report) -> str:
    """Say which column's part of each divided gap changed most."""
    known = {one.key: one for one in before.findings if one.metric == "attribution"}
    sentences = []
    for one in after.findings:
        if one.key not in known or one.parameters.get("of") == "score":
            continue
        then = {part["column"]: part["value"] for part in known[one.key].evidence.get("columns", ())}
        now = {part["column"]: part["value"] for part in one.evidence.get("columns", ()) if part["column"] in then}
        if now:
            name = max(now, key=lambda column: abs(now[column] - then[column]))
            whose = f"the gap of {one.groups[0].group if one.groups else one.sensitive}"
            sentences.append(f"{name} carries {now[name]:+.3f} of {whose}, {then[name]:+.3f} in {before.data.name}. ")
    return "".join(sentences)


def _notes(before: Report, after: Report, shared: int) -> Iterator[str]:
    yield (
        f"Before: {before.model.name} on {before.data.name}, {before.data.rows:,} rows; after: {after.model.name} on "
        f"{after.data.name}, {after.data.rows:,} rows."
    )
    if before.data.sha256 == after.data.sha256:
        yield (
            "Both reports are about the same rows, and their intervals are taken as independent: compare the models "
            "themselves on these rows for intervals that pair them, which are narrower."
        )
    alone = len(before.findings) + len(after.findings) - 2 * shared
    if alone:
        yield f"{alone} numbers are in one of the reports only and are left out."
