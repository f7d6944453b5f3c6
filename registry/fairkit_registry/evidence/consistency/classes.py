"""Gaps over all classes computed again from the classes' own findings of the same statement."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from fairkit_registry.evidence.consistency.facts import OVER_CLASSES
from fairkit_registry.evidence.consistency.numbers import ROUNDING, about
from fairkit_registry.evidence.declared import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.values import GroupValue

Gap = tuple[float, float]
"""How far apart two groups are in one class, and how much farther the limits of the two allow."""


def check_classes(report: Report, *, dependent: bool) -> Iterator[str]:
    """Yield where a gap over all classes does not follow from those of the classes."""
    for finding in report.findings:
        if finding.auditor != GROUP or finding.metric not in OVER_CLASSES or finding.value is None:
            continue
        classes = [
            one
            for one in report.findings
            if one.metric == "true_positive_rate_difference" and one.sensitive == finding.sensitive
        ]
        name = f"{finding.metric} of {finding.sensitive}"
        pairs = list(_by_pair(classes).values())
        if not pairs:
            yield f"{name} has a value, and no class has one"
            continue
        value = max(over(finding.metric, [gap for gap, _ in gaps]) for gaps in pairs)
        if not about(value, finding.value):
            yield f"{name} is {finding.value:g}, and the classes give {value:g}"
        open_ones = [one for one in classes if _blocks(finding.metric, one)]
        if open_ones and finding.inconclusive is None:
            label = open_ones[0].parameters.get("class")
            yield f"{name} is not marked as inconclusive, and that of the class {label} is"
        highest = max(_upper(finding.metric, gaps) for gaps in pairs)
        slack = 1e-6 + ROUNDING
        if not dependent and finding.interval is not None and finding.interval[1] < min(1.0, highest) - slack:
            yield (
                f"{name} ends at {finding.interval[1]:g}, below the {highest:g} that the groups' intervals in the "
                "classes allow"
            )


def _blocks(name: str, of_class: Finding) -> bool:
    """Whether a class without a verdict leaves the number over all classes without one, too.

    In a mean over classes one with few rows counts with its own exact limits; an interval in doubt has none.
    """
    if of_class.inconclusive is None:
        return False
    return name == "class_gap_max" or "not trusted" in of_class.inconclusive


def over(name: str, gaps: Sequence[float]) -> float:
    """Return the largest, mean or root mean square gap of all classes, by name."""
    if name == "class_gap_max":
        return max(gaps)
    if name == "class_gap_mean":
        return math.fsum(gaps) / len(gaps)
    return math.sqrt(math.fsum(gap**2 for gap in gaps) / len(gaps))


def _upper(name: str, gaps: Sequence[Gap]) -> float:
    """Return the least upper end: `fairkit_group.over_classes` says why."""
    value, widths = over(name, [gap for gap, _ in gaps]), [width for _, width in gaps]
    if name == "class_gap_max":
        return max(gap + width for gap, width in gaps)
    if name == "class_gap_mean":
        return value + math.hypot(*widths) / len(gaps)
    return value + max(widths) / math.sqrt(len(gaps))


def _by_pair(classes: Sequence[Finding]) -> dict[tuple[str, str], list[Gap]]:
    """Return the gaps of every two groups, one of each class that both have a rate in."""
    gaps: dict[tuple[str, str], list[Gap]] = {}
    for finding in classes:
        known = [group for group in finding.groups if group.value is not None]
        for one, other in itertools.combinations(sorted(known, key=lambda group: group.group), 2):
            gaps.setdefault((one.group, other.group), []).append(
                (abs((one.value or 0) - (other.value or 0)), _half_width(one, other))
            )
    return gaps


def _half_width(one: GroupValue, other: GroupValue) -> float:
    """Return the larger distance from the difference of two rates to its limits (Newcombe's method 10)."""
    (low, high), (least, most) = (each.interval or (math.nan, math.nan) for each in (one, other))
    a, b = one.value or 0.0, other.value or 0.0
    return max(math.hypot(a - low, most - b), math.hypot(high - a, b - least))
