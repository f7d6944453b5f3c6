"""The auditor `group`: every metric in every group, and the disparities between the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from fairkit.auditing.measure import views
from fairkit.auditing.needs import WAYS_OUT
from fairkit.auditors import AuditContext, Auditor
from fairkit.metrics import CONFUSION, Headline, Term
from fairkit.models.scorer import is_own
from fairkit.parameters import parameter
from fairkit.statistics import EXACT_SCORES, Rows, Scores, Statistic
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_group.errors import told
from fairkit_group.identification import LABELLED_SHARE, Labelled, check_design, known_rows, label_totals_of
from fairkit_group.missing_groups import MISSING_SHARE
from fairkit_group.proxies import by_proxies
from fairkit_group.ranking import SCORES
from fairkit_group.rankings import check_ranking, of_rankings
from fairkit_group.rates import EVERYBODY
from fairkit_group.references import against_reference, reference_in
from fairkit_group.section import Collecting, Section
from fairkit_group.simultaneous import Family, joint_confidence, marked
from fairkit_group.strata import NAMES as OVER_CLASSES
from fairkit_group.strata import over_classes
from fairkit_group.stratified_findings import inside_strata
from fairkit_rankings import TOP, Items, items_of

if TYPE_CHECKING:
    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Finding
    from fairkit_group.rates import GroupTotals


# What the auditor of groups finds besides single metrics: where it is shown, and what it is called.


_AGAINST = "against a group that `reference` names"

HEADLINES: Mapping[str, Headline] = {
    "equalized_odds_difference": Headline(
        between=4,
        disparity=False,  # the larger of two that are shown
        worse_of=("true_positive_rate_difference", "false_positive_rate_difference"),
    ),
    "equalized_odds_ratio": Headline(
        disparity=False, worse_of=("true_positive_rate_ratio", "false_positive_rate_ratio")
    ),
    "gap_max": Headline(disparity=False, worse_of=("true_positive_rate_difference", "true_negative_rate_difference")),
    "gap_rms": Headline(disparity=False),
    "statistical_parity_ks": Headline(between=8),
    "worst_group_loss": Headline(between=9, disparity=False),
    **dict.fromkeys(OVER_CLASSES, Headline(disparity=False)),
    "impact_ratio": Headline(condition=_AGAINST),
    "standardized_mean_difference": Headline(condition=_AGAINST),
    "odds_ratio": Headline(condition="inside the strata of a column that `within` names"),
}

TERMS: Mapping[str, Term] = {
    "equalized_odds_difference": Term(
        "difference in favorable decisions, qualified and unqualified apart",
        "The larger of two differences between groups: among the qualified, and among the unqualified; 0 is equal.",
        short="EO",
    ),
    "equalized_odds_ratio": Term(
        "ratio of favorable decisions, qualified and unqualified apart",
        "The smaller of two ratios between groups: among the qualified, and among the unqualified; 1 is equal.",
        short="EO",
    ),
    "gap_max": Term(
        "largest difference in right decisions",
        "The larger difference between groups in right decisions, among the qualified or among the unqualified.",
    ),
    "gap_rms": Term(
        "typical difference in right decisions",
        "The root mean square of the differences between groups in right decisions of the two outcomes.",
    ),
    "class_gap_rms": Term(
        "typical difference in right decisions over all classes",
        "The root mean square over the classes of the differences between groups in right decisions.",
    ),
    "class_gap_mean": Term(
        "mean difference in right decisions over all classes",
        "The mean over the classes of the differences between groups in right decisions.",
    ),
    "class_gap_max": Term(
        "largest difference in right decisions of any class",
        "The largest difference between groups in right decisions over the classes.",
    ),
    "statistical_parity_ks": Term(
        "difference of the score distributions",
        "The largest distance between the share of a group and of everybody with a score up to any threshold.",
        short="score distance (KS)",
    ),
    "worst_group_loss": Term("mean loss of the worst group", "The largest mean loss of any group."),
    "impact_ratio": Term("impact ratio", "A group's share of favorable decisions over that of the reference group."),
    "standardized_mean_difference": Term(
        "difference of mean scores in standard deviations",
        "A group's mean score minus the reference group's, over the standard deviation of all scores.",
    ),
    "odds_ratio": Term(
        "odds ratio", "The odds of a favorable decision in one group over those in the other; 1 is equal."
    ),
    "missing_group_share": Term("people of unknown group", "The share of people whose group is not known."),
}


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
        names = [metric.name for metric in metrics if metric().statistic.keeps_rows]
        return f"the metric {names[0]!r} is computed from single rows" if names else None

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
        between = {f"{stem}_{kind}" for stem in (*stems, "equalized_odds") for kind in _BETWEEN}
        return frozenset({*stems, *between, *cls.headlines, MISSING_SHARE, LABELLED_SHARE})

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> GroupTotals | Items:
        """Total one batch."""
        if context.scorer.task == "ranking":
            return items_of(batch, [predictions], context.dataset)
        total, seen = Collecting(batch, context.dataset), batch.labelled
        for label, rows in views(batch, predictions, context.scorer, context.dataset):
            total.add(label, rows, self._statistics(rows, context), EVERYBODY if seen is not None else "")
        if seen is None:
            return total.totals
        design = context.dataset.roles.labelled
        whole = total.totals
        if design is not None:
            whole = replace(whole, labels=label_totals_of(batch, predictions, context.dataset))
        chosen = known_rows(batch, predictions, design)
        if chosen is None:
            return whole
        collecting = Collecting(chosen[0], context.dataset)
        for label, rows in views(*chosen, context.scorer, context.dataset):
            collecting.add(label, rows, self._statistics(rows, context, outcome=True))
        return collecting.totals + whole

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
                reference_code = None if reference is None else reference.place
                findings += section.with_unknowns(against_reference(section), reference_code)
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
