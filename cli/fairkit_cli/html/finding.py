"""One finding as a page: the number, what it means, its groups and strata, what a reader must know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit_cli.fields import as_options
from fairkit_cli.html.groups import bar_cell, bar_scale
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import page, table
from fairkit_cli.text.glossary import metric_term
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.view import metric_name

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.values import GroupValue, StratumValue


def finding_page(finding: Finding) -> str:
    """Return a finding as one HTML file."""
    term = metric_term(finding.metric)
    place: Content = [" between groups of ", name_of(finding.place)] if finding.place else " over all rows"
    head = [tag("strong", term.plain, ": ", number(finding.value)), place]
    body: list[Content] = [
        tag(
            "p",
            head,
            _interval(finding),
            class_=f"verdict {'inconclusive' if finding.inconclusive else 'none'}",
        ),
        tag("p", f"Undecided: {finding.inconclusive}") if finding.inconclusive else None,
        tag("p", term.meaning, " ", tag("span", metric_name(finding), class_="muted small")),
        _values("group", [(one.group, one) for one in finding.groups]),
        _values("stratum", [(one.stratum, one) for one in finding.strata]),
        tag("ul", [tag("li", as_options(note)) for note in finding.notes]) if finding.notes else None,
    ]
    return page(f"{finding.metric} {finding.place or ''}".strip(), body)


def _interval(finding: Finding) -> str:
    if finding.interval is None:
        return ". There is no interval."
    return f", {finding.confidence:.0%} interval {interval(finding.interval)}."


def _values(what: str, values: Sequence[tuple[str, GroupValue | StratumValue]]) -> Markup | None:
    if not values:
        return None
    scale = bar_scale([(one.value, one.interval) for _, one in values])
    rows: list[Sequence[Content]] = [
        (name_of(name), f"{one.rows:,}", bar_cell(one.value, one.interval, scale)) for name, one in values
    ]
    return table((what, "rows", "value and interval"), rows, numeric={1, 2}, label=f"Each {what}")
