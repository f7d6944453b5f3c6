"""Which findings of a report are shown first: its performance, and the disparities that are farthest from parity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairkit_cli.text.headlines import headlines

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.text.headlines import Headlines

MOST_DISPARITIES = 12
Kind = Literal["difference", "ratio", "level"]
_KINDS: tuple[Kind, ...] = ("difference", "ratio", "level")


def disparities(report: Report, shown: Headlines | None = None) -> list[Finding]:
    """Return the disparities between groups that are shown first, none of them twice under two names.

    What the policy is about is always among them. Differences come before ratios, each the farthest from parity first:
    the two have no common scale. `shown` is what the installed metrics declare, for many reports at once.
    """
    shown = shown or headlines()
    chosen = [
        finding
        for finding in report.findings
        if finding.auditor == "group"
        and finding.plain
        and finding.sensitive is not None
        and finding.value is not None
        and shown.lists(finding.metric, report.model.task)
    ]
    in_policy = {(rule.metric, rule.sensitive, rule.within) for rule in report.policy}
    judged = [
        finding
        for finding in report.findings
        if finding.sensitive is not None
        and finding.value is not None
        and finding.reference is None
        and {(finding.metric, place, finding.within) for place in (finding.sensitive, None)} & in_policy
    ]
    keys = {finding.key for finding in judged}
    others = sorted((f for f in chosen if f.key not in keys), key=_far_first)
    return sorted([*judged, *others[: max(MOST_DISPARITIES - len(judged), 0)]], key=_far_first)


def kind_of(finding: Finding) -> Kind:
    """Return a comparison's kind: difference (parity is 0), ratio (parity is 1), or a group's level."""
    if finding.metric.endswith("_ratio"):
        return "ratio"
    own = finding.metric.endswith(("_group_min", "_group_max")) or finding.metric == "worst_group_loss"
    return "level" if own else "difference"


def parity_distance(finding: Finding) -> float:
    """Return how far a disparity is from parity: a difference from 0, a ratio from 1, whichever group is below."""
    value, kind = abs(finding.value or 0.0), kind_of(finding)
    if kind == "ratio":
        return 1.0 if value == 0 else 1 - min(value, 1 / value)
    return value if kind == "difference" else 0.0


def _far_first(finding: Finding) -> tuple[int, float]:
    return _KINDS.index(kind_of(finding)), -parity_distance(finding)


def performance(report: Report, shown: Headlines | None = None) -> list[Finding]:
    """Return the numbers over all rows that people look at first, then those that the policy is about."""
    first = (shown or headlines()).levels()
    in_policy = {rule.metric for rule in report.policy}
    findings = [
        finding
        for finding in report.findings
        if finding.sensitive is None
        and finding.auditor == "group"
        and finding.value is not None
        and "class" not in finding.parameters
        and finding.metric in {*first, *in_policy}
    ]
    order = {name: place for place, name in reversed(list(enumerate(first)))}
    return sorted(findings, key=lambda one: order.get(one.metric, len(order)))
