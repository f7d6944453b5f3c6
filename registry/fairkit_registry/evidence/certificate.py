"""Certificates: a signed statement that this model, on this data, has these findings.

Where no model was seen, the findings are about decisions in the table, and the statement's subject is the table.
`check` is the one check of a certificate: `fairkit verify`, `registry verify`, `report`, promotions and pages call it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.errors import DataError, PolicyError
from fairkit.results.rendering import Shown
from fairkit.results.report import Report
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_registry.errors import CertificateError, ContradictionError, RevokedError, VerificationError
from fairkit_registry.evidence import predicate as predicates
from fairkit_registry.evidence.charts import contradictions
from fairkit_registry.evidence.signed import PolicyLock, Signed, SignedTable
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from fairkit_registry.evidence.signed import Envelope
    from fairkit_registry.evidence.signers import PublicKey

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Signed, Shown):
    """What a certificate says. `verify` gives one whose signature was checked; `read` gives one that was not."""

    TYPE: ClassVar[str] = predicates.TYPE
    WHAT: ClassVar[str] = "a fairness certificate"
    LARGEST: ClassVar[int] = 16 << 20

    model_sha256: str | None
    model_name: str
    report: Report  # the findings, the policy and its verdict
    settings: Mapping[str, Any]  # what the audit was told: roles of the columns, auditors with parameters, policy
    mitigation: Mapping[str, Any] | None
    fair_metrics: tuple[Mapping[str, Any], ...]  # which auditor used which fair metric, by digest
    audited_at: datetime  # when, as the signer says
    valid_until: datetime | None = None  # when it ends; None: never by itself
    tables: tuple[bytes, ...] = ()  # signed tables that it carries
    policy_lock: bytes | None = None
    lock_salt: str | None = None  # what opens a sealed policy lock; None where it is not sealed

    @classmethod
    def interpret(cls, name: str, sha256: str, predicate: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
        """Read the predicate."""
        body = predicates.check(said)
        try:
            report = Report.from_dict(body)
        except (DataError, PolicyError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CertificateError(f"the certificate's report cannot be read: {error!r}") from None
        unseen = report.model.unseen
        if (report.data.sha256 if unseen else report.model.sha256) != sha256:
            raise VerificationError(
                "the certificate contradicts itself: its subject and its report name two "
                f"{'tables' if unseen else 'models'}"
            )
        return {
            "model_sha256": report.model.sha256,
            "model_name": report.model.name if unseen else name,
            "report": report,
            "settings": body["settings"],
            "mitigation": body["mitigation"],
            "fair_metrics": tuple(body["fairMetrics"]),
            "audited_at": predicates.read_time(body["auditedAt"]),
            "valid_until": predicates.read_time(body["validUntil"]) if "validUntil" in body else None,
            "tables": tuple(canonical(statement) for statement in body.get("tableStatements", ())),
            "policy_lock": canonical(body["policyLock"]) if "policyLock" in body else None,
            "lock_salt": body.get("lockSalt"),
        }

    def check(self) -> None:
        """Refuse what cannot be true, and an audit that was not made by the policy lock that it carries."""
        check_statement(self.report, self.settings)
        if self.policy_lock is not None:
            check_lock(self, PolicyLock.read(self.policy_lock))

    @classmethod
    def refusal(cls, envelope: Envelope, trusted: Sequence[PublicKey]) -> str:
        """Name the finding that was changed, where one was."""
        changed = _changed(envelope.payload)
        # a class with slots is made anew, and `super()` would look for the first one
        return super(Certificate, cls).refusal(envelope, trusted) if changed is None else changed  # noqa: UP008

    def __repr__(self) -> str:
        """Return a line."""
        checked = "signature verified" if self.verified else "signature not checked"
        verdict = f": {self.report.verdict}" if self.report.verdict else ""
        about = f"{self.model_name} on {self.report.data.name}{verdict}"
        return f"<Certificate {self.sha256[:12]} of {about}, {predicates.time_text(self.audited_at)}, {checked}>"

    @property
    def sha256(self) -> str:
        """The digest of the certificate file."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def unusual_settings(self) -> list[str]:
        """The settings of the audit that are not the default, as ``model.threshold = 0.1``."""
        from fairkit_registry.evidence.settings import lines

        return lines(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """Return a summary for people and programs; the findings are in `report`."""
        unseen = self.model_sha256 is None
        return {
            "sha256": self.sha256,
            "statement_sha256": self.statement_sha256,
            "model": None if unseen else {"name": self.model_name, "sha256": self.model_sha256},
            **({"predictions": dict(self.report.model.predictions)} if unseen else {}),
            "data": self.report.data.to_dict(),
            "verdict": self.report.verdict,
            "policy": [rule.to_dict() for rule in self.report.policy],
            "unusual_settings": self.unusual_settings,
            "mitigation": None if self.mitigation is None else dict(self.mitigation),
            "auditedAt": predicates.time_text(self.audited_at),
            "validUntil": None if self.valid_until is None else predicates.time_text(self.valid_until),
            "keyids": list(self.keyids),
            "verified": self.verified,
        }


def _changed(payload: bytes) -> str | None:
    """Say what was changed after it was signed, by the checksums in it; they protect nothing, the signature does."""
    try:
        statement = read_object(payload)
        body: Any = statement["predicate"]
        stated, actual = body["checksums"], predicates.checksums(body)
        if len(stated["findings"]) != len(actual["findings"]):
            return "the signature does not hold: findings were added or removed after it was signed"
        for number, (was, now) in enumerate(zip(stated["findings"], actual["findings"], strict=False)):
            if was != now:
                finding = body["findings"][number]
                name = "/".join(str(finding.get(key)) for key in ("auditor", "metric", "sensitive") if finding.get(key))
                return f"the signature does not hold: the finding {name} was changed after it was signed"
        about = body["data"] if body["model"] is None else body["model"]
        same = statement["subject"][0]["digest"]["sha256"] == about["sha256"] and canonical(statement) == payload
        if stated != actual or not same:
            return "the signature does not hold: the statement was changed after it was signed"
    except (StrictJsonError, KeyError, TypeError, IndexError, AttributeError):
        return "the signature does not hold: the payload was changed after it was signed (it is no statement any more)"
    return None


@dataclass(slots=True)
class Verification:
    """What checking a certificate came to."""

    certificate: Certificate | None = None  # what it says; None where its signature does not hold
    held: tuple[str, ...] = ()  # what holds, one step after the other
    error: CertificateError | None = None  # what does not hold; None where everything does

    @property
    def failed(self) -> str | None:
        """What does not hold, as a sentence."""
        return None if self.error is None else str(self.error)

    @property
    def verdict(self) -> str | None:
        """The policy's verdict that the certificate states; None where it does not hold, or has no policy."""
        return None if self.certificate is None or self.error else self.certificate.report.verdict

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "verified": self.error is None,
            "held": list(self.held),
            "failed": self.failed,
            "verdict": self.verdict,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }


