"""The one verdict: a policy's rules applied to findings, from their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from fairkit.errors import ParameterError, PolicyError, did_you_mean
from fairkit.results.rendering import Saved, Tabular, ends, place, place_words, plotted
from fairkit.results.rules import ADJUSTMENTS, Adjustment, Rule, RuleResult
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from fairkit.results.findings import Better, Finding, Interval, VerdictName
    from fairkit.results.report import DataInfo, ModelInfo


ATTRIBUTION = "attribution"
"""A gap divided among columns; a rule on ``sex.age`` is about one column's part."""

COPIES = "copies_bounds"
"""Evidence that rows are copies: a verdict holds for the interval of the rows counted once, too."""

UNKNOWNS = ("missing_bounds", "label_error_bounds", "outcome_error_bounds", COPIES)
"""Evidence about what missing or wrong values could do to a number: low, high, reason, binding, stretch."""

_ORDER: dict[VerdictName, int] = {"pass": 0, "inconclusive": 1, "fail": 2}


def verdict_of(verdicts: Sequence[VerdictName]) -> VerdictName | None:
    """Return the worst of the verdicts: fail, then inconclusive, then pass; None where there are none."""
    return max(verdicts, key=_ORDER.__getitem__, default=None)


def judge(
    rules: Sequence[Rule],
    findings: Sequence[Finding],
    *,
    confidence: float = 0.95,
    adjustment: Adjustment | None = None,
    conditions: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[RuleResult, ...], VerdictName | None]:
    """Apply a policy.

    A rule passes when the whole interval keeps the limit, fails when the whole interval breaks it, and is
    inconclusive otherwise, or when the finding forbids a verdict (a small group, no interval). A one-sided
    bound that a finding brings along (`evidence["upper_confidence_bound"]`) takes the place of the upper end.
    """
    matched = [(rule, _matching(rule, findings, conditions)) for rule in rules]
    pairs = [(rule, finding) for rule, group in matched for finding in group]
    if adjustment == "holm":
        failed = _holm(pairs, confidence)
        results = tuple(_judge_by_holm(rule, matching, failed, len(pairs)) for rule, matching in matched)
    else:
        level = _level(pairs, confidence, adjustment)
        results = tuple(
            _worst(rule, [_judge_finding(rule, finding, level(finding)) for finding in matching])
            for rule, matching in matched
        )
    return results, verdict_of([result.verdict for result in results])


def _parts(finding: Finding) -> list[Finding]:
    """Return the size of each column's part of a divided gap as a number that a rule may limit: ``sex.age``."""
    parts = []
    for part in finding.evidence.get("columns", ()):
        ends, value = part["interval"], float(part["value"])
        whole = None if ends is None else (0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends)), max(map(abs, ends)))
        name = f"{finding.sensitive}.{part['column']}"
        own = replace(finding, sensitive=name, value=abs(value), interval=whole, evidence={}, groups=())
        parts.append(replace(own, interval_at=None))
    return parts


def _matching(rule: Rule, findings: Sequence[Finding], conditions: Mapping[str, str]) -> list[Finding]:
    if rule.metric == ATTRIBUTION and rule.sensitive is not None:
        whole = [finding for finding in findings if finding.metric == ATTRIBUTION]
        if rule.sensitive not in {finding.sensitive for finding in whole}:
            # a score's parts are in the score's unit: a limit is meant for the first thing that was divided
            findings = [
                part for finding in whole if finding.parameters.get("of") != "score" for part in _parts(finding)
            ]
    named = [f for f in findings if f.metric == rule.metric and f.within == rule.within]
    named = [f for f in named if f.reference is None] or named
    if not named and rule.within and any(finding.metric == rule.metric for finding in findings):
        raise PolicyError(
            f"the policy asks {rule.metric!r} inside the strata of {'+'.join(rule.within)!r}, which were not looked "
            "at; name the column as `within`"
        )
    if not named and rule.metric in conditions:
        raise PolicyError(
            f"the policy names the metric {rule.metric!r}, which is measured {conditions[rule.metric]} only"
        )
    if not named:
        hint = metric_hint(rule, {finding.metric for finding in findings})
        raise PolicyError(f"the policy names the metric {rule.metric!r}, which was not measured. {hint}")
    if rule.sensitive is None:
        return named
    chosen = [finding for finding in named if finding.sensitive == rule.sensitive]
    if not chosen:
        columns = [finding.sensitive for finding in named if finding.sensitive is not None]
        hint = did_you_mean(rule.sensitive, columns, what="sensitive columns")
        raise PolicyError(f"the policy asks {rule.metric!r} for {rule.sensitive!r}, which was not audited. {hint}")
    return chosen


