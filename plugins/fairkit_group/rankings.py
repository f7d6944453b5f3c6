"""The findings of rankings: every number over queries, and the disparities between groups inside them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit.auditing.conditions import no_bounds
from fairkit.errors import ParameterError
from fairkit_group.section import Section
from fairkit_group.simultaneous import joint_confidence, marked
from fairkit_rankings.queries import Queries, queries_of

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext, Auditor
    from fairkit.results.findings import Finding
    from fairkit_rankings.items import Items

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
        findings += [no_bounds(one, context.dataset) for one in section.between_groups()]
        families.append(section.family())
    if auditor.parameters.simultaneous and families:
        level = joint_confidence(families, context.confidence, context.rng("simultaneous"))
        findings = marked(findings, level)
    told = {"k": auditor.parameters.top_k}
    count = {"queries": len(queries[0].rows)}
    findings = [replace(one, evidence={**one.evidence, **count}) for one in findings]
    return [
        replace(one, parameters={**one.parameters, **told}) if one.metric.startswith(OF_K) else one for one in findings
    ]


def _about(
    auditor: Auditor, context: AuditContext, sensitive: str | None, queries: Queries, keys: tuple[str, ...]
) -> Section:
    """Return a section with the ranking metrics whose inputs these sums contain."""
    from fairkit_rankings.metric import QueryMetric

    usable = [cls for cls in context.metrics if issubclass(cls, QueryMetric) and cls().has(queries)]
    return Section(auditor, replace(context, metrics=usable), sensitive, None, dict.fromkeys(keys, queries))