def check(
    raw: bytes,
    trusted: Sequence[PublicKey] | None,
    *,
    model_sha256: str | None = None,
    data_sha256: str | None = None,
    revoked: Mapping[str, str] = MappingProxyType({}),
) -> Verification:
    """Check a certificate: signature, form, whether it can be true, revocation, validity, model, table.

    `trusted` None leaves the signature out: for what is shown as a claim. `revoked` has reasons by key id and by the
    digest of a certificate's statement.
    """
    outcome = Verification()
    try:
        if trusted is None:
            certificate = outcome.certificate = Certificate.read(raw)
            certificate.check()
        else:
            certificate = outcome.certificate = _standing(Certificate.verify(raw, trusted), revoked)
            outcome.held += (f"signature by {', '.join(keyid[:16] for keyid in certificate.keyids)}",)
        if certificate.valid_until is not None:
            until = predicates.time_text(certificate.valid_until)
            if datetime.now(UTC) > certificate.valid_until:
                raise VerificationError(f"the certificate was valid until {until}, and is so no longer")
            outcome.held += (f"valid until {until}",)
        _check_model(certificate, model_sha256)
        check_data(certificate, data_sha256)
        outcome.held += tuple(_about(certificate, trusted or (), model_checked=model_sha256 is not None))
    except CertificateError as error:
        outcome.error = error
    return outcome


def verify(raw: bytes, trusted: Sequence[PublicKey], **given: Any) -> Certificate:
    """Return a certificate that passes `check`; raise what does not hold."""
    outcome = check(raw, trusted, **given)
    if outcome.error is not None:
        raise outcome.error
    assert outcome.certificate is not None  # noqa: S101 -- without an error there is one
    return outcome.certificate


