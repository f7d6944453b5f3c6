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
import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit.results.policy import UNKNOWNS, judge, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.results.findings import Finding, Interval
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
        lists["score_roc"] = [number for curve in curves for number in (len(curve), *_numbers(chain(*curve)))]
    if evidence.get("calibration"):
        records = [evidence["calibration"][name] for name in names]
        lists["score_calibration"] = [
            number
            for bins_of in records
            for number in (
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
        fields = {key: value for key, value in evidence.items() if key not in left_out}
        if size_of(fields) <= most:
            break
    return fields, len(fields) < len(evidence)


def size_of(evidence: Mapping[str, Any]) -> int:
    """Return the bytes that the charts of compact evidence take."""
    return sum(len(json.dumps(evidence[key])) for key in COMPACT if key in evidence)


def expanded(report: Report) -> Report:
    """Return a certificate's report with charts as an audit has them, for what draws it."""
    return dataclasses.replace(report, findings=tuple(_expanded(finding) for finding in report.findings))


def _expanded(finding: Finding) -> Finding:
    names = [group.group for group in finding.groups]
    lists = {key: finding.evidence.get(key) for key in COMPACT}
    if not names or not all(_is_list(listed) for listed in lists.values() if listed is not None):
        return finding
    try:
        charts = _charts(lists, names)
    except (ValueError, IndexError):  # whoever signed it wrote something else under these names
        return finding
    rest = {key: value for key, value in finding.evidence.items() if key not in COMPACT}
    return dataclasses.replace(finding, evidence=rest | charts) if charts else finding


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int | float) and not isinstance(item, bool) and math.isfinite(item) for item in value
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


# What a statement must be whoever signed it: findings whole, by auditors that declare them; verdicts from intervals.


ROUNDING = 1e-9


def contradictions(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield every sentence about why a statement cannot be what an audit gives; none for an honest audit."""
    try:
        yield from _contradictions(report, settings)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        yield f"a part of it does not have the form that an audit gives it ({type(error).__name__}: {error})"


def _contradictions(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    data = settings["data"]
    for name, claimed, stated in (  # an alias pins settings: they are those of the report
        ("confidence", settings["confidence"], report.confidence),
        ("adjustment", settings.get("adjustment"), report.adjustment),
        ("columns of predictions", dict(data.get("predictions") or {}), dict(report.model.predictions)),
        ("joined table", (data.get("join") or {}).get("sha256"), report.data.joined.get("sha256")),
    ):
        if claimed != stated:
            yield f"the settings and the report differ in {name}: {claimed} and {stated}"
    for name, claimed, stated in (  # what an alias pins, and a page shows
        ("label", data.get("label"), report.data.label),
        ("seed", settings["seed"], report.seed),
    ):
        if stated is not None and claimed != stated:  # older reports name no label
            yield f"the settings have the {name} {claimed}, the report {stated}"
    auditors = frozenset(settings.get("auditors", ()))
    for finding in report.findings:
        for text in (*_declared(finding, auditors), *_number(finding, report)):
            yield f"{_name(finding)}: {text}"
    counts = Counter(finding.key for finding in report.findings)
    for finding in {f.key: f for f in report.findings}.values():
        if counts[finding.key] > 1:  # which of them counts would be the reader's guess
            yield f"{_name(finding)} is in it {counts[finding.key]} times"
    yield from _policy(report, settings)


def _name(finding: Finding) -> str:
    return f"{finding.auditor}/{finding.metric}" + (f"/{finding.place}" if finding.sensitive else "")


@functools.cache
def declarations(auditors: frozenset[str] | None = None) -> dict[str, frozenset[str]]:
    """Return the names that installed auditors (those named, or all) say that their findings may have."""
    from fairkit import plugins

    declared: dict[str, frozenset[str]] = {}
    group = plugins.load("group")
    metrics = plugins.metrics_of([group, *plugins.third_party()[0]])[0]
    for each in plugins.find():
        if auditors is not None and each.name not in auditors:
            continue
        try:
            loaded = group if each.name == "group" else plugins.load(each.name)
        except FairkitError:
            continue
        for auditor in loaded.auditors:
            names = auditor.measures(metrics)
            if names is not None:
                declared[auditor.name] = names
    return declared


@functools.cache
def _ours() -> dict[str, frozenset[str]]:
    """Return the declarations of our auditors as `docs/make.py` wrote them: asking them takes numpy, and longer."""
    text = Path(__file__).parent.parent.joinpath("schemas", "declared.json").read_text("utf-8")
    return {name: frozenset(names) for name, names in json.loads(text).items()}


def _declared(finding: Finding, asked: frozenset[str]) -> Iterator[str]:
    if asked and finding.auditor not in asked:
        yield f"the auditor {finding.auditor!r} is not one of those in the settings ({', '.join(sorted(asked))})"
    if finding.metric in _ours().get(finding.auditor, ()):
        return
    names = declarations(frozenset({finding.auditor})).get(finding.auditor)
    if names is not None and finding.metric not in names:
        yield f"the auditor {finding.auditor!r} does not declare the metric {finding.metric!r}"


def _number(finding: Finding, report: Report) -> Iterator[str]:
    yield from _whole(finding.value, finding.interval)
    if abs(finding.confidence - report.confidence) > ROUNDING:
        yield f"its confidence is {finding.confidence:g}, the audit's is {report.confidence:g}"
    for group in (*finding.groups, *(() if finding.missing is None else (finding.missing,))):
        for text in _whole(group.value, group.interval):
            yield f"group {group.group}: {text}"
    bound = finding.evidence.get("upper_confidence_bound")
    if bound is not None and not _is_number(bound):
        yield f"its upper_confidence_bound {bound!r} is no number"
    elif bound is not None and finding.value is not None and bound < finding.value - ROUNDING * (1 + abs(bound)):
        yield f"its upper_confidence_bound {bound:g} is below its value {finding.value:g}"
    for name in UNKNOWNS:
        number = finding.evidence.get(name)
        if number is None:
            continue
        ends = [number.get("low"), number.get("high")] if isinstance(number, Mapping) else [None, 0]
        whole = all(map(_is_number, ends)) or ends == [None, None]
        if not whole or not isinstance(number.get("binding"), bool) or not _is_number(number.get("stretch")):
            yield f"its {name} lack a number, or whether they bind"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: float | None, interval: Interval | None) -> Iterator[str]:
    """Check a number and its interval: finite, in order, the number inside."""
    if value is not None and not math.isfinite(value):
        yield f"its value {value} is not finite"
    elif interval is not None:
        low, high = interval
        slack = ROUNDING * max(1.0, abs(value or 0))
        if math.isnan(low) or math.isnan(high) or low > high:
            yield f"its interval [{low:g}, {high:g}] is reversed"
        elif value is None:
            yield f"it has an interval [{low:g}, {high:g}] and no value"
        elif not low - slack <= value <= high + slack:
            yield f"its value {value:g} lies outside its interval [{low:g}, {high:g}]"


def _policy(report: Report, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the signed verdicts are not those that the findings' intervals give."""
    stated = verdict_of([rule.verdict for rule in report.policy])
    if stated != report.verdict:
        yield f"its verdict is {report.verdict}, that of its rules together is {stated}"
    policy = settings.get("policy")
    if policy and [_limits(rule) for rule in policy] != [_limits(rule.to_dict()) for rule in report.policy]:
        yield "the rules in its settings are not those in its policy"
    for rule in report.policy:
        name = rule.metric if rule.sensitive is None else f"{rule.metric}:{rule.place}"
        try:
            again = judge([rule.rule], report.findings, confidence=report.confidence)[0][0]
        except FairkitError as error:
            yield f"its rule on {name} cannot be judged: {error}"
            continue
        # an adjusted interval is wider: it cannot decide what the one that is stated leaves open
        open_ = ("inconclusive",) if report.adjustment is not None else ()
        if rule.verdict not in (again.verdict, *open_):
            yield f"the verdict on {name} is {rule.verdict}, judged again it is {again.verdict}: {again.reason}"


def _limits(rule: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(rule.get(key) for key in ("metric", "sensitive", "max", "min", "support", "within"))
