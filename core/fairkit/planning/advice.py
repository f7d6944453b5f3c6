"""After an audit: how many more rows would decide an inconclusive rule, and what the audit could have seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import PolicyError
from fairkit.intervals import spread_quantiles, two_sided
from fairkit.limits import bisected
from fairkit.planning.assumptions import Truth, decided, seen, target_of
from fairkit.planning.results import MOST, Detectable, two_digits
from fairkit.results.policy import judge
from fairkit.results.rules import MoreRows
from fairkit.settings import DEFAULT_AUDITORS
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import Auditor
    from fairkit.metrics import Metric
    from fairkit.planning.assumptions import Target
    from fairkit.planning.results import Side
    from fairkit.results.findings import Finding
    from fairkit.results.rules import Rule, RuleResult

    Array = NDArray[np.float64]


POWER = 0.8
MOST_ADVISED = 100_000
"""More rows than this are no advice: the number is too near the limit."""
DRAWS = 200
_NORMAL = NormalDist()


def advised(
    rules: Sequence[Rule],
    results: Sequence[RuleResult],
    findings: Sequence[Finding],
    metrics: Sequence[type[Metric]],
    *,
    confidence: float,
    seed: int = 0,
    auditors: Sequence[Auditor] = (),
) -> tuple[tuple[RuleResult, ...], list[Finding]]:
    """Add advice to inconclusive rules, and to every finding with a rule what the audit could have seen."""
    say = {auditor.name: auditor.advice for auditor in auditors}
    shown = list(findings)
    advice = []
    for rule, result in zip(rules, results, strict=True):
        chosen = [
            index for index, f in enumerate(findings)
            if f.metric == rule.metric and rule.sensitive in (None, f.sensitive) and f.plain and not rule.within
        ]  # fmt: skip
        for place in chosen:
            shown[place] = _with_detectable(shown[place], rule, findings, metrics, confidence)
        selected = [findings[index] for index in chosen]
        if not selected:  # what would decide a comparison inside strata is not known
            advice.append(result)
            continue
        advice.append(_advise(rule, result, selected, findings, metrics, confidence, seed, say))
    return tuple(advice), shown


def _with_detectable(
    finding: Finding, rule: Rule, findings: Sequence[Finding], metrics: Sequence[type[Metric]], confidence: float
) -> Finding:
    basis = _made_of(finding, findings, metrics)
    if basis is None:
        return finding
    target, truth = basis
    could = detectable(target, truth, truth.denominators, rule, confidence, POWER)
    if could is None:
        return finding
    return replace(finding, evidence={**finding.evidence, "detectable": record_of(could)})


def _made_of(
    finding: Finding, findings: Sequence[Finding], metrics: Sequence[type[Metric]]
) -> tuple[Target, Truth] | None:
    """Return a finding's target and truth, where it is made of rates with known denominators."""
    if (
        finding.value is None
        or finding.under is not None
        or finding.auditor not in DEFAULT_AUDITORS
        or "class" in finding.parameters
    ):
        return None
    try:
        target = target_of(finding.metric, metrics)
    except PolicyError:
        return None
    truth = seen(finding.sensitive, target, findings)
    return None if truth is None else (target, truth)


def _advise(
    rule: Rule,
    result: RuleResult,
    chosen: Sequence[Finding],
    findings: Sequence[Finding],
    metrics: Sequence[type[Metric]],
    confidence: float,
    seed: int,
    say: Mapping[str, Callable[[Finding, float], str | None]],
) -> RuleResult:
    if result.verdict != "inconclusive" or any(item.under is not None for item in chosen):
        return result  # more labels decide what comes from few labels, not more rows
    most: MoreRows | None = None
    for finding in chosen:
        alone = judge([rule], [finding], confidence=confidence)[0][0]
        interval = finding.interval
        if alone.verdict != "inconclusive" or finding.inconclusive or interval is None or finding.value is None:
            continue
        if not interval[0] <= rule.limit <= interval[1]:
            return result  # more rows do not help against values that are missing or wrong
        sentence = say[finding.auditor](finding, rule.limit) if finding.auditor in say else None
        if sentence is not None:
            return replace(result, reason=f"{result.reason}. {sentence}")
        more = _more(finding, rule, findings, metrics, confidence, np.random.default_rng([seed, 1]))
        if most is None or more.rows is None or (most.rows is not None and more.rows > most.rows):
            most = more
    return result if most is None else replace(result, more_rows=most, reason=f"{result.reason}. {most.sentence}")


