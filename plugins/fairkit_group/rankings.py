"""The findings of rankings: every number over queries, and the disparities between groups inside them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.auditing.needs import no_bounds
from fairkit.errors import ParameterError
from fairkit.metrics import Headline, Term
from fairkit_group.section import Section
from fairkit_group.simultaneous import joint_confidence, marked
from fairkit_rankings import Queries, QueryMetric, adjusted, mean_of, per_relevance, queries_of, ratio_of

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext, Auditor
    from fairkit.metrics import Metric
    from fairkit.results.findings import Better, Finding
    from fairkit_rankings import Items, Pulls


OF_K = ("top_k_rate", "top_k_share", "ndcg")
"""The numbers that depend on how many places are the top."""


def check_ranking(parameters: Any) -> None:
    """Refuse parameters that mean nothing in rankings."""
    if parameters.loss is not None:
        raise ParameterError("group.loss means nothing in a ranking; leave it out")
    if parameters.label_error:
        raise ParameterError(
            "what wrong values could do to a ranking is not known: leave out the parameter `group.label_error`"
        )


def of_rankings(auditor: Auditor, total: Items, context: AuditContext) -> list[Finding]:
    """Compute every metric from all items."""
    profile = context.dataset.profile
    sizes: list[tuple[str | None, int]] = [(None, 1)]
    sizes += [(name, len(context.dataset.group_names(name))) for name in profile.groups]
    queries = queries_of(total.whole(), auditor.parameters.top_k, sizes)
    findings = _about(auditor, context, None, queries[0], ("queries", "rankings")).overall()
    families = []
    for (sensitive, _), grouped in zip(sizes[1:], queries[1:], strict=True):
        section = _about(auditor, context, sensitive, grouped, ("queries", "groups of queries"))
        findings += [no_bounds(gap, context.dataset) for gap in section.between_groups()]
        families.append(section.family())
    if auditor.parameters.simultaneous and families:
        level = joint_confidence(families, context.confidence, context.rng("simultaneous"))
        findings = marked(findings, level)
    evidence = {"k": auditor.parameters.top_k}
    count = {"queries": len(queries[0].rows)}
    findings = [replace(finding, evidence={**finding.evidence, **count}) for finding in findings]
    return [
        replace(finding, parameters={**finding.parameters, **evidence}) if finding.metric.startswith(OF_K) else finding
        for finding in findings
    ]


def _about(
    auditor: Auditor, context: AuditContext, sensitive: str | None, queries: Queries, keys: tuple[str, ...]
) -> Section:
    """Return a section with the ranking metrics whose inputs these sums contain."""
    usable = [cls for cls in context.metrics if issubclass(cls, QueryMetric) and cls().has(queries)]
    return Section(auditor, replace(context, metrics=usable), sensitive, None, dict.fromkeys(keys, queries))


# Metrics of rankings: exposure, places in the top, treatment and impact by relevance, pairs, and NDCG.


SINGH = "Singh and Joachims 2018, Fairness of Exposure in Rankings, doi:10.1145/3219819.3220088"


class Exposure(QueryMetric):
    """The mean exposure of a group's items (demographic parity of exposure)."""

    name = "exposure"
    term: ClassVar[Term | None] = Term(
        "exposure", "How much of the attention that a ranking gives out an item gets; the first place has 1."
    )
    better: ClassVar[Better] = "none"
    outcome = False
    between = frozenset({"difference", "ratio"})
    meaning = "1: every item stands first; 0: none is seen."
    citation = SINGH
    headline = Headline(between=21, column=21)
    over = "groups of queries"

    def pulls(self, queries: Queries) -> Pulls:
        """Average 1 / log2(1 + position) over a group's items of a query, then over queries."""
        return adjusted(queries.exposure, queries)


class TopRate(QueryMetric):
    """The share of a group's items that is among the first k of its query."""

    name = "top_k_rate"
    term: ClassVar[Term | None] = Term(
        "items among the first k", "The share of a group's items that is among the first k of its ranking."
    )
    better: ClassVar[Better] = "none"
    outcome = False
    between = frozenset({"difference", "ratio"})
    meaning = "1: all of the items are among the first k; 0: none is."
    headline = Headline(between=22, column=22)
    over = "groups of queries"

    def pulls(self, queries: Queries) -> Pulls:
        """Average the chance of one of the first k places."""
        return adjusted(queries.top, queries)