def metric_hint(rule: Rule, names: Collection[str]) -> str:
    """Say which metric was meant; for a constraint such as ``equalized_odds`` the comparison that has such a limit."""
    compared = f"{rule.metric}{'_difference' if rule.upper else '_ratio'}"
    return f"Did you mean {compared!r}?" if compared in names else did_you_mean(rule.metric, names, what="metrics")


def _level(
    pairs: Sequence[tuple[Rule, Finding]], confidence: float, adjustment: Adjustment | None
) -> Callable[[Finding], float]:
    """The confidence at which each finding's interval is taken."""
    m = max(len(pairs), 1)
    alpha = 1 - confidence
    if adjustment is None:
        return lambda finding: finding.confidence
    if adjustment == "bonferroni":
        return lambda finding: 1 - alpha / m
    if adjustment != "benjamini-hochberg":
        raise PolicyError(
            f"the adjustment {adjustment!r} is not known; it is {', '.join(ADJUSTMENTS[:-1])} or {ADJUSTMENTS[-1]}"
        )
    for k in range(m, 0, -1):
        at = 1 - alpha * k / m
        decided = sum(_judge_finding(rule, finding, at)[0] != "inconclusive" for rule, finding in pairs)
        if decided >= k:
            return lambda finding, at=at: at  # type: ignore[misc]
    return lambda finding: 1 - alpha / m


def _holm(pairs: Sequence[tuple[Rule, Finding]], confidence: float) -> set[tuple[int, int]]:
    """Return the comparisons that fail by Holm's steps: at α/m, then at α/(m - 1), and so on."""
    failed: set[int] = set()
    while True:
        level = 1 - (1 - confidence) / max(len(pairs) - len(failed), 1)
        more = {
            index
            for index, (rule, finding) in enumerate(pairs)
            if index not in failed and _judge_finding(rule, finding, level)[0] == "fail"
        }
        if not more:
            return {(id(pairs[index][0]), id(pairs[index][1])) for index in failed}
        failed |= more


def _judge_by_holm(
    rule: Rule, findings: Sequence[Finding], failed: set[tuple[int, int]], comparisons: int
) -> RuleResult:
    judged = []
    for finding in findings:
        verdict, reason = _judge_finding(rule, finding, finding.confidence)
        if verdict == "fail" and (id(rule), id(finding)) not in failed:
            verdict, reason = ("inconclusive", f"{reason}, but not by Holm's steps over {comparisons} comparisons")
        judged.append((verdict, reason))
    return _worst(rule, judged)


def _worst(rule: Rule, judged: Sequence[tuple[VerdictName, str]]) -> RuleResult:
    verdict, reason = max(judged, key=lambda pair: _ORDER[pair[0]])
    return RuleResult(rule=rule, verdict=verdict, reason=rule.with_scenario(reason))


def _judge_finding(rule: Rule, finding: Finding, confidence: float) -> tuple[VerdictName, str]:
    """Judge one finding; the reason names the numbers."""
    interval, reason = _usable_interval(rule, finding, confidence)
    if interval is None:
        return "inconclusive", reason
    low, high = interval
    shown = f"{_what(finding)} is {finding.value:.4g}, interval [{low:.4g}, {high:.4g}]"
    passes = rule.settled(interval)
    if passes is None:
        return "inconclusive", f"{shown}: the interval contains the limit {rule.limit:g}"
    turned = _turned(rule, finding, interval)
    if turned is None and passes:
        turned = _climbing(rule, finding)
    if turned is not None:
        return "inconclusive", f"{shown}, but {turned}"
    odds = _odds_that_turn(rule, finding, confidence, passes=passes)
    if passes:
        side = "at most" if rule.upper else "at least"
        return "pass", f"{shown}: the whole interval is {side} the limit {rule.limit:g}{odds}"
    side = "above" if rule.upper else "below"
    return "fail", f"{shown}: the whole interval is {side} the limit {rule.limit:g}{odds}"


def _odds_that_turn(rule: Rule, finding: Finding, confidence: float, *, passes: bool) -> str:
    """Say how selective the known outcomes must be to turn a verdict from few of them; empty for other numbers."""
    under = finding.under
    if under is None:
        return ""
    from fairkit.limits import turning_odds

    def keeps(odds: float) -> bool:
        interval = under(odds, confidence)
        return interval is not None and rule.settled(interval) is passes

    at = turning_odds(keeps)
    if at is None or at == math.inf:
        return ""
    return (
        f". It turns if, among people of one group and decision, one outcome was looked up at {at:.3g} times the odds "
        "of the other"
    )


