"""What a statement must be whoever signed it: findings whole, by auditors that declare them; verdicts from intervals.

The signature says who states something, not that it is so: whoever invents numbers can invent ones that agree. What
holds numbers against the world is `fairkit verify --recompute` with the rows. Here is asked only what anybody who
reads the statement relies on: that a verdict follows from the intervals beside it.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit.results.policy import UNKNOWNS, judge, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.values import Interval

ROUNDING = 1e-9


def contradictions(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield every sentence about why a statement cannot be what an audit gives; none for an honest audit."""
    try:
        yield from _contradictions(report, settings)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        yield f"a part of it does not have the form that an audit gives it ({type(error).__name__}: {error})"


def _contradictions(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    data = settings["data"]
    for name, told, stated in (  # an alias pins settings: they are those of the report
        ("confidence", settings["confidence"], report.confidence),
        ("adjustment", settings.get("adjustment"), report.adjustment),
        ("columns of predictions", dict(data.get("predictions") or {}), dict(report.model.predictions)),
        ("joined table", (data.get("join") or {}).get("sha256"), report.data.joined.get("sha256")),
    ):
        if told != stated:
            yield f"the settings and the report differ in {name}: {told} and {stated}"
    for name, told, stated in (  # what an alias pins, and a page shows
        ("label", data.get("label"), report.data.label),
        ("seed", settings["seed"], report.seed),
    ):
        if stated is not None and told != stated:  # older reports name no label
            yield f"the settings have the {name} {told}, the report {stated}"
    asked = frozenset(settings.get("auditors", ()))
    for finding in report.findings:
        for text in (*_declared(finding, asked), *_number(finding, report)):
            yield f"{_name(finding)}: {text}"
    counts = Counter(finding.key for finding in report.findings)
    for finding in {f.key: f for f in report.findings}.values():
        if counts[finding.key] > 1:  # which of them counts would be the reader's guess
            yield f"{_name(finding)} is in it {counts[finding.key]} times"
    yield from _policy(report, settings)


def _name(finding: Finding) -> str:
    return f"{finding.auditor}/{finding.metric}" + (f"/{finding.place}" if finding.sensitive else "")


@functools.cache
def declarations(auditors: frozenset[str] | None = None) -> dict[str, frozenset[str]]:
    """Return the names that installed auditors (those named, or all) say that their findings may have."""
    from fairkit import plugins

    declared: dict[str, frozenset[str]] = {}
    group = plugins.load("group")
    metrics = plugins.metrics_of([group, *plugins.third_party()[0]])[0]
    for each in plugins.find():
        if auditors is not None and each.name not in auditors:
            continue
        try:
            loaded = group if each.name == "group" else plugins.load(each.name)
        except FairkitError:
            continue
        for auditor in loaded.auditors:
            names = auditor.measures(metrics)
            if names is not None:
                declared[auditor.name] = names
    return declared


def _declared(finding: Finding, asked: frozenset[str]) -> Iterator[str]:
    if asked and finding.auditor not in asked:
        yield f"the auditor {finding.auditor!r} is not one of those in the settings ({', '.join(sorted(asked))})"
    names = declarations(frozenset({finding.auditor})).get(finding.auditor)
    if names is not None and finding.metric not in names:
        yield f"the auditor {finding.auditor!r} does not declare the metric {finding.metric!r}"


def _number(finding: Finding, report: Report) -> Iterator[str]:
    yield from _whole(finding.value, finding.interval)
    if abs(finding.confidence - report.confidence) > ROUNDING:
        yield f"its confidence is {finding.confidence:g}, the audit's is {report.confidence:g}"
    for group in (*finding.groups, *(() if finding.missing is None else (finding.missing,))):
        for text in _whole(group.value, group.interval):
            yield f"group {group.group}: {text}"
    bound = finding.evidence.get("upper_confidence_bound")
    if bound is not None and not _is_number(bound):
        yield f"its upper_confidence_bound {bound!r} is no number"
    elif bound is not None and finding.value is not None and bound < finding.value - ROUNDING * (1 + abs(bound)):
        yield f"its upper_confidence_bound {bound:g} is below its value {finding.value:g}"
    for name in UNKNOWNS:
        told = finding.evidence.get(name)
        if told is None:
            continue
        ends = [told.get("low"), told.get("high")] if isinstance(told, Mapping) else [None, 0]
        whole = all(map(_is_number, ends)) or ends == [None, None]
        if not whole or not isinstance(told.get("binding"), bool) or not _is_number(told.get("stretch")):
            yield f"its {name} lack a number, or whether they bind"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: float | None, interval: Interval | None) -> Iterator[str]:
    """Check a number and its interval: finite, in order, the number inside."""
    if value is not None and not math.isfinite(value):
        yield f"its value {value} is not finite"
    elif interval is not None:
        low, high = interval
        slack = ROUNDING * max(1.0, abs(value or 0))
        if math.isnan(low) or math.isnan(high) or low > high:
            yield f"its interval [{low:g}, {high:g}] is reversed"
        elif value is None:
            yield f"it has an interval [{low:g}, {high:g}] and no value"
        elif not low - slack <= value <= high + slack:
            yield f"its value {value:g} lies outside its interval [{low:g}, {high:g}]"


def _policy(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the signed verdicts are not those that the findings' intervals give."""
    stated = verdict_of([rule.verdict for rule in report.policy])
    if stated != report.verdict:
        yield f"its verdict is {report.verdict}, that of its rules together is {stated}"
    told = settings.get("policy")
    if told and [_limits(rule) for rule in told] != [_limits(rule.to_dict()) for rule in report.policy]:
        yield "the rules in its settings are not those in its policy"
    for rule in report.policy:
        name = rule.metric if rule.sensitive is None else f"{rule.metric}:{rule.place}"
        try:
            again = judge([rule.rule], report.findings, confidence=report.confidence)[0][0]
        except FairkitError as error:
            yield f"its rule on {name} cannot be judged: {error}"
            continue
        # an adjusted interval is wider: it cannot decide what the one that is stated leaves open
        open_ = ("inconclusive",) if report.adjustment is not None else ()
        if rule.verdict not in (again.verdict, *open_):
            yield f"the verdict on {name} is {rule.verdict}, judged again it is {again.verdict}: {again.reason}"


def _limits(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(rule.get(key) for key in ("metric", "sensitive", "max", "min", "support", "within"))
