"""One finding: the number, what it means, its groups and strata, what a reader must know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.reading import metric_name, metric_term
from fairkit.support.numbers import interval, number
from fairkit_cli.fields import as_options
from fairkit_cli.pages.groups import bar_scale
from fairkit_cli.pages.parts import Listing, Measured, Note, Page, Part, Span, Table, name_of, numbers, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.values import GroupValue, StratumValue


def finding_page(finding: Finding) -> Page:
    """Return the page of a finding."""
    term = metric_term(finding.metric)
    place = [" between groups of ", name_of(finding.place)] if finding.place else [" over all rows"]
    level = f", {finding.confidence:.0%} interval {interval(finding.interval)}."
    pair = ". There is no interval." if finding.interval is None else level
    head = [Span(f"{term.plain}: {number(finding.value)}", "strong"), *place, pair]
    parts: list[Part | None] = [
        Note(head, "banner", "undecided" if finding.inconclusive else "none", word=""),
        Note(f"Undecided: {finding.inconclusive}") if finding.inconclusive else None,
        Note([term.meaning, " ", Span(metric_name(finding), "small")]),
        _values("group", [(group.group, group) for group in finding.groups]),
        _values("stratum", [(stratum.stratum, stratum) for stratum in finding.strata]),
        Listing([as_options(note) for note in finding.notes]) if finding.notes else None,
    ]
    return Page(f"{finding.metric} {finding.place or ''}".strip(), parts)


def _values(what: str, values: Sequence[tuple[str, GroupValue | StratumValue]]) -> Table | None:
    if not values:
        return None
    scale = bar_scale([(value.value, value.interval) for _, value in values])
    rows = [(name_of(name), f"{value.rows:,}", Measured(value.value, value.interval, scale)) for name, value in values]
    return Table(f"Each {what}", [*words(what), *numbers("rows", "value and interval")], rows)
