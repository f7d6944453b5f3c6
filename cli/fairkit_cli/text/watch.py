"""A watch on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.plain import plain, to_text, told_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit_watch.results import WatchSnapshot

MOST_ALARMS, MOST_DAYS = 12, 6
_WIDE = 120
_STYLES = {"pass": "green", "fail": "bold red", "undecided": "yellow"}


def title(look: WatchSnapshot) -> str:
    """Return one line about what is watched."""
    what = look.model or "Decisions"
    if look.alias and look.model:
        what += f" ({look.alias})"
    if look.since is None:
        return f"{what}: no decisions yet"
    return f"{what}: {look.rows:,} decisions since {look.since}, up to {look.until}"


def promise(look: WatchSnapshot) -> str:
    """Return what the intervals promise."""
    return (
        f"All intervals hold at every look, {look.confidence:.0%} for all {look.streams} rules together: one may look, "
        "stop or go on at any time."
    )


def lately(look: WatchSnapshot) -> str:
    """Return which rules are broken lately, and since when."""
    return "; ".join(f"{subject}, since about {day}" for subject, day in look.lately.items())


def gaps(look: WatchSnapshot) -> str | None:
    """Return which days are missing; None where none are."""
    if not look.missing_days:
        return None
    shown = ", ".join(look.missing_days[-MOST_DAYS:])
    more = f" (the last {MOST_DAYS}: {shown})" if len(look.missing_days) > MOST_DAYS else f": {shown}"
    return f"{len(look.missing_days):,} days without data{more}"


def watch_text(look: WatchSnapshot, statements: Mapping[str, Any] | None, *, terminal: bool) -> str:
    """Return a look for people."""
    from rich.table import Table

    parts: list[Any] = [plain(title(look), "bold")]
    if look.verdict is not None:
        told = f"{look.verdict.upper()}: of all decisions since {look.since or 'the start'}"
        parts.append(plain(told, _STYLES[look.verdict]))
    if look.lately:
        parts.append(plain(f"BROKEN LATELY: {lately(look)}", "bold red"))
    rules = Table(box=None, pad_edge=False)
    for name in ("rule", "value", "interval", "verdict", "this week", "certificate"):
        rules.add_column(
            name, justify="right" if name in ("value", "interval", "this week", "certificate") else "left"
        )
    width = told_width(terminal=terminal)
    gap = "\n" if width is not None and width < _WIDE else " "  # intervals go below their numbers
    for one in look.rules:
        where = f" ({one.sensitive})" if one.sensitive else ""
        rules.add_row(
            plain(f"{one.metric}{where} {one.kind} {one.limit:g}"),
            number(one.value),
            interval(one.interval),
            plain(one.verdict, _STYLES[one.verdict]),
            f"{number(one.week[0])}{gap}{interval(one.week[1]) if one.week[1] else ''}".strip(),
            "-" if one.reference is None else f"{number(one.reference[0])}{gap}{interval(one.reference[1])}",
        )
    if look.rules:
        parts.append(rules)
    if look.groups:
        parts.append(_groups(look))
    parts += [
        plain(f"ALARM {one.number}  {one.level}  {one.day}  {one.text}") for one in look.alarms[-MOST_ALARMS:]
    ]
    if len(look.alarms) > MOST_ALARMS:
        parts.append(plain(f"{len(look.alarms) - MOST_ALARMS} earlier alarms are in --format json"))
    for text in remarks(look, statements):
        parts.append(plain(text))
    return to_text(parts, terminal=terminal)


def _groups(look: WatchSnapshot) -> Any:
    from rich.table import Table

    rates = list(dict.fromkeys(name for one in look.groups for name in one.rates))
    table = Table(box=None, pad_edge=False)
    for name in ("group", "decisions", "share", *(rate.replace("_", " ") for rate in rates)):
        table.add_column(name, justify="left" if name == "group" else "right")
    for one in look.groups:
        cells = []
        for rate in rates:
            value, pair = one.rates.get(rate, (None, None))
            cells.append(f"{number(value)} {interval(pair) if pair else ''}".strip())
        name = f"{one.split}={one.group}" if one.split else "everybody"
        table.add_row(
            plain(name + ("" if one.expected else " (new)")), f"{one.rows:,}", f"{one.share:.1%}", *cells
        )
    return table


def remarks(look: WatchSnapshot, statements: Mapping[str, Any] | None) -> list[str]:
    """Return the sentences below the tables."""
    found = [promise(look)] if look.rules else []
    found += [one.reason for one in look.rules if one.verdict == "undecided" or one.unresolved]
    missing = gaps(look)
    found += [missing] if missing else []
    if look.open:
        found.append(f"{look.open:,} decisions wait for their outcome")
    found += [f"{count:,} {what}" for what, count in look.odd.items()]
    found += look.notes
    if statements is not None and statements["count"]:
        signed = (
            f", signed by {', '.join(one[:16] for one in statements['keyids'])}"
            if statements["keyids"]
            else ""
        )
        gap = f"; {len(statements['missing_days'])} days have none" if statements["missing_days"] else ""
        found.append(
            f"{statements['count']:,} daily statements from {statements['first']} to {statements['last']}, "
            "each chained to "
            f"the one before{signed}{gap}"
        )
        if statements["unsigned_records"]:
            found.append(f"{statements['unsigned_records']:,} records came after the last of them")
    return found
