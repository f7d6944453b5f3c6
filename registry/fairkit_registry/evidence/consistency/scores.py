"""Numbers of scores against the signed charts: what rows in bins of scores leave possible."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fairkit_registry.evidence.declared import GROUP

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

    Masses = list[tuple[float, float]]

SCORES = ("roc_auc", "brier_score", "ecce", "calibration_in_the_large")
DIGITS = 1e-4
"""Charts keep six digits of a number, five of a score."""


def check_scores(report: Report, *, weighted: bool) -> Iterator[str]:
    """Yield where a number of a group's scores lies outside what its histogram leaves possible."""
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
                if mass is None or group.value is None or not math.fsum(map(math.fsum, mass)) > 0:
                    continue
                subject = f"{metric} of group {group.group} of {chart.sensitive}"
                if metric == "true_positive_rate":
                    positives = math.fsum(positive for _, positive in mass)
                    if (
                        not weighted
                        and group.denominator is not None
                        and abs(positives - group.denominator) > max(0.5, DIGITS * positives)
                    ):
                        yield f"{subject} is over {group.denominator:g} rows, and its chart has {positives:g} positives"
                    continue
                low, high = possible(metric, edges, mass)
                if not low - DIGITS <= group.value <= high + DIGITS:
                    yield f"{subject} is {group.value:g}, and its chart leaves [{low:.4g}, {high:.4g}]"


def _histograms(finding: Finding) -> tuple[list[float], Mapping[str, Masses]] | None:
    """Return the edges of the bins, and by group the weights of both outcomes in each bin."""
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
    ends, each = list(map(float, edges)), list(map(float, counts))
    if len(each) != 2 * (len(ends) - 1) * len(names) or ends[0] < 0 or ends[-1] > 1:
        return None
    pairs = list(zip(each[::2], each[1::2], strict=True))
    bins = len(ends) - 1
    return ends, {name: pairs[place * bins : (place + 1) * bins] for place, name in enumerate(names)}


def _beside(report: Report, chart: Finding, metric: str) -> Finding | None:
    label = chart.parameters.get("class")
    for finding in report.findings:
        named = finding.auditor == GROUP and finding.metric == f"{metric}_difference" and finding.plain
        if named and finding.sensitive == chart.sensitive and finding.parameters.get("class") == label:
            return finding
    return None


def possible(metric: str, edges: list[float], mass: Masses) -> tuple[float, float]:
    """Return between which numbers a metric lies, given how many rows of each outcome have scores in each bin."""
    negatives, positives = [one for one, _ in mass], [one for _, one in mass]
    total = math.fsum(negatives), math.fsum(positives)
    rows = math.fsum(total)
    # a table of scores may be a grid whose cells reach over an edge
    reach = 0.01 * max(high - low for low, high in itertools.pairwise(edges))
    low = [min(max(edge - reach, 0.0), 1.0) for edge in edges[:-1]]
    high = [min(max(edge + reach, 0.0), 1.0) for edge in edges[1:]]
    if metric == "roc_auc":
        return _auc(negatives, positives)
    bins = list(zip(negatives, positives, low, high, strict=True))
    if metric == "brier_score":
        least = math.fsum(yes * (1 - most) ** 2 + no * few**2 for no, yes, few, most in bins)
        largest = math.fsum(yes * (1 - few) ** 2 + no * most**2 for no, yes, few, most in bins)
        return least / rows, largest / rows
    if metric == "calibration_in_the_large":
        ends = [math.fsum((no + yes) * end[side] for no, yes, *end in bins) for side in (0, 1)]
        return (ends[0] - total[1]) / rows, (ends[1] - total[1]) / rows
    return _cumulative(bins, rows)


def _auc(negatives: list[float], positives: list[float]) -> tuple[float, float]:
    total = math.fsum(negatives), math.fsum(positives)
    if not min(total) > 0:
        return 0.0, 1.0
    below = [0.0, *itertools.accumulate(negatives)][:-1]
    surely = math.fsum(yes * under for yes, under in zip(positives, below, strict=True))
    same = math.fsum(yes * no for yes, no in zip(positives, negatives, strict=True))
    near = math.fsum(yes * no for yes, no in zip(positives[1:], negatives[:-1], strict=True))
    near += math.fsum(yes * no for yes, no in zip(positives[:-1], negatives[1:], strict=True))
    pairs = total[0] * total[1]
    return (surely - 0.01 * near) / pairs, (surely + same + 0.01 * near) / pairs


def _cumulative(bins: list[tuple[float, float, float, float]], rows: float) -> tuple[float, float]:
    """Return the ends of the largest cumulative difference between outcomes and scores."""
    outcomes = least_scores = most_scores = before = 0.0
    surely = inside = 0.0
    for no, yes, low, high in bins:
        both = no + yes
        outcomes, least_scores, most_scores = (outcomes + yes, least_scores + both * low, most_scores + both * high)
        least, most = outcomes - most_scores, outcomes - least_scores
        surely = max(surely, least, -most)
        after = max(abs(least), abs(most))
        inside = max(inside, max(before, after) + both)
        before = after
    return surely / rows, inside / rows
