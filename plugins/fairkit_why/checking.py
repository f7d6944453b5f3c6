"""What a signed finding of `why` must be, whoever signed it: parts add up, points lie in intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_watch.rate_parts import NAMES, Cells, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.results.findings import Finding

CLOSE = 1e-9


def contradictions(finding: Finding) -> Iterator[str]:
    """Yield every sentence about why a finding cannot be what the auditor found."""
    if finding.metric == "attribution":
        yield from _attribution(finding)
    elif finding.metric in NAMES:
        yield from _part(finding)
    elif finding.metric == "unexplained_difference":
        yield from _left(finding)


def _apart(one: float, other: float) -> bool:
    return not math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)


def _outside(value: float, pair: Any) -> bool:
    return pair is not None and not pair[0] - CLOSE <= value <= pair[1] + CLOSE


def _attribution(finding: Finding) -> Iterator[str]:
    columns = finding.evidence.get("columns")
    if finding.value is None:
        if columns:
            yield "it divides a gap that it does not state"
        return
    if not columns:
        yield "it states a gap and does not divide it"
        return
    total = math.fsum(float(one["value"]) for one in columns)
    if _apart(total, finding.value):
        yield f"its columns add up to {total:.6g}, and the gap is {finding.value:.6g}"
    names = [one["column"] for one in columns]
    if len(set(names)) < len(names):
        yield "a column is in it twice"
    for one in columns:
        if _outside(float(one["value"]), one["interval"]):
            yield f"the part of {one['column']} is {one['value']:.6g}, outside its interval"
        if one["interval"] is None and float(one["value"]) != 0:
            yield f"the part of {one['column']} has no interval"
    told = [group.value for group in finding.groups if group.value is not None]
    if len(told) == 2 and _apart(told[0] - told[1], finding.value):
        yield f"its groups differ by {told[0] - told[1]:.6g}, and the gap is {finding.value:.6g}"


def _part(finding: Finding) -> Iterator[str]:
    """Compute the parts again from the counts: no rows are needed."""
    counts = [np.array(finding.evidence[f"counts_{side}"], dtype=float) for side in ("group", "reference")]
    cells = Cells(counts[0]), Cells(counts[1])
    found, place = parts_of(cells, finding.evidence["design_effects"]), NAMES.index(finding.metric)
    ends = found.interval(place, finding.confidence)
    if finding.value is None or _apart(float(found.values[place]), finding.value):
        yield f"it is {finding.value}, and its counts give {found.values[place]:.6g}"
    elif finding.interval is None or any(map(_apart, ends, finding.interval)):
        yield f"its interval is {finding.interval}, and its counts give [{ends[0]:.6g}, {ends[1]:.6g}]"
    rates = [float(cell.counts[1] + cell.counts[3]) / float(cell.counts.sum()) for cell in cells]
    if _apart(rates[0] - rates[1], float(finding.evidence["gap"])):
        yield f"its gap is {finding.evidence['gap']:.6g}, and its counts give {rates[0] - rates[1]:.6g}"


def _left(finding: Finding) -> Iterator[str]:
    evidence = finding.evidence
    if evidence["refused"] is not None:
        if finding.value is not None or finding.interval is not None or {"left", "explained"} & set(evidence):
            yield "it was refused, and a number is printed all the same"
        return
    left = evidence["left"]
    first = left["group"]
    if finding.value is None or first is None or _apart(abs(first), finding.value):
        yield f"it is {finding.value}, and its evidence says {first}"
        return
    if _apart(float(evidence["explained"]) + first, float(evidence["gap"])):
        yield f"what is explained and what is left add up to {evidence['explained'] + first:.6g}, not to the gap"
    for name in ("group", "reference", "overlap"):
        value, pair = left[name], (left[f"{name}_low"], left[f"{name}_high"])
        if left[f"{name}_refused"] is not None and (value is not None or pair != (None, None)):
            yield f"what is left toward the {name} was refused, and a number is printed all the same"
        elif value is not None and (None in pair or _outside(float(value), pair)):
            yield f"{value:.6g}, toward the {name}, is outside its interval"
    if _outside(finding.value, finding.interval):
        yield "it is outside its interval"
