"""Two reports side by side: what is significantly better or worse."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.values import Interval

ALL = "all"
"""Stands for every finding that has a direction and an interval."""

Change = Literal["better", "worse", "within noise", "different", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One finding in two reports."""

    auditor: str  # which finding
    metric: str  # which finding
    sensitive: str | None  # which finding
    before: float | None  # the values; None where a report does not have it
    after: float | None  # the values; None where a report does not have it
    before_interval: Interval | None  # their intervals
    after_interval: Interval | None  # their intervals
    difference: float | None  # after - before
    interval: Interval | None  # of the difference; see `difference_interval`
    change: Change

    @property
    def title(self) -> str:
        """The finding as people write it: ``demographic_parity_difference:sex``."""
        return self.metric if self.sensitive is None else f"{self.metric}:{self.sensitive}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "auditor": self.auditor,
            "metric": self.metric,
            "sensitive": self.sensitive,
            "before": {"value": self.before, "interval": _plain(self.before_interval)},
            "after": {"value": self.after, "interval": _plain(self.after_interval)},
            "difference": self.difference,
            "interval": _plain(self.interval),
            "change": self.change,
        }


def _plain(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [bound if math.isfinite(bound) else None for bound in interval]


def difference_interval(before: Finding, after: Finding, confidence: float) -> Interval | None:
    """Return an interval of after - before from the two findings' own intervals.

    The two estimates are taken as independent and their errors as normal on each side of the value; the
    margins to the near bounds add in squares (the method of variance estimates recovery)::

        lower = d - sqrt((after - after_low)^2 + (before_high - before)^2)
        upper = d + sqrt((after_high - after)^2 + (before - before_low)^2)

    On the same rows the two errors go up and down together, so this interval is then wider than it
    need be: it is conservative.
    """
    margins_before, margins_after = _margins(before, confidence), _margins(after, confidence)
    if margins_before is None or margins_after is None:
        return None
    difference = _value(after) - _value(before)
    return (
        difference - math.hypot(margins_after[0], margins_before[1]),
        difference + math.hypot(margins_after[1], margins_before[0]),
    )


def _value(finding: Finding) -> float:
    return math.nan if finding.value is None else finding.value


def _margins(finding: Finding, confidence: float) -> tuple[float, float] | None:
    """Return how far the interval reaches below and above the value; None without a value or an interval."""
    if finding.value is None or finding.interval is None:
        return None
    scale = 1.0 if confidence == finding.confidence else _quantile(confidence) / _quantile(finding.confidence)
    low, high = finding.interval
    return scale * max(0.0, finding.value - low), scale * max(0.0, high - finding.value)


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _key(finding: Finding) -> tuple[str, str, str | None, str]:
    parameters = {k: v for k, v in finding.parameters.items() if isinstance(v, str | int | float | bool)}
    return finding.auditor, finding.metric, finding.sensitive, repr(sorted(parameters.items()))


def compare_findings(before: Report, after: Report, *, confidence: float | None = None) -> list[Comparison]:
    """Set the findings of two reports side by side, in the order of the first and then of the second.

    Findings belong together when auditor, metric, sensitive column and parameters are the same.
    """
    level = after.confidence if confidence is None else confidence
    first = {_key(finding): finding for finding in before.findings}
    second = {_key(finding): finding for finding in after.findings}
    keys = [*first, *(key for key in second if key not in first)]
    return [
        _compare(first.get(key), second.get(key), second[key] if key in second else first[key], level) for key in keys
    ]


def _compare(before: Finding | None, after: Finding | None, shown: Finding, confidence: float) -> Comparison:
    difference = interval = None
    if before is not None and after is not None and before.value is not None and after.value is not None:
        difference = after.value - before.value
        interval = difference_interval(before, after, confidence)
    return Comparison(
        auditor=shown.auditor,
        metric=shown.metric,
        sensitive=shown.sensitive,
        before=None if before is None else before.value,
        after=None if after is None else after.value,
        before_interval=None if before is None else before.interval,
        after_interval=None if after is None else after.interval,
        difference=difference,
        interval=interval,
        change=_change(interval, shown.better),
    )


def _change(interval: Interval | None, better: str) -> Change:
    if interval is None:
        return "unknown"
    low, high = interval
    if low <= 0 <= high:
        return "within noise"
    if better == "none":
        return "different"
    return "better" if (high < 0) == (better == "lower") else "worse"


def worse_findings(
    before: Report, after: Report, wanted: Sequence[str] = (ALL,)
) -> tuple[list[Comparison], list[Comparison]]:
    """Find what is significantly worse in the later report, with the chance of a false alarm held over all.

    With k findings that have a direction, each difference gets an interval of confidence
    1 - (1 - confidence) / k (Bonferroni), so that at most a share of 1 - confidence of the comparisons of
    two equal models names anything at all.
    """
    sides = [replace(report, findings=tuple(_wanted(report, wanted))) for report in (before, after)]
    level = 1 - (1 - after.confidence) / max(1, len(sides[0].findings))
    pairs = [pair for pair in compare_findings(*sides, confidence=level) if pair.before is not None]
    return ([pair for pair in pairs if pair.change == "worse"], [pair for pair in pairs if pair.change == "unknown"])


def _wanted(report: Report, wanted: Sequence[str]) -> Iterator[Finding]:
    for finding in report.findings:
        names = {finding.metric, f"{finding.metric}:{finding.sensitive}"}
        named = not names.isdisjoint(wanted)
        if finding.better != "none" and (named or (ALL in wanted and finding.interval is not None)):
            yield finding


def other_supports(before: Report, after: Report) -> list[str]:
    """Return sentences about numbers whose support sizes differ: they grow with the people and are not compared."""
    sizes: list[dict[str, set[int]]] = [{}, {}]
    for found, report in zip(sizes, (before, after), strict=True):
        for finding in report.findings:
            if isinstance(finding.parameters.get("support"), int):
                found.setdefault(finding.metric, set()).add(finding.parameters["support"])
    return [
        f"{metric} is about {_people(sizes[0][metric])} people as possible replacements in one certificate and about "
        f"{_people(sizes[1][metric])} in the other: it grows with their number and is not compared"
        for metric in sizes[0]
        if metric in sizes[1] and sizes[0][metric].isdisjoint(sizes[1][metric])
    ]


def _people(sizes: set[int]) -> str:
    return ", ".join(f"{size:,}" for size in sorted(sizes))


def same_data(reports: Sequence[Report]) -> bool:
    """Tell whether all reports are about the same data."""
    return len({report.data.sha256 for report in reports}) == 1
