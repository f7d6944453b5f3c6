"""The panel that moves thresholds: rates, disparities and verdicts from the page's score histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.pages.parts import Note, Panel, Section, Span

if TYPE_CHECKING:
    from fairkit.results.evidence import Histogram
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

_THRESHOLD = 0.5
_LEAST = 30


def panel(report: Report, finding: Finding, histogram: Histogram) -> Panel | None:
    """Return the panel of one sensitive column; None where the histogram is not of people with two outcomes.

    Thresholds lie at the edges of the histogram's bins, where counts are those of the table.
    """
    bins = [part for pairs in histogram.groups.values() for pair in pairs for part in pair]
    whole = all(float(part).is_integer() for part in bins)
    if report.model.task != "binary" or report.data.weights or not whole or len(histogram.groups) < 2:
        return None
    start = min(range(len(histogram.edges)), key=lambda place: abs(histogram.edges[place] - _THRESHOLD))
    rules = [
        one.rule.to_dict()
        for one in report.policy
        if one.rule.sensitive in (None, finding.sensitive) and not one.rule.within
    ]
    record = {
        "edges": histogram.edges,
        "groups": {name: [list(pair) for pair in pairs] for name, pairs in histogram.groups.items()},
        "confidence": report.confidence,
        "sensitive": finding.sensitive,
        "start": start,
        "rules": rules,
        "least": _LEAST,
    }
    return Panel(
        record,
        [
            Section("What if the threshold were another one?", [], "small"),
            Note(
                [
                    Span("Not signed, not audited: a what-if.", "strong"),
                    " Computed on this page from the histograms above, with the audit's intervals. A threshold that "
                    "is chosen on these rows does better on them than on others: audit it on rows that it was not "
                    "chosen on.",
                ]
            ),
        ],
    )
