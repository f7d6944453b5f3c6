"""Rates of decisions: functions of the soft confusion cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.data.hashing import BUCKETS
from fairkit.data.roles import MISSING_GROUP
from fairkit.intervals import own_quantile, possible_difference, possible_ratio
from fairkit.metrics import CONFUSION, Estimate, Headline, Metric, Rate, Term
from fairkit.results.findings import GroupValue
from fairkit.statistics import ScoreTable
from fairkit.support.lazy_dataclass import dataclass, field, fields
from fairkit_dependent import SCORE_BUCKETS, by_bucket, clustered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.results.findings import Better
    from fairkit.statistics import Rows, Statistic, Sums

    Array = NDArray[np.float64]


# cells: (outcome 0, no), (outcome 0, yes), (outcome 1, no), (outcome 1, yes)


class Accuracy(Rate):
    """The share of rows whose decision equals the outcome."""

    name: ClassVar[str] = "accuracy"
    term: ClassVar[Term | None] = Term(
        "right decisions",
        "The share of people whose decision agrees with the outcome.",
        share=("people", "get the right decision"),
        share_of_class=("people", "get the right class"),
    )
    headline: ClassVar[Headline] = Headline(performance=1, between=5, column=5, sentence=True)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: every decision is wrong; 1: every decision is right."
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    over = (1, 1, 1, 1)
    counted = (1, 0, 0, 1)


class SelectionRate(Rate):
    """The share of rows with the favorable decision."""

    name: ClassVar[str] = "selection_rate"
    alias: ClassVar[str] = "demographic_parity"
    term: ClassVar[Term | None] = Term(
        "favorable decisions",
        "The share of people who get the favorable decision.",
        share=("people", "get a favorable decision"),
        share_of_class=("people", "are put in class {0}"),
    )
    terms_between: ClassVar[Mapping[str, Term]] = {
        "difference": Term(
            "difference in favorable decisions",
            "The largest minus the smallest share of people with a favorable decision, between groups; 0 is equal.",
            short="DP",
        ),
        "ratio": Term(
            "ratio of favorable decisions",
            "The smallest over the largest share of people with a favorable decision, between groups; 1 is equal.",
            short="DP",
        ),
    }
    headline: ClassVar[Headline] = Headline(between=1, column=1, disparity=False, sentence=True)
    meaning: ClassVar[str] = "0: nobody gets the favorable decision; 1: everybody does."
    outcome: ClassVar[bool] = False
    over = (1, 1, 1, 1)
    counted = (0, 1, 0, 1)


class TruePositiveRate(Rate):
    """The share of favorable outcomes that get the favorable decision."""

    name: ClassVar[str] = "true_positive_rate"
    alias: ClassVar[str] = "equal_opportunity"
    term: ClassVar[Term | None] = Term(
        "favorable decisions among the qualified",
        "The share of qualified people who get the favorable decision.",
        share=("qualified people", "get a favorable decision"),
        share_of_class=("people whose class is {0}", "are put in it"),
        short="TPR",
    )
    terms_between: ClassVar[Mapping[str, Term]] = {
        "difference": Term(
            "difference in favorable decisions among the qualified",
            "The largest minus the smallest share of qualified people who get the favorable decision; 0 is equal.",
            short="TPR",
        ),
        "ratio": Term(
            "ratio of favorable decisions among the qualified",
            "The smallest over the largest share of qualified people who get the favorable decision; 1 is equal.",
            short="TPR",
        ),
    }
    headline: ClassVar[Headline] = Headline(between=2, column=2, disparity=False, sentence=True)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: nobody with the favorable outcome is selected; 1: all of them are."
    over = (0, 0, 1, 1)
    counted = (0, 0, 0, 1)


class FalseNegativeRate(Rate):
    """The share of favorable outcomes that get the unfavorable decision."""

    name: ClassVar[str] = "false_negative_rate"
    term: ClassVar[Term | None] = Term(
        "qualified people turned down",
        "The share of qualified people who get the unfavorable decision.",
        share=("qualified people", "get an unfavorable decision"),
        share_of_class=("people whose class is {0}", "are not put in it"),
        short="FNR",
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "lower"
    meaning: ClassVar[str] = "0: nobody with the favorable outcome is missed; 1: all of them are."
    over = (0, 0, 1, 1)
    counted = (0, 0, 1, 0)


class FalsePositiveRate(Rate):
    """The share of unfavorable outcomes that get the favorable decision."""

    name: ClassVar[str] = "false_positive_rate"
    term: ClassVar[Term | None] = Term(
        "favorable decisions among the unqualified",
        "The share of unqualified people who get the favorable decision all the same.",
        share=("unqualified people", "get a favorable decision"),
        share_of_class=("people whose class is not {0}", "are put in class {0}"),
        short="FPR",
    )
    headline: ClassVar[Headline] = Headline(between=3, column=3)
    better: ClassVar[Better] = "lower"
    meaning: ClassVar[str] = "0: nobody with the unfavorable outcome is selected; 1: all of them are."
    over = (1, 1, 0, 0)
    counted = (0, 1, 0, 0)


class TrueNegativeRate(Rate):
    """The share of unfavorable outcomes that get the unfavorable decision."""

    name: ClassVar[str] = "true_negative_rate"
    term: ClassVar[Term | None] = Term(
        "unfavorable decisions among the unqualified",
        "The share of unqualified people who get the unfavorable decision.",
        share=("unqualified people", "get an unfavorable decision"),
        share_of_class=("people whose class is not {0}", "are not put in class {0}"),
        short="TNR",
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: everybody with the unfavorable outcome is selected; 1: nobody is."
    over = (1, 1, 0, 0)
    counted = (1, 0, 0, 0)


class Precision(Rate):
    """The share of favorable outcomes among the favorable decisions."""

    name: ClassVar[str] = "precision"
    term: ClassVar[Term | None] = Term(
        "qualified among those with a favorable decision",
        "The share of people with a favorable decision who are qualified.",
        share=("people with a favorable decision", "are qualified"),
        share_of_class=("people put in class {0}", "belong there"),
    )
    headline: ClassVar[Headline] = Headline(column=4)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: every favorable decision is wrong; 1: every one is right."
    over = (0, 1, 0, 1)
    counted = (0, 0, 0, 1)


class BalancedAccuracy(Metric):
    """The mean of true positive rate and true negative rate."""

    name: ClassVar[str] = "balanced_accuracy"
    term: ClassVar[Term | None] = Term(
        "right decisions, both outcomes weighing the same",
        "The mean of the share of right decisions among qualified people and among unqualified people.",
    )
    headline: ClassVar[Headline] = Headline(performance=2)
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0.5: no better than chance; 1: every decision is right."

    @property
    def statistic(self) -> Statistic:
        """The shared confusion cells."""
        return CONFUSION

    def compute(self, sums: Array) -> Array:
        """Average the two rates."""
        return np.asarray((TruePositiveRate().compute(sums) + TrueNegativeRate().compute(sums)) / 2)

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Combine the limits of two independent rates (Donner & Zou 2012)."""
        positive = TruePositiveRate().estimate(totals, rng)
        negative = TrueNegativeRate().estimate(totals, rng)
        values = (positive.values + negative.values) / 2

        def limits(z: float) -> tuple[Array, Array]:
            (p_low, p_high), (n_low, n_high) = positive.limits(z), negative.limits(z)
            down = np.hypot(positive.values - p_low, negative.values - n_low) / 2
            up = np.hypot(p_high - positive.values, n_high - negative.values) / 2
            return values - down, values + up

        sizes = [part.sizes for part in (positive, negative) if part.sizes is not None]
        return Estimate(values, limits, sizes=np.minimum(*sizes))


