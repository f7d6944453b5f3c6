"""Sign the report of an audit as a certificate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import dsse, predicate
from fairkit_registry.evidence.statement import PAYLOAD_TYPE, statement
from fairkit_registry.jsonio import canonical, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.results.report import Report
    from fairkit_registry.evidence.sequence import SequenceNumber
    from fairkit_registry.evidence.signers import Signer


def issue(
    report: Report,
    secrets: Sequence[Signer],
    *,
    settings: Mapping[str, Any],
    mitigation: Mapping[str, Any] | None = None,
    fair_metrics: Sequence[Mapping[str, Any]] = (),
    audited_at: datetime | None = None,
    sequence: Sequence[SequenceNumber] = (),
    table_statements: Sequence[bytes] = (),
    policy_lock: bytes | None = None,
    lock_salt: str | None = None,
    valid_until: datetime | None = None,
) -> bytes:
    """Sign a report."""
    subject = _subject(report)
    if subject is None:
        raise CertificateError("only a model in a file can be certified: save it as ONNX and audit the file")
    if not secrets:
        raise CertificateError("a certificate needs a key: fairkit key new PATH makes one")
    try:
        body = predicate.build(
            report,
            settings=settings,
            mitigation=mitigation,
            fair_metrics=fair_metrics,
            audited_at=audited_at or datetime.now(UTC),
            sequence=[place.to_dict() for place in sequence],
            table_statements=[read_object(raw) for raw in table_statements],
            policy_lock=None if policy_lock is None else dsse.Envelope.from_bytes(policy_lock).to_dict(),
            lock_salt=lock_salt,
            valid_until=valid_until,
        )
        payload = canonical(statement(*subject, predicate.TYPE, body))
    except (ValueError, TypeError) as error:
        raise CertificateError(f"the report cannot be written as JSON: {error}") from None
    predicate.check(read_object(payload), full=True)  # nothing is signed that would be refused later
    return dsse.sign(payload, PAYLOAD_TYPE, secrets).to_bytes() + b"\n"


def _subject(report: Report) -> tuple[str, str] | None:
    """Return name and digest of what is signed: the model, or, where no file was seen, the table."""
    if report.model.unseen:
        return report.data.name, report.data.sha256
    return None if report.model.sha256 is None else (report.model.name, report.model.sha256)
