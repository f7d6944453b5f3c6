"""Does a single finding hold together: its number, its interval, its range, its bounds, its auditor?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairkit.results.policy import UNKNOWNS
from fairkit_registry.evidence.consistency.facts import Fact, facts
from fairkit_registry.evidence.declared import GROUP, owners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.values import Interval

ROUNDING = 1e-9
_BOUND = "upper_confidence_bound"


def about(one: float, other: float) -> bool:
    """Tell whether two numbers are the same but for rounding."""
    return abs(one - other) <= ROUNDING * max(1.0, abs(one), abs(other))


def check_number(finding: Finding, report: Report, auditors: frozenset[str]) -> Iterator[str]:
    """Yield what cannot be in one finding, in sentences that begin after its name."""
    yield from _auditor(finding, auditors)
    yield from check_place(finding.value, finding.interval)
    if not about(finding.confidence, report.confidence):
        yield f"its confidence is {finding.confidence:g}, the audit's is {report.confidence:g}"
    fact = facts().get(finding.metric) if finding.auditor == GROUP else None
    if fact is not None:
        yield from _range(finding, fact)
    yield from _bounds(finding)
    without = () if finding.missing is None else (finding.missing,)
    for group in (*finding.groups, *without):
        for text in check_place(group.value, group.interval):
            yield f"group {group.group}: {text}"
        if group.rows > report.data.rows:
            yield f"group {group.group} has {group.rows:,} rows, the data have {report.data.rows:,}"


def _auditor(finding: Finding, asked: frozenset[str]) -> Iterator[str]:
    if asked and finding.auditor not in asked:
        yield f"the auditor {finding.auditor!r} is not one of those in the settings ({', '.join(sorted(asked))})"
    owner = owners().get(finding.metric) or (GROUP if finding.metric in facts() else None)
    if owner not in (None, finding.auditor):
        yield f"it is a metric of the auditor {owner!r}, not of {finding.auditor!r}"


def check_place(value: float | None, interval: Interval | None) -> Iterator[str]:
    """Check a number and its interval: finite, in order, the number inside."""
    if value is not None and not math.isfinite(value):
        yield f"its value {value} is not finite"
        return
    if interval is None:
        return
    low, high = interval
    if math.isnan(low) or math.isnan(high) or low > high:
        yield f"its interval [{low:g}, {high:g}] is reversed"
    elif value is None:
        yield f"it has an interval [{low:g}, {high:g}] and no value"
    elif not (low <= value or about(low, value)) or not (value <= high or about(value, high)):
        yield f"its value {value:g} lies outside its interval [{low:g}, {high:g}]"


def _range(finding: Finding, fact: Fact) -> Iterator[str]:
    if finding.better != fact.better:
        yield f"it says that {finding.better} is better; for {finding.metric} it is {fact.better}"
    group = facts().get(fact.base, fact) if fact.base else fact
    named = [("its value", finding.value, fact)]
    parts = [*finding.groups, *([] if finding.missing is None else [finding.missing])]
    named += [(f"the value of group {one.group}", one.value, group) for one in parts]
    for what, value, wanted in named:
        if value is not None and not _inside(value, wanted):
            yield f"{what} {value:g} lies outside the range [{wanted.low:g}, {wanted.high:g}] of the metric"
    if finding.interval is not None and not all(_inside(end, fact) for end in finding.interval):
        yield (
            f"its interval [{finding.interval[0]:g}, {finding.interval[1]:g}] leaves the range "
            f"[{fact.low:g}, {fact.high:g}] of the metric"
        )


def _inside(value: float, fact: Fact) -> bool:
    return fact.low - ROUNDING <= value <= fact.high + ROUNDING


def _bounds(finding: Finding) -> Iterator[str]:
    """Check the one-sided bound that takes the place of the interval's upper end."""
    bound = finding.evidence.get(_BOUND)
    if bound is None:
        return
    if finding.auditor == GROUP:
        yield f"it has an {_BOUND}, which no group metric has"
        return
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        yield f"its {_BOUND} {bound!r} is no number"
        return
    if finding.value is not None and bound < finding.value and not about(bound, finding.value):
        yield f"its {_BOUND} {bound:g} is below its value {finding.value:g}"
    low = finding.evidence.get("lower_bound")
    if isinstance(low, int | float) and not isinstance(low, bool) and low > bound and not about(low, bound):
        yield f"its lower_bound {low:g} is above its {_BOUND} {bound:g}"


def check_unknowns(finding: Finding) -> Iterator[str]:
    """Yield where evidence about missing or wrong values does not have the form by which verdicts are made."""
    for name in UNKNOWNS:
        bounds = finding.evidence.get(name)
        if bounds is None:
            continue
        if not isinstance(bounds, Mapping):
            yield f"its {name} are no bounds"
            continue
        ends = [bounds.get("low"), bounds.get("high")]
        numbers = all(_is_number(end) for end in ends) or ends == [None, None]
        whole = isinstance(bounds.get("binding"), bool) and isinstance(bounds.get("reason"), str)
        if not (numbers and whole and _is_number(bounds.get("stretch"))):
            yield f"its {name} lack a number, a reason or whether they bind"


def check_nearby(finding: Finding) -> Iterator[str]:
    """Yield where evidence about rows nearby does not have the form by which verdicts are made."""
    nearby = finding.evidence.get("nearby")
    names = ("rows", *(f"{name}{end}" for name in ("here", "nearby", "change") for end in ("", "_low", "_high")))
    if nearby is not None and not (isinstance(nearby, Mapping) and all(_is_number(nearby.get(name)) for name in names)):
        yield "its numbers about rows nearby lack one"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
