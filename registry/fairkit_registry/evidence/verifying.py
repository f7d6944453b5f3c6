"""Checking one certificate from outside: every step that holds, what cannot be decided, and what does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence.certificate import verify
from fairkit_registry.evidence.locks import verify_lock
from fairkit_registry.evidence.revocations import read_files
from fairkit_registry.evidence.revoked import seen
from fairkit_registry.evidence.tables import verify_statement

if TYPE_CHECKING:
    from pathlib import Path

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations


@dataclass(slots=True)
class Verification:
    """What checking a certificate came to."""

    certificate: Certificate | None = None  # what it says; None where its signature does not hold
    held: tuple[str, ...] = ()  # what holds, one step after the other
    doubts: tuple[str, ...] = ()  # what cannot be decided, such as a revocation list that is overdue
    failed: str | None = None  # what does not hold; None where everything does

    @property
    def verdict(self) -> str | None:
        """The policy's verdict that the certificate states; None where it does not hold, or has no policy."""
        return None if self.certificate is None or self.failed else self.certificate.report.verdict

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "verified": self.failed is None,
            "held": list(self.held),
            "doubts": list(self.doubts),
            "failed": self.failed,
            "verdict": self.verdict,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }


def known_revocations(
    lists: Sequence[Path] | None, trusted: Sequence[PublicKey], revokers: Sequence[PublicKey]
) -> Revocations | str:
    """Return the revocations of these and earlier lists; a sentence where a list does not hold."""
    try:
        return seen(read_files(lists or ()), trusted, revokers)
    except VerificationError as error:
        return str(error)


def check(
    raw: bytes,
    trusted: Sequence[PublicKey],
    *,
    revocations: Revocations | str,
    model_sha256: str | None = None,
    further: Callable[[Verification, Certificate], None] | None = None,
) -> Verification:
    """Check a certificate, and say what holds."""
    if isinstance(revocations, str):
        return Verification(failed=revocations)
    outcome = Verification(doubts=tuple(revocations.overdue(datetime.now(UTC))))
    try:
        found = outcome.certificate = verify(raw, trusted, model_sha256=model_sha256, revocations=revocations)
        outcome.held += tuple(_held(found, trusted, model_checked=model_sha256 is not None))
        if further is not None:
            further(outcome, found)
    except CertificateError as error:
        outcome.failed = str(error)
    return outcome


def _held(verified: Certificate, trusted: Sequence[PublicKey], *, model_checked: bool) -> Iterator[str]:
    yield f"signature by {', '.join(keyid[:16] for keyid in verified.keyids)}"
    if verified.model_sha256 is None:
        at = verified.report.model.endpoint.get("url")
        yield f"about {f'answers of {at}: no file of the model' if at else 'predictions in a table: no model'} was seen"
    elif model_checked:
        yield f"about the model {verified.model_sha256[:16]}"
    yield from _signed_tables(verified, trusted)
    yield from _locked(verified, trusted)


def _signed_tables(found: Certificate, trusted: Sequence[PublicKey]) -> Iterator[str]:
    """Say which of the trusted keys have signed a statement about the table."""
    for raw in found.table_statements:
        try:
            one = verify_statement(raw, trusted, data_sha256=found.report.data.sha256)
        except CertificateError:
            continue
        purpose = f": {one.purpose}" if one.purpose else ""
        yield f"the table {one.name} signed by {', '.join(keyid[:16] for keyid in one.keyids)}{purpose}"


def _locked(found: Certificate, trusted: Sequence[PublicKey]) -> Iterator[str]:
    """Say whether a trusted key has locked the policy beforehand; that the audit is the lock's was checked already."""
    if found.policy_lock is None:
        return
    try:
        lock = verify_lock(found.policy_lock, trusted)
    except CertificateError:
        return
    keys = ", ".join(keyid[:16] for keyid in lock.keyids)
    yield f"by the policy lock {lock.statement_sha256[:12]} of {lock.locked_at:%Y-%m-%d %H:%M} UTC, signed by {keys}"