class TopShare(QueryMetric):
    """The share of the first k places that a group's items have, over all queries."""

    name = "top_k_share"
    term: ClassVar[Term | None] = Term(
        "share of the first k places", "The share of the first k places of all rankings that a group has."
    )
    better: ClassVar[Better] = "none"
    outcome = False
    between = frozenset({"extreme"})
    meaning = "1: all of the first k places; 0: none of them."
    headline = Headline(column=23)
    over = "groups of queries"

    def pulls(self, queries: Queries) -> Pulls:
        """Divide a group's places in the top by all places in the top."""
        top = queries.top.T
        share, pull = ratio_of(top, np.broadcast_to(top.sum(axis=0), top.shape))
        return share, pull, np.ones(top.shape, dtype=bool)


class ExposureOfMerit(QueryMetric):
    """Exposure for relevance: a group's mean exposure over its mean relevance (disparate treatment)."""

    name = "exposure_per_relevance"
    alias = "disparate_treatment"
    term: ClassVar[Term | None] = Term("exposure for relevance", "Exposure that one unit of relevance gets.")
    better: ClassVar[Better] = "none"
    between = frozenset({"ratio"})
    range = (0.0, np.inf)
    meaning = "Exposure that one unit of relevance gets; the ratio is 1 where all groups get as much."
    citation = SINGH
    over = "groups of queries"

    def pulls(self, queries: Queries) -> Pulls:
        """Divide the sum over queries of a group's mean exposure by that of its mean relevance."""
        return per_relevance(queries.exposure, queries)


class ClicksOfMerit(QueryMetric):
    """Clicks for relevance: a group's mean exposure times relevance over its mean relevance (disparate impact)."""

    name = "clicks_per_relevance"
    alias = "disparate_impact"
    term: ClassVar[Term | None] = Term("clicks for relevance", "Expected clicks that one unit of relevance gets.")
    better: ClassVar[Better] = "none"
    between = frozenset({"ratio"})
    meaning = "Expected clicks that one unit of relevance gets; the ratio is 1 where all groups get as many."
    citation = SINGH
    over = "groups of queries"

    def pulls(self, queries: Queries) -> Pulls:
        """Divide the sum over queries of a group's mean exposure times relevance by that of its mean relevance."""
        assert queries.clicks is not None  # noqa: S101 -- asked of labelled rankings only
        return per_relevance(queries.clicks, queries)


class PairwiseAccuracy(QueryMetric):
    """The share of pairs in the right order, of a group's items with less relevant ones of their query."""

    name = "pairwise_accuracy"
    term: ClassVar[Term | None] = Term(
        "pairs in the right order", "The share of pairs of which the more relevant item stands above the other."
    )
    better: ClassVar[Better] = "higher"
    meaning = "1: every item stands above all less relevant ones; 0.5: no better than chance."
    citation = "Beutel et al. 2019, Fairness in Recommendation Ranking through Pairwise Comparisons"
    headline = Headline(performance=22, between=23, column=24)

    def has(self, queries: Queries) -> bool:
        """Whether pairs were counted."""
        return queries.pairs is not None

    def pulls(self, queries: Queries) -> Pulls:
        """Divide the pairs in the right order by all pairs; equal scores count half."""
        assert queries.right is not None and queries.pairs is not None  # noqa: S101, PT018 -- see `has`
        accuracy, pull = ratio_of(queries.right.T, queries.pairs.T)
        return accuracy, pull, np.asarray(queries.pairs.T > 0)


class Ndcg(QueryMetric):
    """NDCG at k, averaged over the queries with a relevant item."""

    name = "ndcg"
    term: ClassVar[Term | None] = Term(
        "quality of the first k places", "How near the first k places are to the best order; 1 is the best."
    )
    better: ClassVar[Better] = "higher"
    between = frozenset()
    meaning = "1: the best order of the first k; 0: nothing relevant among them."
    citation = "Järvelin and Kekäläinen 2002, doi:10.1145/582415.582418"
    headline = Headline(performance=21)
    over = "rankings"

    def pulls(self, queries: Queries) -> Pulls:
        """Average over queries."""
        assert queries.ndcg is not None  # noqa: S101 -- asked of labelled rankings only
        there = np.isfinite(queries.ndcg)[None]
        return (*mean_of(queries.ndcg[None], there), there)


EXPOSURE: list[type[Metric]] = [Exposure, TopRate, TopShare, ExposureOfMerit, ClicksOfMerit, PairwiseAccuracy, Ndcg]
