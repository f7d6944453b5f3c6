"""After an audit: how many more rows would decide an inconclusive rule, and what the audit could have seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import PolicyError
from fairkit.intervals import two_sided
from fairkit.planning.assumptions import seen
from fairkit.planning.detectable import detectable
from fairkit.planning.draws import Truth, decided
from fairkit.planning.results import two_digits
from fairkit.planning.search import distance, quantile, search, unit_error, variances
from fairkit.planning.targets import target_of
from fairkit.results.policy import judge
from fairkit.results.rules import MoreRows
from fairkit.settings import DEFAULT_AUDITORS

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.metrics import Metric
    from fairkit.planning.results import Side
    from fairkit.planning.targets import Target
    from fairkit.results.findings import Finding
    from fairkit.results.rules import Rule, RuleResult

POWER = 0.8
MOST = 100_000
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
            place for place, f in enumerate(findings)
            if f.metric == rule.metric and rule.sensitive in (None, f.sensitive) and f.plain and not rule.within
        ]  # fmt: skip
        for place in chosen:
            shown[place] = _with_detectable(shown[place], rule, findings, metrics, confidence)
        found = [findings[place] for place in chosen]
        if not found:  # what would decide a comparison inside strata is not known
            advice.append(result)
            continue
        advice.append(_advise(rule, result, found, findings, metrics, confidence, seed, say))
    return tuple(advice), shown


def _with_detectable(
    finding: Finding, rule: Rule, findings: Sequence[Finding], metrics: Sequence[type[Metric]], confidence: float
) -> Finding:
    known = _made_of(finding, findings, metrics)
    if known is None:
        return finding
    target, truth = known
    could = detectable(target, truth, truth.denominators, rule, confidence, POWER)
    if could is None:
        return finding
    return replace(finding, evidence={**finding.evidence, "detectable": could.to_dict()})


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
    if result.verdict != "inconclusive" or any(one.under is not None for one in chosen):
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
    known = _made_of(finding, findings, metrics)
    if known is None:
        return _from_width(finding, rule.limit)
    target, truth = known
    value = target.value(truth.rates)
    side: Side = "pass" if rule.kept(value) else "fail"
    z = quantile(target, len(truth.names), confidence, passing=side == "pass")
    gap = distance(target, truth, rule)
    group = _of_one_group(target, truth, gap, z)
    tries = [(int(group[0]), group[1])] if group else []
    rows = float(truth.rows.sum())
    tries.append((-1, _closed(z * unit_error(target, truth) / math.sqrt(rows), z, gap, rows)))
    for group_index, start in tries:
        if not math.isfinite(start) or start > 4 * MOST:
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
        if curve is not None and curve.rows <= MOST:
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
    best, other = (pair[0], pair[1]) if gains[0] >= gains[1] else (pair[1], pair[0])
    wanted = (gap / (z + _NORMAL.inv_cdf(POWER))) ** 2
    left = wanted - per_row[other] / truth.rows[other]
    if left <= 0:
        return None
    return best, max(float(per_row[best] / left - truth.rows[best]), 10.0)


def _closed(reach: float, z: float, gap: float, rows: float) -> float:
    """Solve z se₁/√T + z_power (√M/T) se₁ = gap for M, with T = rows + M and z se₁/√rows = reach."""
    z_power = _NORMAL.inv_cdf(POWER)

    def left(more: float) -> float:
        total = rows + more
        return reach * math.sqrt(rows / total) + z_power * reach / z * math.sqrt(rows * more) / total - gap

    low, high = 0.0, 1e9
    if left(high) > 0:
        return math.inf
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > 0 else (low, middle)
    return high


def _from_width(finding: Finding, limit: float) -> MoreRows:
    """Advise from the interval alone, whatever the number is made of: its reach falls with the root of the rows."""
    low, high = finding.interval or (math.nan, math.nan)
    value = float(finding.value or 0.0)
    reach = high - value if value <= limit else value - low
    rows = float(sum(g.rows for g in finding.groups)) or float(finding.parameters.get("queries", 0))
    if not (rows and math.isfinite(reach) and value != limit):
        return MoreRows(None, None, value, POWER)
    more = _closed(reach, two_sided(finding.confidence), abs(limit - value), rows)
    return MoreRows(two_digits(more) if more <= MOST else None, None, value, POWER)
