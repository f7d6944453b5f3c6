"""Numbers computed again from other numbers of the same statement: a disparity from its groups, rows from groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

from fairkit_registry.evidence.arithmetic import selected_quantile, two_sided
from fairkit_registry.evidence.consistency.facts import BETWEEN_GROUPS, OVER_ALL_ROWS, OVER_CLASSES, facts
from fairkit_registry.evidence.consistency.numbers import ROUNDING, about
from fairkit_registry.evidence.declared import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

MANY = 4
"""From so many groups on, the upper end may use a smaller factor than the pairs' (`fairkit.intervals`)."""
CURVED = 0.85
"""Limits of rates at a smaller factor are not quite in proportion to those that are stated."""
NARROWER = 1e-6
"""How much narrower than computed an interval may be, relative to its upper end where that is above 1."""

CHART_ROUNDING = 1e-3
"""Score charts keep five digits."""


def plain(finding: Finding) -> bool:
    """Tell whether a number compares all groups with each other, as a whole, and by a column of groups."""
    return finding.plain and "probabilities" not in finding.parameters


def known(finding: Finding) -> list[float]:
    """Return the values of the groups that have one."""
    return [group.value for group in finding.groups if group.value is not None]


def from_groups(kind: str, values: list[float]) -> float | None:
    """Return a disparity from its groups' values; None where it is not defined on them."""
    if kind in ("smallest", "largest"):
        return (min if kind == "smallest" else max)(values, default=None)
    if len(values) < 2:
        return None
    if kind == "difference":
        return max(values) - min(values)
    return None if max(values) <= 0 or min(values) < 0 else min(values) / max(values)


def check_disparity(finding: Finding) -> Iterator[str]:
    """Yield where a disparity does not follow from the values of its groups."""
    fact = facts().get(finding.metric)
    if finding.auditor != GROUP or finding.sensitive is None or fact is None or fact.kind in ("", "value"):
        return
    again = from_groups(fact.kind, known(finding))
    if again is None and finding.value is not None:
        yield f"it has the value {finding.value:g}, but fewer than two groups that have one"
    elif again is not None and finding.value is not None and not about(again, finding.value):
        yield f"its value is {finding.value:g}, and its groups give {again:g}"


def check_width(finding: Finding) -> Iterator[str]:
    """Yield where the interval of a difference is narrower than the intervals of its groups allow.

    A pair's limits follow from those of the two groups (Newcombe's method 10). The difference's own interval is made at
    the same confidence or a higher one: its upper end is not below the largest upper limit of a pair, and its lower end
    not above the largest lower limit.
    """
    fact = facts().get(finding.metric)
    plain = finding.auditor == GROUP and fact is not None and fact.kind == "difference"
    rows = [(g.value, *(g.interval or (math.nan, math.nan))) for g in finding.groups if g.value is not None]
    if not plain or finding.interval is None or len(rows) < 2:
        return
    if not all(math.isfinite(low) and math.isfinite(high) for _, low, high in rows):
        return
    widest, most, least = -math.inf, -math.inf, 0.0
    for (value, low, high), (other, other_low, other_high) in itertools.permutations(rows, 2):
        gap = value - other
        widest = max(widest, gap)
        most = max(most, gap + math.hypot(high - value, other - other_low))
        least = max(least, gap - math.hypot(value - low, other_high - other))
    stated = finding.interval
    slack = NARROWER * max(1.0, most)
    if len(rows) >= MANY:
        widths = [high - low for _, low, high in rows]
        share = CURVED * _selected_share(widest, most, widths, two_sided(finding.confidence))
        most = widest + share * (most - widest)
    if stated[1] < most - slack or stated[0] > least + slack:
        yield (
            f"its interval [{stated[0]:g}, {stated[1]:g}] is narrower than those of its groups allow: "
            f"[{least:g}, {most:g}]"
        )


def _selected_share(widest: float, most: float, widths: Sequence[float], z: float) -> float:
    """Return which share of z the upper end of the largest of many differences needs at least.

    The audit lowers the end from the pairs' factor z in steps, each at the factor that belongs to the end before it
    (`fairkit.limits.selection.selected_quantile`); here the limits at other factors are taken in proportion.
    """
    if not min(widths) > 0:
        return 0.0
    errors = [width / (2 * z) for width in widths]
    pair, evenness = math.sqrt(2) * min(errors), min(errors) / max(errors)
    tail, share = NormalDist().cdf(-z), 1.0
    for _ in range(6):
        end = widest + share * (most - widest)
        share = min(share, selected_quantile(len(widths), end / pair, evenness, tail) / z)
    return share


def check_groups(finding: Finding, report: Report, least: float) -> Iterator[str]:
    """Yield where a group finding does not have the groups of the data, or hides that they are too small."""
    if finding.auditor != GROUP or finding.sensitive is None:
        return
    sizes = report.data.groups.get(finding.sensitive)
    if sizes is None:
        yield f"the data have no groups of {finding.sensitive!r}"
        return
    stated = {group.group: group.rows for group in finding.groups}
    if len(stated) != len(finding.groups):
        yield "a group is in it twice"
    without = report.data.missing.get(finding.sensitive, 0)
    if finding.missing is not None and finding.missing.rows != without:
        yield f"its rows without a group are {finding.missing.rows:,}, those of the data are {without:,}"
    if finding.groups and stated != dict(sizes):
        yield f"its groups are {_sizes(stated)}, those of the data are {_sizes(sizes)}"
    if finding.value is None or finding.inconclusive is not None:
        return
    if not finding.groups and finding.metric in facts() and finding.metric not in OVER_CLASSES:
        yield "it has a value and no groups"
    small = [group for group in finding.groups if group.rows < least]
    if small:
        yield (
            f"group {small[0].group} has {small[0].rows} rows, fewer than {least:g}, and it is not marked as "
            "inconclusive"
        )
    unknown = [group.group for group in finding.groups if group.value is None]
    if unknown:
        yield f"group {unknown[0]} has no value, and it is not marked as inconclusive"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {rows:,}" for name, rows in sorted(sizes.items())) or "none"


