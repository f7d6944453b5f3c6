"""Rates as counts: those of one group are shares of the same rows, and their intervals follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairkit_registry.evidence.arithmetic import extreme, share_limits, spread_difference, spread_ratio, two_sided
from fairkit_registry.evidence.consistency.facts import facts
from fairkit_registry.evidence.declared import GROUP

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.values import GroupValue, Interval
    from fairkit_registry.evidence.arithmetic import Shares

    Counts = Mapping[str, "Share"]

RATES = {
    "selection_rate": "rows",
    "accuracy": "rows",
    "true_positive_rate": "positives",
    "false_negative_rate": "positives",
    "false_positive_rate": "negatives",
    "true_negative_rate": "negatives",
    "precision": "selected",
}
"""Rates, and over which rows."""
SLACK = 1e-6
"""How far a count may be from a whole number, and an end of an interval from that of the counts."""


@dataclass(frozen=True, slots=True)
class Share:
    """A rate as a count."""

    value: float
    over: float
    interval: Interval | None

    @property
    def count(self) -> float:
        """How many rows it counts."""
        return self.value * self.over


def check_counts(report: Report, *, weighted: bool, dependent: bool) -> Iterator[str]:
    """Yield where rates of one group cannot be shares of the same rows, or intervals are not those of the counts.

    Of every group, and of all rows together: selected = true positives + false positives = what precision is over; the
    right ones are true positives and true negatives; rows are positives and negatives. Where decisions are yes or no,
    every count is whole.
    """
    if weighted or report.model.task in ("regression", "ranking"):
        return
    by_place: dict[tuple[str, str], dict[str, Finding]] = {}
    whole: dict[str, dict[str, Finding]] = {}
    for finding in report.findings:
        fact = facts().get(finding.metric)
        if finding.auditor != GROUP or fact is None:
            continue
        label = str(finding.parameters.get("class", ""))
        if finding.sensitive is None and finding.metric in RATES:
            whole.setdefault(label, {})[finding.metric] = finding
        elif finding.sensitive is not None and fact.base in RATES:
            by_place.setdefault((finding.sensitive, label), {})[finding.metric] = finding
    for (sensitive, label), findings in by_place.items():
        yield from _of_column(sensitive, findings, whole.get(label, {}), dependent=dependent)


def _of_column(
    sensitive: str, findings: Mapping[str, Finding], whole: Mapping[str, Finding], *, dependent: bool
) -> Iterator[str]:
    """Check one sensitive column (and class)."""
    differences = {name: findings[f"{name}_difference"] for name in RATES if f"{name}_difference" in findings}
    yield from _repeated(sensitive, findings, differences)
    groups: dict[str, dict[str, Share]] = {}
    rows: dict[str, int] = {}
    missing = [one.missing for one in differences.values()]
    for name, finding in differences.items():
        for group in (*finding.groups, *([] if finding.missing is None else [finding.missing])):
            rows[group.group] = group.rows
            if group.value is not None and group.denominator is not None:
                share = Share(group.value, group.denominator, group.interval)
                groups.setdefault(group.group, {})[name] = share
    for place, shares in groups.items():
        for text in _identities(shares, rows[place]):
            yield f"group {place} of {sensitive}: {text}"
    sharp = all(_sharp(shares) for shares in groups.values())
    if not dependent and sharp:
        for name, finding in differences.items():
            yield from _own_intervals(f"{name} of {sensitive}", finding.groups, finding.confidence)
        for finding in findings.values():
            yield from _interval(sensitive, finding, differences)
    if all(one is not None for one in missing) or not any(missing):
        yield from _pooled(sensitive, groups, whole, sharp=sharp and not dependent)


def _repeated(sensitive: str, findings: Mapping[str, Finding], differences: Mapping[str, Finding]) -> Iterator[str]:
    """Yield where findings of one rate have other numbers of a group than its difference."""
    for metric, finding in findings.items():
        first = differences.get(str(facts()[metric].base))
        if first is None:
            continue
        known = {group.group: (group.value, group.interval, group.denominator) for group in first.groups}
        for group in finding.groups:
            own = (group.value, group.interval, group.denominator)
            if not _alike(own, known.get(group.group)):
                yield f"{metric} of {sensitive} has other numbers of group {group.group} than {first.metric}"
                break


def _alike(own: object, other: object) -> bool:
    if isinstance(own, tuple) and isinstance(other, tuple):
        return len(own) == len(other) and all(map(_alike, own, other))
    if isinstance(own, float | int) and isinstance(other, float | int):
        return math.isclose(own, other, rel_tol=1e-12, abs_tol=1e-12)
    return own == other


def _identities(shares: Counts, rows: int) -> Iterator[str]:
    """Check what must hold between the rates of one group."""
    slack = SLACK + 1e-9 * rows
    over: dict[str, float] = {"rows": float(rows)}
    for name, share in shares.items():
        kind = RATES[name]
        if abs(over.setdefault(kind, share.over) - share.over) > slack:
            yield f"{name} is over {share.over:g} rows, and the {kind} are {over[kind]:g}"
            return
    for kind in ("positives", "negatives"):
        if kind in over and abs(over[kind] - round(over[kind])) > slack:
            yield f"its {kind} are {over[kind]:g}, which is no number of rows"
    both = [over.get("positives"), over.get("negatives")]
    # a rate over no rows is not stated
    if None not in both and abs(sum(one for one in both if one is not None) - rows) > slack:
        yield f"its positives and negatives are {both[0]:g} and {both[1]:g}, and it has {rows:,} rows"
    found = _cells(shares, rows)
    if found is None:
        return
    right, wrong, positives = found  # true positives, false positives
    said = {
        "selection_rate": ("selected", right + wrong),
        "accuracy": ("decided as their outcome is", right + rows - positives - wrong),
        "true_positive_rate": ("true positives", right),
        "false_negative_rate": ("false negatives", positives - right),
        "false_positive_rate": ("false positives", wrong),
        "true_negative_rate": ("true negatives", rows - positives - wrong),
    }
    for name, share in shares.items():
        if name == "precision":
            continue
        what, count = said[name]
        if abs(share.count - count) > slack:
            yield f"by its {name} {share.count:.6g} rows are {what}, by its other rates {count:.6g}"
    selected, precision = right + wrong, shares.get("precision")
    if precision is None:
        return
    # of drawn decisions precision is over an effective number of rows, which is larger than their sum
    if abs(precision.value * selected - right) > slack or (
        precision.over < selected - slack or (_sharp(shares) and precision.over > selected + slack)
    ):
        yield (
            f"its precision says {precision.count:.6g} of {precision.over:.6g} selected rows, its other rates "
            f"{right:.6g} of {selected:.6g}"
        )


def _cells(shares: Counts, rows: int) -> tuple[float, float, float] | None:
    """Return true positives, false positives and positives; None where the rates do not say."""
    positive = shares.get("true_positive_rate") or shares.get("false_negative_rate")
    negative = shares.get("false_positive_rate") or shares.get("true_negative_rate")
    if positive is None and negative is None:
        return None
    positives = positive.over if positive is not None else rows - negative.over if negative is not None else 0.0
    right = wrong = 0.0
    if "true_positive_rate" in shares:
        right = shares["true_positive_rate"].count
    elif positive is not None:
        right = positive.over - positive.count
    if "false_positive_rate" in shares:
        wrong = shares["false_positive_rate"].count
    elif negative is not None:
        wrong = negative.over - negative.count
    return right, wrong, positives


def _sharp(shares: Counts) -> bool:
    """Tell whether every count is whole: decisions are yes or no, not drawn."""
    return all(abs(share.count - round(share.count)) <= SLACK + 1e-9 * share.over for share in shares.values())


def _own_intervals(name: str, groups: tuple[GroupValue, ...], confidence: float) -> Iterator[str]:
    """Check each group's own interval against its count."""
    for group in groups:
        if group.value is None or group.denominator is None or group.interval is None:
            continue
        if not group.denominator > 0:
            continue
        low, high = share_limits(group.value, group.denominator, two_sided(confidence))
        if not _same(group.interval, (low, high)):
            yield (
                f"{name}: group {group.group} has the interval [{group.interval[0]:g}, {group.interval[1]:g}], its "
                f"counts give [{low:g}, {high:g}]"
            )


