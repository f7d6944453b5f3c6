"""Score charts in a certificate: counts and curves by group as flat lists of numbers, within a budget.

The schema of evidence has no tables by group, and a row's values must never slip in with them. So a histogram, the
ROC curves and the calibration of a finding's groups become four lists, in the order of its groups:

``score_edges``
    The bins' edges, B + 1 numbers.
``score_counts``
    For each group its rows in each bin, B pairs: the weight of the other outcome, of the favorable one.
``score_roc``
    For each group the number of points, then as many pairs: false and true positive rate.
``score_calibration``
    For each group the number of bins, then five numbers of each: mean score, observed share, the ends of its
    interval, weight.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

MOST_BYTES = 60_000
"""What all charts of a certificate may take, as JSON; it is a third more as base64 in the envelope."""

CHARTS = ("histogram", "roc", "calibration")
"""What the auditor `group` puts into its evidence for charts."""
COMPACT = ("score_edges", "score_counts", "score_roc", "score_calibration")

_CALIBRATION = ("score", "observed", "low", "high", "weight")


def compacted(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finding's evidence with its charts as flat lists; as it is where they are not as expected."""
    evidence = dict(finding["evidence"])
    names = [group["group"] for group in finding["groups"]]
    if not names or not all(isinstance(evidence.get(key, {}), Mapping) for key in CHARTS):
        return evidence
    try:
        flat = _flat(evidence, names)
    except (KeyError, TypeError, ValueError):
        return evidence
    for key in CHARTS if flat else ():
        evidence.pop(key, None)
    return evidence | flat


def _flat(evidence: Mapping[str, Any], names: Sequence[str]) -> dict[str, list[float]]:
    histogram = evidence.get("histogram", {})
    if not histogram.get("edges"):
        return {}
    bins = histogram["groups"]
    lists = {
        "score_edges": _numbers(histogram["edges"]),
        "score_counts": _numbers(part for name in names for pair in bins[name] for part in pair),
    }
    if evidence.get("roc"):
        curves = [evidence["roc"][name] for name in names]
        lists["score_roc"] = [one for curve in curves for one in (len(curve), *_numbers(chain(*curve)))]
    if evidence.get("calibration"):
        records = [evidence["calibration"][name] for name in names]
        lists["score_calibration"] = [
            one
            for bins_of in records
            for one in (
                len(bins_of),
                *_numbers(part for b in bins_of for part in (b["score"], b["observed"], *b["interval"], b["weight"])),
            )
        ]
    return lists


def _numbers(values: Iterable[float]) -> list[float]:
    """Six digits are enough to draw; whole numbers as such."""
    rounded = [float(f"{float(value):.6g}") for value in values]
    return [int(value) if value.is_integer() else value for value in rounded]


def within(evidence: Mapping[str, Any], most: int) -> tuple[dict[str, Any], bool]:
    """Leave charts out until the rest of them takes at most so many bytes: the curves first, then the counts."""
    for left_out in ((), COMPACT[2:], COMPACT):
        kept = {key: value for key, value in evidence.items() if key not in left_out}
        if size_of(kept) <= most:
            break
    return kept, len(kept) < len(evidence)


def size_of(evidence: Mapping[str, Any]) -> int:
    """Return the bytes that the charts of compact evidence take."""
    return sum(len(json.dumps(evidence[key])) for key in COMPACT if key in evidence)


def expanded(report: Report) -> Report:
    """Return a certificate's report with charts as an audit has them, for what draws it."""
    return dataclasses.replace(report, findings=tuple(_expanded(finding) for finding in report.findings))


def _expanded(finding: Finding) -> Finding:
    names = [group.group for group in finding.groups]
    lists = {key: finding.evidence.get(key) for key in COMPACT}
    if not names or not all(_is_list(one) for one in lists.values() if one is not None):
        return finding
    try:
        charts = _charts(lists, names)
    except (ValueError, IndexError):  # whoever signed it wrote something else under these names
        return finding
    rest = {key: value for key, value in finding.evidence.items() if key not in COMPACT}
    return dataclasses.replace(finding, evidence=rest | charts) if charts else finding


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in value
    )


def _charts(lists: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    edges, counts = lists["score_edges"], lists["score_counts"]
    if edges is None or counts is None:
        return {}
    bins = len(edges) - 1
    if bins < 1 or len(counts) != 2 * bins * len(names):
        raise ValueError
    pairs = [list(counts[i : i + 2]) for i in range(0, len(counts), 2)]
    charts: dict[str, Any] = {
        "histogram": {
            "edges": list(edges),
            "groups": {name: pairs[i * bins : (i + 1) * bins] for i, name in enumerate(names)},
        }
    }
    if lists["score_roc"] is not None:
        charts["roc"] = dict(zip(names, _records(lists["score_roc"], 2, len(names)), strict=True))
    if lists["score_calibration"] is not None:
        records = _records(lists["score_calibration"], len(_CALIBRATION), len(names))
        charts["calibration"] = {
            name: [
                {"score": score, "observed": observed, "interval": [low, high], "weight": weight}
                for score, observed, low, high, weight in group
            ]
            for name, group in zip(names, records, strict=True)
        }
    return charts


def _records(flat: Sequence[float], width: int, groups: int) -> list[list[list[float]]]:
    """Read groups of records of so many numbers, each group after its number of records."""
    records, position = [], 0
    for _ in range(groups):
        count = flat[position]
        end = position + 1 + int(count) * width
        if count != int(count) or count < 0 or end > len(flat):
            raise ValueError
        records.append([list(flat[i : i + width]) for i in range(position + 1, end, width)])
        position = end
    if position != len(flat):
        raise ValueError
    return records
