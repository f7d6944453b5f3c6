"""What the registry's commands print for people: plain columns, quick for thousands of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.escaping import visible
from fairkit_cli.text.numbers import measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.policies import AliasPolicy
    from fairkit_registry.promotion.compare import Comparison


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Set rows under a header, each column as wide as its widest cell; return the lines."""
    table = [[visible(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return [line.rstrip() for line in lines]


def policy(one: AliasPolicy) -> str:
    """Say in one line what an alias asks for."""
    from fairkit_registry.evidence.keys import keyid_of

    if one.open:
        return "open: no certificate needed"
    parts = [", ".join(f"key {keyid_of(pem)[:16]}" for pem in one.keys) or "no trusted key"]
    for rule in one.rules:
        where = f":{rule['sensitive']}" if rule["sensitive"] else ""
        limit = f"<= {rule['max']:g}" if "max" in rule else f">= {rule['min']:g}"
        parts.append(f"{rule['metric']}{where} {limit}")
    if not one.rules:
        parts.append("certified verdict pass")
    if one.max_age_days is not None:
        parts.append(f"at most {one.max_age_days:g} days old")
    if one.data:
        parts.append("on data " + ", ".join(digest[:12] for digest in one.data))
    if one.no_worse:
        parts.append("not significantly worse than the current version in " + ", ".join(one.no_worse))
    if one.settings:
        shown = sorted(f"{name} = {setting(value)}" for name, value in one.settings.items())
        parts.append("settings " + ", ".join(shown))
    if one.min_rows is not None:
        parts.append(f"at least {one.min_rows:,} rows in every group")
    if one.data_keys:
        parts.append(
            "on a table signed by " + ", ".join(f"key {keyid_of(pem)[:16]}" for pem in one.data_keys)
        )
    if one.sequential:
        parts.append("no number of the auditor's certificates missing")
    if one.timestamp_roots:
        parts.append("with a timestamp of a trusted authority")
    if one.revokers:
        parts.append("revocable by " + ", ".join(f"key {keyid_of(pem)[:16]}" for pem in one.revokers))
    parts += [f"check {name}" for name in one.checks]
    return "; ".join(parts)


def setting(value: object) -> str:
    """Write the value of a setting."""
    from fairkit_registry.evidence.pins import shown

    return shown(value)


def certificate(one: Certificate) -> list[str]:
    """Describe a certificate in lines."""
    report = one.report
    signed = "signature checked, key" if one.verified else "NOT verified, claims key"
    keys = ", ".join(key[:16] or "(none)" for key in one.keyids)
    lines = [
        f"certificate {one.sha256[:12]}  audited {one.audited_at:%Y-%m-%d %H:%M} UTC  {signed} {keys}",
        f"  data {report.data.name}  {report.data.rows} rows  content {report.data.sha256[:16]}",
        f"  verdict: {report.verdict or 'no policy'}",
    ]
    if one.model_sha256 is None:
        lines.append(f"  no model was seen: about the {one.model_name}")
    lines += [f"  setting: {text}" for text in one.unusual_settings]
    lines += [f"  number {place.number} of key {place.keyid[:16]}" for place in one.sequence]
    if one.mitigation is not None:
        lines.append(f"  mitigation: {one.mitigation['plugin']} {dict(one.mitigation['parameters'])}")
    return lines


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
