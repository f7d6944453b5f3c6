"""The auditor `group`: every metric in every group, and the disparities between the groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fairkit.auditing.views import views
from fairkit.auditors import AuditContext, Auditor
from fairkit.intervals import Spread, two_sided
from fairkit.metrics import CONFUSION, Estimate, Headline, Metric, Rate
from fairkit.parameters.declare import parameter
from fairkit.results.findings import Finding, GroupValue
from fairkit.statistics import EXACT_SCORES, Rows, Scores, ScoreTable, Statistic, Sums
from fairkit_group.between import comparisons, odds
from fairkit_group.curves import curves
from fairkit_group.misclassified import told
from fairkit_group.ranking import SCORES, Distances, RocAuc, distances
from fairkit_group.simultaneous import Family, joint_confidence, marked
from fairkit_group.unknowns import Unknowns, some_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Batch
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Better

CHART_BINS = 40

_LOSSES: Mapping[str, str] = {
    "logistic": "log_loss",
    "squared": "brier_score",
    "zero_one": "accuracy",
    "absolute": "mean_absolute_error",
}


_Key = tuple[str | None, str | None, str]


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
    """Totals by (sensitive column, class, statistic); adding two merges the rows behind them.

    `missing` has the totals of the rows without a group, as one group, where there are such rows.
    """

    parts: Mapping[_Key, Any]
    missing: Mapping[_Key, Any] = field(default_factory=dict)

    def __add__(self, other: GroupTotals) -> GroupTotals:
        return GroupTotals(
            {key: _add(part, other.parts[key]) for key, part in self.parts.items()},
            dict(other.missing)
            | {
                k: _add(part, other.missing[k]) if k in other.missing else part
                for k, part in self.missing.items()
            },
        )

    def of(self, sensitive: str | None, label: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the totals by group of one column and class, and those of the rows without a group."""
        both = [
            {key: part for (s, c, key), part in parts.items() if (s, c) == (sensitive, label)}
            for parts in (self.parts, self.missing)
        ]
        return both[0], both[1]


def _add(part: Any, other: Any) -> Any:
    return other if isinstance(other, Failure) else part + other