read = Certificate.read
read_file = Certificate.read_file


def _standing(found: Certificate, revoked: Mapping[str, str]) -> Certificate:
    """Return the certificate with the keys that count; refuse one that was revoked, or whose keys all were."""
    if found.statement_sha256 in revoked:
        raise RevokedError(f"the certificate was revoked: {revoked[found.statement_sha256]}")
    counting = tuple(keyid for keyid in found.keyids if keyid not in revoked)
    if not counting:
        keyid = found.keyids[0]
        raise RevokedError(f"the key {keyid[:16]} that signed it was revoked: {revoked[keyid]}")
    return replace(found, keyids=counting)


def check_data(certificate: Certificate, data_sha256: str | None) -> None:
    """Refuse a certificate that is about another table."""
    if data_sha256 not in (None, certificate.report.data.sha256):
        raise VerificationError(
            f"the certificate is about other data: it names SHA-256 {certificate.report.data.sha256[:16]}..., the "
            f"table given has {str(data_sha256)[:16]}... (digest of columns, types and values in order)"
        )


def _check_model(certificate: Certificate, model_sha256: str | None) -> None:
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
        certificate = Certificate.read(raw)
        _check_model(certificate, model_sha256)
    except CertificateError as error:
        raise type(error)(f"{where}: {error}") from None
    return certificate


def check_statement(report: Report, settings: Mapping[str, Any]) -> None:
    """Refuse a statement that no audit gives, whoever signed it."""
    lines = list(contradictions(report, settings))
    if lines:
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        raise ContradictionError(f"the certificate contradicts itself: {'; '.join(lines[:_SHOWN])}{more}")


def check_lock(certificate: Certificate, lock: PolicyLock) -> None:
    """Refuse a certificate that was not made by its policy lock."""
    check_report(certificate.report, certificate.settings, certificate.audited_at, lock, salt=certificate.lock_salt)


def check_report(
    report: Report, settings: Mapping[str, Any], audited_at: datetime, lock: PolicyLock, *, salt: str | None = None
) -> None:
    """Refuse a report that was not made by a policy lock.

    A lock of requests (`fairkit ask --requests`) is kept by answers to them: the auditor names the digest of the table
    without its answers.
    """
    data = report.data.sha256
    for finding in report.findings:
        if finding.evidence.get("requests_sha256") == lock.data_sha256:
            data = lock.data_sha256
            day = str(finding.evidence.get("served", {}).get("asked_on", ""))
            if day and day < f"{lock.locked_at:%Y-%m-%d}":
                raise ContradictionError(f"questions were asked on {day}, before the policy lock was made")
    lock.check_kept(data_sha256=data, settings=settings, audited_at=audited_at, salt=salt)


def signed_table(certificate: Certificate, trusted: Sequence[PublicKey]) -> SignedTable | None:
    """Return the statement about the certificate's table that one of these keys has signed; None without one."""
    for raw in certificate.tables:
        try:
            result = SignedTable.verify(raw, trusted)
        except CertificateError:
            continue
        if result.sha256 == certificate.report.data.sha256:
            return result
    return None


def _about(found: Certificate, trusted: Sequence[PublicKey], *, model_checked: bool) -> Iterator[str]:
    """Say what it is about, and what trusted keys have signed beforehand."""
    if found.model_sha256 is None:
        at = found.report.model.endpoint.get("url")
        yield f"about {f'answers of {at}: no file of the model' if at else 'predictions in a table: no model'} was seen"
    elif model_checked:
        yield f"about the model {found.model_sha256[:16]}"
    table = signed_table(found, trusted) if trusted else None
    if table is not None:
        purpose = f": {table.purpose}" if table.purpose else ""
        yield f"the table {table.name} signed by {', '.join(keyid[:16] for keyid in table.keyids)}{purpose}"
    if found.policy_lock is not None and trusted:
        try:
            lock = PolicyLock.verify(found.policy_lock, trusted)
        except CertificateError:
            return
        keys = ", ".join(keyid[:16] for keyid in lock.keyids)
        at = f"{lock.locked_at:%Y-%m-%d %H:%M} UTC"
        yield f"by the policy lock {lock.statement_sha256[:12]} of {at}, signed by {keys}"
