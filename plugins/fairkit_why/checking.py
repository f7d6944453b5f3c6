"""What a signed finding of `why` must be, whoever signed it: parts add up, points lie in intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.results.findings import Finding

CLOSE = 1e-9
NAMES = ("base_rate_part", "true_positive_rate_part", "false_positive_rate_part")
"""As `fairkit_watch.rate_parts` names the parts of a gap in selection rates."""


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
    cells = [[float(one) for one in finding.evidence[f"counts_{side}"]] for side in ("group", "reference")]
    place = NAMES.index(finding.metric)
    value, low, high = _part_of(cells, place, float(finding.evidence["design_effects"][place]), finding.confidence)
    if finding.value is None or _apart(value, finding.value):
        yield f"it is {finding.value}, and its counts give {value:.6g}"
    elif finding.interval is None or any(map(_apart, (low, high), finding.interval)):
        yield f"its interval is {finding.interval}, and its counts give [{low:.6g}, {high:.6g}]"
    rates = [(each[1] + each[3]) / math.fsum(each) for each in cells]
    if _apart(rates[0] - rates[1], float(finding.evidence["gap"])):
        yield f"its gap is {finding.evidence['gap']:.6g}, and its counts give {rates[0] - rates[1]:.6g}"


def _rates(cells: Sequence[float], added: float) -> list[tuple[float, float]]:
    """Return base rate, true and false positive rate with the rows that each is over; so much is added to each cell."""
    no_no, no_yes, yes_no, yes_yes = (cell + added for cell in cells)
    over = no_no + no_yes + yes_no + yes_yes, yes_no + yes_yes, no_no + no_yes
    return [
        (count / rows if rows > 0 else math.nan, rows)
        for count, rows in zip((yes_no + yes_yes, yes_yes, no_yes), over, strict=True)
    ]


def _part_of(
    cells: Sequence[Sequence[float]], index: int, design: float, confidence: float
) -> tuple[float, float, float]:
    """Return a part of ``s_a - s_b`` and its limits by the delta method: `fairkit_watch.rate_parts`, without arrays."""
    raw = [_rates(each, 0.0) for each in cells]
    value = _divided([rate for rate, _ in raw[0]], [rate for rate, _ in raw[1]])[index]
    smooth = [_rates(each, 0.5) for each in cells]
    a, b = ([rate for rate, _ in each] for each in smooth)
    middle, variance = _divided(a, b)[index], 0.0
    for side, group in enumerate(smooth):
        for place, (rate, rows) in enumerate(group):
            ends = []
            for end in (0.0, 1.0):  # a part is linear in every single rate
                moved = [a[:], b[:]]
                moved[side][place] = end
                ends.append(_divided(*moved)[index])
            variance += (ends[1] - ends[0]) ** 2 * rate * (1 - rate) / rows
    z = NormalDist().inv_cdf(1 - 0.4 * (1 - confidence))  # α is taken a fifth smaller: `fairkit.intervals.guarded`
    half = z * math.sqrt(variance * design)
    return value, min(middle - half, value), max(middle + half, value)


def _divided(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    (pi, t, f), (d_pi, d_t, d_f) = (
        [(one + other) / 2 for one, other in zip(a, b, strict=True)],
        [one - other for one, other in zip(a, b, strict=True)],
    )
    return d_pi * (t - f), d_t * pi, d_f * (1 - pi)


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
