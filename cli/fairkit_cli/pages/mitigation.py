"""A mitigation: in ten lines, or whole: before and after, the search under a policy, and the audit of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from fairkit.reading import MEANING, change_name, headline_changes, metric_name
from fairkit.support.escaping import measured, number
from fairkit_cli.helping import as_options
from fairkit_cli.pages.certificates import change_parts, notes_parts, warnings
from fairkit_cli.pages.charts import TradePoint, label
from fairkit_cli.pages.findings import disparity_section
from fairkit_cli.pages.frontier import tradeoff_chart
from fairkit_cli.pages.groups import condition_sections, group_sections
from fairkit_cli.pages.parts import (
    Cell,
    Item,
    Listing,
    Note,
    On,
    Page,
    Part,
    Section,
    Span,
    Table,
    capital,
    name_of,
    numbers,
    words,
)
from fairkit_cli.pages.report import details, verdict
from fairkit_repair.mitigation.learned import decisions_told, worsened

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.policy import Change
    from fairkit_cli.pages.parts import Chart
    from fairkit_repair.mitigation.choose import People
    from fairkit_repair.mitigation.run import MitigationResult
    from fairkit_repair.scored_rows import Study, Trial


MOST_WORSE, MOST_CHANGES, MOST_MOVES = 4, 2, 4
_ONE = 0.5
_LENDING = ("approv", "repa", "loan", "credit", "default", "paid", "grant")
"""Parts of a label's column or value that are about lending."""
_KS = "statistical_parity_ks"


def mitigation_page(result: MitigationResult) -> Page:
    """Return the page of a mitigation: before and after, then the audit of the result."""
    after = result.after
    parameters = ", ".join(f"{key} = {value}" for key, value in result.parameters.items())
    rows = f"{result.train_rows:,} rows to learn from, {result.test_rows:,} rows to measure on"
    listed = notes_parts([*result.notes, *after.data.notes])
    names = ("before", "after")
    return Page(
        f"Mitigation with {result.plugin}",
        [
            Note(["Mitigated with ", name_of(result.plugin)], "title", on=On.PAGE),
            Note(f"{result.plugin}: {rows}", "strong", on=On.SCREEN),
            *warnings(after.warnings),
            *(verdict(after) if after.verdict is not None else ()),
            *people_notes(result),
            Note(decisions_told(result.randomized, result.reads), "alarm" if result.randomized else ""),
            Note(worse_told(result), "alarm" if worsened(result.changes) else ""),
            Note(f"{rows}. {parameters}", "subject", on=On.PAGE),
            Note("", on=On.SCREEN),
            search_section(result),
            Section(Span("Before and after", on=On.PAGE), change_parts(result.changes, names, after.confidence)),
            _two_audits("Distributions of scores", [pair for pair in _pairs(result) if pair[1].metric == _KS], result),
            _two_audits("Other findings", other_findings(result), result),
            _repeats(result),
            *(
                _on_page(part)
                for part in (disparity_section(after), *group_sections(after), *condition_sections(after))
            ),
            Section(Span("Notes", on=On.PAGE), listed),
            _on_page(details(after)),
        ],
    )


def people_notes(result: MitigationResult) -> list[Note]:
    """Say what happens to people: decisions before and after, who gets another answer, and the objective."""
    people = result.people
    if people is None:
        return []
    word = _word(people)
    whole = people.approved
    text = f"  {word}: {_thousand(whole.before)} of 1,000 people before, {_thousand(whole.after)} after"
    notes = [Note(text, "strong")]
    if people.approved_bad is not None:
        bad = people.approved_bad
        ends = f"{_thousand(bad.before)} before, {_thousand(bad.after)} after"
        notes.append(Note(f"  of those whose {people.label} is {people.bad}: {ends}", "strong"))
    ways = [(1000 * move.to_favorable / people.rows, move, "from no to yes") for move in people.moves]
    ways += [(1000 * move.to_unfavorable / people.rows, move, "from yes to no") for move in people.moves]
    first = sorted((way for way in ways if way[0] >= _ONE), key=lambda way: -way[0])[:MOST_MOVES]
    who = ", ".join(f"{count:,.0f} of {move.sensitive} {move.group} {way}" for count, move, way in first)
    notes.append(Note(f"  {_thousand(people.changed)} of 1,000 people get another answer"))
    notes += [Note(f"    {who}")] if who else []
    aim = people.objective
    notes.append(
        Note(
            f"  objective {aim.kind}, {aim.name}: {number(aim.before)} before, {number(aim.after)} after; difference "
            f"{measured(aim.difference, aim.interval)}, {aim.outcome}"
        )
    )
    return notes


