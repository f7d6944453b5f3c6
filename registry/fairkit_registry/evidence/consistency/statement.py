"""The whole statement: each finding, the findings together, and the policy judged again."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from fairkit.data.roles import value_text
from fairkit.errors import FairkitError
from fairkit_registry.evidence.consistency import recount
from fairkit_registry.evidence.consistency.classes import check_classes
from fairkit_registry.evidence.consistency.conditions import check_condition
from fairkit_registry.evidence.consistency.counts import check_counts
from fairkit_registry.evidence.consistency.facts import facts
from fairkit_registry.evidence.consistency.numbers import about, check_nearby, check_number, check_unknowns
from fairkit_registry.evidence.consistency.scores import check_scores
from fairkit_registry.evidence.declared import GROUP, checks, headlines, owners

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult


def contradictions(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield every sentence about why a statement cannot be true; a statement of an honest audit gives none.

    The signature says who states something, not that it is so: numbers that follow from others are computed again,
    and the policy is judged again.
    """
    try:
        yield from _contradictions(report, settings)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, ZeroDivisionError) as error:
        yield f"a part of it does not have the form that an audit gives it ({type(error).__name__}: {error})"


def _contradictions(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    yield from recount.check_rows(report)
    yield from _settings(report, settings)
    named_auditors = frozenset(settings.get("auditors", ()))
    weighted = settings.get("data", {}).get("weights") is not None
    least = _of_group(settings, "min_group")
    told = settings.get("data", {})
    whole, dependent = report, told.get("cluster") is not None or told.get("query") is not None
    report = dataclasses.replace(report, findings=tuple(f for f in report.findings if recount.plain(f)))
    for finding in whole.findings:
        for text in _alone(finding, whole, settings, named_auditors):
            yield f"{_name(finding)}: {text}"
    for finding in report.findings:
        for text in (
            *check_number(finding, report, named_auditors),
            *recount.check_disparity(finding),
            *recount.check_groups(finding, report, least),
            *(() if dependent else recount.check_width(finding)),
            *recount.check_chart(finding, weighted=weighted),
            *check_unknowns(finding),
            *check_nearby(finding),
        ):
            yield f"{_name(finding)}: {text}"
    yield from _twice(whole)
    yield from _left_out(report)
    yield from recount.check_pooled(report, weighted=weighted)
    yield from recount.check_odds(report)
    yield from check_counts(report, weighted=weighted, dependent=dependent)
    yield from check_scores(report, weighted=weighted)
    yield from check_classes(report, dependent=dependent)
    yield from recount.check_missing(report, _of_group(settings, "missing_share"))
    yield from _policy(whole, settings)


def _alone(finding: Finding, report: Report, settings: Mapping[str, Any], asked: frozenset[str]) -> Iterator[str]:
    """Yield what contradicts itself in a finding, and what cannot be in one that is not between groups as they are."""
    own = checks(finding.auditor)
    if own is not None:
        yield from own(finding)
    owner = owners().get(finding.metric, finding.auditor)
    if finding.metric in headlines(finding.auditor):  # compared as this auditor says, not as settings do
        yield from _compared(finding, report, asked)
    elif recount.plain(finding):
        return
    elif owner != finding.auditor:
        yield f"it is a metric of the auditor {owner!r}, not of {finding.auditor!r}"
    else:
        yield from check_condition(finding, report, settings.get("data", {}))


def _name(finding: Finding) -> str:
    return f"{finding.auditor}/{finding.metric}" + (f"/{finding.place}" if finding.sensitive else "")


def _of_group(settings: Mapping[str, Any], key: str) -> float:
    """Return a parameter of the auditor `group`: as it was given, else its default."""
    from fairkit_registry.evidence.pins import default

    usual = float(default(f"audit.{GROUP}.{key}"))
    try:
        return float(settings.get("parameters", {}).get(GROUP, {}).get(key, usual))
    except (TypeError, ValueError):
        return usual


def _settings(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the report is not the one that its settings make."""
    if not about(float(settings["confidence"]), report.confidence):
        yield f"the settings have the confidence {settings['confidence']:g}, the report {report.confidence:g}"
    if settings["seed"] != report.seed:
        yield f"the settings have the seed {settings['seed']}, the report {report.seed}"
    if settings.get("adjustment") != report.adjustment:
        yield f"the settings have the adjustment {settings.get('adjustment')}, the report {report.adjustment}"
    task = settings.get("model", {}).get("task")
    if task not in (None, report.model.task):
        yield f"the settings have the task {task}, the report {report.model.task}"
    yield from _outcome(report, settings.get("data", {}))
    told = settings.get("data", {}).get("predictions") or {}
    if dict(told) != dict(report.model.predictions):
        yield (
            f"the settings read predictions from {_columns(told)}, the report is about "
            f"{_columns(report.model.predictions)}"
        )
    asked = {key: value for key, value in settings.get("endpoint", {}).items() if key in ("url", "model")}
    if asked != {key: report.model.endpoint.get(key) for key in asked} or bool(asked) != bool(report.model.endpoint):
        yield (
            f"the settings ask {asked.get('url', 'no endpoint')}, the report is about "
            f"{report.model.endpoint.get('url', 'no endpoint')}"
        )
    joined = (settings.get("data", {}).get("join") or {}).get("sha256")
    if joined != report.data.joined.get("sha256"):
        yield (
            f"the settings join the table {str(joined)[:16]}, the report is about columns of "
            f"{str(report.data.joined.get('sha256'))[:16]}"
        )
    stated = settings.get("data", {}).get("sensitive")
    if isinstance(stated, list | tuple) and len(stated) != len(report.data.groups):
        yield (
            f"the settings have the sensitive columns {', '.join(map(str, stated)) or 'none'}, the data have groups of "
            f"{', '.join(report.data.groups) or 'none'}"
        )


def _outcome(report: Report, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the report names another outcome than its settings; older reports name none."""
    for key, stated in (("label", report.data.label), ("favorable", report.data.favorable)):
        asked = data.get(key)
        if stated is not None and (asked is None or value_text(asked) != stated):
            yield f"the settings have the {key} {asked}, the report {stated}"


def _columns(predictions: Mapping[str, Any]) -> str:
    return f"the columns {json.dumps(dict(predictions), sort_keys=True)}" if predictions else "a model"


def _compared(finding: Finding, report: Report, asked: frozenset[str]) -> Iterator[str]:
    """Yield what cannot be in a finding about two groups of the data."""
    if finding.reference is None:
        return
    yield from check_number(finding, report, asked)
    sizes = report.data.groups.get(str(finding.sensitive), {})
    for name in (finding.reference, *(group.group for group in finding.groups)):
        if name not in sizes:
            yield f"the data have no group {name!r} of {finding.sensitive}"
    for group in finding.groups:
        if group.rows > sizes.get(group.group, 0):
            yield f"group {group.group} has {group.rows:,} rows, the data have {sizes.get(group.group, 0):,} of it"


def _twice(report: Report) -> Iterator[str]:
    """Yield findings that are there twice: which of them counts would be the reader's guess."""
    keys = Counter((_name(f), json.dumps(dict(f.parameters), sort_keys=True, default=str)) for f in report.findings)
    for (name, _), count in keys.items():
        if count > 1:
            yield f"{name} is in it {count} times"


def _left_out(report: Report) -> Iterator[str]:
    """Yield disparities that one sensitive column has and another one lacks: a bad one may have been left out."""
    stated: dict[str, set[tuple[str, str]]] = {sensitive: set() for sensitive in report.data.groups}
    for finding in report.findings:
        fact = facts().get(finding.metric)
        plain = fact is not None and (fact.kind in ("difference", "ratio") or not fact.base)
        if finding.auditor == GROUP and finding.sensitive in stated and plain:
            label = str(finding.parameters.get("class", ""))
            stated[finding.sensitive].add((finding.metric, label))
    everywhere = set().union(*stated.values()) if stated else set()
    for sensitive, found in stated.items():
        missing = sorted(everywhere - found)
        if missing:
            label = f" ({missing[0][1]})" if missing[0][1] else ""
            yield f"it has {missing[0][0]}{label} for another sensitive column and lacks it for {sensitive}"


def _policy(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the signed verdicts are not those that the findings give."""
    from fairkit.results.policy import verdict_of

    stated = [rule.verdict for rule in report.policy]
    if verdict_of(stated) != report.verdict:
        yield f"its verdict is {report.verdict}, that of its rules together is {verdict_of(stated)}"
    told = settings.get("policy")
    if told and [_limits(rule) for rule in told] != [_limits(rule.to_dict()) for rule in report.policy]:
        yield "the rules in its settings are not those in its policy"
    for rule in report.policy:
        again = _judged(rule, report)
        if isinstance(again, str):
            yield again
        elif report.adjustment is None and again.verdict != rule.verdict:
            yield f"the verdict on {_rule(rule)} is {rule.verdict}, judged again it is {again.verdict}: {again.reason}"
        elif report.adjustment is not None and rule.verdict not in (again.verdict, "inconclusive"):
            # an adjusted interval is wider: it cannot decide what the one that is stated leaves open
            yield f"the verdict on {_rule(rule)} is {rule.verdict}, without adjustment it is {again.verdict}"


def _judged(rule: RuleResult, report: Report) -> RuleResult | str:
    from fairkit.results.policy import judge

    try:
        return judge([rule.rule], report.findings, confidence=report.confidence)[0][0]
    except FairkitError as error:
        return f"its rule on {_rule(rule)} cannot be judged: {error}"


def _rule(rule: RuleResult) -> str:
    return rule.metric if rule.sensitive is None else f"{rule.metric}:{rule.place}"


def _limits(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(rule.get(key) for key in ("metric", "sensitive", "max", "min", "support", "within"))
