"""Before and after, or one model and another, for people: a line for each metric, with the paired difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit.results.policy import verdict_of
from fairkit_cli.fields import as_options
from fairkit_cli.text.numbers import measured, number
from fairkit_cli.text.plain import plain, to_text
from fairkit_cli.text.search import search_parts
from fairkit_cli.text.subgroups import group_changes
from fairkit_cli.text.view import (
    MEANING,
    change_name,
    headline_changes,
    metric_name,
)
from fairkit_cli.text.why import part_changes
from fairkit_repair.mitigation.caveats import decisions_told, worsened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairkit.results.comparisons import Change, Comparison
    from fairkit.results.findings import Finding
    from fairkit_repair.mitigation.repeats import Repeated
    from fairkit_repair.mitigation.run import MitigationResult

MOST_WORSE = 4
_KS = "statistical_parity_ks"
_STYLES = {"better": "green", "worse": "red", "changed": "yellow"}


def comparison(result: MitigationResult, *, terminal: bool) -> str:
    """Return the table of a mitigation as text, with colours on a terminal."""
    return to_text(_mitigation(result), terminal=terminal)


def comparison_text(result: Comparison, *, terminal: bool) -> str:
    """Return the tables of a comparison as text, with colours on a terminal."""
    return to_text(_comparison(result), terminal=terminal)


def _mitigation(result: MitigationResult) -> list[RenderableType]:

    after = result.after
    head = (
        f"{result.plugin}: {result.train_rows:,} rows to learn from, {result.test_rows:,} rows to measure on"
    )
    parts: list[RenderableType] = [plain(head, "bold"), *warned(after.warnings), *first_words(result), ""]
    if result.search is not None:
        parts += search_parts(result.search, result.changes)
    parts += change_tables(result.changes, ("before", "after"), after.confidence)
    parts += _distances(result) + _others(result) + _repeats(result)
    parts += [plain(f"· {as_options(note)}") for note in dict.fromkeys([*result.notes, *after.data.notes])]
    return parts


def warned(warnings: Sequence[str]) -> list[RenderableType]:
    """Return the warnings that precede the numbers."""
    return [plain(f"! {as_options(text)}", "yellow") for text in warnings]


def first_words(result: MitigationResult) -> list[RenderableType]:
    """Say the verdict, how the file decides, and which disparities got worse."""
    after = result.after
    parts: list[RenderableType] = []
    if after.verdict is not None:
        style = {"pass": "bold green", "fail": "bold red"}.get(after.verdict, "bold yellow")
        parts.append(plain(f"Policy after: {after.verdict}", style))
        parts += [plain(f"  {rule.verdict}: {as_options(rule.reason)}") for rule in after.policy]
    told = decisions_told(result.randomized, result.reads)
    parts.append(plain(told, "bold yellow" if result.randomized else ""))
    return [*parts, plain(worse_told(result), "bold red" if worsened(result.changes) else "")]


def worse_told(result: MitigationResult, most: int = MOST_WORSE) -> str:
    """Say which disparities between groups got significantly worse, `most` of them by name."""
    worse = worsened(result.changes)
    if not worse:
        return f"No disparity got significantly worse (at {result.after.confidence:.0%} confidence)."
    first = [one for one in headline_changes(result.changes)[1] if one in worse]
    first.sort(key=lambda one: -abs(one.difference or 0.0))
    worse = [*first, *(one for one in worse if one not in first)]
    shown = [
        f"{change_name(one)} ({one.sensitive}) from {number(one.before)} to {number(one.after)}"
        for one in worse[:most]
    ]
    rest = f"; and {len(worse) - most} more" if len(worse) > most else ""
    return f"WORSE (significant): {'; '.join(shown)}{rest}."


def _distances(result: MitigationResult) -> list[RenderableType]:
    """Show the largest distances of score distributions; they have intervals of their own, not paired ones."""

    def key(one: Finding) -> tuple[str, str | None]:
        return metric_name(one), one.sensitive

    before = {key(one): one for one in result.before.findings if one.metric == _KS}
    found = [one for one in result.after.findings if one.metric == _KS and key(one) in before]
    rows = [(metric_name(one), one.sensitive, before[key(one)], one) for one in found]
    return _two_audits("Distributions of scores", rows, result)


def _others(result: MitigationResult) -> list[RenderableType]:
    """Show what other auditors than ``group`` found, such as a certificate, before and after."""
    rows = [(metric_name(after), after.sensitive, before, after) for before, after in other_findings(result)]
    return _two_audits("Other findings", rows, result)


def other_findings(result: MitigationResult) -> list[tuple[Finding, Finding]]:
    """Pair what other auditors than ``group`` found before and after a mitigation, such as a certificate."""

    def key(finding: Finding) -> tuple[str, str, str | None]:
        return finding.auditor, metric_name(finding), finding.sensitive

    before = {key(one): one for one in result.before.findings}
    return [
        (before[key(one)], one)
        for one in result.after.findings
        if one.auditor != "group" and key(one) in before
    ]


def headline_repeats(result: MitigationResult) -> list[Repeated]:
    """Return the numbers over several trainings that people look at first."""
    performance, between = headline_changes(result.changes)
    wanted = [(one.metric, one.sensitive) for one in (*performance, *between)]
    known = {(one.metric, one.sensitive): one for one in result.repeats}
    return [known[key] for key in dict.fromkeys(wanted) if key in known]


def repeats_title(result: MitigationResult) -> str:
    """Return the title of the table of repeated trainings."""
    count = len(result.repeats[0].values)
    return f"Trained {count} times, on rows drawn anew: no interval covers this"


def _repeats(result: MitigationResult) -> list[RenderableType]:
    from rich.table import Table

    if not result.repeats:
        return []
    grid = Table(box=None, pad_edge=False, title_justify="left", title=repeats_title(result))
    grid.title_style = "bold"
    grid.add_column("metric", no_wrap=True)
    grid.add_column("groups of")
    for name in ("this model", "lowest", "highest", "standard deviation"):
        grid.add_column(name, justify="right")
    for one in headline_repeats(result):
        numbers = (one.values[0], min(one.values), max(one.values), one.deviation)
        grid.add_row(one.metric, plain(one.sensitive or "-"), *map(number, numbers))
    return [grid, ""]


def _two_audits(
    title: str, rows: Sequence[tuple[str, str | None, Finding, Finding]], result: MitigationResult
) -> list[RenderableType]:
    from rich.table import Table

    if not rows:
        return []
    title = f"{title} ({result.after.confidence:.0%} intervals)"
    grid = Table(box=None, pad_edge=False, title_justify="left", title=title)
    grid.title_style = "bold"
    grid.add_column("metric", no_wrap=True)
    grouped = any(sensitive is not None for _, sensitive, _, _ in rows)
    if grouped:
        grid.add_column("groups of")
    for name in ("before", "after"):
        grid.add_column(name, justify="right", no_wrap=True)
    for metric, sensitive, before, after in rows:
        cells = [measured(one.value, one.interval) for one in (before, after)]
        grid.add_row(metric, *([str(sensitive or "-")] if grouped else []), *cells)
    return [grid, ""]


def _comparison(result: Comparison) -> list[RenderableType]:

    base = result.models[0].name
    title = result.title or f"{result.data.name}, {result.data.rows:,} rows: every model beside {base}"
    parts: list[RenderableType] = [plain(title, "bold"), *warned(result.warnings), *_judged(result), ""]
    for model, changes in zip(result.models[1:], result.changes, strict=True):
        parts += change_tables(changes, (base, model.name), result.confidence)
    parts += [plain(f"· {as_options(note)}") for note in dict.fromkeys([*result.notes, *result.data.notes])]
    return parts


def _judged(result: Comparison) -> list[RenderableType]:
    """Return each model's verdict, with the results of its rules."""
    parts: list[RenderableType] = []
    for model, rules in zip(result.models, result.policy, strict=bool(result.policy)):
        verdict = verdict_of([rule.verdict for rule in rules])
        style = {"pass": "bold green", "fail": "bold red"}.get(str(verdict), "bold yellow")
        parts.append(plain(f"{model.name}: {str(verdict).upper()}", style))
        parts += [plain(f"  {rule.verdict}: {as_options(rule.reason)}") for rule in rules]
    return parts