def _more(
    finding: Finding,
    rule: Rule,
    findings: Sequence[Finding],
    metrics: Sequence[type[Metric]],
    confidence: float,
    rng: np.random.Generator,
) -> MoreRows:
    basis = _made_of(finding, findings, metrics)
    if basis is None:
        return _from_width(finding, rule.limit)
    target, truth = basis
    value = target.value(truth.rates)
    side: Side = "pass" if rule.kept(value) else "fail"
    z = quantile(target, len(truth.names), confidence, passing=side == "pass")
    gap = distance(target, truth, rule)
    group = _of_one_group(target, truth, gap, z)
    tries = [(int(group[0]), group[1])] if group else []
    rows = float(truth.rows.sum())
    tries.append((-1, _closed(z * unit_error(target, truth) / math.sqrt(rows), z, gap, rows)))
    for group_index, start in tries:
        if not math.isfinite(start) or start > 4 * MOST_ADVISED:
            continue
        spread = truth.shares if group_index < 0 else np.eye(len(truth.names))[group_index]
        curve = search(
            lambda more, spread=spread: decided(  # type: ignore[misc]
                target, truth, more * spread, rule, side, confidence, rng, DRAWS
            ),
            max(start, 10.0),
            POWER,
            DRAWS,
            rounds=((0.8, 0.9, 1.0, 1.1, 1.2, 1.3),),
        )
        if curve is not None and curve.rows <= MOST_ADVISED:
            return MoreRows(two_digits(curve.rows), None if group_index < 0 else truth.names[group_index], value, POWER)
    return MoreRows(None, None, value, POWER)


def _of_one_group(target: Target, truth: Truth, gap: float, z: float) -> tuple[int, float] | None:
    """Return the group of the deciding pair whose rows help most, and about how many more it needs."""
    k = int(np.ptp(truth.rates, axis=1).argmax()) if len(truth.rates) > 1 else 0
    if target.kind not in ("difference", "ratio"):
        return None
    per_row = variances(target, truth.rates)[k] / truth.bases[k]
    pair = [int(truth.rates[k].argmin()), int(truth.rates[k].argmax())]
    if pair[0] == pair[1]:
        pair = np.argsort(-per_row / truth.rows)[:2].tolist()
    gains = [per_row[g] / truth.rows[g] ** 2 for g in pair]
    best, worse = (pair[0], pair[1]) if gains[0] >= gains[1] else (pair[1], pair[0])
    wanted = (gap / (z + _NORMAL.inv_cdf(POWER))) ** 2
    left = wanted - per_row[worse] / truth.rows[worse]
    if left <= 0:
        return None
    return best, max(float(per_row[best] / left - truth.rows[best]), 10.0)


def _closed(reach: float, z: float, gap: float, rows: float) -> float:
    """Solve z se₁/√T + z_power (√M/T) se₁ = gap for M, with T = rows + M and z se₁/√rows = reach."""
    z_power = _NORMAL.inv_cdf(POWER)

    def left(more: float) -> float:
        total = rows + more
        return reach * math.sqrt(rows / total) + z_power * reach / z * math.sqrt(rows * more) / total - gap

    most = 1e9
    return math.inf if left(most) > 0 else bisected(lambda more: left(more) > 0, 0.0, most, 80)[1]


def _from_width(finding: Finding, limit: float) -> MoreRows:
    """Advise from the interval alone, whatever the number is made of: its reach falls with the root of the rows."""
    low, high = finding.interval or (math.nan, math.nan)
    value = float(finding.value or 0.0)
    reach = high - value if value <= limit else value - low
    rows = float(sum(g.rows for g in finding.groups)) or float(finding.parameters.get("queries", 0))
    if not (rows and math.isfinite(reach) and value != limit):
        return MoreRows(None, None, value, POWER)
    more = _closed(reach, two_sided(finding.confidence), abs(limit - value), rows)
    return MoreRows(two_digits(more) if more <= MOST_ADVISED else None, None, value, POWER)


# How many rows: a closed form to begin with, then draws, and a line through the probits of their powers.


_ZONE = 0.7
COARSE = (0.8, 0.95, 1.1, 1.25)
FINE = (0.88, 0.92, 0.96, 1.0, 1.04, 1.08, 1.13)


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Rows, and power as a function of rows: Φ(intercept + slope √rows)."""

    rows: float
    intercept: float
    slope: float

    def power(self, rows: float) -> float:
        """Return the chance of a verdict with so many rows."""
        return _NORMAL.cdf(self.intercept + self.slope * math.sqrt(rows))


def variances(target: Target, rates: Array) -> Array:
    """Return p (1 - p), or on the scale of logarithms (1 - p) / p, shape [K, G]; never 0."""
    inner = np.clip(rates, 1e-4, 1 - 1e-4)
    spread = inner * (1 - inner)
    return np.asarray(spread / inner**2 if target.kind == "ratio" else spread)


def unit_error(target: Target, truth: Truth) -> float:
    """Return se √N of the number: the extremes' variances over their shares of the rows."""
    worst = 0.0
    per_row = variances(target, truth.rates) / (truth.shares * truth.bases)
    for rates, each in zip(truth.rates, per_row, strict=True):
        low, high = int(rates.argmin()), int(rates.argmax())
        if low == high:
            low, high = np.argsort(-each)[:2] if len(each) > 1 else (0, 0)
        worst = max(worst, float(each[low] + each[high]) if len(each) > 1 else float(each[0]))
    return math.sqrt(worst)


def distance(target: Target, truth: Truth, rule: Rule) -> float:
    """Return how far the true number is from the limit, on the scale of `unit_error`."""
    value = target.value(truth.rates)
    if target.kind == "ratio":
        return abs(math.log(max(rule.limit, 1e-6)) - math.log(max(value, 1e-6)))
    return abs(rule.limit - value)


