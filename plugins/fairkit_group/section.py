"""The findings of one sensitive column (or of all rows) and one class, from totals: every metric, every disparity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.groups import known_groups, proxies
from fairkit.data.hashing import BUCKETS
from fairkit.intervals import Spread, own_quantile
from fairkit.limits import turning_odds
from fairkit.metrics import CONFUSION, Estimate, Metric, Rate
from fairkit.statistics import Scores, ScoreTable, Sums
from fairkit_dependent import SCORE_BUCKETS, STRATA_BUCKETS
from fairkit_group.between import comparisons, odds
from fairkit_group.errors import told
from fairkit_group.finding_writer import About
from fairkit_group.identification import OVER_BOTH, Labelled
from fairkit_group.missing_groups import Unknowns, some_rows
from fairkit_group.proxies import proxy_totals
from fairkit_group.ranking import SCORES, RocAuc
from fairkit_group.rates import Failure, GroupTotals, Key, collected, dependent, of_key, of_metric, summed, ungrouped
from fairkit_group.simultaneous import Family, parity_of_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext, Auditor
    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.results.findings import Better, Finding, GroupValue
    from fairkit.statistics import Rows, Statistic


LOSSES: Mapping[str, str] = {
    "logistic": "log_loss",
    "squared": "brier_score",
    "zero_one": "accuracy",
    "absolute": "mean_absolute_error",
}
"""The metric that measures a loss."""


class Section:
    """What the auditor says of one sensitive column (None: all rows) and one class."""

    def __init__(
        self,
        auditor: Auditor,
        context: AuditContext,
        sensitive: str | None,
        label: str | None,
        totals: Mapping[str, Any],
        buckets: Mapping[str, Any] | None = None,
        without: Mapping[str, Any] | None = None,
        without_buckets: Mapping[str, Any] | None = None,
        few: Labelled | None = None,
    ) -> None:
        self.parameters, self.context = auditor.parameters, context
        self.sensitive, self.label = sensitive, label
        self.totals, self.buckets, self.without = totals, buckets or {}, without or {}
        self.without_buckets = without_buckets or {}
        self.few = few
        self.labelled = context.dataset.roles.label is not None
        self.about = About.of(auditor, context, sensitive, label)
        self.failures: list[Finding] = []
        self._without_group: dict[str, GroupValue | None] = {}
        self.estimates = self._estimate_all()

    def _estimate_all(self) -> dict[str, tuple[Metric, Estimate]]:
        """Every metric's estimate; one that raises becomes a finding that says so."""
        estimates = {}
        task = self.context.scorer.task
        for cls in self.context.metrics:
            if ("binary" if task == "multiclass" else task) not in cls.tasks:
                continue
            metric = cls()
            totals = of_metric(self.totals, metric)
            if totals is None or (not self.labelled and cls.outcome):
                continue
            if self.context.scorer.task == "multiclass" and self.label is None and cls.name != "accuracy":
                continue
            if isinstance(totals, Failure):
                self.failures.append(self.about.failed(cls, totals.error))
                continue
            rng = self.context.rng(f"{cls.name} {self.sensitive} {self.label}")
            try:
                estimate = metric.estimate(totals, rng)
                sums = of_metric(self.buckets, metric)
                estimates[cls.name] = (metric, self._of_all(metric, dependent(metric, totals, estimate, sums)))
            except Exception as error:
                self.failures.append(self.about.failed(cls, error))
        return estimates

    def _of_all(self, metric: Metric, estimate: Estimate) -> Estimate:
        """Return a number of all rows where labels are few; others that need outcomes are of the labelled rows."""
        if self.few is None or not metric.outcome:
            return estimate
        if metric.shares:
            return self.few.estimate(metric, estimate)
        weighted = " weighted by what each stands for" if self.few.design.kind not in ("random", "selective") else ""
        return replace(estimate, notes=(*estimate.notes, f"Of the rows with an outcome alone{weighted}."))

    def overall(self) -> list[Finding]:
        """Return each metric over all rows."""
        findings = list(self.failures)
        bounds = self._unknowns().bounds() if self.context.dataset.profile.unlabelled else []
        for name, (metric, estimate) in self.estimates.items():
            interval, value = _one_interval(estimate), float(estimate.values[0])
            findings.append(
                self.about.finding(
                    name,
                    metric.better,
                    value,
                    interval,
                    evidence=self._bound(name) | _told(bounds, name, value),
                    caveats=self._caveats(estimate, metric),
                )
            )
        return findings

    def between_groups(self) -> list[Finding]:
        """Return the disparities that are made of one metric each."""
        findings = list(self.failures)
        for name, (metric, estimate) in self.estimates.items():
            for comparison in comparisons(name, metric.better, metric.between, estimate, metric.alias):
                finding = self._compare(comparison.metric, comparison.better, comparison.spread, estimate, name)
                findings.append(self._turning(finding, (name,)))
        return findings

    def disparities(self) -> list[Finding]:
        """Return each disparity between the groups."""
        findings = self.between_groups()
        if {"true_positive_rate", "false_positive_rate"} <= set(self.estimates):
            tpr, fpr = (self.estimates[n][1] for n in ("true_positive_rate", "false_positive_rate"))
            sizes = None if tpr.sizes is None or fpr.sizes is None else np.minimum(tpr.sizes, fpr.sizes)
            values = np.where(np.isfinite(fpr.values), tpr.values, np.nan)
            both = Estimate(values, tpr.limits, sizes, {**fpr.doubts, **tpr.doubts})
            for comparison in odds(tpr, fpr):
                finding = self._compare(comparison.metric, comparison.better, comparison.spread, both, None)
                findings.append(self._turning(finding, ("true_positive_rate", "false_positive_rate")))
        findings += self._worst_loss()
        table = of_key(self.totals, SCORES.key)
        if isinstance(table, ScoreTable):
            curved = self.labelled and self.context.scorer.task != "regression"
            scores = self.totals.get(SCORES.key) if curved else None
            findings.append(parity_of_scores(self.about, table, of_key(self.buckets, SCORES.key), scores))
        unknowns, findings = self._unknowns(), self.with_unknowns(findings)
        if unknowns.missing and self.label is None:
            findings.append(unknowns.finding(self.about.auditor, self.context.confidence, findings))
        return findings if self.few is None else [*findings, self.few.finding(self.about.auditor)]

    def _caveats(self, estimate: Estimate, metric: Metric | None) -> tuple[list[str], str | None]:
        """Say what keeps a verdict from being made: what `Caveats` says, and too few labels, or labels that lean."""
        notes, why = self.about.caveats.of(estimate)
        metric = metric or self.estimates["true_positive_rate"][0] if self.few is not None else None
        if self.few is None or metric is None or not metric.outcome:
            return list(notes), why
        caveat = self.few.caveat(metric)
        return ([*notes], why) if caveat is None else ([*notes, caveat], " ".join(filter(None, (why, caveat))))

    def _turning(self, finding: Finding, names: Sequence[str]) -> Finding:
        """Add the interval where labels were looked up at other odds, and the odds at which 0 or 1 enters it."""
        few = self.few
        if few is None or any(name not in few.today for name in names):
            return finding

        def under(factor: float, confidence: float) -> tuple[float, float] | None:
            parts = [few.under(name, factor) for name in names]
            metric, estimate = parts[0]
            made = comparisons(names[0], metric.better, metric.between, estimate, metric.alias)
            made = made if len(names) == 1 else odds(*(part for _, part in parts))
            return ends_of(next(one for one in made if one.metric == finding.metric).spread(confidence))

        interval = finding.interval
        evidence = dict(finding.evidence)
        if interval is not None and interval[0] > 0 and finding.metric.endswith("_difference"):
            turns = turning_odds(lambda gamma: (under(gamma, finding.confidence) or (0.0, 1.0))[0] > 0)
            evidence["turns_at"] = None if turns is None or math.isinf(turns) else turns
        return replace(finding, evidence=evidence, under=under)

    def family(self) -> Family:
        """Return the family of rates over which the intervals hold simultaneously."""
        metrics = [m for m, _ in self.estimates.values() if {"difference", "ratio"} & m.between]
        scores = isinstance(of_key(self.totals, SCORES.key), ScoreTable)
        # else rates depend as those of the same single rows
        if self.buckets or self.context.dataset.profile.unlabelled:
            return Family(None, [], len(metrics) + scores)
        rates = [metric for metric in metrics if metric.statistic is CONFUSION]
        cells = self.totals.get(CONFUSION.key)
        others = len(metrics) - len(rates) + scores
        return Family(cells if isinstance(cells, Sums) else None, rates, others)

    def with_unknowns(
        self, findings: list[Finding], reference: int | None = None, *, pooled: bool = False
    ) -> list[Finding]:
        """Say at every disparity what missing groups and outcomes and wrong values could do to it.

        Of what is `pooled` over strata no other bound is known than those that it has.
        """
        unknowns = self._unknowns()
        bounds = replace(unknowns, reference=reference, estimates={} if pooled else unknowns.estimates).bounds()
        if pooled:
            free = unknowns.needs_none()
            bounds = [replace(bound, others={}, free=free) for bound in bounds]
        result = []
        for finding in findings:
            evidence = {} if finding.value is None else _told(bounds, self._bounded_name(finding), finding.value)
            evidence = {name: record | finding.evidence.get(name, {}) for name, record in evidence.items()}
            result.append(replace(finding, evidence={**finding.evidence, **evidence}))
        return result

    def unknown(self, metric: str, value: float) -> dict[str, dict[str, Any]]:
        """Return the bounds of a disparity under missing values and wrong ones, by the cause."""
        return _told(self._unknowns().bounds(), metric, value)

    def over_classes(
        self,
        metric: str,
        spread: Callable[[float], Spread],
        evidence: Mapping[str, Any],
        caveats: tuple[list[str], str | None],
    ) -> Finding:
        """Write a disparity over all classes."""
        return replace(self.about, parameters={}).finding(
            metric,
            "lower",
            spread(self.context.confidence).value,
            lambda confidence: ends_of(spread(confidence)),
            evidence=evidence,
            caveats=caveats,
        )

    def _unknowns(self) -> Unknowns:
        roles, profile = self.context.dataset.roles, self.context.dataset.profile
        errors = told(self.parameters.label_error, list(profile.groups), roles.label)
        unanswered = 0 if self.few is None else self.few.unanswered
        answered = () if self.few is None else (*self.few.today, *OVER_BOTH)
        return Unknowns(
            sensitive=self.sensitive,
            rows=profile.rows,
            unlabelled=profile.unlabelled if self.few is None or self.few.design.kind == "selective" else unanswered,
            answered=answered,
            missing=profile.missing.get(str(self.sensitive), 0),
            totals=self.totals,
            without=self.without,
            estimates=self.estimates,
            error=errors.get(str(self.sensitive)),
            outcome_error=errors.get(str(roles.label)),
            binding=self.parameters.missing_share,
            label=roles.label,
        )

    def _bounded_name(self, finding: Finding) -> str:
        """Return the disparity that a finding is, for what is named otherwise."""
        loss = finding.parameters.get("loss")
        if finding.metric != "worst_group_loss" or loss == "zero_one":
            return finding.metric
        squared = "brier_score" if self.context.scorer.task == "binary" else "mean_squared_error"
        return f"{squared if loss == 'squared' else LOSSES[str(loss)]}_group_max"

    def _worst_loss(self) -> list[Finding]:
        regression = self.context.scorer.task == "regression"
        loss = self.parameters.loss or ("squared" if regression else "logistic")
        name = "mean_squared_error" if regression and loss == "squared" else LOSSES[loss]
        if name not in self.estimates:
            return []
        estimate = self.estimates[name][1]
        if loss == "zero_one":
            estimate = _one_minus(estimate)
        worst = next(c for c in comparisons("loss", "lower", frozenset({"extreme"}), estimate))
        finding = self._compare("worst_group_loss", "lower", worst.spread, estimate, None)
        return [replace(finding, parameters={**finding.parameters, "loss": loss})]

    def _compare(
        self, metric: str, better: Better, spread: Callable[[float], Spread], estimate: Estimate, base: str | None
    ) -> Finding:
        here = spread(self.context.confidence)
        order = np.argsort(np.where(np.isfinite(estimate.values), estimate.values, np.inf))
        defined = [int(i) for i in order if math.isfinite(estimate.values[i])]
        evidence: dict[str, Any] = {}
        if len(defined) > 1:
            evidence = {"lowest_group": self.about.names[defined[0]], "highest_group": self.about.names[defined[-1]]}
        evidence |= self._bound(base)
        finding = self.about.finding(
            metric,
            better,
            here.value,
            lambda confidence: ends_of(spread(confidence)),
            groups=self._group_values(estimate, base),
            evidence=evidence,
            caveats=self._caveats(estimate, None if base is None else self.estimates[base][0]),
        )
        return finding if base is None else replace(finding, missing=self._missing(base))

    def _missing(self, name: str) -> GroupValue | None:
        """Return a metric of the rows without a group."""
        if not self.without:
            return None
        if name not in self._without_group:
            rows = self.context.dataset.profile.missing.get(str(self.sensitive), 0)
            rng = self.context.rng(f"{name} {self.sensitive} {self.label} missing")
            self._without_group[name] = ungrouped(
                self.estimates[name][0], self.without, self.without_buckets, rows, self.context.confidence, rng
            )
        return self._without_group[name]

    def _bound(self, base: str | None) -> dict[str, Any]:
        if base != RocAuc.name or not isinstance(self.totals.get(SCORES.key), ScoreTable):
            return {}
        bound = RocAuc.bound(self.totals[SCORES.key])
        return {"discretisation_bound": bound} if bound else {}

    def _group_values(self, estimate: Estimate, base: str | None) -> tuple[GroupValue, ...]:
        low, high = estimate.limits(own_quantile(self.context.confidence, estimate.correlation))
        over = None  # the rows that a rate is over, or their effective number under weights
        if base is not None and isinstance(self.estimates[base][0], Rate) and estimate.sizes is not None:
            over = [float(size) if math.isfinite(size) else None for size in estimate.sizes]
        return self.about.group_values(estimate.values, low, high, over)


