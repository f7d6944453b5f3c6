"""The auditor `group`: every metric in every group, and the disparities between the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from fairkit.auditing.conditions import WAYS_OUT
from fairkit.auditing.views import views
from fairkit.auditors import AuditContext, Auditor
from fairkit.metrics import CONFUSION
from fairkit.models.scale import is_own
from fairkit.parameters.declare import parameter
from fairkit.statistics import EXACT_SCORES, Rows, Scores, Statistic
from fairkit_group.collecting import Collecting
from fairkit_group.headlines import HEADLINES, TERMS
from fairkit_group.labelled import LABELLED_SHARE, Labelled, check_design, known_rows, label_totals_of
from fairkit_group.misclassified import told
from fairkit_group.over_classes import over_classes
from fairkit_group.proxies import by_proxies
from fairkit_group.ranking import SCORES
from fairkit_group.rankings import check_ranking, of_rankings
from fairkit_group.references import against_reference, reference_in
from fairkit_group.section import Section
from fairkit_group.simultaneous import Family, joint_confidence, marked
from fairkit_group.totals import EVERYBODY
from fairkit_group.unknowns import MISSING_SHARE
from fairkit_group.within import inside_strata
from fairkit_rankings.items import Items, items_of
from fairkit_rankings.queries import TOP

if TYPE_CHECKING:
    from fairkit.data.batch import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Headline, Metric, Term
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Finding
    from fairkit_group.totals import GroupTotals

_BETWEEN = ("difference", "ratio", "group_min", "group_max")


class GroupAuditor(Auditor):
    """Measures all group metrics of the installed plugins.

    For every metric: the value over all rows and in each group, and between the groups of each sensitive
    column the largest difference, the smallest ratio and the worst group, each with an interval
    (see `fairkit.intervals`).
    """

    name: ClassVar[str] = "group"
    summary: ClassVar[str] = "Rates, scores and errors per group, and the disparities between groups."
    uses: ClassVar[frozenset[str]] = frozenset(WAYS_OUT)
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass", "regression", "ranking"})
    headlines: ClassVar[Mapping[str, Headline]] = HEADLINES
    terms: ClassVar[Mapping[str, Term]] = TERMS

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set group.KEY=VALUE."""

        min_group: int = parameter(
            30, help="A group with fewer rows in a metric's denominator makes findings inconclusive.", minimum=1
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
            0.0,
            help="Above this share of missing groups or labels there is no verdict where no bounds are known.",
            minimum=0,
            maximum=1,
        )
        simultaneous: bool = parameter(
            False, help="Add intervals of all disparities that hold together, from the totals."
        )
        label_error: tuple[str, ...] = parameter(
            (), help="The largest share of wrong values in a sensitive column or the label: sex=0.1."
        )
        probability_error: float | None = parameter(
            None,
            help="How far the groups' shares may be from `sensitive_probability`; 0: calibrated. Default: no verdict.",
            minimum=0,
            maximum=1,
        )
        top_k: int = parameter(TOP, help="How many places of a ranking are its top.", minimum=1)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Name the columns of groups that are known beside their probabilities."""
        return context.dataset.roles.known

    def needs_rows(self, metrics: Sequence[type[Metric]]) -> str | None:
        """Return None unless a metric keeps rows."""
        kept = [metric.name for metric in metrics if metric().statistic.keeps_rows]
        return f"the metric {kept[0]!r} is computed from single rows" if kept else None

    def begin(self, context: AuditContext) -> None:
        """Check what was said about wrong values."""
        told(self.parameters.label_error, list(context.dataset.profile.groups), context.dataset.roles.label)
        if context.scorer.task == "ranking":
            check_ranking(self.parameters)
        check_design(context, self.parameters.label_error)

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings: metrics, disparities in them, and what it says over several of them."""
        stems = [stem for metric in metrics for stem in (metric.name, metric.alias) if stem]
        return frozenset(
            {
                *stems,
                *(f"{stem}_{between}" for stem in (*stems, "equalized_odds") for between in _BETWEEN),
                *cls.headlines,
                MISSING_SHARE,
                LABELLED_SHARE,
            }
        )

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> GroupTotals | Items:
        """Total one batch."""
        if context.scorer.task == "ranking":
            return items_of(batch, [predictions], context.dataset)
        total, seen = Collecting(batch, context.dataset), batch.labelled
        for label, rows in views(batch, predictions, context.scorer, context.dataset):
            total.add(label, rows, self._statistics(rows, context), EVERYBODY if seen is not None else "")
        if seen is None:
            return total.totals()
        design = context.dataset.roles.labelled
        whole = total.totals()
        if design is not None:
            whole = replace(whole, labels=label_totals_of(batch, predictions, context.dataset))
        chosen = known_rows(batch, predictions, design)
        if chosen is None:
            return whole
        known = Collecting(chosen[0], context.dataset)
        for label, rows in views(*chosen, context.scorer, context.dataset):
            known.add(label, rows, self._statistics(rows, context, outcome=True))
        return known.totals() + whole

    def _statistics(self, rows: Rows, context: AuditContext, *, outcome: bool = False) -> dict[str, Statistic]:
        """The statistics that the metrics need, each once; where labels are missing those that need none apart."""
        chosen = _metrics(rows, context)
        if context.dataset.profile.unlabelled:
            chosen = [metric for metric in chosen if metric.outcome == outcome]
        statistics = {metric.statistic.key: metric.statistic for metric in chosen}
        if context.dataset.profile.unlabelled and not outcome and rows.decision is not None:
            statistics[CONFUSION.key] = CONFUSION  # bounds compare it with that of the labelled rows
        if rows.score is not None:
            low, high = 0.0, 1.0
            if context.scorer.task == "regression":
                low, high = context.dataset.profile.label_range or (0.0, 1.0)
            statistics[SCORES.key] = Scores(low, high, self.parameters.exact_scores)
        return statistics

    def findings(self, total: GroupTotals | Items, context: AuditContext) -> list[Finding]:
        """Compute every metric from the totals."""
        if isinstance(total, Items):
            return of_rankings(self, total, context)
        findings: list[Finding] = []
        families: list[Family] = []
        classes: dict[str, list[Section]] = {}
        labels = dict.fromkeys(label for _, label, _ in total.parts)
        splits: list[str | None] = [*context.dataset.profile.groups] or [None]
        for label in labels:
            design = Labelled.of(total.labels, None, context)
            findings += Section(self, context, None, label, *total.everybody(splits[0], label), few=design).overall()
            for sensitive in splits:
                if sensitive is None:
                    continue
                totals, without = total.of(sensitive, label)
                buckets, gone = total.buckets(sensitive, label)
                design = Labelled.of(total.labels, sensitive, context)
                section = Section(self, context, sensitive, label, totals, buckets, without, gone, design)
                findings += section.disparities()
                reference = reference_in(section)
                place = None if reference is None else reference.place
                findings += section.with_unknowns(against_reference(section), place)
                findings += section.with_unknowns(list(inside_strata(section, total)), pooled=True)
                families.append(section.family())
                if label is not None:
                    classes.setdefault(sensitive, []).append(section)
            findings += by_proxies(self, context, label, total)
        for sections in classes.values():
            findings += over_classes(sections)
        if self.parameters.simultaneous and families:
            level = joint_confidence(families, context.confidence, context.rng("simultaneous"))
            findings = marked(findings, level)
        return findings


def _metrics(rows: Rows, context: AuditContext) -> list[Metric]:
    """The metrics that these rows have what it takes for."""
    task = context.scorer.task
    if task == "multiclass" and rows.score is None and bool((rows.outcome == 1).all()):
        return [metric() for metric in context.metrics if metric.name == "accuracy"]
    kind = "binary" if task == "multiclass" else task
    info = context.scorer.info  # a search for a repair scores without a model
    ranks = info is not None and is_own(info.outputs)
    has = {"decision": rows.decision is not None, "score": rows.score is not None}
    return [
        metric()
        for metric in context.metrics
        if kind in metric.tasks
        and all(has[need] for need in metric.needs)
        and (metric.ranks or not ranks or "score" not in metric.needs)
    ]
