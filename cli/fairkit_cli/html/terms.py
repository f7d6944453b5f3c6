"""Metrics under their plain name with the field's name beside it, and the glossary that explains them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fairkit_cli.html.markup import Content, Markup, join, tag
from fairkit_cli.html.page import section
from fairkit_cli.text.glossary import TERMS, metric_term, used_terms
from fairkit_cli.text.ranking import disparities, performance

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


def _place(key: str) -> str:
    return "term-" + re.sub(r"[^A-Za-z0-9_-]", "-", key)


def metric_link(finding: Finding) -> Markup:
    """Return a finding's metric: its plain name, which leads to the glossary, and the field's name in small."""
    told = [f"{key} {finding.parameters[key]}" for key in ("class", "epsilon") if key in finding.parameters]
    about = f" ({', '.join(told)})" if told else ""
    return join(
        [
            term_link(finding.metric, metric_term(finding.metric).plain),
            about,
            " ",
            tag("span", finding.metric, class_="muted small"),
        ]
    )


def term_link(key: str, shown: str) -> Markup:
    """Return a word that shows its explanation while one hovers over it, and leads to it in the glossary."""
    meaning = TERMS[key].meaning if key in TERMS else metric_term(key).meaning
    return tag("a", shown, href=f"#{_place(key)}", title=meaning, class_="term")


def glossary(report: Report) -> Markup:
    """Return the section that explains every metric of the page, and the words that it uses."""
    linked = {finding.metric for finding in [*disparities(report), *performance(report)]}
    metrics = [
        metric
        for metric in dict.fromkeys(finding.metric for finding in report.findings)
        if metric in linked
        or not metric.endswith(("_group_min", "_group_max"))  # their names say what they are
    ]
    entries: list[Content] = [
        join(
            [
                tag("dt", term.plain, id=_place(key)),
                tag(
                    "dd",
                    term.meaning,
                    None if key in TERMS else [" ", tag("span", key, class_="muted small")],
                ),
            ]
        )
        for key, term in used_terms(metrics)
    ]
    return section("What the words mean", tag("dl", entries, class_="glossary"))