def _word(people: People) -> str:
    """Return the favorable decision in the words of the label's column and value."""
    said = f"{people.label} {people.favorable}".lower()
    return "approved" if any(part in said for part in _LENDING) else f"favorable decisions ({people.favorable})"


def _thousand(share: float) -> str:
    return f"{1000 * share:,.0f}"


def _on_page(section: Section | None) -> Section | None:
    """Return a section of the result's audit, which screens leave to `fairkit audit`."""
    return None if section is None else Section(None, [section], "bare", on=On.PAGE)


def brief_page(result: MitigationResult) -> Page:
    """Return a mitigation in ten lines: the pick, what it costs, its chance, what got worse, and runners-up."""
    after = result.after
    name = result.plugin if result.search is None else result.search.choice.name
    rows = f"learned from {result.train_rows:,} rows, measured on {result.test_rows:,} others"
    style = "strong" if after.verdict is None else after.verdict
    status = "" if after.verdict is None else f": {after.verdict.upper()}"
    rules = [Item(as_options(rule.reason), rule.verdict) for rule in after.policy]
    notes = len(dict.fromkeys([*result.notes, *after.data.notes])) - len(result.alarms)
    more = f", and {notes} notes" if notes > 1 else ", and a note" if notes else ""
    return Page(
        f"Mitigation with {result.plugin}",
        [
            Note(f"{name}{status} ({rows})", style),
            *warnings(after.warnings),
            Listing(rules, "rules"),
            *people_notes(result),
            Note(decisions_told(result.randomized, result.reads), "alarm" if result.randomized else ""),
            *(Note(f"  {_change_sentence(change)}") for change in _first_changes(result)),
            *_trade(result),
            *(choice_parts(result.search) if result.search is not None else ()),
            Note(worse_told(result, MOST_CHANGES), "alarm" if worsened(result.changes) else ""),
            *(Note(f"! {as_options(text)}", "alarm") for text in result.alarms),
            Note(f"All numbers{more}: --all, or as a page by --format html."),
        ],
    )


def worse_told(result: MitigationResult, most: int = MOST_WORSE) -> str:
    """Say which disparities between groups got significantly worse, `most` of them by name."""
    worse = worsened(result.changes)
    if not worse:
        return f"No disparity got significantly worse (at {result.after.confidence:.0%} confidence)."
    first = [change for change in headline_changes(result.changes)[1] if change in worse]
    first.sort(key=lambda change: -abs(change.difference or 0.0))
    worse = [*first, *(change for change in worse if change not in first)]
    shown = [
        f"{change_name(change)} ({change.sensitive}) from {number(change.before)} to {number(change.after)}"
        for change in worse[:most]
    ]
    rest = f"; and {len(worse) - most} more" if len(worse) > most else ""
    return f"WORSE (significant): {'; '.join(shown)}{rest}."


def other_findings(result: MitigationResult) -> list[tuple[Finding, Finding]]:
    """Pair what other auditors than ``group`` found before and after a mitigation, such as a certificate."""
    return [pair for pair in _pairs(result) if pair[1].auditor != "group"]


def _pairs(result: MitigationResult) -> list[tuple[Finding, Finding]]:
    before = {finding.key: finding for finding in result.before.findings}
    return [(before[finding.key], finding) for finding in result.after.findings if finding.key in before]


def _two_audits(title: str, pairs: Sequence[tuple[Finding, Finding]], result: MitigationResult) -> Section | None:
    """Return findings of the audits before and after, each with its own interval."""
    if not pairs:
        return None
    label = f"{title} ({result.after.confidence:.0%} intervals)"
    rows: list[Sequence[Cell]] = [
        (
            metric_name(after),
            after.sensitive or "all rows",
            *(measured(finding.value, finding.interval) for finding in (before, after)),
        )
        for before, after in pairs
    ]
    return Section(label, [Table(label, [*words("metric", "groups of"), *numbers("before", "after")], rows)])


def _repeats(result: MitigationResult) -> Section | None:
    """Return how far the numbers that people look at first went over several trainings."""
    if not result.repeats:
        return None
    title = f"Trained {len(result.repeats[0].values)} times, on rows drawn anew: no interval covers this"
    performance, between = headline_changes(result.changes)
    earlier = {(repeat.metric, repeat.sensitive): repeat for repeat in result.repeats}
    rows: list[Sequence[Cell]] = []
    for key in dict.fromkeys((change.metric, change.sensitive) for change in (*performance, *between)):
        if (repeat := earlier.get(key)) is not None:
            ends = (repeat.values[0], min(repeat.values), max(repeat.values), repeat.deviation)
            rows.append((repeat.metric, repeat.sensitive or "all rows", *map(number, ends)))
    columns = [*words("metric", "groups of"), *numbers("this model", "lowest", "highest", "standard deviation")]
    return Section(title, [Table("Retraining", columns, rows)])