class GroupAuditor(Auditor):
    """Measures all group metrics of the installed plugins.

    For every metric: the value over all rows and in each group, and between the groups of each sensitive
    column the largest difference, the smallest ratio and the worst group, each with an interval
    (see `fairkit.intervals`).
    """

    name: ClassVar[str] = "group"
    summary: ClassVar[str] = "Rates, scores and errors per group, and the disparities between groups."
    partial: ClassVar[bool] = True
    headlines: ClassVar[Mapping[str, Headline]] = {
        "equalized_odds_difference": Headline(between=4, disparity=False),  # the larger of two that are shown
        "gap_max": Headline(disparity=False),
        "gap_rms": Headline(disparity=False),
        "statistical_parity_ks": Headline(between=8),
        "worst_group_loss": Headline(between=9, disparity=False),
    }

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set group.KEY=VALUE."""

        min_group: int = parameter(
            30,
            help="A group with fewer rows in a metric's denominator makes findings inconclusive.",
            minimum=1,
        )
        loss: Literal["logistic", "zero_one", "squared", "absolute"] | None = parameter(
            None, help="The loss of worst_group_loss; by default logistic, and squared in regression."
        )
        exact_scores: int = parameter(
            EXACT_SCORES,
            help="Keep up to this many distinct scores; beyond, they are put into at most 16,384 cells.",
            minimum=1,
        )
        missing_share: float = parameter(
            0.02,
            help="With more missing values of a sensitive column a verdict must hold whatever their groups are.",
            minimum=0,
            maximum=1,
        )
        simultaneous: bool = parameter(
            False, help="Add intervals of all disparities that hold together, from the totals."
        )
        label_error: tuple[str, ...] = parameter(
            (), help="The largest share of wrong values in a sensitive column or the label: sex=0.1."
        )

    def begin(self, context: AuditContext) -> None:
        """Check what was said about wrong values."""
        told(self.parameters.label_error, list(context.dataset.profile.groups), context.dataset.roles.label)

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> GroupTotals:
        """Total one batch."""
        parts: dict[_Key, Any] = {}
        missing: dict[_Key, Any] = {}
        for label, rows in views(batch, predictions, context.scorer, context.dataset):
            statistics = self._statistics(rows, context)
            for sensitive, codes, n_groups in _splits(batch, context):
                known, whole = codes >= 0, rows
                if not known.all():
                    whole, rest = some_rows(rows, known), some_rows(rows, ~known)
                    none = np.zeros(len(rest.outcome), dtype=np.int64)
                    missing |= {
                        (sensitive, label, k): _collect(s, rest, none, 1) for k, s in statistics.items()
                    }
                for key, statistic in statistics.items():
                    parts[sensitive, label, key] = _collect(statistic, whole, codes[known], n_groups)
        return GroupTotals(parts, missing)

    def _statistics(self, rows: Rows, context: AuditContext) -> dict[str, Statistic]:
        """The statistics that the metrics need, each once."""
        found = {metric.statistic.key: metric.statistic for metric in _metrics(rows, context)}
        if rows.score is not None:
            low, high = 0.0, 1.0
            if context.scorer.task == "regression":
                low, high = context.dataset.profile.label_range or (0.0, 1.0)
            found[SCORES.key] = Scores(low, high, self.parameters.exact_scores)
        return found

    def findings(self, total: GroupTotals, context: AuditContext) -> list[Finding]:
        """Compute every metric from the totals."""
        found: list[Finding] = []
        families: list[Family] = []
        labels = dict.fromkeys(label for _, label, _ in total.parts)
        splits: list[str | None] = [*context.dataset.profile.groups] or [None]
        for label in labels:
            totals, without = total.of(splits[0], label)
            pooled = {
                key: _add(part.pooled(), without[key]) if key in without else part.pooled()
                for key, part in totals.items()
            }
            found += _Section(self, context, None, label, pooled).overall()
            for sensitive in splits:
                if sensitive is None:
                    continue
                totals, without = total.of(sensitive, label)
                section = _Section(self, context, sensitive, label, totals, without)
                found += section.disparities()
                families.append(section.family())
        if self.parameters.simultaneous and families:
            level = joint_confidence(families, context.confidence, context.rng("simultaneous"))
            found = marked(found, level)
        return found


def _collect(statistic: Statistic, rows: Rows, codes: NDArray[np.int64], n_groups: int) -> Any:
    try:
        return statistic.collect(rows, codes, n_groups)
    except Exception as error:
        return Failure(error)  # a metric must not end the audit


def _splits(batch: Batch, context: AuditContext) -> Iterator[tuple[str | None, NDArray[np.int64], int]]:
    if not batch.groups:
        yield None, np.zeros(len(batch), dtype=np.int64), 1
    for sensitive, codes in batch.groups.items():
        yield sensitive, codes, len(context.dataset.group_names(sensitive))


def _metrics(rows: Rows, context: AuditContext) -> list[Metric]:
    """The metrics that these rows have what it takes for."""
    task = context.scorer.task
    if task == "multiclass" and rows.score is None and bool((rows.outcome == 1).all()):
        return [metric() for metric in context.metrics if metric.name == "accuracy"]
    kind = "binary" if task == "multiclass" else task
    has = {"decision": rows.decision is not None, "score": rows.score is not None}
    return [
        metric()
        for metric in context.metrics
        if kind in metric.tasks and all(has[need] for need in metric.needs)
    ]


class _Section:
    """The findings of one sensitive column (or of all rows) and one class."""

    def __init__(
        self,
        auditor: GroupAuditor,
        context: AuditContext,
        sensitive: str | None,
        label: str | None,
        totals: Mapping[str, Any],
        without: Mapping[str, Any] | None = None,
    ) -> None:
        self.auditor, self.context, self.sensitive, self.label = auditor, context, sensitive, label
        self.totals, self.without = totals, without or {}
        self.labelled = context.dataset.roles.label is not None
        self.names = ["all"] if sensitive is None else context.dataset.group_names(sensitive)
        sizes = context.dataset.profile.groups
        self.rows = (
            [context.dataset.profile.rows] if sensitive is None else [sizes[sensitive][n] for n in self.names]
        )
        self.parameters: dict[str, Any] = {} if label is None else {"class": label}
        self.failures: list[Finding] = []
        self.estimates = self._estimate_all()

    def _estimate_all(self) -> dict[str, tuple[Metric, Estimate]]:
        """Every metric's estimate; one that raises becomes a finding that says so."""
        estimates = {}
        task = self.context.scorer.task
        for cls in self.context.metrics:
            if ("binary" if task == "multiclass" else task) not in cls.tasks:
                continue
            metric = cls()
            totals = self.totals.get(metric.statistic.key)
            if totals is None or (not self.labelled and cls.name not in _WITHOUT_LABEL):
                continue
            if self._accuracy_only() and cls.name != "accuracy":
                continue
            if isinstance(totals, Failure):
                self.failures.append(self._failed(cls, totals.error))
                continue
            rng = self.context.rng(f"{cls.name} {self.sensitive} {self.label}")
            try:
                estimates[cls.name] = (metric, metric.estimate(totals, rng))
            except Exception as error:
                self.failures.append(self._failed(cls, error))
        return estimates

    def _accuracy_only(self) -> bool:
        return self.context.scorer.task == "multiclass" and self.label is None

    def _failed(self, cls: type[Metric], error: Exception) -> Finding:
        cause = f"{type(error).__name__}: {error}"
        told = f"The metric {cls.name} of {cls.__module__} failed: {cause}"
        return Finding(
            auditor=self.auditor.name,
            metric=cls.name,
            sensitive=self.sensitive,
            value=None,
            confidence=self.context.confidence,
            parameters=self.parameters,
            evidence={"error": cause},
            notes=(told,),
            inconclusive=told,
        )

    def overall(self) -> list[Finding]:
        """Return each metric over all rows."""
        found = list(self.failures)
        for name, (metric, estimate) in self.estimates.items():
            interval = _one_interval(estimate)
            found.append(
                self._finding(
                    name,
                    metric.better,
                    float(estimate.values[0]),
                    interval,
                    evidence=self._bound(name),
                    caveats=self._caveats(estimate),
                )
            )
        return found

    def disparities(self) -> list[Finding]:
        """Return each disparity between the groups."""
        found = list(self.failures)
        for name, (metric, estimate) in self.estimates.items():
            for comparison in comparisons(name, metric.better, metric.between, estimate, metric.alias):
                found.append(
                    self._compare(comparison.metric, comparison.better, comparison.spread, estimate, name)
                )
        if {"true_positive_rate", "false_positive_rate"} <= set(self.estimates):
            tpr, fpr = (self.estimates[n][1] for n in ("true_positive_rate", "false_positive_rate"))
            sizes = None if tpr.sizes is None or fpr.sizes is None else np.minimum(tpr.sizes, fpr.sizes)
            both = Estimate(np.where(np.isfinite(fpr.values), tpr.values, np.nan), tpr.limits, sizes)
            for comparison in odds(tpr, fpr):
                found.append(
                    self._compare(comparison.metric, comparison.better, comparison.spread, both, None)
                )
        found += self._worst_loss()
        if isinstance(self.totals.get(SCORES.key), ScoreTable):
            found.append(self._parity_of_scores(self.totals[SCORES.key]))
        return self._with_unknowns(found)

    def family(self) -> Family:
        """Return what the simultaneous statement needs to know about these disparities."""
        metrics = [m for m, _ in self.estimates.values() if {"difference", "ratio"} & m.between]
        rates = [metric for metric in metrics if metric.statistic is CONFUSION]
        cells = self.totals.get(CONFUSION.key)
        others = len(metrics) - len(rates) + isinstance(self.totals.get(SCORES.key), ScoreTable)
        return Family(cells if isinstance(cells, Sums) else None, rates, others)

    def _with_unknowns(self, found: list[Finding]) -> list[Finding]:
        """Say at every disparity what missing groups and wrong values could do to it."""
        roles, profile = self.context.dataset.roles, self.context.dataset.profile
        errors = told(self.auditor.parameters.label_error, list(profile.groups), roles.label)
        unknowns = Unknowns(
            sensitive=str(self.sensitive),
            rows=profile.rows,
            missing=profile.missing.get(str(self.sensitive), 0),
            totals=self.totals,
            without=self.without,
            estimates=self.estimates,
            error=errors.get(str(self.sensitive)),
            outcome_error=errors.get(str(roles.label)),
            binding=self.auditor.parameters.missing_share,
        )
        bounds = unknowns.bounds()
        for place, finding in enumerate(found):
            if finding.value is not None and bounds:
                about = self._bounded_name(finding)
                told_here = {one.name: one.of(about, finding.value) for one in bounds}
                found[place] = replace(finding, evidence={**finding.evidence, **told_here})
        if unknowns.missing and self.label is None:
            found.append(unknowns.finding(self.auditor.name, self.context.confidence, found))
        return found

    def _bounded_name(self, finding: Finding) -> str:
        """Return the disparity that a finding is, for what is named otherwise."""
        loss = finding.parameters.get("loss")
        if finding.metric != "worst_group_loss" or loss == "zero_one":
            return finding.metric
        squared = "brier_score" if self.context.scorer.task == "binary" else "mean_squared_error"
        return f"{squared if loss == 'squared' else _LOSSES[str(loss)]}_group_max"

    def _worst_loss(self) -> list[Finding]:
        regression = self.context.scorer.task == "regression"
        loss = self.auditor.parameters.loss or ("squared" if regression else "logistic")
        name = "mean_squared_error" if regression and loss == "squared" else _LOSSES[loss]
        if name not in self.estimates:
            return []
        estimate = self.estimates[name][1]
        if loss == "zero_one":
            estimate = _one_minus(estimate)
        worst = next(c for c in comparisons("loss", "lower", frozenset({"extreme"}), estimate))
        found = self._compare("worst_group_loss", "lower", worst.spread, estimate, None)
        return [_with_parameters(found, {"loss": loss})]

    def _compare(
        self,
        metric: str,
        better: Better,
        spread: Callable[[float], Spread],
        estimate: Estimate,
        base: str | None,
    ) -> Finding:
        here = spread(self.context.confidence)
        order = np.argsort(np.where(np.isfinite(estimate.values), estimate.values, np.inf))
        known = [int(i) for i in order if math.isfinite(estimate.values[i])]
        evidence: dict[str, Any] = {}
        if len(known) > 1:
            evidence = {"lowest_group": self.names[known[0]], "highest_group": self.names[known[-1]]}
        evidence |= self._bound(base)
        return self._finding(
            metric,
            better,
            here.value,
            lambda confidence: _ends(spread(confidence)),
            groups=self._group_values(estimate, base),
            evidence=evidence,
            caveats=self._caveats(estimate),
        )

    def _bound(self, base: str | None) -> dict[str, Any]:
        if base != RocAuc.name or not isinstance(self.totals.get(SCORES.key), ScoreTable):
            return {}
        bound = RocAuc.bound(self.totals[SCORES.key])
        return {"discretisation_bound": bound} if bound else {}

    def _group_values(self, estimate: Estimate, base: str | None) -> tuple[GroupValue, ...]:
        low, high = estimate.limits(two_sided(self.context.confidence))
        over = self._denominators(estimate, base)
        return tuple(
            GroupValue(group=name, rows=rows, value=float(v), interval=(float(lo), float(hi)), denominator=n)
            if math.isfinite(v)
            else GroupValue(group=name, rows=rows, value=None)
            for name, rows, v, lo, hi, n in zip(
                self.names, self.rows, estimate.values, low, high, over, strict=True
            )
        )

    def _denominators(self, estimate: Estimate, base: str | None) -> list[float | None]:
        """Return the rows that a rate is over, or their effective number under weights; None for other metrics."""
        if base is None or not isinstance(self.estimates[base][0], Rate) or estimate.sizes is None:
            return [None] * len(self.names)
        return [float(size) if math.isfinite(size) else None for size in estimate.sizes]

    def _finding(
        self,
        metric: str,
        better: Better,
        value: float,
        interval: Callable[[float], tuple[float, float] | None],
        *,
        groups: tuple[GroupValue, ...] = (),
        evidence: Mapping[str, Any] | None = None,
        caveats: tuple[Sequence[str], str | None],
    ) -> Finding:
        notes, inconclusive = list(caveats[0]), caveats[1]
        known = math.isfinite(value)
        if not known:
            notes.append(
                f"{metric} is not defined on these rows: its denominator is 0 or fewer than two groups have it."
            )
        pair = interval(self.context.confidence) if known else None
        if known and pair is None:
            notes.append("No interval: the metric's replicates are not finite on these totals.")
        return Finding(
            auditor=self.auditor.name,
            metric=metric,
            sensitive=self.sensitive,
            value=value if known else None,
            interval=pair,
            confidence=self.context.confidence,
            better=better,
            groups=groups,
            parameters=self.parameters,
            evidence=dict(evidence or {}),
            notes=tuple(notes),
            inconclusive=inconclusive if known else notes[-1],
            interval_at=interval if known else None,
        )

    def _caveats(self, estimate: Estimate) -> tuple[list[str], str | None]:
        """Say which groups are small, have no value or an interval in doubt, and whether a verdict must wait."""
        notes = [*self._small(estimate), *self._doubted(estimate)]
        undefined = [self.names[i] for i in np.flatnonzero(~np.isfinite(estimate.values))]
        if undefined and self.sensitive is not None:
            notes.append(
                f"Not defined, and left out of the comparison: {_some(undefined)} (no rows that the rate is over)."
            )
        return notes, " ".join(notes) or None

    def _small(self, estimate: Estimate) -> list[str]:
        """Name the groups with too few rows, in all or in the number's denominator."""
        least = self.auditor.parameters.min_group
        sizes = [float(rows) for rows in self.rows]
        if estimate.sizes is not None:
            known = np.where(np.isfinite(estimate.sizes), np.round(estimate.sizes, 6), np.inf)
            sizes = [min(rows, float(size)) for rows, size in zip(sizes, known, strict=True)]
        if self.sensitive is None:
            short, rows = sizes[0] < least, self.rows[0]
            of = "" if rows < least else f" of {rows}, that the number is over (effective ones under weights)"
            return (
                [f"There are {min(sizes[0], rows):.0f} rows only{of} (min_group is {least})."]
                if short
                else []
            )
        few = [i for i, rows in enumerate(self.rows) if rows < least]
        thin = [
            i
            for i, size in enumerate(sizes)
            if size < least and i not in few and math.isfinite(estimate.values[i])
        ]
        notes = []
        if few:
            notes.append(
                f"Groups with fewer than {least} rows: {_some([f'{self.names[i]} ({self.rows[i]})' for i in few])}."
            )
        if thin:
            shown = _some([f"{self.names[i]} ({sizes[i]:.0f} of {self.rows[i]})" for i in thin])
            notes.append(
                f"Groups with fewer than {least} rows that the number is over (effective ones under weights): {shown}."
            )
        return notes

    def _doubted(self, estimate: Estimate) -> list[str]:
        """Say whose interval is not to be trusted, and why."""
        reasons: dict[str, list[str]] = {}
        for place, reason in estimate.doubts.items():
            reasons.setdefault(reason, []).append(self.names[place])
        where = "" if self.sensitive is None else "The interval of {} is"
        start = where or "The interval is"
        return [
            f"{start.format(_some(names))} not trusted: {reason}; no verdict is made from it."
            for reason, names in reasons.items()
        ]

    def _parity_of_scores(self, table: ScoreTable) -> Finding:
        found = distances(table)
        known = np.isfinite(found.values)
        worst = int(np.argmax(np.where(known, found.values, -1)))
        edges, mass = table.histogram(CHART_BINS)
        evidence: dict[str, Any] = {
            "group": self.names[worst],
            "at_score": float(found.at[worst]),
            "histogram": {
                "edges": [float(edge) for edge in edges],
                "groups": {name: mass[:, i].tolist() for i, name in enumerate(self.names)},
            },
        }
        if self.labelled and self.context.scorer.task != "regression":
            evidence |= curves(table, self.names, self.context.confidence)
        if not table.exact:
            evidence["discretisation_bound"] = found.bound
        low, high = found.limits(self.context.confidence)
        groups = tuple(
            GroupValue(
                group=name,
                rows=rows,
                value=float(v) if there else None,
                interval=(float(lo), float(hi)) if there else None,
            )
            for name, rows, v, lo, hi, there in zip(
                self.names, self.rows, found.values, low, high, known, strict=True
            )
        )
        return self._finding(
            "statistical_parity_ks",
            "lower",
            float(found.values[worst]),
            lambda confidence: _largest_distance(found, confidence),
            groups=groups,
            evidence=evidence,
            caveats=self._caveats(Estimate(found.values, lambda z: (low, high), sizes=found.sizes)),
        )


