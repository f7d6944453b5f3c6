"""A search under a policy: from the model without mitigation to the pick, and every alternative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from fairkit.support.numbers import number
from fairkit_cli.pages.charts import TradePoint, label
from fairkit_cli.pages.frontier import tradeoff_chart
from fairkit_cli.pages.parts import Listing, Note, On, Part, Section, Span, Table, capital, numbers, words

if TYPE_CHECKING:
    from fairkit.results.comparisons import Change
    from fairkit_cli.pages.parts import Chart
    from fairkit_repair.mitigation.run import MitigationResult
    from fairkit_repair.studies import Study, Trial

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
    return sum(other.status == "left out" for other in search.alternatives)


def _table(search: Study, on: On = On.ALL) -> Table:
    """Return the alternatives; neighbours of one method that were not measured share a row."""
    rows: list[tuple[str, ...]] = []
    same = same_constraint(search.alternatives)

    def key(alternative: Trial) -> tuple[str, str] | int:
        unmeasured = alternative.chance is None
        return (alternative.method, alternative.reason) if unmeasured else id(alternative)

    for _, group in groupby(search.alternatives, key=key):
        settings = list(group)
        alternative = settings[0]
        seconds = number(sum(each.seconds for each in settings))
        name = short_name(alternative, same)
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
    picked = [place for place, row in enumerate(rows) if row[-1].startswith("PICKED")]
    return Table("Alternatives", columns, rows, strong=picked, on=on)


def same_constraint(alternatives: Sequence[Trial]) -> bool:
    """Return whether all alternatives that name a constraint name one and the same."""
    return len({str(each.parameters.get("constraint", "")) for each in alternatives} - {""}) == 1


def short_name(alternative: Trial, same: bool) -> str:
    """Return the name without what all alternatives have."""
    if not same:
        return alternative.name
    own = {key: value for key, value in alternative.parameters.items() if key != "constraint"}
    return replace(alternative, parameters=own).name


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
    tried = f"  {len(search.measured)} alternatives tried in {search.seconds:,.0f} s, {_left_out(search)} left out"
    rows = "training rows" if search.given else "rows outside training"
    told = f"  predicted from {rows}, the next ones too: {_predicted(search, search.choice)} (asked: {search.sure:g})"
    parts: list[Part] = [Note(told, "" if search.reached else "alarm"), Note(tried)]
    if search.looks > 1 or search.looks_doubt:
        look = f"  look {search.looks} at these test rows{' or later' if search.looks_doubt else ''}"
        parts.append(Note(Span(look, "inconclusive")))
    same = same_constraint(search.alternatives)
    for other in runners_up(search):
        drawn = ", randomized" if other.randomized else ""
        parts.append(Note(f"  next: {short_name(other, same)}: {_predicted(search, other)}{drawn}"))
    return parts


def _predicted(search: Study, one: Trial) -> str:
    return f"{search.performance} {number(one.accuracy)}, chance {_chance(one)}"


def runners_up(search: Study, most: int = RUNNERS_UP) -> list[Trial]:
    """Return the best alternatives beside the pick: the surest methods first, one setting of each."""
    by_method: dict[str, Trial] = {}

    def key(alternative: Trial) -> tuple[bool, float]:
        accuracy = float("-inf") if alternative.accuracy is None else alternative.accuracy
        return (alternative.chance or 0) < search.sure, -accuracy

    for alternative in sorted((each for each in search.measured if each.status == "tried"), key=key):
        by_method.setdefault(f"{alternative.method}{alternative.randomized}", alternative)
    return list(by_method.values())[:most]


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