def _first_changes(result: MitigationResult) -> Sequence[Change]:
    """Return the change of the performance metric, and without a policy the main disparities' changes."""
    performance, between = headline_changes(result.changes)
    if result.after.policy:
        return performance[:1]
    moved = [change for change in between if change.outcome in ("better", "worse")]
    return [*performance[:1], *(moved or between)[:MOST_CHANGES]]


def _change_sentence(change: Change) -> str:
    """Say how one number changed."""
    sentence = f"{_named(change)}: {number(change.before)} before, {number(change.after)} after"
    if change.difference is None:
        return sentence
    return f"{sentence}; difference {measured(change.difference, change.interval)}, {MEANING[change.outcome]}"


def _named(change: Change) -> str:
    return change_name(change) + (f" ({change.place})" if change.place else "")


def _trade(result: MitigationResult) -> list[Part]:
    """Return the trade-off of a method with an individual guarantee: individuals, accuracy, groups."""
    pairs = other_findings(result)
    if not pairs:
        return []
    performance, between = headline_changes(result.changes)
    moved = sorted(
        between, key=lambda change: (change.outcome not in ("better", "worse"), -abs(change.difference or 0.0))
    )
    first, last = pairs[0]
    parts = [f"{metric_name(last)} {number(first.value)} to {number(last.value)}"]
    parts += [
        f"{_named(change)} {number(change.before)} to {number(change.after)}"
        for change in [each for each in performance if each.metric == "balanced_accuracy"] + moved[:1]
    ]
    return [Note(f"  the trade: {'; '.join(parts)}")]


# A search under a policy: from the model without mitigation to the pick, and every alternative.


RUNNERS_UP = 3


def search_section(result: MitigationResult) -> Section | None:
    """Return the path of a search, its picture and its table; None where there was none."""
    search = result.search
    if search is None:
        return None
    steps, after = path_told(search, result.changes), result.after
    reasons = " ".join(f"{capital(rule.reason)}." for rule in after.policy)
    looked = f"The one look at the test rows: {after.verdict}. {reasons}"
    predicted = (
        "The chance of passing is predicted from rows that the alternative's model did not see: audits of as many "
        "rows as the test has are drawn from what these rows say, and each drawn audit is judged as the real one "
        "is. No repair was measured on the test rows before it was picked."
    )
    return Section(
        Span("From the base to the pick", on=On.PAGE),
        [
            Listing([*steps, looked], "steps", on=On.PAGE),
            *(Note(step, on=On.SCREEN) for step in steps[:-1]),
            Note(steps[-1], "strong" if search.reached else "alarm", on=On.SCREEN),
            _chart(search),
            Section(_title(search), [_table(search, On.TEXT)], "part", on=On.TEXT),
            Note(predicted, on=On.PAGE),
        ],
    )


def path_told(search: Study, changes: Sequence[Change]) -> list[str]:
    """Return the lines about a search: the test rows' power, the start, the alternatives, and the pick."""
    first, choice = search.alternatives[0], search.choice
    limits = ", ".join(f"{name} {number(value)}" for name, value in first.values.items())
    minutes = f"{search.seconds:,.0f} s of {60 * search.budget:,.0f} s"
    return [
        f"Test rows: {search.power.rows:,}; a model without any disparity would pass with a chance of "
        f"{search.power.chance:.2f}.",
        f"Before: {search.performance} {number(first.accuracy)}, {limits}, chance of passing {_chance(first)} "
        f"(on {search.calibration_rows:,} {'training rows' if search.given else 'rows outside training'}).",
        f"Searched: {len(search.measured)} alternatives in {minutes}; {_left_out(search)} left out.",
        f"{search.told()}"
        + (f" {_cost(search, changes)}" if choice is not first else " It is the model without mitigation."),
    ]


def _left_out(search: Study) -> int:
    return sum(alternative.status == "left out" for alternative in search.alternatives)


