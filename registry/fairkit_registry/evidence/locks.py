"""Policy locks: policy, table and settings of an audit, signed before the model is seen.

Who fixes the question after the answer can choose the question. A lock is an in-toto Statement about the table; a
certificate that was made by it carries it, and a registry's log shows that it was there before the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.blobs import is_digest
from fairkit_registry.errors import CertificateError, ContradictionError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.predicate import CLOCK_SKEW, read_time, time_text
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.statement import read_limited, reading, sign_statement, signers_of
from fairkit_registry.jsonio import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

TYPE = "https://fairkit.dev/policy-lock/v1"
"""The predicate type. It is a name; nothing is ever fetched from it."""
LARGEST = 1 << 20
"""Bytes of the largest lock that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLock:
    """What a lock says."""

    name: str  # the table, as `fairkit.load_data` reads it
    data_sha256: str  # the table, as `fairkit.load_data` reads it
    rows: int  # the table, as `fairkit.load_data` reads it
    settings: Mapping[str, Any]  # of the audit, with its policy, in the form of a certificate's
    purpose: str  # what the audit is for
    locked_at: datetime  # when, as the signer says
    keyids: tuple[str, ...]  # the trusted keys that signed, or the keys that it claims
    statement_sha256: str  # digest of the signed statement, however its file is wrapped
    sealed: bool = False  # whether `data_sha256` names the table together with a salt only
    raw: bytes = field(repr=False, default=b"")  # the file

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "data": self.data_sha256,
            "rows": self.rows,
            "settings": dict(self.settings),
            "purpose": self.purpose,
            "lockedAt": time_text(self.locked_at),
            "keyids": list(self.keyids),
            "sha256": self.statement_sha256,
        } | ({"sealed": True} if self.sealed else {})


def sign_lock(
    name: str,
    sha256: str,
    rows: int,
    settings: Mapping[str, Any],
    secrets: Sequence[Signer],
    *,
    purpose: str = "",
    locked_at: datetime | None = None,
    salt: str | None = None,
) -> bytes:
    """Sign a lock."""
    if not settings["policy"]:
        raise CertificateError("a lock needs a policy that a model can fail: --max or --min, or [[policy]]")
    body = {
        "rows": rows,
        "settings": dict(settings),
        "purpose": purpose,
        "lockedAt": time_text(locked_at or datetime.now(UTC)),
    }
    if salt is not None:
        name, sha256, body["sealed"] = "sealed rows", sealed(sha256, salt), True
    return sign_statement(name, sha256, TYPE, body, secrets)


def sealed(sha256: str, salt: str) -> str:
    """Return the digest by which a lock names a table that nobody can recognise without the salt."""
    return hashlib.sha256(f"fairkit sealed rows {salt} {sha256}".encode()).hexdigest()


def read_salt(path: Path) -> str:
    """Read the salt of a sealed lock."""
    text = read_limited(path, 1_000, what="salt", too_large="a salt").decode("ascii", "replace").strip()
    if not is_digest(text):
        raise CertificateError(f"{path} holds no salt of a sealed lock: 64 hexadecimal digits")
    return text


def read_lock(raw: bytes) -> PolicyLock:
    """Read what a lock says without asking who says it."""
    envelope = dsse.Envelope.from_bytes(raw)
    return _interpret(envelope, raw, tuple(one.keyid for one in envelope.signatures))


def verify_lock(raw: bytes, trusted: Sequence[PublicKey]) -> PolicyLock:
    """Check that a trusted key signed a lock."""
    envelope = dsse.Envelope.from_bytes(raw)
    good = signers_of(envelope, trusted, "the policy lock")
    return _interpret(envelope, raw, tuple(key.keyid for key in good))


def read_file(path: Path) -> bytes:
    """Read a lock's file."""
    raw = read_limited(path, LARGEST, what="policy lock", too_large="a policy lock")
    try:
        read_lock(raw)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None
    return raw


def check_kept(
    lock: PolicyLock, *, data_sha256: str, settings: Mapping[str, Any], audited_at: datetime, salt: str | None = None
) -> None:
    """Refuse a certificate, of which this is the lock, that was not made by it."""
    if lock.sealed and salt is None:
        raise ContradictionError("the policy lock is sealed, and the certificate has no salt that opens it")
    if lock.data_sha256 != (sealed(data_sha256, str(salt)) if lock.sealed else data_sha256):
        raise ContradictionError(
            f"the policy lock is about another table ({lock.data_sha256[:16]}...), the certificate about "
            f"{data_sha256[:16]}..."
        )
    for text in differences(lock.settings, settings):
        raise ContradictionError(f"the certificate's audit is not the one of its policy lock: {text}")
    if lock.locked_at > audited_at + CLOCK_SKEW:
        raise ContradictionError(
            f"the policy lock was made at {time_text(lock.locked_at)}, after the audit at {time_text(audited_at)}"
        )


def differences(locked: Mapping[str, Any], made: Mapping[str, Any]) -> list[str]:
    """Say which settings are not those that were locked."""
    names = sorted({*locked, *made})
    return [
        f"its {'policy is another one' if name == 'policy' else f'setting {name} is another one'}"
        for name in names
        if fingerprint(locked.get(name)) != fingerprint(made.get(name))
    ]


def _interpret(envelope: dsse.Envelope, raw: bytes, keyids: tuple[str, ...]) -> PolicyLock:
    with reading(envelope, TYPE, "no policy lock", "; `fairkit policy lock` makes one") as said:
        (subject,), body = said["subject"], said["predicate"]
        name, digest = subject["name"], subject["digest"]["sha256"]
        rows, purpose = body["rows"], body["purpose"]
        if not (isinstance(name, str) and is_digest(digest) and isinstance(purpose, str) and type(rows) is int):
            raise ValueError("the table or the purpose")
        settings = SignedSettings.from_dict(body["settings"])
        if not settings.policy:
            raise ValueError("there is no policy")
        return PolicyLock(
            name=name,
            data_sha256=digest,
            rows=rows,
            settings=body["settings"],
            purpose=purpose,
            locked_at=read_time(body["lockedAt"]),
            keyids=keyids,
            sealed=body.get("sealed") is True,
            statement_sha256=hashlib.sha256(envelope.payload).hexdigest(),
            raw=raw,
        )
