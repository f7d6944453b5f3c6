"""What the registry's commands print for people: plain columns, quick for thousands of lines."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.results.rules import SCENARIO
from fairkit.support.escaping import visible
from fairkit_cli.helping import as_options
from fairkit_cli.terminal.output import FAILED, exit_code
from fairkit_cli.terminal.plain import plain, to_text, told_width

if TYPE_CHECKING:
    from fairkit_registry.evidence.certificate import Certificate, Verification
    from fairkit_registry.store.index import AliasPolicy


MOST_WRAPPED = 500


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Set rows under a header, each column as wide as its widest cell, or wrapped where that is too wide; return lines.

    With more rows than `MOST_WRAPPED` lines are as long as they are: wrapping takes a millisecond a row.
    """
    table = [[visible(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    width = told_width(terminal=sys.stdout.isatty())
    if width is not None and sum(widths) + 2 * (len(widths) - 1) > width and len(table) <= MOST_WRAPPED:
        return _wrapped(table, width)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return [line.rstrip() for line in lines]


def _wrapped(table: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table that is made to fit, as every other table of the command is."""
    from rich.table import Table

    header, *rows = table
    grid = Table(box=None, pad_edge=False)
    for index, name in enumerate(header):
        numbers = all(re.fullmatch(r"[-\d.,%]*", row[index]) for row in rows)
        grid.add_column(name, justify="right" if numbers else "left")
    for row in rows:
        grid.add_row(*map(plain, row))
    return to_text([grid], terminal=False, width=width).splitlines()


def policy_text(policy: AliasPolicy) -> str:
    """Say in one line what an alias asks for."""
    from fairkit_registry.evidence.settings import shown

    if policy.open:
        return "open: no certificate needed"
    parts = [_keys(policy.keys) or "no trusted key"]
    for rule in policy.rules:
        where = f":{rule['sensitive']}" if rule["sensitive"] else ""
        limit = f"<= {rule['max']:g}" if "max" in rule else f">= {rule['min']:g}"
        scenario = [f"; {key}: {rule[key]}" for key in sorted(SCENARIO & rule.keys())]
        parts.append(f"{rule['metric']}{where} {limit}{''.join(scenario)}")
    settings = sorted(f"{name} = {shown(value)}" for name, value in policy.settings.items())
    for applies, text in (
        (not policy.rules, "certified verdict pass"),
        (policy.max_age_days is not None, f"at most {policy.max_age_days or 0:g} days old"),
        (policy.data, "on data " + ", ".join(digest[:12] for digest in policy.data)),
        (policy.data_keys, f"on a table signed by {_keys(policy.data_keys)}"),
        (policy.no_worse, "not significantly worse than the current version in " + ", ".join(policy.no_worse)),
        (settings, "settings " + ", ".join(settings)),
        (policy.min_rows is not None, f"at least {policy.min_rows or 0:,} rows in every group"),
        (policy.plain, "a plain file"),
        (policy.locked, "policy, table and settings locked before the model came"),
        (policy.unseen, "on rows sealed before the model came"),
        (policy.checks, "checks " + ", ".join(policy.checks)),
        (policy.gone, f"{', '.join(policy.gone)} (no longer checked: set the policy anew)"),
    ):
        parts += [text] if applies else []
    return "; ".join(parts)


def _keys(pems: Sequence[str]) -> str:
    from fairkit_registry.evidence.signers import keyid_of

    return ", ".join(f"key {keyid_of(pem)[:16]}" for pem in pems)


# What `fairkit verify` prints for people.


def code_of(outcome: Verification) -> int:
    """Return the exit code: 1 where it does not hold or its policy failed, 3 where that is inconclusive."""
    return FAILED if outcome.failed else exit_code(outcome.verdict)


def record(outcome: Verification) -> dict[str, Any]:
    """Return the outcome of a check as JSON values."""
    told = outcome.to_dict()
    return told if told["failed"] is None else told | {"failed": as_options(told["failed"])}


def lines(name: str, outcome: Verification) -> list[str]:
    """Describe what was checked, the file first."""
    texts = [f"{name}: {'refused' if outcome.failed else 'verified'}"]
    texts += [f"  holds: {text}" for text in outcome.held]
    if outcome.failed:
        texts.append(f"  does not hold: {as_options(outcome.failed)}")
    elif outcome.certificate is not None:
        texts += [f"  {line}" for line in certificate(outcome.certificate)]
        texts += [f"  rule: {as_options(rule.reason)}" for rule in outcome.certificate.report.policy]
    return texts


def certificate(document: Certificate) -> list[str]:
    """Describe a certificate in lines."""
    report = document.report
    signed = "signature checked, key" if document.verified else "NOT verified, claims key"
    keys = ", ".join(key[:16] or "(none)" for key in document.keyids)
    lines = [
        f"certificate {document.sha256[:12]}  audited {document.audited_at:%Y-%m-%d %H:%M} UTC  {signed} {keys}",
        f"  data {report.data.name}  {report.data.rows} rows  content {report.data.sha256[:16]}",
        f"  verdict: {report.verdict or 'no policy'}",
    ]
    if document.model_sha256 is None:
        lines.append(f"  no model was seen: about the {document.model_name}")
    lines += [f"  setting: {text}" for text in document.unusual_settings]
    if document.mitigation is not None:
        chosen = {key: value for key, value in document.mitigation["parameters"].items() if value is not None}
        lines.append(f"  mitigation: {document.mitigation['plugin']} {chosen}")
    return lines


# CSV for people who open it in a spreadsheet: no cell becomes a formula.


ACTING = ("=", "+", "-", "@")
"""What begins a formula in a spreadsheet; a text that begins so gets an apostrophe."""


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> str:
    """Return a table as CSV, numbers in full; an empty cell is None."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([_safe(name) for name in header])
    writer.writerows([_safe(cell) for cell in row] for row in rows)
    return target.getvalue()


def _safe(cell: str | float | None) -> str | float:
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = visible(cell)
    return f"'{text}" if text.startswith(ACTING) else text
