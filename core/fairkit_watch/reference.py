"""What an audit's report makes a watch expect."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fairkit_watch.settings import POOLED, Reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.report import Report


def reference_of(report: Report) -> Reference:
    """Return the rates, shares and numbers of a report."""
    rates: dict[str, dict[str, dict[str, float]]] = {}
    numbers: dict[str, tuple[float, float, float]] = {}
    for finding in report.findings:
        if finding.value is None or not math.isfinite(finding.value):
            continue
        if finding.sensitive is None:
            rates.setdefault(POOLED, {}).setdefault(POOLED, {})[finding.metric] = finding.value
        elif finding.metric.endswith("_difference"):
            own = rates.setdefault(finding.sensitive, {})
            for group in finding.groups:
                if group.value is not None and math.isfinite(group.value):
                    own.setdefault(group.group, {})[finding.metric.removesuffix("_difference")] = group.value
        if finding.interval is not None and all(map(math.isfinite, finding.interval)):
            name = f"{finding.metric}:{finding.sensitive}" if finding.sensitive else finding.metric
            numbers[name] = (finding.value, *finding.interval)
    return Reference(rates=rates, shares=_shares(report.data.groups), numbers=numbers)


def groups_of(report: Report, sensitive: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups of each split that a report names."""
    return {split: tuple(report.data.groups[split]) for split in sensitive if split in report.data.groups}


def _shares(groups: Any) -> dict[str, dict[str, float]]:
    return {
        split: {group: rows / sum(sizes.values()) for group, rows in sizes.items()}
        for split, sizes in groups.items()
        if sum(sizes.values()) > 0
    }
