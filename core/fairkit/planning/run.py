"""`fairkit.plan`: rules and assumptions in, rows out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError, PolicyError, did_you_mean
from fairkit.intervals import two_sided
from fairkit.planning.advice import PowerCurve, closed_form, detectable, search, variances
from fairkit.planning.assumptions import LEAST, Truth, assumed, decided, observed, target_of
from fairkit.planning.results import MOST, GroupPlan, Plan, RulePlan, two_digits
from fairkit.results.rules import rules_of
from fairkit.support.calls import checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric
    from fairkit.planning.assumptions import Target
    from fairkit.planning.results import Side
    from fairkit.results.report import Report
    from fairkit.results.rules import Adjustment, Policy, Rule

    Array = NDArray[np.float64]
    Counts = NDArray[np.int64]


DRAWS = 800
"""Audits that are drawn for each point of the curve: the planned power has a standard error below .01."""
_CURVE = 21

Numbers = float | Mapping[str, float]


@checked
def plan(
    rules: Policy,
    *,
    groups: Mapping[str, Any] | None = None,
    assume: Numbers | Mapping[str, Numbers] | None = None,
    base: Numbers | None = None,
    report: Report | None = None,
    power: float = 0.8,
    confidence: float = 0.95,
    adjustment: Adjustment | None = None,
    seed: int = 0,
) -> Plan:
    """Return the rows that decide rules with a given chance.

    Audits that were not made yet are drawn (their totals, not their rows) and judged by the functions that judge
    audits, so that the plan is for this very procedure.

    Parameters
    ----------
    rules
        A policy's rules on rates: their differences, ratios, extremes, and equalized odds.
    groups
        The groups' shares of the rows: ``{"female": 0.45, "male": 0.55}``, or by sensitive column
        ``{"sex": {"female": 0.45, ...}}``. They are scaled to sum 1.
    assume
        The true rates: a number for all groups, or by group; by rate where a rule is made of two:
        ``{"true_positive_rate": 0.8, "false_positive_rate": {"female": 0.1, "male": 0.12}}``. By default ½, the worst
        case for differences.
    base
        The share of rows with the favorable outcome, for all groups or by group; for precision, of favorable decisions.
    report
        A pilot: its groups, rates and shares take the place of the three above.
    power
        The chance of a decided verdict, in (0, 1).
    confidence, adjustment
        Of the audit that is planned. With an adjustment every rule is planned at Bonferroni's level.
    seed
        For the draws.

    Returns
    -------
    Plan

    Raises
    ------
    FairkitError
        A rule is not made of rates, an assumption is missing, or a number is out of its range.
    """
    rules = rules_of(rules)
    if not rules:
        raise PolicyError("there is no rule to plan for; give one, as in `max=demographic_parity_difference:sex=0.05`")
    if not 0 < power < 1:
        raise ParameterError(f"power={power} is not between 0 and 1; 0.8 is usual")
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence={confidence} is not between 0 and 1; 0.95 is usual")
    level = confidence if adjustment is None else 1 - (1 - confidence) / len(rules)
    metrics = installed()
    made = []
    for rule in rules:
        if rule.within:
            raise PolicyError(
                f"the rule on {rule.metric!r} compares inside the strata of {'+'.join(rule.within)!r}, and how many "
                "rows that needs depends on the rows of every stratum, which no plan knows: plan the rule without "
                "`|COLUMN`, or each stratum by itself"
            )
    for number, rule in enumerate(rules):
        if report is not None and (width := _from_width(rule, report, metrics, level, power)) is not None:
            made.append(width)
            continue
        target = target_of(rule.metric, metrics)
        truth, notes = observed(rule, target, report) if report else assumed(rule, target, groups, assume, base)
        made.append(_one(rule, target, truth, notes, level, power, np.random.default_rng([seed, number])))
    return Plan(
        rules=tuple(made),
        confidence=confidence,
        adjustment=adjustment,
        power=power,
        seed=seed,
        fairkit=version("fairkit"),
    )


def installed() -> list[type[Metric]]:
    """Return the metrics that every audit measures."""
    from fairkit import plugins

    return plugins.installed_metrics()[0]


def _one(
    rule: Rule,
    target: Target,
    truth: Truth,
    notes: tuple[str, ...],
    level: float,
    power: float,
    rng: np.random.Generator,
) -> RulePlan:
    value = target.value(truth.rates)
    side: Side = "pass" if rule.kept(value) else "fail"
    floor = LEAST / float((truth.shares * truth.bases).min())
    start = max(closed_form(target, truth, rule, level, power), floor)
    curve: PowerCurve | None = None
    if math.isfinite(start):
        curve = search(
            lambda rows: decided(target, truth, rows * truth.shares, rule, side, level, rng, DRAWS), start, power, DRAWS
        )
    if curve is None:
        reason = "The assumed number is at the limit, or so near that no affordable number of rows decides the rule."
        return RulePlan(
            rule=rule, value=value, side=side, rows=None, groups=(), power=None, balanced_rows=None,
            detectable=None, curve=(), notes=(*notes, reason),
        )  # fmt: skip
    rows = two_digits(max(curve.rows, floor))
    parts = np.ceil(rows * truth.shares)
    inside = parts * truth.bases
    few = ""
    if curve.rows < floor:
        few = f"At least {LEAST} rows of every group that the rate is over are needed, whatever the power."
    many = ""
    if len(truth.names) > 2 and target.kind in ("difference", "ratio"):
        count = len(truth.names)
        many = f"{count} groups need more rows each than two would: the largest of all their differences is judged."
    return RulePlan(
        rule=rule,
        value=value,
        side=side,
        rows=rows,
        groups=tuple(
            GroupPlan(group=name, rows=int(part), denominator=math.ceil(over))
            for name, part, over in zip(truth.names, parts, inside.min(axis=0), strict=True)
        ),
        power=curve.power(rows),
        balanced_rows=_balanced(target, truth, rows),
        detectable=detectable(target, truth, inside, rule, level, power),
        curve=tuple((int(at), round(curve.power(at), 4)) for at in np.linspace(0.25 * rows, 2 * rows, _CURVE).round()),
        notes=tuple(note for note in (*notes, few, many) if note),
        line=(curve.intercept, curve.slope),
    )


_MORE_CLUSTERS = (
    "Rows of one cluster depend on each other: the rows are those of more clusters of the pilot's sizes, not more rows "
    "of the same clusters."
)


def _from_width(
    rule: Rule, report: Report, metrics: Sequence[type[Metric]], level: float, power: float
) -> RulePlan | None:
    """Plan a number that is not made of rates from a pilot's interval, whose reach falls with the root of the rows.

    So is every number of a pilot whose rows depend on each other.

    N = n ((z + z_power) / z reach / |limit - value|)², with the reach on the limit's side. None for rates.
    """
    dependent = bool(report.data.clusters)
    try:
        target_of(rule.metric, metrics)
    except PolicyError:
        pass
    else:
        if not dependent:
            return None
    finding = report.find(rule.metric, rule.sensitive)
    value = finding.value
    if value is None or finding.interval is None:
        raise PolicyError(f"the report has no interval of {rule.metric!r}, so that it cannot be planned from it")
    reach = finding.interval[1] - value if value <= rule.limit else value - finding.interval[0]
    factor = (two_sided(level) + NormalDist().inv_cdf(power)) / two_sided(finding.confidence)
    gap = abs(rule.limit - value)
    rows = report.data.rows * (factor * reach / gap) ** 2 if gap > 0 else math.inf
    return RulePlan(
        rule=rule,
        value=value,
        side="pass" if rule.kept(value) else "fail",
        rows=two_digits(rows) if rows <= MOST else None,
        groups=(),
        power=power if rows <= MOST else None,
        balanced_rows=None,
        detectable=None,
        curve=(),
        notes=(
            f"{rule.metric} is planned from the width of the pilot's interval, without simulation.",
            *((_MORE_CLUSTERS,) if dependent else ()),
        ),
        line=(-two_sided(level), two_sided(finding.confidence) * gap / (reach * math.sqrt(report.data.rows)))
        if reach > 0
        else None,
    )


def _balanced(target: Target, truth: Truth, rows: int) -> int | None:
    """Return about how many rows do with equal precision in every group, shares in proportion to variances."""
    if len(truth.names) < 2:
        return None
    needs = (variances(target, truth.rates) / truth.bases).max(axis=0)
    best = needs / needs.sum()
    worst = [np.sort(needs / shares)[-2:].sum() for shares in (truth.shares, best)]
    return two_digits(max(min(rows * worst[1] / worst[0], rows), LEAST / best.min()))


# Whom to label: how many rows of each group and decision, and the draw that anybody can repeat.


FIRST = 0.4
"""The share of the budget that the first stage spends, equally over groups and decisions."""

_EQUALLY = 0.1  # of the second stage


def allocate(
    rows: Counts,
    budget: int,
    rules: Sequence[str],
    labels: Counts | None = None,
    favorable: Counts | None = None,
    asked: Counts | None = None,
) -> Counts:
    """Return how many rows of each group × decision a stage labels, shape [G, 2].

    The first stage takes `FIRST` of the budget equally. The second takes the rest by Neyman (1934), a tenth of it
    equally: labels of (g, d) ∝ N |c| sd, with c the derivative of the rule's rate in the cell's sum of outcomes.

    `rows`: of each group and decision (0, 1), shape [G, 2]; `budget`: labels of both stages; `rules`: names of the
    disparities that the labels are for; of several the largest normalised wants are met; `labels`, `favorable`: of the
    first stage: its labels, and those with the favorable outcome; None in the first stage; `asked`: the rows that the
    first stage drew, where some of them have no outcome; None: `labels`.
    """
    first = round(FIRST * budget)
    if labels is None or favorable is None:
        return _spread(np.ones(rows.shape), rows, first)
    share = (favorable + 1) / (labels + 2)
    wants = np.max([_wants(rule, rows, share) for rule in rules], axis=0)
    asked = labels if asked is None else asked
    rest, free = budget - int(asked.sum()), rows - asked
    equally = _spread(np.ones(rows.shape), free, round(_EQUALLY * rest))
    return equally + _spread(wants, free - equally, rest - int(equally.sum()))


def _wants(rule: str, rows: Counts, share: Array) -> Array:
    """Return N |c| sd of each cell for one rule, scaled to sum 1."""
    n = rows.astype(np.float64)
    sd = np.sqrt(share * (1 - share))
    stem = rule_rate(rule)
    if stem == "false_positive_rate":
        share = 1 - share
    yes = n * share
    positives = np.maximum(yes.sum(axis=1, keepdims=True), 1e-9)
    if stem in ("true_positive_rate", "false_positive_rate"):
        rate = yes[:, 1:] / positives
        # TPR: (1 - T) / P for d = 1, T / P for d = 0
        slope = np.concatenate([rate, 1 - rate], axis=1) / positives
    elif stem == "precision":
        slope = np.stack([np.zeros(len(n)), 1 / np.maximum(n[:, 1], 1)], axis=1)
    elif stem == "f1_score":
        whole = n[:, 1:] + yes[:, :1]
        slope = np.concatenate([yes[:, 1:] / whole**2, 1 / whole], axis=1)
    else:
        slope = np.repeat(1 / np.maximum(n.sum(axis=1, keepdims=True), 1), 2, axis=1)
    wants = n * slope * sd
    return np.asarray(wants / max(wants.sum(), 1e-300))


_RATES = {
    "equal_opportunity": ("true_positive_rate",), "false_negative_rate": ("true_positive_rate",),
    "predictive_equality": ("false_positive_rate",), "true_negative_rate": ("false_positive_rate",),
    "equalized_odds": ("true_positive_rate", "false_positive_rate"),
    "gap_max": ("true_positive_rate", "false_positive_rate"), "gap_rms": ("true_positive_rate", "false_positive_rate"),
}  # fmt: skip
KNOWN = ("true_positive_rate", "false_positive_rate", "accuracy", "precision", "f1_score", *_RATES)


def rule_rate(rule: str) -> str:
    """Return the rate that a disparity is about: ``true_positive_rate`` of ``equal_opportunity_difference``."""
    for suffix in ("_difference", "_ratio", "_group_min", "_group_max"):
        rule = rule.removesuffix(suffix)
    return _RATES.get(rule, (rule,))[0]


def _spread(wants: Array, free: Counts, budget: int) -> Counts:
    """Share whole labels out in proportion to the wants, no cell more than it has; what is left goes round again."""
    spread = np.zeros(free.shape, dtype=np.int64)
    budget = min(budget, int(free.sum()))
    while (left := budget - int(spread.sum())) > 0:
        open_ = spread < free
        part = np.where(open_, np.maximum(wants, 1e-12), 0.0)
        exact = left * part / part.sum()
        more = np.minimum(np.floor(exact).astype(np.int64), free - spread)
        if not more.any():  # the largest remainders, one label each
            for index in np.argsort(-(exact - np.floor(exact)) * open_ - 1e-9 * open_, axis=None, kind="stable")[:left]:
                more.flat[index] = min(1, free.flat[index] - spread.flat[index])
        spread += more
    return spread


def check_rules(rules: Sequence[str], budget: int) -> None:
    """Refuse rules that labels are not planned for."""
    if budget < 1:
        raise ParameterError(f"labels={budget} is not a number of rows: 1 or more")
    for rule in rules:
        if rule_rate(rule) not in KNOWN:
            names = [f"{name}_difference" for name in KNOWN]
            raise PolicyError(
                f"rows to label are not drawn for {rule!r}; it is a difference or ratio of a rate that needs outcomes. "
                f"{did_you_mean(rule, names, what='metrics')}"
            )