def check_rows(report: Report) -> Iterator[str]:
    """Yield where groups and rows without a group do not add up to the rows of the data."""
    for sensitive, sizes in report.data.groups.items():
        missing = report.data.missing.get(sensitive, 0)
        total = sum(sizes.values()) + missing
        if total != report.data.rows:
            without = f" with {missing:,} rows without a group" if missing else ""
            yield (
                f"the groups of {sensitive} have {total:,} rows together{without}, the data have {report.data.rows:,}"
            )


def check_pooled(report: Report, *, weighted: bool) -> Iterator[str]:
    """Yield where a number over all rows does not follow from the groups' numbers of the same metric."""
    overall = {(f.metric, _class(f)): f for f in report.findings if f.auditor == GROUP and f.sensitive is None}
    for finding in report.findings:
        fact = facts().get(finding.metric)
        if finding.auditor != GROUP or fact is None or fact.kind != "difference":
            continue
        missing = report.data.missing.get(str(finding.sensitive))
        lines = [*finding.groups, *([] if finding.missing is None else [finding.missing])]
        if missing and finding.missing is None:  # the rows without a group count in the whole only
            continue
        whole = overall.get((str(fact.base), _class(finding)))
        values = [line.value for line in lines if line.value is not None]
        if whole is None or whole.value is None or not values or fact.base not in BETWEEN_GROUPS:
            continue
        what = f"{whole.metric} over all rows is {whole.value:g}"
        if not min(values) - ROUNDING <= whole.value <= max(values) + ROUNDING:
            yield f"{what}, outside those of the groups of {finding.sensitive}"
        elif fact.base in OVER_ALL_ROWS and not weighted and len(values) == len(lines):
            mean = sum(g.rows * (g.value or 0) for g in lines) / sum(g.rows for g in lines)
            if abs(mean - whole.value) > ROUNDING * max(1.0, abs(mean)) * 1e3:
                yield f"{what}, and the groups of {finding.sensitive} give {mean:g}"


def _class(finding: Finding) -> str:
    return str(finding.parameters.get("class", ""))


def check_odds(report: Report) -> Iterator[str]:
    """Yield where a joint disparity does not follow from those of the two rates that it is made of."""
    by_name = {(f.metric, f.sensitive, _class(f)): f for f in report.findings if f.auditor == GROUP}
    for (metric, sensitive, label), finding in by_name.items():
        if metric not in ("equalized_odds_difference", "gap_max", "equalized_odds_ratio", "gap_rms"):
            continue
        ending = "ratio" if metric == "equalized_odds_ratio" else "difference"
        parts = [
            by_name.get((f"{rate}_{ending}", sensitive, label))
            for rate in ("true_positive_rate", "false_positive_rate")
        ]
        values = [part.value for part in parts if part is not None and part.value is not None]
        if finding.value is None or not values or None in parts:
            continue
        again = _rms(parts) if metric == "gap_rms" else (min if ending == "ratio" else max)(values)
        if again is not None and not about(again, finding.value):
            yield f"{metric} of {sensitive} is {finding.value:g}, and the two rates give {again:g}"


def _rms(parts: list[Finding | None]) -> float | None:
    """Return the largest root mean square of two gaps over pairs of groups that have both rates."""
    positive, negative = (
        {group.group: group.value for group in part.groups if group.value is not None} if part else {} for part in parts
    )
    names = sorted(set(positive) & set(negative))
    gaps = [
        math.sqrt(((positive[a] - positive[b]) ** 2 + (negative[a] - negative[b]) ** 2) / 2)
        for place, a in enumerate(names)
        for b in names[:place]
    ]
    return max(gaps, default=None)


def check_missing(report: Report, binding: float) -> Iterator[str]:
    """Yield where a disparity hides what the rows without a group could do to it."""
    for finding in report.findings:
        fact = facts().get(finding.metric)
        missing = report.data.missing.get(str(finding.sensitive))
        disparity = fact is not None and fact.kind in ("difference", "ratio")
        if missing and finding.auditor == GROUP and disparity and finding.value is not None:
            name = f"{finding.metric} of {finding.sensitive}"
            bounds = finding.evidence.get("missing_bounds")
            if not isinstance(bounds, Mapping):
                yield f"{name} does not say what the {missing:,} rows without a group could do to it"
                continue
            low, high = bounds.get("low", finding.value), bounds.get("high", finding.value)
            if not low - ROUNDING <= finding.value <= high + ROUNDING:
                yield f"{name} is {finding.value:g}, outside its own bounds [{low:g}, {high:g}]"
            if (bounds.get("low") is not None or missing > binding * report.data.rows) and not bounds.get("binding"):
                yield f"{name} does not hold its verdict against the {missing:,} rows without a group"


def check_chart(finding: Finding, *, weighted: bool) -> Iterator[str]:
    """Yield where the rows in a score chart are not the rows of the groups."""
    counts = finding.evidence.get("score_counts")
    if weighted or finding.auditor != GROUP or not isinstance(counts, list | tuple) or not finding.groups:
        return
    width = len(counts) // len(finding.groups)
    if width * len(finding.groups) != len(counts):
        yield "its chart has not the same number of bins for every group"
        return
    for place, group in enumerate(finding.groups):
        total = math.fsum(counts[place * width : (place + 1) * width])
        if abs(total - group.rows) > CHART_ROUNDING * max(1, group.rows):
            yield f"its chart has {total:g} rows of group {group.group}, which has {group.rows:,}"
