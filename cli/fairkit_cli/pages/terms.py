"""Metrics under their plain name with the field's name beside it, and the glossary that explains them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fairkit.reading import TERMS, disparities, metric_name, metric_term, performance, used_terms
from fairkit_cli.pages.parts import Facts, Inline, On, Section, Span, page_only

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


def _anchor(key: str) -> str:
    return "term-" + re.sub(r"[^A-Za-z0-9_-]", "-", key)


def term(key: str, shown: str) -> Span:
    """Return a word that says its meaning while one hovers over it, and leads to it in the glossary."""
    meaning = TERMS[key].meaning if key in TERMS else metric_term(key).meaning
    return Span(shown, "term", f"#{_anchor(key)}", meaning)


def metric_cell(finding: Finding) -> list[Inline]:
    """Return a finding's metric: on pages its plain name and the field's in small, elsewhere the field's."""
    about = metric_name(finding).removeprefix(finding.metric)
    return [
        *page_only(term(finding.metric, metric_term(finding.metric).plain), about, " ", Span(finding.metric, "small")),
        Span(metric_name(finding), on=On.TEXT),
    ]


def glossary(report: Report) -> Section:
    """Return the section that explains every metric of the page, and the words that it uses."""
    linked = {finding.metric for finding in [*disparities(report), *performance(report)]}
    metrics = [
        metric
        for metric in dict.fromkeys(finding.metric for finding in report.findings)
        if metric in linked or not metric.endswith(("_group_min", "_group_max"))  # their names say what they are
    ]
    entries: list[tuple[Inline, Inline]] = [
        (
            Span(known.plain, "anchor", title=_anchor(key)),
            [known.meaning, None if key in TERMS else [" ", Span(key, "small")]],
        )
        for key, known in used_terms(metrics)
    ]
    return Section("What the words mean", [Facts(entries, "glossary")], on=On.PAGE)
