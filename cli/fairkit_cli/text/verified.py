"""What `fairkit verify` prints for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.fields import as_options
from fairkit_cli.terminal.output import FAILED, exit_code

if TYPE_CHECKING:
    from fairkit_registry.evidence.certificate import Certificate, Verification


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