def _turned(rule: Rule, finding: Finding, interval: Interval) -> str | None:
    """Return why missing or wrong values could turn a verdict; None where they cannot."""
    value = float(finding.value or 0.0)
    for name in UNKNOWNS:
        bounds = finding.evidence.get(name)
        if bounds is None or not bounds["binding"]:
            continue
        if bounds.get("low") is None:
            return f"{bounds['reason']}, no bound on {_what(finding)} is known: there is no verdict"
        stretch = float(bounds["stretch"])
        low = bounds["low"] - stretch * (value - interval[0])
        high = bounds["high"] + stretch * (interval[1] - value)
        if rule.settled((low, high)) is None and name == COPIES:
            return (
                f"{bounds['reason']}: with copies counted once its interval is about [{low:.4g}, {high:.4g}], and the "
                "verdict depends on them. Name the column whose values depend on each other as `cluster`, or say "
                "`copies=independent`"
            )
        if rule.settled((low, high)) is None:
            enough = _enough(rule, finding, interval) if name == "missing_bounds" else None
            return (
                f"{bounds['reason']}, it lies between {bounds['low']:.4g} and {bounds['high']:.4g}, "
                f"and that could turn the verdict (limit {rule.limit:g})"
            ) + (
                ""
                if enough is None
                else f": the verdict turns if {enough[0]:,} of the {enough[1]:,} rows without a group belong where "
                "they move it most"
            )
    return None


def _enough(rule: Rule, finding: Finding, interval: Interval) -> tuple[int, int] | None:
    try:
        from fairkit.results.robustness import rows_that_turn
    except ImportError:  # the small verifier has no numpy, and judges without this count
        return None
    return rows_that_turn(rule, finding, interval)


def _climbing(rule: Rule, finding: Finding) -> str | None:
    """Return why a number that grows with the support does not pass a rule that names no support."""
    if rule.support is not None or not finding.evidence.get("climbs"):
        return None
    size, values = finding.parameters.get("support"), finding.evidence.get("support_values", ())
    shown = ", ".join(f"{value:.3g}" for value in values)
    grows = (
        f"it still climbs with the number of replacements ({shown} with a quarter, half, all of {size:,} people)"
        if shown
        else "how it grows with the number of possible replacements was not measured"
    )
    return f"{grows}: it does not pass. A rule can name the number that it is meant for, as {rule.metric}@{size}"


def _other_support(rule: Rule, finding: Finding, support: Any) -> str:
    if support is None:
        raise PolicyError(f"{rule.metric!r} has no support size; leave @{rule.support} out of the rule")
    return (
        f"the rule on {rule.metric} is meant for {rule.support:,} people as possible replacements, and this number is "
        f"about {support:,}: audit with the parameter `{finding.auditor}.support={rule.support}`"
    )


def _usable_interval(rule: Rule, finding: Finding, confidence: float) -> tuple[Interval | None, str]:
    """Return the interval that a rule is judged by, or why there is none."""
    if finding.inconclusive is not None:
        return None, finding.inconclusive
    support = finding.parameters.get("support")
    if rule.support is not None and support != rule.support:
        return None, _other_support(rule, finding, support)
    bound = finding.evidence.get("upper_confidence_bound") if rule.upper else None
    interval = finding.interval
    if confidence != finding.confidence:
        if finding.interval_at is None or (bound is not None and finding.upper_at is None):
            return None, f"{_what(finding)} has no interval at the adjusted confidence {confidence:.4f}"
        interval = finding.interval_at(confidence)
        bound = finding.upper_at(confidence) if bound is not None and finding.upper_at is not None else bound
    if finding.value is None or interval is None:
        return None, f"{_what(finding)} has no interval"
    return (interval if bound is None else (interval[0], float(bound))), ""


def _what(finding: Finding) -> str:
    extra = ", ".join(f"{key} {value}" for key, value in finding.parameters.items() if key == "class")
    where = f" for {finding.place}" if finding.sensitive else ""
    return f"{finding.metric}{where}{f' ({extra})' if extra else ''}"


# What a comparison of models says: each number of both, the paired difference, and whether it is significant.


SCHEMA = "fairkit.comparison/1"

