"""Few outcomes: how many are known of whom, what they are worth, and when the numbers hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.support.numbers import interval, number
from fairkit_cli.pages.charts import ForestRow
from fairkit_cli.pages.findings import forest_chart
from fairkit_cli.pages.parts import Cell, Listing, Section, Table, name_of, numbers, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


def label_sections(report: Report) -> list[Section]:
    """Return a section for each sensitive column where outcomes are known for some rows; none elsewhere."""
    return [
        _section(finding) for finding in report.findings if finding.metric == "labelled_share" and finding.sensitive
    ]


def _section(finding: Finding) -> Section:
    cells: Sequence[dict[str, Any]] = finding.evidence["labels"]
    base = {one["group"]: one for one in finding.evidence["base_rate"]}
    rows: list[Sequence[Cell]] = []
    for group in dict.fromkeys(cell["group"] for cell in cells):
        refused, selected = sorted((c for c in cells if c["group"] == group), key=lambda cell: int(cell["decision"]))
        share = base.get(group)
        rows.append((
            name_of(group), f"{refused['rows'] + selected['rows']:,}",
            f"{refused['labels']:,} + {selected['labels']:,}", f"{refused['worth']:,.0f} + {selected['worth']:,.0f}",
            "" if share is None else f"{number(share['value'])} {interval(tuple(share['interval']))}",
        ))  # fmt: skip
    drawn = [
        ForestRow(
            name=f"{cell['group']}, {'selected' if cell['decision'] else 'refused'}",
            value=cell["labels"],
            interval=(cell["labels"], max(cell["worth"], cell["labels"])),
            tip=f"{cell['group']}, {'selected' if cell['decision'] else 'refused'}: {cell['rows']:,} rows, "
            f"{cell['labels']:,} outcomes known, worth {cell['worth']:,.0f} with the score",
        )
        for cell in cells
    ]
    title = f"Known outcomes of {finding.sensitive}"
    columns = [*words("group"), *numbers("rows", "refused + selected", "worth", "favorable outcomes")]
    caption = f"{title}: how many are known (point), and how many these are worth with the score (line)"
    chart = forest_chart(drawn, "outcomes", caption, zero=False)
    return Section(title, [Listing(finding.notes), chart, Table(title, columns, rows)])
