"""The plain name and a one-sentence explanation of each metric and term, beside the field's own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairkit.metrics import Term
from fairkit_cli.text.headlines import all_terms, headlines, usual_terms

TERMS: Mapping[str, Term] = {
    "favorable": Term("favorable decision", "The decision that is good for the person, as approved or hired."),
    "qualified": Term("qualified", "A person whose outcome in the table is the favorable one."),
    "unqualified": Term("unqualified", "A person whose outcome in the table is the other one."),
    "interval": Term(
        "interval",
        "The range in which the true number lies with the stated confidence, if other people of the same kind "
        "were drawn; errors in the table are not in it.",
    ),
    "confidence": Term("confidence", "How often such an interval holds the true number: at 95%, in 19 of 20 audits."),
    "sensitive": Term("sensitive column", "A column by which people are split into groups, as sex or age."),
    "group": Term("group", "The people with one value in a sensitive column."),
    "policy": Term("policy", "The limits that were set before the audit, each on one number."),
    "pass": Term("pass", "The whole interval keeps the limit."),
    "fail": Term("fail", "The whole interval is beyond the limit."),
    "inconclusive": Term(
        "inconclusive", "The interval contains the limit, or a group is too small: these rows do not decide."
    ),
    "digest": Term("SHA-256", "A fingerprint of a file or a table: whoever changes one character gets another one."),
}
"""The words of a page that are no metrics."""


def metric_term(metric: str) -> Term:
    """Return the plain name and meaning of a metric, as the plugin that measures it declares them."""
    bases = {metric.removesuffix(ending) for ending, _, _ in _ENDINGS} - {metric}
    declared = usual_terms() if usual_terms().keys() & {metric, *bases} else all_terms()
    if metric in declared:
        return declared[metric]
    for ending, name, meaning in _ENDINGS:
        base = metric.removesuffix(ending)
        if base != metric:
            of = metric_term(base)
            return Term(name.format(of.plain), meaning.format(of.plain))
    return headlines().terms.get(metric) or Term(
        metric.replace("_", " "), f"The number that its auditor calls {metric}."
    )


_ENDINGS = (
    ("_difference", "difference: {}", "The largest minus the smallest group's number of: {}; 0 is equal."),
    ("_ratio", "ratio: {}", "The smallest over the largest group's number of: {}; 1 is equal."),
    ("_group_min", "lowest group: {}", "The smallest number of any group, of: {}."),
    ("_group_max", "highest group: {}", "The largest number of any group, of: {}."),
)


def used_terms(metrics: Iterable[str]) -> list[tuple[str, Term]]:
    """Return the metrics that a page shows and the words that every page uses, by key, in alphabetical order."""
    found = {metric: metric_term(metric) for metric in metrics}
    return sorted((found | dict(TERMS)).items(), key=lambda pair: pair[1].plain.lower())