Outcome = Literal["better", "worse", "changed", "same", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How one number differs between the first model and another."""

    metric: str  # which number: over all rows, a disparity between the groups of a column, or one group's
    sensitive: str | None = None
    group: str | None = None  # which number: over all rows, a disparity between the groups of a column, or one group's
    parameters: Mapping[str, Any] = field(default_factory=dict)
    before: float | None  # the number of the first model
    after: float | None  # the other's
    interval: Interval | None  # of `after - before`, paired; None where a number is not defined
    better: Better  # which direction of the metric is better for the people concerned
    outcome: Outcome
    reference: str | None = None
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return both numbers, the difference with its interval, and what it means, on one line."""
        scope = f" of {self.place}" if self.place else ""
        scope += f" in group {self.group}" if self.group is not None else ""
        scope += f" ({self.parameters['class']})" if "class" in self.parameters else ""
        if self.before is None or self.after is None or self.difference is None:
            return f"{self.metric}{scope}: not defined"
        ends = "" if self.interval is None else f" [{self.interval[0] + 0.0:.4g}, {self.interval[1] + 0.0:.4g}]"
        text = f"{self.before:.4g} to {self.after:.4g}, difference {self.difference + 0.0:.4g}{ends}: {self.outcome}"
        return f"{self.metric}{scope}: {text}"

    def __repr__(self) -> str:
        """Return a line; `to_dict` gives everything."""
        return f"<Change {self}>"

    @property
    def place(self) -> str | None:
        """Between which groups, in the words of `Finding.place`; None over all rows."""
        return place_words(self)

    @property
    def difference(self) -> float | None:
        """The number of the other model minus that of the first."""
        return None if self.before is None or self.after is None else self.after - self.before

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "metric": self.metric,
            "sensitive": self.sensitive,
            "group": self.group,
            **({} if self.reference is None else {"reference": self.reference}),
            **({"within": list(self.within)} if self.within else {}),
            "parameters": dict(self.parameters),
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "interval": None if self.interval is None else list(self.interval),
            "better": self.better,
            "outcome": self.outcome,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Tabular, Saved):
    """Models beside the first one, on the same rows."""

    models: tuple[ModelInfo, ...]  # the first is what the others are compared with
    data: DataInfo
    changes: tuple[tuple[Change, ...], ...]
    confidence: float = 0.95
    notes: tuple[str, ...] = ()  # what a reader must know
    warnings: tuple[str, ...] = ()
    policy: tuple[tuple[RuleResult, ...], ...] = ()
    title: str = ""  # what is compared where it is not models on the same rows

    @property
    def verdict(self) -> VerdictName | None:
        """The worst verdict on a model beside the first; None where there are no rules."""
        return verdict_of([rule.verdict for rules in self.policy[1:] for rule in rules])

    def __repr__(self) -> str:
        """Return a line."""
        others = ", ".join(model.name for model in self.models[1:])
        return f"<Comparison of {others} with {self.models[0].name} on {self.data.name}, {self.data.rows:,} rows>"

    def find(
        self,
        metric: str,
        sensitive: str | None = None,
        *,
        group: str | None = None,
        model: int = 1,
        label: str | None = None,
        reference: str | None = None,
        within: str = "",
    ) -> Change:
        """Look one change up; `model` counts from 1, the first that is compared; `label` is a class of several."""
        for change in self.changes[model - 1]:
            key = (change.metric, change.sensitive, change.group, change.parameters.get("class"))
            where = (change.reference, "+".join(change.within))
            if (*key, *where) == (metric, sensitive, group, label, reference, within):
                return change
        raise ParameterError(f"the comparison has no {metric!r} for {sensitive!r} in group {group!r}")

    def plot(self, name: str = "changes", model: str | None = None) -> Any:
        """Return a chart of the page, the paired differences with their intervals, as Altair's; `model` is a name."""
        return plotted(self, name, model)

    def records(self) -> list[dict[str, Any]]:
        """Return a line for each number of each model but the first: before, after, the difference and its interval."""
        return [
            {"model": model.name}
            | place(change)
            | {"group": change.group, "before": change.before, "after": change.after, "difference": change.difference}
            | ends(change.interval)
            | {"better": change.better, "outcome": change.outcome}
            for model, changes in zip(self.models[1:], self.changes, strict=True)
            for change in changes
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.comparison/1``."""
        optional = ("warnings", "policy", "title")
        return {"schema": SCHEMA} | record_of(self, [name for name in optional if not getattr(self, name)])


def outcome_of(low: float, high: float, better: Better) -> Outcome:
    """Return the meaning of a difference's interval for the people concerned."""
    if low <= 0 <= high:
        return "same"
    if better == "none":
        return "changed"
    return "better" if (low > 0) == (better == "higher") else "worse"


def told_apart(comparison: Comparison, names: Sequence[str]) -> Comparison:
    """Give models of one name other names, such as their files', where these differ."""
    if (
        len({model.name for model in comparison.models}) == len(comparison.models)
        and comparison.models[0].name != "before"
    ):
        return comparison
    if len(set(names)) < len(comparison.models) or len(names) != len(comparison.models):
        return comparison
    models = tuple(replace(model, name=name) for model, name in zip(comparison.models, names, strict=True))
    return replace(comparison, models=models)
