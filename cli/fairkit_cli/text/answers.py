"""A finding as a sentence that anybody understands: ``Of 100 qualified people of group female, 82 get ...``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fairkit.results.evidence import HighestGroup, LowestGroup, evidence_of
from fairkit_cli.text.glossary import metric_term
from fairkit_cli.text.headlines import ENDINGS, headlines
from fairkit_cli.text.numbers import number

if TYPE_CHECKING:
    from fairkit.results.findings import Finding, VerdictName
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult
    from fairkit.results.values import Interval


_FATES = {"pass": "it is kept", "fail": "it is broken", "inconclusive": "these rows do not decide it"}
_ORDER = ("fail", "inconclusive", "pass")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule of the policy, or a finding without one, says in words.

    `told` is one sentence about the groups, `limit` one about the limit: None where there is none.
    """

    finding: Finding
    rule: RuleResult | None
    told: str
    limit: str | None

    @property
    def verdict(self) -> VerdictName | None:
        """The rule's verdict."""
        return None if self.rule is None else self.rule.verdict

    def __str__(self) -> str:
        return self.told if self.limit is None else f"{self.told} {self.limit}"


def answers(report: Report) -> list[Answer]:
    """Return the answer to each rule, the decisive ones first."""
    found = []
    for rule in report.policy:
        finding = judged_finding(report, rule)
        if finding is not None:
            found.append(answer(report, finding, rule))
    return sorted(found, key=lambda one: _ORDER.index(str(one.verdict)))


def judged_finding(report: Report, rule: RuleResult) -> Finding | None:
    """Return the finding that a rule was decided by: of several the one that its reason names."""
    of_metric = [f for f in report.findings if f.metric == rule.metric and f.within == rule.within]
    chosen = [f for f in of_metric if rule.sensitive in (None, f.sensitive)]
    chosen = [f for f in chosen if f.reference is None] or chosen
    return next((f for f in chosen if _named(f, rule.reason)), chosen[0] if chosen else None)


def _named(finding: Finding, reason: str) -> bool:
    place = f" for {finding.place}" if finding.sensitive else ""
    label = f" (class {finding.parameters['class']})" if "class" in finding.parameters else ""
    return reason == finding.inconclusive or reason.startswith(f"{finding.metric}{place}{label} ")


def answer(report: Report, finding: Finding, rule: RuleResult | None = None) -> Answer:
    """Say a finding, and what became of its limit, in two sentences."""
    bound = None if rule is None else rule.limit
    source = _source(report, finding)
    kind, share, groups = _kind(source), _share(report, source), _ends(source)
    interval = _interval(finding, rule)
    if finding.value is None:
        sentence, scale = f"{_name(finding)} is not defined here.", 1.0
    elif share is not None and not finding.within and finding.reference is None:
        scale = 1.0 if kind == "_ratio" else 100.0
        sentence = _counted(report, finding, share, kind, groups, interval, bound)
    else:
        sentence, scale = _plainly(finding, kind, groups, interval), 1.0
    return Answer(finding, rule, sentence, None if rule is None else _limit(report, rule, scale))


class Share(NamedTuple):
    """Of 100 of whom, how many do what."""

    whom: str
    do: str


def _source(report: Report, finding: Finding) -> Finding:
    """Return the finding that has the groups' rates: the worse of two has them from its own finding."""
    declared = headlines().joint.get(finding.metric)
    parts = [_find(report, name, finding) for name in ([] if declared is None else declared.worse_of)]
    return next((one for one in parts if one is not None and one.value == finding.value), finding)


def _kind(finding: Finding) -> str:
    """Return how groups are compared: the ending of the name."""
    return next((one for one in ENDINGS if finding.metric.endswith(one)), "")


def _find(report: Report, metric: str, like: Finding) -> Finding | None:
    def place(one: Finding) -> tuple[object, ...]:
        return one.sensitive, one.reference, one.within, one.auditor, one.parameters.get("class")

    return next((one for one in report.findings if one.metric == metric and place(one) == place(like)), None)


def share_of(report: Report, finding: Finding) -> Share | None:
    """Return of whom a finding's rates are shares, and what they do; None where it is no rate."""
    return _share(report, _source(report, finding))


def _share(report: Report, finding: Finding) -> Share | None:
    metric = headlines().base(finding.metric)
    if metric is None or metric.term is None:
        return None
    several = report.model.task == "multiclass" or "class" in finding.parameters
    said = metric.term.share_of_class if several else metric.term.share
    if said is None or ("class" not in finding.parameters and "{0}" in "".join(said)):
        return None
    label = finding.parameters.get("class")
    return Share(*(text.format(label) for text in said))


def _ends(finding: Finding) -> list[tuple[str, float]]:
    """Return the lowest and the highest group with their values; nothing where there are none."""
    values = {one.group: one.value for one in finding.groups}
    named = [evidence_of(finding, LowestGroup), evidence_of(finding, HighestGroup)]
    found = [(one.group, values.get(one.group)) for one in named if one is not None]
    return [(name, value) for name, value in found if value is not None] if len(found) == 2 else []


