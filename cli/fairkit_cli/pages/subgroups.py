"""Groups that a search found: the bound by size, the groups, which are the same people, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.escaping import number
from fairkit_cli.pages.charts import step_curve
from fairkit_cli.pages.parts import Cell, Chart, Note, On, Section, Span, Table, capital, name_of, numbers, sized, words
from fairkit_cli.text.packs import Searched, bound_sentence, described, searches, share_of, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.report import Report


def subgroup_section(report: Report) -> Section | None:
    """Return the section of the subgroup searches; None where none was made."""
    searched = searches(report)
    if not searched:
        return None
    intro = (
        "Every group that a few conditions describe was compared with all other rows. The intervals hold for all "
        "groups at once, so that the worst one may be picked afterwards."
    )
    parts = [_search(each, report.confidence) for each in searched]
    return Section(Span("Groups that nobody named", on=On.PAGE), [Note(intro, on=On.PAGE), *parts])


def _search(searched: Searched, confidence: float) -> Section:
    title = [Span(f"Groups that nobody named: {searched.name}", on=On.TEXT), Span(capital(searched.name), on=On.PAGE)]
    rows: list[Sequence[Cell]] = [
        (
            name_of(described(finding)),
            f"{finding.evidence.get('rows', 0):,}",
            share_of(finding),
            told(finding, "rate"),
            told(finding, "rest"),
            *sized(finding.value, finding.interval),
        )
        for finding in searched.listed
    ]
    columns = [*words("group"), *numbers("rows", "share", *searched.columns, "difference", "interval")]
    table = Table(f"Groups that differ in {searched.name}", columns, rows)
    listed = table if rows else Note("No group was found whose disadvantage is certain.")
    bound = Note(bound_sentence(searched, confidence), "muted")
    covers = _covers(searched) if len(searched.covers) > 1 else None
    return Section(title, [listed, bound, covers, _curve(searched) if len(searched.curve) > 1 else None], "part")


def _covers(searched: Searched) -> Section:
    """Return which part of each group is in each other one."""
    rows: list[Sequence[Cell]] = [
        (name_of(f"{index}: {described(finding)}"), *(f"{part:.0%}" for part in parts))
        for index, (finding, parts) in enumerate(zip(searched.listed, searched.covers, strict=True), 1)
    ]
    columns = [*words("part of this group"), *numbers(*(f"in {index}" for index in range(1, len(rows) + 1)))]
    title = "Which groups are the same people"
    return Section(title, [Table(f"{title}: {searched.name}", columns, rows)], "fold", on=On.PAGE)


def _curve(searched: Searched) -> Chart:
    title = f"How much a group may differ at most, by its share of the rows: {searched.name}"
    points = [
        {
            "share": share,
            "bound": bound,
            "tip": f"no group of at least {share:.3g} of the rows differs by more than {number(bound)}",
        }
        for share, bound in searched.curve
    ]
    rows = [(f"{share:.3g}", number(bound)) for share, bound in searched.curve]
    table = Table(title, numbers("share of the rows", "at most"), rows)
    return Chart(title, lambda narrow: step_curve(points, narrow=narrow), table, on=On.PAGE)
