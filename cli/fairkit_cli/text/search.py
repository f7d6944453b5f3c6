"""A search under a policy, for people: from the model without mitigation to the pick, and every alternative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from fairkit_cli.text.numbers import number
from fairkit_cli.text.plain import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairkit.results.comparisons import Change
    from fairkit_repair.searches import Alternative, Search


def search_parts(search: Search, changes: Sequence[Change]) -> list[RenderableType]:
    """Return the path to the pick in sentences, and the table of alternatives."""
    style = "bold" if search.reached else "bold red"
    steps = path_told(search, changes)
    return [*(plain(step) for step in steps[:-1]), plain(steps[-1], style), "", _table(search), ""]


def path_told(search: Search, changes: Sequence[Change]) -> list[str]:
    """Return the lines about a search: the test rows' power, the start, the alternatives, and the pick."""
    first, choice = search.alternatives[0], search.choice
    limits = ", ".join(f"{name} {number(value)}" for name, value in first.values.items())
    minutes = f"{search.seconds:,.0f} s of {60 * search.budget:,.0f} s"
    return [
        f"Test rows: {search.power.rows:,}; a model without any disparity would pass with a chance of "
        f"{search.power.chance:.2f}.",
        f"Before: {search.performance} {number(first.accuracy)}, {limits}, chance of passing {_chance(first)} "
        f"(on {search.calibration_rows:,} {'training rows' if search.given else 'rows outside training'}).",
        f"Searched: {len(search.measured)} alternatives in {minutes}; "
        f"{sum(other.status == 'left out' for other in search.alternatives)} left out.",
        f"{search.told()}"
        + (f" {_cost(search, changes)}" if choice is not first else " It is the model without mitigation."),
    ]


def rows_of(alternatives: Sequence[Alternative]) -> list[tuple[str, ...]]:
    """Return a line for each alternative; neighbours of one method that were not measured share a line.

    Columns: alternative, accuracy, disparities, chance, seconds, and what became of it.
    """
    rows: list[tuple[str, ...]] = []
    same = same_constraint(alternatives)

    def key(one: Alternative) -> tuple[str, str] | int:
        return (one.method, one.reason) if one.chance is None else id(one)

    for _, group in groupby(alternatives, key=key):
        settings = list(group)
        alternative = settings[0]
        if alternative.chance is None:
            name = (
                short_name(alternative, same)
                if len(settings) == 1
                else f"{alternative.method} ({len(settings)} settings)"
            )
            rows.append(
                (
                    name,
                    "-",
                    "-",
                    "-",
                    number(sum(each.seconds for each in settings)),
                    f"left out: {alternative.reason}",
                )
            )
            continue
        values = " ".join(number(value) for value in alternative.values.values())
        word = {"picked": "PICKED", "left out": "left out:"}.get(alternative.status, "")
        marks = [word, alternative.reason, "randomized" if alternative.randomized else ""]
        outcome = ", ".join(mark for mark in marks if mark)
        rows.append(
            (
                short_name(alternative, same),
                number(alternative.accuracy),
                values,
                _chance(alternative),
                number(alternative.seconds),
                outcome,
            )
        )
    return rows


def same_constraint(alternatives: Sequence[Alternative]) -> bool:
    """Return whether all alternatives that name a constraint name one and the same."""
    return len({str(one.parameters.get("constraint", "")) for one in alternatives} - {""}) == 1


def short_name(one: Alternative, same: bool) -> str:
    """Return the name without what all alternatives have."""
    if not same:
        return one.name
    return replace(one, parameters={k: v for k, v in one.parameters.items() if k != "constraint"}).name


def columns_of(search: Search) -> tuple[str, ...]:
    """Return the names of the columns of `rows_of`."""
    many = len(search.choice.values) > 1
    return (
        "alternative",
        search.performance,
        "numbers under limits" if many else "under limit",
        "chance",
        "seconds",
        "",
    )


def title_of(search: Search) -> str:
    """Return the title of the table of alternatives."""
    rows = "the training rows" if search.given else "rows outside training"
    lowered = f" (lowered by {search.optimism:.4f}: see the notes)" if search.optimism else ""
    return f"Alternatives, on {rows}: {search.performance}{lowered}, and {' '.join(search.choice.values)}"


def _table(search: Search) -> RenderableType:
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, title_justify="left", title=title_of(search))
    grid.title_style = "bold"
    for place, name in enumerate(columns_of(search)):
        grid.add_column(name, justify="right" if 0 < place < len(columns_of(search)) - 1 else "left")
    for row in rows_of(search.alternatives):
        grid.add_row(*map(plain, row), style="bold" if row[-1].startswith("PICKED") else "")
    return grid


def _chance(one: Alternative) -> str:
    return "-" if one.chance is None else f"{one.chance:.2f}"


def _cost(search: Search, changes: Sequence[Change]) -> str:
    """Return a sentence with the price of the pick in performance, measured on the test rows."""
    for change in changes:
        plain_one = change.sensitive is None and change.group is None and not change.parameters
        if change.metric != search.performance or not plain_one or change.difference is None:
            continue
        ends = "" if change.interval is None else _ends(change)
        word, amount = (
            ("costs", -change.difference) if change.difference <= 0 else ("gains", change.difference)
        )
        return f"On the test rows it {word} {amount:.4f}{ends} of {search.performance}."
    return f"What it costs of {search.performance} on the test rows is unknown."


def _ends(change: Change) -> str:
    assert change.interval is not None and change.difference is not None  # noqa: PT018, S101 -- asked for
    low, high = change.interval
    low, high = (-high, -low) if change.difference <= 0 else (low, high)
    return f" [{low + 0.0:.4f}, {high + 0.0:.4f}]"
