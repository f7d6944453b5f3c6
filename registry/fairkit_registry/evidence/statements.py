"""What is signed before a model is seen: a table, and with a policy a lock of the whole audit.

Who fixes the question after the answer can choose the question. A certificate that was made by a lock carries it, and
a registry's log shows that the lock was there before the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fairkit_registry.blobs import is_digest
from fairkit_registry.errors import CertificateError, ContradictionError
from fairkit_registry.evidence.predicate import CLOCK_SKEW, read_time, time_text
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.signed import Signed, count, read_limited, text
from fairkit_registry.jsonio import fingerprint

if TYPE_CHECKING:
    from fairkit_registry.evidence.signers import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTable(Signed):
    """An auditor vouches for rows before anybody audits a model on them."""

    TYPE: ClassVar[str] = "https://fairkit.dev/signed-data/v1"
    WHAT: ClassVar[str] = "a signed table"
    LARGEST: ClassVar[int] = 64 * 1024

    name: str  # of the table
    sha256: str  # of its columns, types and values in order
    rows: int
    columns: tuple[str, ...]
    purpose: str  # what it is for, in the signer's words; empty where nothing was said
    signed_at: datetime  # when, as the signer says

    @classmethod
    def interpret(cls, name: str, sha256: str, predicate: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
        """Read the predicate."""
        columns, purpose = tuple(map(text, predicate["columns"])), text(predicate["purpose"])
        signed = {"purpose": purpose, "signed_at": read_time(predicate["signedAt"])}
        return {"name": name, "sha256": sha256, "rows": count(predicate["rows"]), "columns": columns, **signed}

    def check(self) -> None:
        """Nothing in it can contradict itself."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "rows": self.rows,
            "columns": list(self.columns),
            "purpose": self.purpose,
            "signedAt": time_text(self.signed_at),
            "keyids": list(self.keyids),
        }


def sign_table(
    name: str,
    sha256: str,
    rows: int,
    columns: Sequence[str],
    secrets: Sequence[Signer],
    *,
    purpose: str = "",
    signed_at: datetime | None = None,
) -> bytes:
    """Sign a statement about a table."""
    at = time_text(signed_at or datetime.now(UTC))
    predicate = {"rows": rows, "columns": list(columns), "purpose": purpose, "signedAt": at}
    return SignedTable.sign(name, sha256, predicate, secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLock(Signed):
    """Policy, table and settings of an audit, signed before the model is seen."""

    TYPE: ClassVar[str] = "https://fairkit.dev/policy-lock/v1"
    WHAT: ClassVar[str] = "a policy lock"
    LARGEST: ClassVar[int] = 1 << 20

    name: str  # of the table
    data_sha256: str  # of the table, as `fairkit.load_data` reads it
    rows: int
    settings: Mapping[str, Any]  # of the audit, with its policy, in the form of a certificate's
    purpose: str  # what the audit is for
    locked_at: datetime  # when, as the signer says
    sealed: bool = False  # whether `data_sha256` names the table together with a salt only

    @classmethod
    def interpret(cls, name: str, sha256: str, predicate: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
        """Read the predicate."""
        if not is_digest(sha256):
            raise ValueError("it names no table")
        if not SignedSettings.from_dict(predicate["settings"]).policy:
            raise ValueError("there is no policy")
        return {
            "name": name,
            "data_sha256": sha256,
            "rows": count(predicate["rows"]),
            "settings": predicate["settings"],
            "purpose": text(predicate["purpose"]),
            "locked_at": read_time(predicate["lockedAt"]),
            "sealed": predicate.get("sealed") is True,
        }

    def check(self) -> None:
        """Nothing in it can contradict itself; what was made by it is held against it by `check_kept`."""

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

    def check_kept(
        self, *, data_sha256: str, settings: Mapping[str, Any], audited_at: datetime, salt: str | None = None
    ) -> None:
        """Refuse an audit that was not made by this lock."""
        if self.sealed and salt is None:
            raise ContradictionError("the policy lock is sealed, and the certificate has no salt that opens it")
        if self.data_sha256 != (sealed(data_sha256, str(salt)) if self.sealed else data_sha256):
            raise ContradictionError(
                f"the policy lock is about another table ({self.data_sha256[:16]}...), the certificate about "
                f"{data_sha256[:16]}..."
            )
        for name in sorted({*self.settings, *settings}):
            if fingerprint(self.settings.get(name)) != fingerprint(settings.get(name)):
                what = "policy" if name == "policy" else f"setting {name}"
                raise ContradictionError(
                    f"the certificate's audit is not the one of its policy lock: its {what} is another one"
                )
        if self.locked_at > audited_at + CLOCK_SKEW:
            raise ContradictionError(
                f"the policy lock was made at {time_text(self.locked_at)}, after the audit at {time_text(audited_at)}"
            )


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
    at = time_text(locked_at or datetime.now(UTC))
    body = {"rows": rows, "settings": dict(settings), "purpose": purpose, "lockedAt": at}
    if salt is not None:
        name, sha256, body["sealed"] = "sealed rows", sealed(sha256, salt), True
    return PolicyLock.sign(name, sha256, body, secrets)


def sealed(sha256: str, salt: str) -> str:
    """Return the digest by which a lock names a table that nobody can recognise without the salt."""
    return hashlib.sha256(f"fairkit sealed rows {salt} {sha256}".encode()).hexdigest()


def read_salt(path: Path) -> str:
    """Read the salt of a sealed lock."""
    told = read_limited(path, 1_000, "a salt").decode("ascii", "replace").strip()
    if not is_digest(told):
        raise CertificateError(f"{path} holds no salt of a sealed lock: 64 hexadecimal digits")
    return told


def named(kind: type[Signed], path: Path) -> bytes:
    """Return the bytes of a file that holds a statement of a kind."""
    raw = kind.read_file(path)
    try:
        kind.read(raw)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None
    return raw
