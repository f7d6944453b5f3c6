"""Numbers of scores against the signed charts: what rows in bins of scores leave possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fairkit_registry.evidence.consistency.facts import GROUP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

    Floats = NDArray[np.float64]

SCORES = ("roc_auc", "brier_score", "ecce", "calibration_in_the_large")
DIGITS = 1e-4
"""Charts keep six digits of a number, five of a score."""


def check_scores(report: Report, *, weighted: bool) -> Iterator[str]:
    """Yield where a number of a group's scores lies outside what its histogram leaves possible.

    Parameters
    ----------
    report
        The report.
    weighted
        Whether rows have weights; the chart has their sums then, and positives are not in other findings.
    """
    for chart in report.findings:
        histograms = _histograms(chart)
        if histograms is None:
            continue
        edges, masses = histograms
        for metric in (*SCORES, "true_positive_rate"):
            finding = _beside(report, chart, metric)
            if finding is None:
                continue
            for group in finding.groups:
                mass = masses.get(group.group)
                if mass is None or group.value is None or not mass.sum() > 0:
                    continue
                place = f"{metric} of group {group.group} of {chart.sensitive}"
                if metric == "true_positive_rate":
                    positives = float(mass[:, 1].sum())
                    if (
                        not weighted
                        and group.denominator is not None
                        and abs(positives - group.denominator) > max(0.5, DIGITS * positives)
                    ):
                        yield f"{place} is over {group.denominator:g} rows, and its chart has {positives:g} positives"
                    continue
                low, high = possible(metric, edges, mass)
                if not low - DIGITS <= group.value <= high + DIGITS:
                    yield f"{place} is {group.value:g}, and its chart leaves [{low:.4g}, {high:.4g}]"


def _histograms(finding: Finding) -> tuple[Floats, Mapping[str, Floats]] | None:
    """Return the edges of the bins, and by group the weights of both outcomes, shape [bins, 2]."""
    edges, counts = finding.evidence.get("score_edges"), finding.evidence.get("score_counts")
    histogram = finding.evidence.get("histogram")
    names = [group.group for group in finding.groups]
    if finding.auditor != GROUP or not names:
        return None
    if isinstance(histogram, Mapping):
        edges = histogram["edges"]
        counts = [part for name in names for pair in histogram["groups"][name] for part in pair]
    if not isinstance(edges, list | tuple) or not isinstance(counts, list | tuple):
        return None
    ends = np.array(edges, dtype=np.float64)
    if len(counts) != 2 * (len(ends) - 1) * len(names) or ends[0] < 0 or ends[-1] > 1:
        return None
    masses = np.array(counts, dtype=np.float64).reshape(len(names), len(ends) - 1, 2)
    return ends, dict(zip(names, masses, strict=True))


def _beside(report: Report, chart: Finding, metric: str) -> Finding | None:
    label = chart.parameters.get("class")
    for finding in report.findings:
        named = finding.auditor == GROUP and finding.metric == f"{metric}_difference" and finding.plain
        if named and finding.sensitive == chart.sensitive and finding.parameters.get("class") == label:
            return finding
    return None


def possible(metric: str, edges: Floats, mass: Floats) -> tuple[float, float]:
    """Return between which numbers a metric lies, given how many rows of each outcome have scores in each bin."""
    total = mass.sum(axis=0)
    rows = float(total.sum())
    # a table of scores may be a grid whose cells reach over an edge
    width = float(np.diff(edges).max())
    low, high = edges[:-1] - 0.01 * width, edges[1:] + 0.01 * width
    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    if metric == "roc_auc":
        if not (total > 0).all():
            return 0.0, 1.0
        below = np.cumsum(mass[:, 0]) - mass[:, 0]
        surely, same = float((mass[:, 1] * below).sum()), float((mass[:, 1] * mass[:, 0]).sum())
        near = 0.01 * float((mass[1:, 1] * mass[:-1, 0]).sum() + (mass[:-1, 1] * mass[1:, 0]).sum())
        pairs = float(total[0] * total[1])
        return (surely - near) / pairs, (surely + same + near) / pairs
    if metric == "brier_score":
        ends = (
            mass[:, 1] * (1 - high) ** 2 + mass[:, 0] * low**2,
            mass[:, 1] * (1 - low) ** 2 + mass[:, 0] * high**2,
        )
        return float(ends[0].sum()) / rows, float(ends[1].sum()) / rows
    both = mass.sum(axis=1)
    if metric == "calibration_in_the_large":
        return float((both * low).sum() - total[1]) / rows, float((both * high).sum() - total[1]) / rows
    outcomes = np.cumsum(mass[:, 1])
    least, most = outcomes - np.cumsum(both * high), outcomes - np.cumsum(both * low)
    surely = np.maximum(np.maximum(least, -most), 0.0).max() / rows
    ends_before = np.concatenate([[0.0], np.maximum(np.abs(least), np.abs(most))])
    inside = np.maximum(ends_before[:-1], ends_before[1:]) + both
    return float(surely), float(inside.max()) / rows