def _some(names: Sequence[str]) -> str:
    """Return up to five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


_WITHOUT_LABEL = frozenset({"selection_rate", "mean_prediction"})


def _largest_distance(found: Distances, confidence: float) -> tuple[float, float]:
    """The largest distance: the upper end from each group alone, the lower end from all at once."""
    joint = confidence ** (1 / max(int(np.isfinite(found.values).sum()), 1))
    return float(np.nanmax(found.limits(joint)[0])), float(np.nanmax(found.limits(confidence)[1]))


def _one_minus(estimate: Estimate) -> Estimate:
    def limits(z: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = estimate.limits(z)
        return 1 - high, 1 - low

    return replace(estimate, values=1 - estimate.values, limits=limits)


def _one_interval(estimate: Estimate) -> Callable[[float], tuple[float, float] | None]:
    def interval(confidence: float) -> tuple[float, float] | None:
        low, high = estimate.limits(two_sided(confidence))
        finite = math.isfinite(low[0]) and math.isfinite(high[0])
        return (float(low[0]), float(high[0])) if finite else None

    return interval


def _ends(spread: Spread) -> tuple[float, float] | None:
    finite = math.isfinite(spread.low) and math.isfinite(spread.high)
    return (spread.low, spread.high) if finite else None


def _with_parameters(finding: Finding, parameters: Mapping[str, Any]) -> Finding:
    return replace(finding, parameters={**finding.parameters, **parameters})