def _interval(finding: Finding, rule: RuleResult | None) -> Interval | None:
    """Return the interval that a rule is judged by: a one-sided bound takes the place of the upper end."""
    pair, bound = finding.interval, finding.evidence.get("upper_confidence_bound")
    if pair is None or bound is None or rule is None or not rule.rule.upper:
        return pair
    return pair[0], float(bound)


def _counted(
    report: Report,
    finding: Finding,
    share: Share,
    kind: str,
    groups: Sequence[tuple[str, float]],
    interval: Interval | None,
    bound: float | None,
) -> str:
    """Say a rate, or rates of groups, as so many of 100."""
    value = float(finding.value or 0.0)
    ratio = kind == "_ratio"
    places = 0 if ratio else _places(interval, bound)
    sure = f"{report.confidence:.0%} confidence"
    if kind in ("_difference", "_ratio") and len(groups) == 2:
        (low, one), (high, other) = groups
        places = max(places, _apart(one, other))
        both = (
            f"Of 100 {_of(share, low)}, {_hundred(one, places)} {share.do}; "
            f"of 100 of group {high}, {_hundred(other, places)}"
        )
        if ratio:
            return f"{both}: {_times(value, interval)} times as many ({sure})."
        between = _range(interval, places)
        return f"{both}: {between or _hundred(value, places)} fewer ({sure if between else 'no interval'})."
    whom = share.whom
    if kind in ("_group_min", "_group_max") and groups:
        whom = _of(share, groups[0 if kind == "_group_min" else 1][0])
    elif kind:
        return _plainly(finding, kind, groups, interval)
    between = _range(interval, places)
    told = f"{between} with {sure}" if between else "no interval"
    return f"Of 100 {whom}, {_hundred(value, places)} {share.do} ({told})."


def _of(share: Share, group: str) -> str:
    return share.whom.replace("people", f"people of group {group}", 1)


def _plainly(finding: Finding, kind: str, groups: Sequence[tuple[str, float]], interval: Interval | None) -> str:
    """Say a number that is no share of people."""
    between = "no interval" if interval is None else f"{number(interval[0])} to {number(interval[1])}"
    if kind in ("_difference", "_ratio") and len(groups) == 2 and not finding.within:
        (low, one), (high, other) = groups
        word = kind.removeprefix("_")
        return (
            f"{_name(finding, kind)} is {number(one)} for group {low} and {number(other)} for group {high}: "
            f"a {word} of {number(finding.value)} ({between})."
        )
    where = ""
    if finding.within:
        where = f" between groups of {finding.sensitive}, inside the strata of {'+'.join(finding.within)},"
    elif finding.reference is not None:
        where = f" between groups of {finding.sensitive}, against {finding.reference},"
    elif finding.sensitive is not None:
        where = f" between groups of {finding.sensitive}"
    return f"{_name(finding)}{where} is {number(finding.value)} ({between})."


def _name(finding: Finding, kind: str = "") -> str:
    plain = metric_term(finding.metric.removesuffix(kind)).plain
    label = f" (class {finding.parameters['class']})" if "class" in finding.parameters else ""
    return f"{plain[0].upper()}{plain[1:]}{label}"


def _limit(report: Report, rule: RuleResult, scale: float) -> str:
    bound = float(rule.limit)
    word = "at most" if rule.rule.upper else "at least"
    many = f", adjusted for {len(report.policy)} rules" if report.adjustment else ""
    return f"Your limit is {word} {scale * bound:.6g}: {_FATES[rule.verdict]}{many}."


def _hundred(value: float, places: int) -> str:
    return f"{100 * value + 0.0:.{places}f}"


def _apart(one: float, other: float) -> int:
    """Return the places at which two rates that differ do not look equal."""
    return next((p for p in range(3) if one == other or _hundred(one, p) != _hundred(other, p)), 3)


def _places(interval: Interval | None, bound: float | None) -> int:
    """Return the least number of places at which neither end seems to be on another side of the limit."""
    if interval is None or not all(map(math.isfinite, interval)):
        return 0
    for places in range(4):
        ends = [float(_hundred(end, places)) for end in interval]
        kept = bound is None or all(
            _side(shown - 100 * bound) == _side(100 * end - 100 * bound)
            for shown, end in zip(ends, interval, strict=True)
        )
        if kept and (ends[0] != ends[1] or interval[0] == interval[1]):
            return places
    return 4


def _side(distance: float) -> int:
    return 0 if abs(distance) < 1e-9 else 1 if distance > 0 else -1


def _range(interval: Interval | None, places: int) -> str | None:
    if interval is None or not all(map(math.isfinite, interval)):
        return None
    return f"{_hundred(interval[0], places)} to {_hundred(interval[1], places)}"


def _times(value: float, interval: Interval | None) -> str:
    if interval is None:
        return f"{value:.2f}"
    return f"{value:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"