def _table(search: Study, on: On = On.ALL) -> Table:
    """Return the alternatives; neighbours of one method that were not measured share a row."""
    rows: list[tuple[str, ...]] = []

    def key(alternative: Trial) -> tuple[str, str] | int:
        unmeasured = alternative.chance is None
        return (alternative.method, alternative.reason) if unmeasured else id(alternative)

    for _, group in groupby(search.alternatives, key=key):
        settings = list(group)
        alternative = settings[0]
        seconds = number(sum(each.seconds for each in settings))
        name = short_name(search, alternative)
        if alternative.chance is None:
            name = name if len(settings) == 1 else f"{alternative.method} ({len(settings)} settings)"
            rows.append((name, "-", "-", "-", seconds, f"left out: {alternative.reason}"))
            continue
        values = " ".join(number(value) for value in alternative.values.values())
        word = {"picked": "PICKED", "left out": "left out:"}.get(alternative.status, "")
        marks = [word, alternative.reason, "randomized" if alternative.randomized else ""]
        outcome = ", ".join(mark for mark in marks if mark)
        rows.append((name, number(alternative.accuracy), values, _chance(alternative), seconds, outcome))
    limits = "numbers under limits" if len(search.choice.values) > 1 else "under limit"
    columns = [*words("alternative"), *numbers(search.performance, limits, "chance", "seconds"), *words("outcome")]
    picked = [index for index, row in enumerate(rows) if row[-1].startswith("PICKED")]
    return Table("Alternatives", columns, rows, strong=picked, on=on)


def short_name(search: Study, alternative: Trial) -> str:
    """Return the name, without the constraint where all alternatives that name one name the same."""
    if len({str(each.parameters.get("constraint", "")) for each in search.alternatives} - {""}) != 1:
        return alternative.name
    settings = {key: value for key, value in alternative.parameters.items() if key != "constraint"}
    return replace(alternative, parameters=settings).name


def _title(search: Study) -> str:
    rows = "the training rows" if search.given else "rows outside training"
    lowered = f" (lowered by {search.optimism:.4f}: see the notes)" if search.optimism else ""
    return f"Alternatives, on {rows}: {search.performance}{lowered}, and {' '.join(search.choice.values)}"


def _chance(alternative: Trial) -> str:
    return "-" if alternative.chance is None else f"{alternative.chance:.2f}"


def _cost(search: Study, changes: Sequence[Change]) -> str:
    """Return a sentence with the price of the pick in performance, measured on the test rows."""
    for change in changes:
        whole = change.sensitive is None and change.group is None and not change.parameters
        if change.metric != search.performance or not whole or change.difference is None:
            continue
        sign, word = (-1, "costs") if change.difference <= 0 else (1, "gains")
        low, high = sorted(sign * end for end in change.interval or (0.0, 0.0))
        ends = "" if change.interval is None else f" [{low + 0.0:.4f}, {high + 0.0:.4f}]"
        return f"On the test rows it {word} {sign * change.difference:.4f}{ends} of {search.performance}."
    return f"What it costs of {search.performance} on the test rows is unknown."


def choice_parts(search: Study) -> list[Part]:
    """Return how the pick was found, and which alternatives came next."""
    summary = f"  {len(search.measured)} alternatives tried in {search.seconds:,.0f} s, {_left_out(search)} left out"
    rows = "training rows" if search.given else "rows outside training"
    predicted = (
        f"  predicted from {rows}, like those below: {_predicted(search, search.choice)} (asked: {search.sure:g})"
    )
    parts: list[Part] = [Note(predicted, "" if search.reached else "alarm"), Note(summary)]
    if search.looks > 1 or search.looks_doubt:
        nth_look = f"  look {search.looks} at these test rows{' or later' if search.looks_doubt else ''}"
        parts.append(Note(Span(nth_look, "inconclusive")))
    for runner_up in runners_up(search):
        drawn = ", randomized" if runner_up.randomized else ""
        parts.append(Note(f"  next: {short_name(search, runner_up)}: {_predicted(search, runner_up)}{drawn}"))
    return parts


def _predicted(search: Study, one: Trial) -> str:
    return f"{search.performance} {number(one.accuracy)}, chance {_chance(one)}"


def runners_up(search: Study) -> list[Trial]:
    """Return the best alternatives beside the pick: the surest methods first, one setting of each."""
    by_method: dict[str, Trial] = {}

    def key(alternative: Trial) -> tuple[bool, float]:
        accuracy = float("-inf") if alternative.accuracy is None else alternative.accuracy
        return (alternative.chance or 0) < search.sure, -accuracy

    for alternative in sorted((each for each in search.measured if each.status == "tried"), key=key):
        by_method.setdefault(f"{alternative.method}{alternative.randomized}", alternative)
    return list(by_method.values())[:RUNNERS_UP]


def _chart(search: Study) -> Chart:
    name = next(iter(search.choice.values))
    measured = [each for each in search.measured if name in each.values]
    points = [
        TradePoint(
            name=label(each.name, 80),
            kind=each.method,
            x=each.values[name],
            y=each.accuracy or 0.0,
            picked=each is search.choice,
            more=f"chance of passing {each.chance:.2f}",
        )
        for each in measured
    ]
    caption = "Alternatives on training rows" if search.given else "Alternatives on rows outside training"
    title = f"{search.performance} against {name} of {len(points)} alternatives"
    return tradeoff_chart(points, name, search.performance, title, caption, _table(search))
