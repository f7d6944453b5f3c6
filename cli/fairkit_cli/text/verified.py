"""What `fairkit verify` and `fairkit-verify` print for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.fields import as_options
from fairkit_cli.terminal.output import FAILED, INCONCLUSIVE, PASSED, exit_code

if TYPE_CHECKING:
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.verifying import Verification


def code_of(outcome: Verification) -> int:
    """Return the exit code: 1 where it does not hold or its policy failed, 3 where something cannot be decided."""
    code = FAILED if outcome.failed else exit_code(outcome.verdict)
    return INCONCLUSIVE if code == PASSED and outcome.doubts else code


def record(outcome: Verification) -> dict[str, Any]:
    """Return what programs get."""
    told = outcome.to_dict()
    return told if told["failed"] is None else told | {"failed": as_options(told["failed"])}


def lines(name: str, outcome: Verification) -> list[str]:
    """Describe what was checked, the file first."""
    told = [f"{name}: {'refused' if outcome.failed else 'verified'}"]
    told += [f"  holds: {text}" for text in outcome.held]
    told += [f"  cannot be decided: {text}" for text in outcome.doubts]
    if outcome.failed:
        told.append(f"  does not hold: {as_options(outcome.failed)}")
    elif outcome.certificate is not None:
        told += [f"  {line}" for line in certificate(outcome.certificate)]
        told += [f"  rule: {as_options(rule.reason)}" for rule in outcome.certificate.report.policy]
    return told


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
