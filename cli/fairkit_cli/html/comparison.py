"""Models beside each other as a page: what is significantly better or worse, then every number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit_cli.fields import as_options
from fairkit_cli.html.charts import ForestRow, forest
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import facts, figure, page, section, table
from fairkit_cli.html.subgroups import group_changes
from fairkit_cli.html.svg import draw
from fairkit_cli.text.comparison import headline_repeats, other_findings, repeats_title, worse_told
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.view import MEANING, change_name, headline_changes, metric_name
from fairkit_repair.mitigation.caveats import decisions_told

if TYPE_CHECKING:
    from fairkit.results.comparisons import Change, Comparison
    from fairkit.results.subjects import DataInfo, ModelInfo
    from fairkit_repair.mitigation.run import MitigationResult

STATUS = {"better": "pass", "worse": "fail", "changed": "inconclusive"}
_UNIT = 1.5


def comparison_page(result: Comparison) -> str:
    """Return a comparison as one HTML file.

    Raises
    ------
    MissingRendererError
        vl-convert-python is not installed.
    """
    base = result.models[0]
    body: list[Content] = [
        tag(
            "header",
            tag("h1", "Models beside ", name_of(base.name)),
            tag("p", f"On the same {result.data.rows:,} rows of ", name_of(result.data.name),
                f", with {result.confidence:.0%} intervals of the paired differences.", class_="subject"),
            *(tag("p", as_options(text), class_="subject") for text in result.warnings),
        )
    ]  # fmt: skip
    for model, changes in zip(result.models[1:], result.changes, strict=True):
        body.append(section_of(tag("h2", name_of(model.name)), changes, (base.name, model.name)))
    body.append(_details(result.models, result.data, result.notes, result.confidence))
    return page(f"Comparison with {base.name}", body)


def mitigation_page(result: MitigationResult) -> str:
    """Return a mitigation as one HTML file: before and after, then the audit of the result.

    Raises
    ------
    MissingRendererError
        vl-convert-python is not installed.
    """
    from fairkit_cli.html.conditions import condition_sections
    from fairkit_cli.html.groups import group_sections
    from fairkit_cli.html.report import details, disparity_section
    from fairkit_cli.html.search import search_section
    from fairkit_cli.html.summary import verdict
    from fairkit_cli.html.tradeoff import tradeoff_section

    after = result.after
    parameters = ", ".join(f"{key} = {value}" for key, value in result.parameters.items())
    body: list[Content] = [
        tag(
            "header",
            tag("h1", "Mitigated with ", name_of(result.plugin)),
            tag(
                "p",
                f"{result.train_rows:,} rows to learn from, {result.test_rows:,} rows to measure on. {parameters}",
                class_="subject",
            ),
            *(tag("p", as_options(text), class_="subject") for text in after.warnings),
            verdict(after),
            tag("p", tag("strong", decisions_told(result.randomized, result.reads)), class_="verdict none"),
            tag("p", worse_told(result), class_="verdict none"),
        ),
        search_section(result),
        section_of(tag("h2", "Before and after"), result.changes, ("before", "after")),
        _others(result),
        _repeats(result),
        tradeoff_section(result.details),
        disparity_section(after),
        *group_sections(after),
        *condition_sections(after),
        tag("section", tag("h2", "Notes"), tag("ul", [tag("li", as_options(note)) for note in result.notes]))
        if result.notes
        else None,
        details(after),
    ]
    return page(f"Mitigation with {result.plugin}", body)


def section_of(heading: Markup, changes: Sequence[Change], names: tuple[str, str]) -> Markup:
    """Say in a sentence, draw and list how one model differs from another."""
    performance, between = headline_changes(changes)
    parts: list[Content] = [tag("p", summary([*performance, *between]), class_="verdict none")]
    for title, chosen in (("Performance", performance), ("Disparities between groups", between)):
        small = [one for one in chosen if _reach(one) <= _UNIT]
        large = [one for one in chosen if _reach(one) > _UNIT]
        for part, unit in ((small, ""), (large, ", in the metric's own unit")):
            if part:
                parts.append(_forest(f"{title}{unit}", part, names))
    parts.append(group_changes(changes, names))
    everything = tag(
        "details", tag("summary", f"All {len(changes)} numbers"), change_table(changes, names, "All numbers")
    )
    return tag("section", heading, parts, everything)


def _others(result: MitigationResult) -> Markup | None:
    """List what other auditors than ``group`` found before and after, each with its own interval."""
    pairs = other_findings(result)
    if not pairs:
        return None
    rows = [
        [metric_name(after), *(f"{number(one.value)} {interval(one.interval)}" for one in (before, after))]
        for before, after in pairs
    ]
    label = f"Other findings, with {result.after.confidence:.0%} intervals"
    shown = table(["metric", "before", "after"], rows, numeric={1, 2}, label=label)
    return tag("section", tag("h2", "Other findings"), shown)


def _repeats(result: MitigationResult) -> Markup | None:
    """List how far the headline numbers went over several trainings."""
    if not result.repeats:
        return None
    rows = [
        [
            f"{repeat.metric} ({repeat.sensitive})" if repeat.sensitive else repeat.metric,
            *map(number, (repeat.values[0], min(repeat.values), max(repeat.values), repeat.deviation)),
        ]
        for repeat in headline_repeats(result)
    ]
    columns = ("metric", "this model", "lowest", "highest", "standard deviation")
    shown = table(columns, rows, numeric={1, 2, 3, 4}, label="Retraining")
    return tag("section", tag("h2", "Retraining"), tag("p", repeats_title(result)), shown)


def summary(changes: Sequence[Change]) -> Markup:
    """Return a sentence that lists the significant improvements and the significant deteriorations."""
    told: list[Content] = []
    for outcome in ("better", "worse"):
        chosen = [_where(one) for one in changes if one.outcome == outcome]
        listed = ", ".join(chosen) if chosen else "nothing"
        told += [tag("strong", f"{outcome.capitalize()} (significant)"), f": {listed}. "]
    return tag("span", told)


def _where(one: Change) -> str:
    return change_name(one) + (f" ({one.place})" if one.sensitive else "")


def _reach(one: Change) -> float:
    return max(abs(end) for end in (one.interval or (0.0, 0.0)))


def _forest(title: str, changes: Sequence[Change], names: tuple[str, str]) -> Markup:
    rows = [
        ForestRow(
            name=change_name(change) + (f" · {change.place}" if change.sensitive else ""),
            value=change.difference or 0.0,
            interval=change.interval,
            status=STATUS.get(change.outcome, "none"),
            tip=f"{_where(change)}: {number(change.before)} to {number(change.after)}, difference "
            f"{number(change.difference)}, "
            f"interval {interval(change.interval)}: {MEANING[change.outcome]}",
        )
        for change in changes
        if change.difference is not None
    ]
    axis = "difference"
    pictures = [
        draw(
            forest(rows, axis, narrow=narrow, zero=False),
            title=f"{title}: differences",
            class_="narrow" if narrow else "wide",
        )
        for narrow in (False, True)
    ]
    return figure(pictures, f"{title}: differences", change_table(changes, names, title))


def change_table(changes: Sequence[Change], names: tuple[str, str], label: str) -> Markup:
    """Return changes as numbers."""
    rows: list[Sequence[Content]] = [
        (
            change_name(change),
            name_of(change.place) if change.place else "all rows",
            name_of(change.group) if change.group else "-",
            number(change.before),
            number(change.after),
            number(change.difference),
            interval(change.interval),
            tag("span", MEANING[change.outcome], class_=change.outcome),
        )
        for change in changes
    ]
    columns = (
        "metric",
        "groups of",
        "group",
        name_of(names[0]),
        name_of(names[1]),
        "difference",
        "interval",
        "",
    )
    return table((*columns[:-1], "meaning"), rows, numeric={3, 4, 5, 6}, label=label)


def _details(models: Sequence[ModelInfo], data: DataInfo, notes: Sequence[str], confidence: float) -> Markup:
    entries: list[tuple[str, Content]] = [
        (f"Model {place}", [name_of(model.name), " ", tag("code", model.sha256 or "in memory")])
        for place, model in enumerate(models, 1)
    ]
    entries += [
        ("Data", [name_of(data.name), " ", tag("code", data.sha256)]),
        ("Rows", f"{data.rows:,}, {data.dropped_rows:,} left out"),
        ("Confidence", f"{confidence:.0%}"),
    ]
    return section(
        "How the numbers were made",
        facts(entries),
        tag("ul", [tag("li", as_options(note)) for note in (*notes, *data.notes)])
        if (*notes, *data.notes)
        else None,
        tag(
            "p",
            "Both models saw the same rows, so most of the noise cancels in the difference: its interval is "
            "narrower than the two intervals of the models suggest. A difference is called better or worse where "
            "its whole interval lies on one side of 0, under its metric, on this data.",
        ),
    )
