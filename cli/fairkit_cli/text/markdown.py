"""Reports and comparisons as Markdown, for job summaries, wikis and pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.escaping import markdown as escaped
from fairkit.support.escaping import visible
from fairkit.support.markdown import markdown_table
from fairkit_cli.fields import as_options
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.ranking import disparities, performance
from fairkit_cli.text.view import favorable_class, group_table, groups_that_matter, metric_name, report_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.results.comparisons import Comparison
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔"}


def report_markdown(report: Report) -> str:
    """Return verdict, rules, performance, disparities, groups and notes."""
    return "\n".join(_report(report))


def _report(report: Report) -> Iterator[str]:
    view = report_view(report)
    if view.verdict is None:
        yield "## No verdict: no policy was given"
    else:
        yield f"## {_MARKS[view.verdict]} {view.verdict.upper()}: {escaped(view.summary)}"
    yield ""
    yield from (f"- {_MARKS[rule.verdict]} {escaped(as_options(rule.reason))}" for rule in view.rules)
    yield from ("",) if view.rules else ()
    yield escaped(view.subject)
    yield ""
    for line in view.missing:
        yield from (f"> {escaped(line)}", "")
    level = f"{report.confidence:.0%} interval"
    yield from _findings("Performance", performance(report), level)
    yield from _findings("Largest disparities", disparities(report), level)
    for sensitive in report.data.groups:
        every, metrics = group_table(report, sensitive)
        if metrics:
            rows, others = groups_that_matter(report, every, metrics[0])
            rates = "" if (name := favorable_class(report)) is None else f" (rates of {escaped(name)})"
            yield from (f"### Groups of {escaped(sensitive)}{rates}", "")
            cells = [(escaped(row.group), f"{row.rows:,}", *map(number, row.values)) for row in rows]
            yield from markdown_table(("group", "rows", *map(escaped, metrics)), cells)
            yield from (escaped(others), "") if others else ()
    from fairkit_cli.text.why import divided, why_lines

    for one in divided(report):
        yield from ("### Why", "", "```text", *map(visible, why_lines(one)), "```", "")
    if view.notes:
        yield from ("### Notes", "", *(f"- {escaped(note)}" for note in view.notes), "")


def _findings(title: str, findings: list[Finding], level: str) -> Iterator[str]:
    if not findings:
        return
    yield from (f"### {title}", "")
    rows = [
        (
            escaped(metric_name(finding)),
            escaped(finding.place or "all rows"),
            number(finding.value),
            escaped(interval(finding.interval)),
        )
        for finding in findings
    ]
    yield from markdown_table(("metric", "groups of", "value", level), rows)


def comparison_markdown(result: Comparison) -> str:
    """Return for each model the numbers over all rows and between groups, beside those of the first."""
    return "\n".join(_comparison(result))


def _comparison(result: Comparison) -> Iterator[str]:
    first = result.models[0].name
    for model, changes in zip(result.models[1:], result.changes, strict=True):
        yield from (f"## {escaped(model.name)} beside {escaped(first)}, {result.data.rows:,} rows", "")
        rows = [
            (
                escaped(change.metric),
                escaped(change.place or "all rows"),
                number(change.before),
                number(change.after),
                escaped(interval(change.interval)),
                change.outcome,
            )
            for change in changes
            if change.group is None
        ]
        header = (
            "metric",
            "groups of",
            "before",
            "after",
            f"{result.confidence:.0%} interval of the difference",
            "",
        )
        yield from markdown_table(header, rows)
    yield from (f"- {escaped(note)}" for note in result.notes)