class _Overlap(Rate):
    """The share of rows right among those that are favorable or called so: the Jaccard index q."""

    name: ClassVar[str] = "overlap"
    over = (0, 1, 1, 1)
    counted = (0, 0, 0, 1)


class F1Score(Metric):
    """The harmonic mean of precision and true positive rate."""

    name: ClassVar[str] = "f1_score"
    term: ClassVar[Term | None] = Term(
        "F1 score", "One number for precision and true positive rate: their harmonic mean, from 0 to 1."
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0: no favorable decision is right; 1: every decision is right."
    shares: ClassVar[str] = "decision-outcome"
    overlap: ClassVar[Rate] = _Overlap()

    @property
    def statistic(self) -> Statistic:
        """The shared confusion cells."""
        return CONFUSION

    def compute(self, sums: Array) -> Array:
        """Twice the true positives over all that are positive or called so."""
        right = 2 * sums[..., 3]
        return np.asarray(right / (right + sums[..., 1] + sums[..., 2]))

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Compute F1 = 2q / (1 + q) from the limits of the share q = TP / (TP + FP + FN), which grows with it."""
        share = _Overlap().estimate(totals, rng)

        def limits(z: float) -> tuple[Array, Array]:
            low, high = share.limits(z)
            return 2 * low / (1 + low), 2 * high / (1 + high)

        return Estimate(2 * share.values / (1 + share.values), limits, sizes=share.sizes)


RATES: list[type[Metric]] = [
    Accuracy,
    BalancedAccuracy,
    SelectionRate,
    TruePositiveRate,
    FalsePositiveRate,
    TrueNegativeRate,
    FalseNegativeRate,
    Precision,
    F1Score,
]


# Totals of the auditor `group`: by sensitive column, class and statistic; a pass over the rows adds them up.


EVERYBODY = " of everybody"
"""Ends the key of a statistic that was collected from all rows, where some of them have no label."""

Key = tuple[str | None, str | None, str]
StratumKey = tuple[str, str, str | None, str]


@dataclass(frozen=True, slots=True)
class Failure:
    """What takes the place of totals that could not be made; it stays whatever is added."""

    error: Exception

    def __add__(self, other: Any) -> Failure:
        return self

    def pooled(self) -> Failure:
        """Stay."""
        return self


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """Totals by (sensitive column, class, statistic); adding two merges the rows behind them."""

    parts: dict[Key, Any] = field(default_factory=dict)  # by group
    missing: dict[Key, Any] = field(default_factory=dict)
    clusters: dict[Key, Any] = field(default_factory=dict)
    missing_clusters: dict[Key, Any] = field(default_factory=dict)
    strata: dict[StratumKey, Any] = field(default_factory=dict)
    strata_clusters: dict[StratumKey, Any] = field(default_factory=dict)  # by stratum, group and bucket
    strata_missing: dict[StratumKey, Any] = field(default_factory=dict)  # confusion cells by stratum
    proxies: dict[tuple[str, str | None, str], Any] = field(default_factory=dict)
    labels: dict[str | None, Any] = field(default_factory=dict)  # by column, None as one group: see `labelled`

    def __add__(self, other: GroupTotals) -> GroupTotals:
        names = [each.name for each in fields(self)]
        return GroupTotals(**{name: _merged(getattr(self, name), getattr(other, name)) for name in names})

    def of(self, sensitive: str | None, label: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the totals by group of one column and class, and those of the rows without a group."""
        return _chosen(self.parts, sensitive, label), _chosen(self.missing, sensitive, label)

    def buckets(self, sensitive: str | None, label: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the totals by group and bucket as `of` does."""
        return _chosen(self.clusters, sensitive, label), _chosen(self.missing_clusters, sensitive, label)

    def everybody(self, sensitive: str | None, label: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the totals of all rows as one group, those without a group included, and those by bucket."""
        parts, without = self.of(sensitive, label)
        buckets, gone = self.buckets(sensitive, label)
        whole = _merged({key: part.pooled() for key, part in parts.items()}, without)
        return whole, _merged({key: one_group(part) for key, part in buckets.items()}, gone)

    def inside(self, within: str, sensitive: str, label: str | None) -> list[dict[str, Any]]:
        """Return the totals by stratum and group, by stratum, group and bucket, and by stratum without a group."""
        return [
            {key: part for (w, s, c, key), part in parts.items() if (w, s, c) == (within, sensitive, label)}
            for parts in (self.strata, self.strata_clusters, self.strata_missing)
        ]


def of_key(parts: Mapping[str, Any], key: str) -> Any:
    """Return a statistic that needs no label: of all rows, where the labelled ones are kept apart."""
    return parts.get(key + EVERYBODY, parts.get(key))


def of_metric(parts: Mapping[str, Any], metric: Metric) -> Any:
    """Return what a metric is a function of: of the labelled rows where it needs labels, else of all; None: nothing."""
    key = metric.statistic.key
    return parts.get(key) if metric.outcome else of_key(parts, key)


def _chosen(parts: Mapping[Key, Any], sensitive: str | None, label: str | None) -> dict[str, Any]:
    return {key: part for (s, c, key), part in parts.items() if (s, c) == (sensitive, label)}


def _merged(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    return {**other, **{key: added(part, other[key]) if key in other else part for key, part in one.items()}}


def one_group(part: Any) -> Any:
    """Return totals by group and bucket as those of one group."""
    if isinstance(part, ScoreTable):
        return part.regrouped(SCORE_BUCKETS)
    return part if isinstance(part, Failure) else part.reshape(-1, BUCKETS, part.shape[-1]).sum(axis=0)


def added(part: Any, other: Any) -> Any:
    """Add two totals; a failure stays."""
    return other if isinstance(other, Failure) else part + other


def collected(statistic: Statistic, rows: Rows, codes: NDArray[np.int64], n_groups: int) -> Any:
    """Total rows; what a metric of a plugin raises becomes a `Failure`."""
    try:
        return statistic.collect(rows, codes, n_groups)
    except Exception as error:
        return Failure(error)  # a metric must not end the audit


def summed(statistic: Statistic, rows: Rows, codes: NDArray[np.int64], n_groups: int) -> Any:
    """Sum what rows contribute to many small groups, shape [n_groups, m]; errors as in `collected`."""
    try:
        return statistic.first_sums(rows, codes, n_groups)
    except Exception as error:
        return Failure(error)  # a metric must not end the audit


def dependent(metric: Metric, totals: Any, estimate: Estimate, sums: Any) -> Estimate:
    """Widen the limits where rows of one cluster depend on each other."""
    if sums is None:
        return estimate
    if isinstance(sums, Failure):
        raise sums.error
    shaped = sums if isinstance(sums, ScoreTable) else by_bucket(sums, len(estimate.values))
    return clustered(metric, totals, estimate, shaped)


# From bounds on each group's number to bounds on a disparity: what no assumption about the unknown can exceed.


_NAMES = {cls.alias: cls.name for cls in (SelectionRate, TruePositiveRate)}
_PAIRS = ("true_positive_rate", "false_positive_rate")


@dataclass(frozen=True, slots=True)
class Box:
    """Each group's smallest and largest possible number, shapes [G]; NaN where it is not defined."""

    low: Array
    high: Array

    def known(self) -> Box:
        """Leave out groups whose number is not defined."""
        keep = np.isfinite(self.low) & np.isfinite(self.high)
        return Box(self.low[keep], self.high[keep])


def disparity_bounds(metric: str, boxes: Mapping[str, Box], reference: int | None = None) -> tuple[float, float] | None:
    """Return the smallest and largest value that a disparity can have.

    Each group's number lies in its box. For a rate, rows that raise one group's number are not those that
    lower another's, so that the largest difference is attained. Against a reference it is that of any other group.
    """
    if metric in boxes:  # over all rows
        return float(boxes[metric].low[0]), float(boxes[metric].high[0])
    if reference is not None:
        return _against(metric, boxes, reference)
    if metric in ("gap_max", "gap_rms") or metric.startswith("equalized_odds_"):
        return _joint(metric, boxes)
    for suffix, bounds in _BETWEEN.items():
        if metric.endswith(suffix):
            name = metric.removesuffix(suffix)
            box = boxes.get(_NAMES.get(name, name))
            return None if box is None or not len(box.known().low) else bounds(box.known())
    return None


def _against(metric: str, boxes: Mapping[str, Box], reference: int) -> tuple[float, float] | None:
    stem, _, kind = metric.rpartition("_")
    box = boxes.get("selection_rate" if metric == "impact_ratio" else _NAMES.get(stem, stem))
    if box is None or kind not in ("difference", "ratio"):
        return None
    low, high = (np.delete(end, reference) for end in (box.low, box.high))
    if kind == "difference":
        low, high = low - box.high[reference], high - box.low[reference]
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = low / box.high[reference], high / box.low[reference]
    if metric == "impact_ratio":  # of the group where it is lowest
        return float(np.nanmin(low)), float(np.nanmin(high))
    return float(np.nanmin(low)), float(np.nanmax(high))


def _joint(metric: str, boxes: Mapping[str, Box]) -> tuple[float, float] | None:
    if any(name not in boxes for name in _PAIRS):
        return None
    both = [boxes[name].known() for name in _PAIRS]
    if not all(len(box.low) for box in both):
        return None
    if metric == "equalized_odds_ratio":
        parts = [possible_ratio(box.low, box.high) for box in both]
        return min(p[0] for p in parts), min(p[1] for p in parts)
    parts = [possible_difference(box.low, box.high) for box in both]
    low, high = max(p[0] for p in parts), max(p[1] for p in parts)
    if metric == "gap_rms":  # between the larger gap over the root of 2, and the root of both squares' mean
        return low / 2**0.5, float(np.sqrt(np.mean([p[1] ** 2 for p in parts])))
    return low, high


_BETWEEN: Mapping[str, Callable[[Box], tuple[float, float]]] = {
    "_difference": lambda box: possible_difference(box.low, box.high),
    "_ratio": lambda box: possible_ratio(box.low, box.high),
    "_group_min": lambda box: (float(box.low.min()), float(box.high.min())),
    "_group_max": lambda box: (float(box.low.max()), float(box.high.max())),
}


# The rows without a sensitive value: a line of their own beside the groups, in no comparison.


def ungrouped(
    metric: Metric,
    without: Mapping[str, Any],
    buckets: Mapping[str, Any],
    rows: int,
    confidence: float,
    rng: np.random.Generator,
) -> GroupValue | None:
    """Return a metric of the rows without a group; None where there are none."""
    totals = of_metric(without, metric)
    if totals is None or isinstance(totals, Failure) or not rows:
        return None
    try:
        estimate = dependent(metric, totals, metric.estimate(totals, rng), of_metric(buckets, metric))
    except Exception:
        return None  # where these rows make a metric fail, the finding about the groups says so
    value = float(estimate.values[0])
    if not math.isfinite(value):
        return GroupValue(group=MISSING_GROUP, rows=rows, value=None)
    low, high = (float(end[0]) for end in estimate.limits(own_quantile(confidence, estimate.correlation)))
    size = None if estimate.sizes is None or not isinstance(metric, Rate) else float(estimate.sizes[0])
    return GroupValue(group=MISSING_GROUP, rows=rows, value=value, interval=(low, high), denominator=size)
