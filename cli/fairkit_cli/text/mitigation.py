"""A mitigation in ten lines: the pick, what it costs, its chance, what got worse, and three runners-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.fields import as_options
from fairkit_cli.text.comparison import other_findings, warned, worse_told
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.plain import plain, to_text
from fairkit_cli.text.search import same_constraint, short_name
from fairkit_cli.text.view import MEANING, change_name, headline_changes, metric_name
from fairkit_repair.mitigation.caveats import decisions_told, worsened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from fairkit.results.comparisons import Change
    from fairkit_repair.mitigation.run import MitigationResult
    from fairkit_repair.searches import Alternative, Search

RUNNERS_UP, MOST_CHANGES = 3, 2


def mitigation_text(result: MitigationResult, *, terminal: bool) -> str:
    """Return the ten lines as text, with colours on a terminal; `comparison` returns everything."""
    return to_text(list(_lines(result)), terminal=terminal)


def _lines(result: MitigationResult) -> Iterator[RenderableType]:
    after = result.after
    name = result.plugin if result.search is None else result.search.choice.name
    verdict = "" if after.verdict is None else f": {after.verdict.upper()}"
    style = {"pass": "bold green", "fail": "bold red"}.get(str(after.verdict), "bold yellow")
    rows = f"learned from {result.train_rows:,} rows, measured on {result.test_rows:,} others"
    yield plain(f"{name}{verdict} ({rows})", "bold" if after.verdict is None else style)
    yield from warned(after.warnings)
    for rule in after.policy:
        yield plain(f"  {rule.verdict}: {as_options(rule.reason)}")
    for change in _first_changes(result):
        yield plain(f"  {_told(change)}")
    yield from _trade(result)
    if result.search is not None:
        yield from _searched(result.search)
    yield plain(decisions_told(result.randomized, result.reads), "bold yellow" if result.randomized else "")
    yield plain(worse_told(result, MOST_CHANGES), "bold red" if worsened(result.changes) else "")
    yield from (plain(f"! {as_options(text)}", "bold red") for text in result.alarms)
    left = len(dict.fromkeys([*result.notes, *after.data.notes])) - len(result.alarms)
    notes = f", and {left} notes" if left > 1 else ", and a note" if left else ""
    yield plain(f"All numbers{notes}: --all, or as a page by --format html.")


def _first_changes(result: MitigationResult) -> Sequence[Change]:
    """Return the change of the performance metric, and without a policy the main disparities' changes."""
    performance, between = headline_changes(result.changes)
    own = [] if result.after.policy else [one for one in between if one.outcome in ("better", "worse")]
    return [*performance[:1], *(own or ([] if result.after.policy else between))[:MOST_CHANGES]]


def _trade(result: MitigationResult) -> Iterator[RenderableType]:
    """Yield the trade-off of a method with an individual guarantee: individuals, accuracy, groups."""
    pairs = other_findings(result)
    if not pairs:
        return
    performance, between = headline_changes(result.changes)
    moved = sorted(
        between, key=lambda one: (one.outcome not in ("better", "worse"), -abs(one.difference or 0.0))
    )
    parts = [
        f"{metric_name(last)} {number(first.value)} to {number(last.value)}" for first, last in pairs[:1]
    ]
    chosen = [one for one in performance if one.metric == "balanced_accuracy"] + moved[:1]
    parts += [
        f"{change_name(one)}{f' ({one.place})' if one.place else ''} {number(one.before)} to {number(one.after)}"
        for one in chosen
    ]
    yield plain(f"  the trade: {'; '.join(parts)}")


def _told(change: Change) -> str:
    """Say how one number changed."""
    place = f" ({change.place})" if change.place else ""
    told = f"{change_name(change)}{place}: {number(change.before)} before, {number(change.after)} after"
    if change.difference is None:
        return told
    ends = "" if change.interval is None else f" {interval(change.interval)}"
    return f"{told}; difference {number(change.difference)}{ends}, {MEANING[change.outcome]}"


def _searched(search: Search) -> Iterator[RenderableType]:
    """Say how the pick was found, and which alternatives came next."""
    one, left = search.choice, sum(other.status == "left out" for other in search.alternatives)
    chance = "-" if one.chance is None else f"{one.chance:.2f}"
    style = "" if search.reached else "bold red"
    yield plain(
        f"  chance of passing, predicted: {chance} (asked: {search.sure:g}); {len(search.measured)} alternatives tried "
        f"in {search.seconds:,.0f} s, {left} left out",
        style,
    )
    if search.looks > 1 or search.looks_doubt:
        yield plain(
            f"  look {search.looks} at these test rows{' or later' if search.looks_doubt else ''}", "yellow"
        )
    same = same_constraint(search.alternatives)
    for other in runners_up(search):
        drawn = ", randomized" if other.randomized else ""
        told = f"{search.performance} {number(other.accuracy)}, chance {other.chance:.2f}{drawn}"
        yield plain(f"  next: {short_name(other, same)}: {told}")


def runners_up(search: Search, most: int = RUNNERS_UP) -> list[Alternative]:
    """Return the best alternatives beside the pick: the surest methods first, one setting of each."""
    by_method: dict[str, Alternative] = {}

    def key(one: Alternative) -> tuple[bool, float]:
        return (one.chance or 0) < search.sure, -(one.accuracy if one.accuracy is not None else float("-inf"))

    for one in sorted((one for one in search.measured if one is not search.choice), key=key):
        by_method.setdefault(f"{one.method}{one.randomized}", one)
    return list(by_method.values())[:most]
