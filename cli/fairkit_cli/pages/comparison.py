"""Two models on the same rows: what is significantly better or worse, and every number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit.reading import MEANING, change_name, headline_changes, short_name
from fairkit.results.policy import verdict_of
from fairkit.support.numbers import interval, measured, number
from fairkit_cli.fields import as_options
from fairkit_cli.pages.charts import ForestRow
from fairkit_cli.pages.findings import forest_chart
from fairkit_cli.pages.parts import (
    Cell,
    Facts,
    Inline,
    Item,
    Listing,
    Note,
    On,
    Page,
    Part,
    Section,
    Span,
    Table,
    name_of,
    numbers,
    page_only,
    sized,
    words,
)

if TYPE_CHECKING:
    from fairkit.results.comparisons import Change, Comparison
    from fairkit.results.rules import RuleResult
    from fairkit.results.subjects import DataInfo, ModelInfo

_UNIT = 1.5


def comparison_page(result: Comparison) -> Page:
    """Return the page of a comparison."""
    base = result.models[0]
    title = result.title or f"{result.data.name}, {result.data.rows:,} rows: every model beside {base.name}"
    intro = (
        f"On the same {result.data.rows:,} rows of {result.data.name}, with {result.confidence:.0%} intervals of the "
        "paired differences."
    )
    parts: list[Part | None] = [
        Note(["Models beside ", name_of(base.name)], "title", on=On.PAGE),
        Note(intro, "subject", on=On.PAGE),
        Note(title, "strong", on=On.SCREEN),
        *warnings(result.warnings),
    ]
    for model, rules in zip(result.models, result.policy, strict=bool(result.policy)):
        parts += verdict_parts(model.name, rules)
    parts.append(Note("", on=On.SCREEN))
    for model, changes in zip(result.models[1:], result.changes, strict=True):
        heading = [
            Span(model.name, "name", on=On.PAGE),
            Span(f"{model.name} beside {base.name}, {result.data.rows:,} rows", on=On.SUMMARY),
        ]
        parts.append(Section(heading, change_parts(changes, (base.name, model.name), result.confidence)))
    parts.append(_details(result.models, result.data, result.notes, result.confidence))
    return Page(f"Comparison with {base.name}", parts)


def warnings(texts: Sequence[str]) -> list[Part]:
    """Return the warnings that precede the numbers."""
    return [Note(as_options(text), "warning") for text in texts]


def verdict_parts(name: str, rules: Sequence[RuleResult]) -> list[Part]:
    """Return a model's verdict with the results of its rules; nothing without rules."""
    verdict = verdict_of([rule.verdict for rule in rules])
    if verdict is None:
        return []
    items = [Item(Span(as_options(rule.reason), "reason"), rule.verdict) for rule in rules]
    return [Note([name_of(name), ": ", Span(verdict.upper(), verdict)], "strong"), Listing(items, "rules")]


def change_parts(changes: Sequence[Change], names: tuple[str, str], confidence: float) -> list[Part | None]:
    """Return how one model differs from another: in a sentence, drawn, and as tables."""
    performance, between = headline_changes(changes)
    level = f" ({confidence:.0%} intervals of the difference)"
    parts: list[Part | None] = [Note(summary([*performance, *between]), "verdict", on=On.PAGE)]
    for title, more, chosen in (("Performance", level, performance), ("Between groups", "", between)):
        if chosen:
            apart = [each for each in chosen if each.outcome != "same"] or chosen
            alike = ", ".join(_where(each, short=True) for each in chosen if each not in apart)
            inner = [
                change_table(chosen, names, title, brief=True, on=On.SUMMARY),
                change_table(apart, names, title, brief=True, on=On.SCREEN),
                Note(f"No significant difference: {alike}. --format json has all.", on=On.SCREEN) if alike else None,
            ]
            parts.append(Section([title, more], inner, "part", on=On.TEXT))
            parts += _charts(title, chosen, names)
    everything = change_table(changes, names, "All numbers")
    folded = Section(f"All {len(changes)} numbers", [everything], "fold", on=On.PAGE)
    return [*parts, folded]