def _told(bounds: Sequence[Any], metric: str, value: float) -> dict[str, dict[str, Any]]:
    each = {bound.name: bound.of(metric, value) for bound in bounds}
    return {name: record for name, record in each.items() if record}


def _one_minus(estimate: Estimate) -> Estimate:
    def limits(z: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = estimate.limits(z)
        return 1 - high, 1 - low

    return replace(estimate, values=1 - estimate.values, limits=limits)


def _one_interval(estimate: Estimate) -> Callable[[float], tuple[float, float] | None]:
    def interval(confidence: float) -> tuple[float, float] | None:
        low, high = estimate.limits(own_quantile(confidence, estimate.correlation))
        finite = math.isfinite(low[0]) and math.isfinite(high[0])
        return (float(low[0]), float(high[0])) if finite else None

    return interval


def ends_of(spread: Spread) -> tuple[float, float] | None:
    """Return the ends of an interval; None where one is not finite."""
    finite = math.isfinite(spread.low) and math.isfinite(spread.high)
    return (spread.low, spread.high) if finite else None


# One batch of rows, totalled: by group, and where it is asked for by stratum, by bucket of clusters, by proxy.


MOST_CELLS = 1_000
"""With more strata times groups scores are not kept by bucket: memory must not grow with them."""

SCORE_CELLS = 500_000
"""Scores by bucket say how much rows of a cluster add up; they need not be as fine as those by group."""


class Collecting:
    """Adds one batch up."""

    def __init__(self, batch: Batch, dataset: Dataset) -> None:
        self.batch, self.dataset, self.totals = batch, dataset, GroupTotals()

    def add(self, label: str | None, rows: Rows, statistics: Mapping[str, Statistic], of: str = "") -> None:
        """Add the rows as one class sees them; `of` ends the keys, where not all have a label."""
        statistics = {key + of: statistic for key, statistic in statistics.items()}
        for sensitive, found, n_groups in self._splits():
            has_group, codes, whole, buckets = found >= 0, found, rows, self.batch.clusters
            if not has_group.all():
                key, rest = CONFUSION.key + of, some_rows(rows, ~has_group)
                for within, strata in self.batch.strata.items() if key in statistics else ():
                    part = collected(CONFUSION, rest, strata[~has_group], len(self.dataset.stratum_names(within)))
                    self.totals.strata_missing[within, str(sensitive), label, key] = part
                gone = None if buckets is None else buckets[~has_group]
                none = np.zeros(len(rest.outcome), dtype=np.int64)
                missing = self.totals.missing, self.totals.missing_clusters
                _total(missing, (sensitive, label), statistics, rest, none, gone, 1)
                whole, codes = some_rows(rows, has_group), found[has_group]
                buckets = None if buckets is None else buckets[has_group]
            parts = self.totals.parts, self.totals.clusters
            _total(parts, (sensitive, label), statistics, whole, codes, buckets, n_groups)
            if sensitive is not None:
                self._add_strata(sensitive, label, whole, statistics, codes, n_groups, has_group)
        for name, shares in self.batch.probabilities.items():
            roles, group_known = self.dataset.roles, None
            if name in roles.known:
                group_known = known_groups(self.batch.column(name), proxies(roles)[name])
            self.totals.proxies[name, label, of] = proxy_totals(rows, shares, self.batch.clusters, group_known)

    def _splits(self) -> Iterator[tuple[str | None, NDArray[np.int64], int]]:
        if not self.batch.groups:
            yield None, np.zeros(len(self.batch), dtype=np.int64), 1
        for sensitive, codes in self.batch.groups.items():
            yield sensitive, codes, len(self.dataset.group_names(sensitive))

    def _add_strata(
        self,
        sensitive: str,
        label: str | None,
        rows: Rows,
        statistics: Mapping[str, Statistic],
        codes: NDArray[np.int64],
        n_groups: int,
        has_group: NDArray[np.bool_],
    ) -> None:
        for within, strata in self.batch.strata.items():
            count = len(self.dataset.stratum_names(within)) * n_groups
            cells = (strata if has_group.all() else strata[has_group]) * n_groups + codes
            for key, statistic in statistics.items():
                slot = (within, sensitive, label, key)
                clusters = self.batch.clusters
                if clusters is not None and isinstance(statistic, Scores) and count > MOST_CELLS:
                    continue  # `fairkit_group.stratified_findings` says so
                self.totals.strata[slot] = collected(statistic, rows, cells, count)
                if clusters is not None:
                    self.totals.strata_clusters[slot] = _by_bucket(
                        statistic, rows, cells, clusters[has_group], count, STRATA_BUCKETS
                    )


def _total(
    parts: tuple[dict[Key, Any], dict[Key, Any]],
    view: tuple[str | None, str | None],
    statistics: Mapping[str, Statistic],
    rows: Rows,
    codes: NDArray[np.int64],
    buckets: NDArray[np.int64] | None,
    n_groups: int,
) -> None:
    """Put the totals of rows by group into the first part, and those by group and bucket into the second."""
    for key, statistic in statistics.items():
        parts[0][*view, key] = collected(statistic, rows, codes, n_groups)
        if buckets is not None:
            parts[1][*view, key] = _by_bucket(statistic, rows, codes, buckets, n_groups, SCORE_BUCKETS)


def _by_bucket(
    statistic: Statistic, rows: Rows, codes: NDArray[np.int64], buckets: NDArray[np.int64], n_groups: int, many: int
) -> Any:
    """Total rows by group and bucket; scores by `many` buckets, in coarse cells."""
    if not isinstance(statistic, Scores):
        return summed(statistic, rows, codes * BUCKETS + buckets, n_groups * BUCKETS)
    fewer = buckets // (BUCKETS // many)
    coarse = Scores(statistic.low, statistic.high, statistic.limit, SCORE_CELLS)
    return collected(coarse, rows, codes * many + fewer, n_groups * many)