def change_tables(
    changes: Sequence[Change], names: tuple[str, str], confidence: float
) -> list[RenderableType]:
    """Return the headline numbers of two models: performance, then disparities.

    Parameters
    ----------
    changes
        Of one model beside another.
    names
        The two models'.
    confidence
        Of the intervals.
    """
    performance, between = headline_changes(changes)
    return [
        *_table(f"Performance ({confidence:.0%} intervals of the difference)", performance, names),
        *_table("Between groups", between, names),
        *group_changes(changes, names),
        *part_changes(changes, names),
    ]


def _table(title: str, changes: Sequence[Change], names: tuple[str, str]) -> list[RenderableType]:
    from rich.table import Table

    if not changes:
        return []
    grid = Table(box=None, pad_edge=False, title_justify="left", title=title)
    grid.title_style = "bold"
    words = [word for one in changes for word in change_name(one).split()]
    grid.add_column("metric", min_width=max(map(len, words)))
    if changes[0].sensitive is not None:
        grid.add_column("groups of")
    widest = max(len(number(value)) for one in changes for value in (one.before, one.after))
    for name in names:
        grid.add_column(name, justify="right", overflow="fold", min_width=widest)
    grid.add_column("difference", justify="right", no_wrap=True)
    grid.add_column("", no_wrap=True)
    for one in changes:
        sensitive = [] if one.place is None else [one.place]
        difference = measured(one.difference, one.interval)
        word = plain(MEANING[one.outcome], style=_STYLES.get(one.outcome, "dim"))
        grid.add_row(change_name(one), *sensitive, number(one.before), number(one.after), difference, word)
    return [grid, ""]
