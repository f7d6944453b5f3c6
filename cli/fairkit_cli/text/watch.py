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


def title(snapshot: WatchSnapshot) -> str:
    """Return one line about what is watched."""
    what = snapshot.model or "Decisions"
    if snapshot.alias and snapshot.model:
        what += f" ({snapshot.alias})"
    if snapshot.since is None:
        return f"{what}: no decisions yet"
    return f"{what}: {snapshot.rows:,} decisions since {snapshot.since}, up to {snapshot.until}"


def promise(look: WatchSnapshot) -> str:
    """Return a sentence about the joint, anytime-valid confidence of a watch's intervals."""
    return (
        f"All intervals hold at every look, {look.confidence:.0%} for all {look.streams} rules together: one may look, "
        "stop or go on at any time."
    )


def lately(look: WatchSnapshot) -> str:
    """Return which rules are broken lately, and since when."""
    return "; ".join(f"{subject}, since about {day}" for subject, day in look.lately.items())


def gaps(snapshot: WatchSnapshot) -> str | None:
    """Return which days are missing; None where none are."""
    if not snapshot.missing_days:
        return None
    shown = ", ".join(snapshot.missing_days[-MOST_DAYS:])
    more = f" (the last {MOST_DAYS}: {shown})" if len(snapshot.missing_days) > MOST_DAYS else f": {shown}"
    return f"{len(snapshot.missing_days):,} days without data{more}"


def watch_text(snapshot: WatchSnapshot, statements: Mapping[str, Any] | None, *, terminal: bool) -> str:
    """Return a look for people."""
    from rich.table import Table

    parts: list[Any] = [plain(title(snapshot), "bold")]
    if snapshot.verdict is not None:
        told = f"{snapshot.verdict.upper()}: of all decisions since {snapshot.since or 'the start'}"
        parts.append(plain(told, _STYLES[snapshot.verdict]))
    if snapshot.lately:
        parts.append(plain(f"BROKEN LATELY: {lately(snapshot)}", "bold red"))
    rules = Table(box=None, pad_edge=False)
    for name in ("rule", "value", "interval", "verdict", "this week", "certificate"):
        rules.add_column(
            name, justify="right" if name in ("value", "interval", "this week", "certificate") else "left"
        )
    width = told_width(terminal=terminal)
    gap = "\n" if width is not None and width < _WIDE else " "  # intervals go below their numbers
    for rule in snapshot.rules:
        where = f" ({rule.sensitive})" if rule.sensitive else ""
        rules.add_row(
            plain(f"{rule.metric}{where} {rule.kind} {rule.limit:g}"),
            number(rule.value),
            interval(rule.interval),
            plain(rule.verdict, _STYLES[rule.verdict]),
            f"{number(rule.week[0])}{gap}{interval(rule.week[1]) if rule.week[1] else ''}".strip(),
            "-"
            if rule.reference is None
            else f"{number(rule.reference[0])}{gap}{interval(rule.reference[1])}",
        )
    if snapshot.rules:
        parts.append(rules)
    if snapshot.groups:
        parts.append(_groups(snapshot))
    parts += [
        plain(f"ALARM {one.number}  {one.level}  {one.day}  {one.text}")
        for one in snapshot.alarms[-MOST_ALARMS:]
    ]
    if len(snapshot.alarms) > MOST_ALARMS:
        parts.append(plain(f"{len(snapshot.alarms) - MOST_ALARMS} earlier alarms are in --format json"))
    for text in remarks(snapshot, statements):
        parts.append(plain(text))
    return to_text(parts, terminal=terminal)


def _groups(snapshot: WatchSnapshot) -> Any:
    from rich.table import Table

    rates = list(dict.fromkeys(name for one in snapshot.groups for name in one.rates))
    table = Table(box=None, pad_edge=False)
    for name in ("group", "decisions", "share", *(rate.replace("_", " ") for rate in rates)):
        table.add_column(name, justify="left" if name == "group" else "right")
    for group in snapshot.groups:
        cells = []
        for rate in rates:
            value, pair = group.rates.get(rate, (None, None))
            cells.append(f"{number(value)} {interval(pair) if pair else ''}".strip())
        name = f"{group.split}={group.group}" if group.split else "everybody"
        table.add_row(
            plain(name + ("" if group.expected else " (new)")),
            f"{group.rows:,}",
            f"{group.share:.1%}",
            *cells,
        )
    return table


def remarks(snapshot: WatchSnapshot, statements: Mapping[str, Any] | None) -> list[str]:
    """Return the sentences below the tables."""
    sentences = [promise(snapshot)] if snapshot.rules else []
    sentences += [one.reason for one in snapshot.rules if one.verdict == "undecided" or one.unresolved]
    missing = gaps(snapshot)
    sentences += [missing] if missing else []
    if snapshot.open:
        sentences.append(f"{snapshot.open:,} decisions wait for their outcome")
    sentences += [f"{count:,} {what}" for what, count in snapshot.odd.items()]
    sentences += snapshot.notes
    if statements is not None and statements["count"]:
        signed = (
            f", signed by {', '.join(one[:16] for one in statements['keyids'])}"
            if statements["keyids"]
            else ""
        )
        gap = f"; {len(statements['missing_days'])} days have none" if statements["missing_days"] else ""
        sentences.append(
            f"{statements['count']:,} daily statements from {statements['first']} to {statements['last']}, "
            "each chained to "
            f"the one before{signed}{gap}"
        )
        if statements["unsigned_records"]:
            sentences.append(f"{statements['unsigned_records']:,} records came after the last of them")
    return sentences
