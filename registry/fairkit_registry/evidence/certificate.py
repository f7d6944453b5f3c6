"""Certificates: a signed statement that this model, on this data, has these findings.

Where no model was seen, the findings are about decisions in the table, and the statement's subject is the table.

A certificate is an in-toto Statement v1 in a DSSE envelope. Its predicate is the audit's report
(schema ``fairkit.report/1``) with what is needed to judge and repeat it: the settings of the audit, the
mitigation that made the model, the digests of fair metrics, and the time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, PolicyError
from fairkit.results.rendering import Shown
from fairkit.results.report import Report
from fairkit_registry.errors import CertificateError, ContradictionError, VerificationError
from fairkit_registry.evidence import dsse, predicate
from fairkit_registry.evidence.diagnosis import explain_refusal
from fairkit_registry.evidence.locks import check_kept, read_lock
from fairkit_registry.evidence.revoked import Revocations, remembered
from fairkit_registry.evidence.sequence import SequenceNumber
from fairkit_registry.evidence.statement import PAYLOAD_TYPE, STATEMENT_TYPE, read_limited
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.locks import PolicyLock

LARGEST_CERTIFICATE = 16 << 20
"""Bytes of the largest certificate that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Shown):
    """What a certificate says. `verify` gives one whose signature was checked; `read` gives one that was not."""

    sha256: str  # digest of the certificate file
    statement_sha256: str
    model_sha256: str | None
    model_name: str
    report: Report  # the findings, the policy and its verdict
    settings: Mapping[str, Any]  # what the audit was told: roles of the columns, auditors with parameters, policy
    mitigation: Mapping[str, Any] | None
    fair_metrics: tuple[Mapping[str, Any], ...]  # which auditor used which fair metric, by digest
    audited_at: datetime  # when, as the signer says
    keyids: tuple[str, ...]  # after `verify`: the trusted keys that signed. After `read`: what the file claims
    verified: bool  # whether `verify` made it
    sequence: tuple[SequenceNumber, ...] = ()
    table_statements: tuple[bytes, ...] = ()
    policy_lock: bytes | None = None
    lock_salt: str | None = None  # what opens a sealed policy lock; None where it is not sealed
    valid_until: datetime | None = None  # when it ends; None: never by itself

    def __repr__(self) -> str:
        """Return a line."""
        checked = "signature verified" if self.verified else "signature not checked"
        verdict = f": {self.report.verdict}" if self.report.verdict else ""
        about = f"{self.model_name} on {self.report.data.name}{verdict}"
        return f"<Certificate {self.sha256[:12]} of {about}, {predicate.time_text(self.audited_at)}, {checked}>"

    @property
    def unusual_settings(self) -> list[str]:
        """The settings of the audit that are not the default, as ``model.threshold = 0.1``."""
        from fairkit_registry.evidence.pins import lines

        return lines(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """Return a summary for people and programs; the findings are in `report`."""
        return {
            "sha256": self.sha256,
            "statement_sha256": self.statement_sha256,
            "model": None if self.model_sha256 is None else {"name": self.model_name, "sha256": self.model_sha256},
            **({"predictions": dict(self.report.model.predictions)} if self.model_sha256 is None else {}),
            "data": self.report.data.to_dict(),
            "verdict": self.report.verdict,
            "policy": [rule.to_dict() for rule in self.report.policy],
            "unusual_settings": self.unusual_settings,
            "sequence": [place.to_dict() for place in self.sequence],
            "mitigation": None if self.mitigation is None else dict(self.mitigation),
            "auditedAt": predicate.time_text(self.audited_at),
            "validUntil": None if self.valid_until is None else predicate.time_text(self.valid_until),
            "keyids": list(self.keyids),
            "verified": self.verified,
        }


def read(raw: bytes, *, full: bool = False) -> Certificate:
    """Read what a certificate says without asking who says it. For display; never decide by it."""
    envelope = dsse.Envelope.from_bytes(raw)
    _check_payload_type(envelope)
    claimed = tuple(one.keyid for one in envelope.signatures)
    return _interpret(envelope.payload, raw, claimed, verified=False, full=full)


def verify(
    raw: bytes,
    trusted: Sequence[PublicKey],
    *,
    model_sha256: str | None = None,
    data_sha256: str | None = None,
    full: bool = True,
    revocations: Revocations | None = None,
) -> Certificate:
    """Check a certificate: signature by a trusted key, not revoked; form; whether it is about this model and data.

    The signature comes first; only the very bytes that it covers are parsed. Keys inside the file
    are never used.
    """
    if not trusted:
        raise CertificateError("name the public key that you trust with --key; keys inside a certificate never count")
    envelope = dsse.Envelope.from_bytes(raw)
    _check_payload_type(envelope)
    good = dsse.signers(envelope, trusted)
    if not good:
        raise VerificationError(explain_refusal(envelope, trusted))
    certificate = _interpret(envelope.payload, raw, tuple(key.keyid for key in good), verified=True, full=full)
    known = remembered(trusted) if revocations is None else revocations
    counting = known.standing(
        certificate.keyids, statement_sha256=certificate.statement_sha256, model_sha256=certificate.model_sha256
    )
    certificate = replace(certificate, keyids=counting)
    if certificate.valid_until is not None and datetime.now(UTC) > certificate.valid_until:
        raise VerificationError(
            f"the certificate was valid until {predicate.time_text(certificate.valid_until)}, and is so no longer"
        )
    check_model(certificate, model_sha256)
    check_data(certificate, data_sha256)
    return certificate


def check_data(certificate: Certificate, data_sha256: str | None) -> None:
    """Refuse a certificate that is about another table."""
    if data_sha256 not in (None, certificate.report.data.sha256):
        raise VerificationError(
            f"the certificate is about other data: it names SHA-256 {certificate.report.data.sha256[:16]}..., the "
            f"table given has {str(data_sha256)[:16]}... (digest of columns, types and values in order)"
        )


def check_model(certificate: Certificate, model_sha256: str | None) -> None:
    """Refuse a certificate that is about another model."""
    if model_sha256 is not None and certificate.model_sha256 is None:
        at = certificate.report.model.endpoint.get("url")
        table = f"predictions in the table {certificate.report.data.name}: no model"
        about = f"answers of {at}: no file of the model" if at else table
        raise VerificationError(f"the certificate is about {about} was seen, so it says nothing about any")
    if model_sha256 not in (None, certificate.model_sha256):
        raise VerificationError(
            f"the certificate is about another model: it names SHA-256 {str(certificate.model_sha256)[:16]}..., the "
            f"file given has {str(model_sha256)[:16]}...: the model was changed, or the two do not belong together"
        )


def check_subject(raw: bytes, model_sha256: str, *, where: str) -> Certificate:
    """Read a certificate, without asking who signed it, if it is well-formed and about the given model."""
    try:
        certificate = read(raw, full=True)
        check_model(certificate, model_sha256)
    except CertificateError as error:
        raise type(error)(f"{where}: {error}") from None
    return certificate


def read_file(path: str | Path) -> bytes:
    """Read a certificate file."""
    return read_limited(
        Path(path),
        LARGEST_CERTIFICATE,
        what="certificate",
        too_large=f"a certificate (more than {LARGEST_CERTIFICATE >> 20} MiB)",
    )


def _check_payload_type(envelope: dsse.Envelope) -> None:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise VerificationError(
            f"the envelope's payload type is {envelope.payload_type!r}, a certificate's is {PAYLOAD_TYPE!r}: "
            "it was changed, or this is another kind of document"
        )


def _interpret(payload: bytes, raw: bytes, keyids: tuple[str, ...], *, verified: bool, full: bool) -> Certificate:
    try:
        statement = read_object(payload)
    except StrictJsonError as error:
        raise CertificateError(f"the certificate's statement cannot be read: {error}") from None
    name, digest = _subject(statement)
    body = predicate.check(statement, full=full)
    try:
        report = Report.from_dict(body)
        sequence = tuple(SequenceNumber.from_dict(place) for place in body.get("sequence", ()))
        table_statements = tuple(canonical(one) for one in body.get("tableStatements", ()))
        policy_lock = canonical(body["policyLock"]) if "policyLock" in body else None
    except (DataError, PolicyError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CertificateError(f"the certificate's report cannot be read: {error!r}") from None
    about = report.data.sha256 if report.model.unseen else report.model.sha256
    if about != digest:
        raise VerificationError(
            "the certificate contradicts itself: its subject and its report name two "
            f"{'tables' if report.model.unseen else 'models'}"
        )
    if full and verified:
        check_statement(report, body["settings"])
    certificate = Certificate(
        sha256=hashlib.sha256(raw).hexdigest(),
        statement_sha256=hashlib.sha256(payload).hexdigest(),
        model_sha256=report.model.sha256,
        model_name=report.model.name if report.model.unseen else name,
        report=report,
        settings=body["settings"],
        mitigation=body["mitigation"],
        fair_metrics=tuple(body["fairMetrics"]),
        audited_at=predicate.read_time(body["auditedAt"]),
        keyids=keyids,
        verified=verified,
        sequence=sequence,
        table_statements=table_statements,
        policy_lock=policy_lock,
        valid_until=None if "validUntil" not in body else predicate.read_time(body["validUntil"]),
        lock_salt=None if body.get("lockSalt") is None else str(body["lockSalt"]),
    )
    if policy_lock is not None and full and verified:
        check_lock(certificate, read_lock(policy_lock))
    return certificate


def check_lock(certificate: Certificate, lock: PolicyLock) -> None:
    """Refuse a certificate that was not made by its policy lock."""
    check_report(certificate.report, certificate.settings, certificate.audited_at, lock, salt=certificate.lock_salt)


def check_report(
    report: Report, settings: Mapping[str, Any], audited_at: datetime, lock: PolicyLock, *, salt: str | None = None
) -> None:
    """Refuse a report that was not made by a policy lock; see `check_lock`.

    A lock of requests (`fairkit ask --requests`) is kept by answers to them: the auditor names the digest of the table
    without its answers.
    """
    data = report.data.sha256
    for finding in report.findings:
        if finding.evidence.get("requests_sha256") == lock.data_sha256:
            data = lock.data_sha256
            asked = str(finding.evidence.get("served", {}).get("asked_on", ""))
            if asked and asked < f"{lock.locked_at:%Y-%m-%d}":
                raise ContradictionError(f"questions were asked on {asked}, before the policy lock was made")
    check_kept(lock, data_sha256=data, settings=settings, audited_at=audited_at, salt=salt)


_SHOWN = 5


def check_statement(report: Report, settings: Mapping[str, Any]) -> None:
    """Refuse a statement that cannot be true, whoever signed it."""
    from fairkit_registry.evidence.consistency import contradictions

    found = list(contradictions(report, settings))
    if found:
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ContradictionError(f"the certificate contradicts itself: {'; '.join(found[:_SHOWN])}{more}")


def _subject(statement: Mapping[str, Any]) -> tuple[str, str]:
    if statement.get("_type") != STATEMENT_TYPE:
        raise CertificateError(f"not a certificate: the statement's type is {statement.get('_type')!r}")
    try:
        (subject,) = statement["subject"]
        name, digest = subject["name"], subject["digest"]["sha256"]
    except (KeyError, TypeError, ValueError):
        raise CertificateError("not a certificate: it must have one subject with a SHA-256 digest") from None
    if not isinstance(name, str) or not isinstance(digest, str):
        raise CertificateError("not a certificate: its subject has no name and digest")
    return name, digest