def _charts(title: str, changes: Sequence[Change], names: tuple[str, str]) -> list[Part]:
    """Return the forest plots of differences: those that reach beyond 1.5 have an axis of their own."""
    small = [each for each in changes if _reach(each) <= _UNIT]
    large = [each for each in changes if _reach(each) > _UNIT]
    parts: list[Part] = []
    for chosen, unit in ((small, ""), (large, ", in the metric's own unit")):
        rows = [change_row(each) for each in chosen if each.difference is not None]
        if chosen:
            label = f"{title}{unit}"
            table = change_table(chosen, names, label)
            parts.append(
                forest_chart(
                    rows, "difference", f"{label}: differences", table, zero=False, name="changes", of=names[1]
                )
            )
    return parts


def summary(changes: Sequence[Change]) -> Inline:
    """Return a sentence that lists the significant improvements and the significant deteriorations."""
    sentence: list[Inline] = []
    for outcome in ("better", "worse"):
        chosen = [_where(each) for each in changes if each.outcome == outcome]
        listed = ", ".join(chosen) if chosen else "nothing"
        sentence += [Span(f"{outcome.capitalize()} (significant)", "strong"), f": {listed}. "]
    return sentence


def _where(change: Change, *, short: bool = False) -> str:
    name = short_name(change.metric) if short else change_name(change)
    return name + (f" ({change.place})" if change.sensitive else "")


def _reach(change: Change) -> float:
    return max(abs(end) for end in (change.interval or (0.0, 0.0)))


def change_row(change: Change) -> ForestRow:
    """Say about a change what its line in a forest plot shows."""
    value = change.difference or 0.0
    return ForestRow(
        name=change_name(change) + (f" · {change.place}" if change.sensitive else ""),
        value=value,
        interval=change.interval,
        status=MEANING[change.outcome],
        tip=f"{_where(change)}: {number(change.before)} to {number(change.after)}, difference {number(value)}, "
        f"interval {interval(change.interval)}: {MEANING[change.outcome]}",
    )


def change_table(
    changes: Sequence[Change], names: tuple[str, str], label: str, *, brief: bool = False, on: On = On.ALL
) -> Table:
    """Return changes as numbers; `brief` without the group, and with the interval beside its difference."""
    rows: list[Sequence[Cell]] = []
    for change in changes:
        where = name_of(change.place) if change.place else "all rows"
        ends = (number(change.before), number(change.after))
        outcome = Span(MEANING[change.outcome], change.outcome)
        if brief:
            name = change_name(change).replace(change.metric, short_name(change.metric), 1)
            called: Inline = [Span(change_name(change), on=On.PAGE | On.SUMMARY), Span(name, on=On.SCREEN)]
            rows.append((called, where, *ends, measured(change.difference, change.interval), outcome))
        else:
            group = name_of(change.group) if change.group else "-"
            rows.append((change_name(change), where, group, *ends, *sized(change.difference, change.interval), outcome))
    grouped = On.ALL if any(change.place for change in changes) or not brief else On.PAGE | On.SUMMARY
    columns = [*words("metric"), *words("groups of", on=grouped), *words(*(() if brief else ("group",)))]
    columns += numbers(*map(name_of, names), "difference", *(() if brief else ("interval",)))
    return Table(label, [*columns, *words("" if brief else "meaning")], rows, on=on)


def notes_parts(notes: Sequence[str]) -> list[Part]:
    """Return notes, each once."""
    return [Listing([as_options(note) for note in dict.fromkeys(notes)])] if notes else []


def _details(models: Sequence[ModelInfo], data: DataInfo, notes: Sequence[str], confidence: float) -> Section:
    entries: list[tuple[Inline, Inline]] = [
        (f"Model {place}", [name_of(model.name), " ", Span(model.sha256 or "in memory", "code")])
        for place, model in enumerate(models, 1)
    ]
    entries += [
        ("Data", [name_of(data.name), " ", Span(data.sha256, "code")]),
        ("Rows", f"{data.rows:,}{data.lacking}"),
        ("Confidence", f"{confidence:.0%}"),
    ]
    meaning = (
        "Both models saw the same rows, so most of the noise cancels in the difference: its interval is "
        "narrower than the two intervals of the models suggest. A difference is called better or worse where "
        "its whole interval lies on one side of 0, under its metric, on this data."
    )
    listed = notes_parts([*notes, *data.notes])
    parts = [Facts(entries, on=On.PAGE), *listed, Note(meaning, on=On.PAGE)]
    return Section(page_only("How the numbers were made"), parts)