def _interval(sensitive: str, finding: Finding, differences: Mapping[str, Finding]) -> Iterator[str]:
    """Check the interval of a difference, a ratio or an extreme against the groups' counts."""
    fact = facts()[finding.metric]
    base = differences.get(str(fact.base))
    known = [g for g in (base.groups if base else ()) if g.value is not None and g.denominator is not None]
    if finding.interval is None or not known or finding.value is None:
        return
    shares = [(group.value or 0.0, group.denominator or 0.0) for group in known]
    again = interval_of(fact.kind, shares, finding.confidence)
    if again is None or not _same(finding.interval, again):
        ends = "none" if again is None else f"[{again[0]:g}, {again[1]:g}]"
        yield (
            f"{finding.metric} of {sensitive} has the interval [{finding.interval[0]:g}, {finding.interval[1]:g}], the "
            f"counts of its groups give {ends}"
        )


def interval_of(kind: str, shares: Shares, confidence: float) -> Interval | None:
    """Return the interval of a difference, a ratio or an extreme of rates; None where the rates have none."""
    if any(not over > 0 for _, over in shares):
        return None
    if kind in ("smallest", "largest"):
        spread = extreme(shares, confidence, largest=kind == "largest")
    elif len(shares) < 2:
        return None
    else:
        found = (spread_difference if kind == "difference" else spread_ratio)(shares, confidence)
        if found is None:
            return None
        spread = found
    return spread[1], spread[2]


def _same(stated: Interval, again: Interval) -> bool:
    return all(math.isclose(one, other, rel_tol=SLACK, abs_tol=SLACK) for one, other in zip(stated, again, strict=True))


def _pooled(
    sensitive: str, groups: Mapping[str, Counts], whole: Mapping[str, Finding], *, sharp: bool
) -> Iterator[str]:
    """Check the rates over all rows against the counts of all groups, those without one among them."""
    for name, finding in whole.items():
        parts = [shares[name] for shares in groups.values() if name in shares]
        over = sum(part.over for part in parts)
        if name == "precision" and not sharp:
            continue
        if finding.value is None or not parts or over <= 0:
            continue
        again = sum(part.count for part in parts) / over
        if abs(again - finding.value) > 1e-9 + SLACK / over:
            yield f"{name} over all rows is {finding.value:.9g}, and the groups of {sensitive} give {again:.9g}"
        elif sharp and finding.interval is not None:
            low, high = share_limits(again, over, two_sided(finding.confidence))
            if not _same(finding.interval, (low, high)):
                yield (
                    f"{name} over all rows has the interval [{finding.interval[0]:g}, {finding.interval[1]:g}], its "
                    f"counts give [{low:g}, {high:g}]"
                )