def quantile(target: Target, groups: int, confidence: float, *, passing: bool) -> float:
    """Return the normal quantile of the end that decides."""
    if target.kind in ("level", "largest", "smallest"):
        return two_sided(confidence)
    inner, outer = spread_quantiles(groups, confidence)
    return outer if passing else inner


def closed_form(target: Target, truth: Truth, rule: Rule, confidence: float, power: float) -> float:
    """Return N = ((z + z_power) se √N / |limit - number|)²: right for two groups whose rates are not rare."""
    gap = distance(target, truth, rule)
    if gap <= 0:
        return math.inf
    value = target.value(truth.rates)
    passing = rule.kept(value)
    exact = 0.0 if target.kind == "difference" else 1.0 if target.kind == "ratio" else None
    z_power = _NORMAL.inv_cdf((1 + power) / 2 if passing and value == exact else power)
    z = quantile(target, len(truth.names), confidence, passing=passing)
    return ((z + z_power) * unit_error(target, truth) / gap) ** 2


def search(
    power_at: Callable[[float], float],
    start: float,
    power: float,
    draws: int,
    rounds: Sequence[Sequence[float]] = (COARSE, FINE),
) -> PowerCurve | None:
    """Find the rows at which a power is reached; None where `MOST` rows are not enough."""
    wanted = _NORMAL.inv_cdf(power)
    if not start <= MOST:
        return None

    def probit(rows: float) -> float:
        return _NORMAL.inv_cdf(min(max(power_at(rows), 0.5 / draws), 1 - 0.5 / draws))

    rows = start
    for _ in range(40):
        here = probit(rows)
        if abs(here - wanted) < _ZONE:
            break
        factor = 1 + (wanted - here) / (4 + abs(here))
        rows *= min(max(factor, 0.5), 2.2)
        if rows > MOST:
            return None
    curve = None
    for factors in rounds:
        spots = rows * np.array(factors)
        seen = np.array([probit(spot) for spot in spots])
        near = np.abs(seen - wanted) < 2 * _ZONE
        if near.sum() < 2:
            return None
        slope, intercept = (float(part) for part in np.polyfit(np.sqrt(spots[near]), seen[near], 1))
        if slope <= 0:
            return None
        rows = max((wanted - intercept) / slope, 1.0) ** 2
        curve = PowerCurve(rows, intercept, slope)
    return curve


# The smallest disparity that an audit of a given size would fail, and the largest that it would pass.


def detectable(
    target: Target, truth: Truth, denominators: Array, rule: Rule, confidence: float, power: float
) -> Detectable | None:
    """Solve D - limit = (z + z_power) se(D) for D, with all of the disparity in the smallest group."""
    if target.kind not in ("difference", "ratio") or len(truth.names) < 2:
        return None
    z_power = _NORMAL.inv_cdf(power)
    groups = len(truth.names)
    inner = quantile(target, groups, confidence, passing=False) + z_power
    outer = quantile(target, groups, confidence, passing=True)
    sides = [_Side(target, truth.rates[k], denominators[k]) for k in range(len(target.rates))]
    none = 0.0 if target.kind == "difference" else 1.0
    end = 1.0 - none

    def error(value: float) -> float:
        return max(side.error(value) for side in sides)

    def gap(value: float) -> float:
        if target.kind == "ratio":
            return math.log(max(value, 1e-9) / max(rule.limit, 1e-9)) * (1 if rule.upper else -1)
        return (value - rule.limit) * (1 if rule.upper else -1)

    at_none = _NORMAL.inv_cdf((1 + power) / 2)
    fails = _edge(lambda v: gap(v) - inner * error(v), rule.limit, end)
    passes = _edge(lambda v: -gap(v) - (outer + (at_none if v == none else z_power)) * error(v), rule.limit, none)
    return Detectable(fails_from=fails, passes_up_to=passes, power=power)


class _Side:
    """One rate: its error at the numbers that the smallest group could make."""

    def __init__(self, target: Target, rates: Array, denominators: Array) -> None:
        self.target = replace(target, rates=target.rates[:1])
        self.small = int(denominators.argmin())
        self.base = float(np.average(rates, weights=denominators))
        self.inverse = 1 / np.maximum(denominators, 1.0)

    def error(self, value: float) -> float:
        base = self.base
        if self.target.kind == "difference":
            moved = base + value if base + value <= 1 else max(base - value, 0.0)
        else:
            moved = base * value
        small, rest = (float(variances(self.target, np.array([p]))[0]) for p in (moved, base))
        others = np.delete(self.inverse, self.small).max()
        return math.sqrt(small * self.inverse[self.small] + rest * others)


def _edge(holds: Callable[[float], float], limit: float, end: float) -> float | None:
    """Return the number nearest to the limit from which on `holds` is not negative, towards `end`."""
    return None if holds(end) < 0 else bisected(lambda value: holds(value) < 0, limit, end, 50)[1]
