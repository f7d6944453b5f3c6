"""What the registry's commands print for people: plain columns, quick for thousands of lines."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from fairkit.results.rules import SCENARIO
from fairkit.support.escaping import visible
from fairkit_cli.text.numbers import measured
from fairkit_cli.text.plain import plain, to_text, told_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairkit_registry.policies import AliasPolicy
    from fairkit_registry.promotion.compare import Comparison


MOST_WRAPPED = 500


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Set rows under a header, each column as wide as its widest cell, or wrapped where that is too wide; return lines.

    With more rows than `MOST_WRAPPED` lines are as long as they are: wrapping takes a millisecond a row.
    """
    table = [[visible(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    width = told_width(terminal=sys.stdout.isatty())
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width and len(table) <= MOST_WRAPPED:
        return _wrapped(table)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return [line.rstrip() for line in lines]


def _wrapped(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table that is made to fit, as every other table of the command is."""
    from rich.table import Table

    header, *rows = table
    grid = Table(box=None, pad_edge=False)
    for place, name in enumerate(header):
        numbers = all(re.fullmatch(r"[-\d.,%]*", row[place]) for row in rows)
        grid.add_column(name, justify="right" if numbers else "left")
    for row in rows:
        grid.add_row(*map(plain, row))
    return to_text([grid], terminal=sys.stdout.isatty()).splitlines()


def policy(alias_policy: AliasPolicy) -> str:
    """Say in one line what an alias asks for."""
    watched = [text for wanted, text in _probation(alias_policy) if wanted]
    if alias_policy.open:
        return "; ".join(["open: no certificate needed", *watched])
    parts = [_keys(alias_policy.keys) or "no trusted key"]
    for rule in alias_policy.rules:
        where = f":{rule['sensitive']}" if rule["sensitive"] else ""
        limit = f"<= {rule['max']:g}" if "max" in rule else f">= {rule['min']:g}"
        scenario = [f"; {key}: {rule[key]}" for key in sorted(SCENARIO & rule.keys())]
        parts.append(f"{rule['metric']}{where} {limit}{''.join(scenario)}")
    if not alias_policy.rules:
        parts.append("certified verdict pass")
    parts += [told for asked, told in _asked(alias_policy) if asked]
    parts += [f"check {name}" for name in alias_policy.checks]
    return "; ".join(parts)


def _asked(alias_policy: AliasPolicy) -> list[tuple[object, str]]:
    """Return each further condition with its words; those that are not asked are empty."""
    from fairkit_registry.evidence.pins import shown

    settings = sorted(f"{name} = {shown(value)}" for name, value in alias_policy.settings.items())
    return [
        (alias_policy.max_age_days is not None, f"at most {alias_policy.max_age_days or 0:g} days old"),
        (alias_policy.data, "on data " + ", ".join(digest[:12] for digest in alias_policy.data)),
        (
            alias_policy.no_worse,
            "not significantly worse than the current version in " + ", ".join(alias_policy.no_worse),
        ),
        (settings, "settings " + ", ".join(settings)),
        (alias_policy.min_rows is not None, f"at least {alias_policy.min_rows or 0:,} rows in every group"),
        (alias_policy.data_keys, f"on a table signed by {_keys(alias_policy.data_keys)}"),
        (alias_policy.sequential, "no number of the auditor's certificates missing"),
        (alias_policy.pre_registered, "policy, table and settings locked before the model came"),
        (alias_policy.unseen, "on rows sealed before the model came"),
        (alias_policy.machines > 1, f"from {alias_policy.machines} unlike machines"),
        *_probation(alias_policy),
        (alias_policy.operators, "rows may meet at " + ", ".join(alias_policy.operators)),
        (alias_policy.outputs, "not audited: " + ", ".join(alias_policy.outputs)),
        (alias_policy.inputs, "never fed: " + ", ".join(alias_policy.inputs)),
        (alias_policy.revokers, f"revocable by {_keys(alias_policy.revokers)}"),
    ]


def _probation(alias_policy: AliasPolicy) -> list[tuple[object, str]]:
    """Return what is asked of the served decisions, with its words."""
    return [
        (alias_policy.probation_days, f"on probation for {alias_policy.probation_days} days"),
        (alias_policy.watch_keys, f"watched by {_keys(alias_policy.watch_keys)}"),
    ]


def _keys(pems: Sequence[str]) -> str:
    from fairkit_registry.evidence.keys import keyid_of

    return ", ".join(f"key {keyid_of(pem)[:16]}" for pem in pems)


_ORDER = ("worse", "better", "different", "unknown", "within noise")
_SHOWN = {"within noise": "not significant"}


def comparisons(pairs: Sequence[Comparison], before: str, after: str) -> list[str]:
    """Set findings side by side, what changed first, with a count of each kind of change; return the lines."""
    rows = [
        (
            pair.title,
            measured(pair.before, pair.before_interval),
            measured(pair.after, pair.after_interval),
            measured(pair.difference, pair.interval),
            _SHOWN.get(pair.change, pair.change),
        )
        for pair in sorted(pairs, key=lambda pair: _ORDER.index(pair.change))
    ]
    changes = [pair.change for pair in pairs]
    counts = ", ".join(
        f"{changes.count(change)} {_SHOWN.get(change, change)}" for change in _ORDER if change in changes
    )
    return [*columns(("finding", before, after, "difference", "change"), rows), "", counts]
