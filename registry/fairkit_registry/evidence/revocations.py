"""Revocation: a signed, numbered list of certificates, models and keys that count no longer.

A list is an in-toto Statement v1 about its issuer's key, in a DSSE envelope. Each list of an issuer has the entries of
the one before it and more: what is revoked stays revoked, so that nobody who steals a key can take that back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fairkit_registry.blobs import is_digest
from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.predicate import read_time, time_text
from fairkit_registry.evidence.statement import read_limited, reading, sign_statement, signers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

TYPE = "https://fairkit.dev/revocation/v1"
"""The predicate type. It is a name; nothing is ever fetched from it."""
LARGEST = 16 << 20
"""Bytes of the largest list that is read."""

Kind = Literal["certificate", "model", "key"]
KINDS: tuple[Kind, ...] = ("certificate", "model", "key")
_MOST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that counts no longer."""

    kind: Kind  # what it is
    sha256: str
    reason: str  # why, for people
    at: datetime  # when it was revoked, as the issuer says
    invalid_since: datetime | None = None

    @property
    def target(self) -> tuple[str, str]:
        """What is revoked, without why and when."""
        return self.kind, self.sha256

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        record = {"kind": self.kind, "sha256": self.sha256, "reason": self.reason, "at": time_text(self.at)}
        return record | ({} if self.invalid_since is None else {"invalidSince": time_text(self.invalid_since)})

    def spares(self, proven_at: datetime | None) -> bool:
        """Tell whether a signature that is proven to be this old goes on counting."""
        return self.invalid_since is not None and proven_at is not None and proven_at < self.invalid_since

    def milder(self, other: Entry) -> bool:
        """Tell whether this entry lets signatures count that another one about the same does not."""
        if self.invalid_since is None:
            return False
        return other.invalid_since is None or self.invalid_since > other.invalid_since

    @classmethod
    def from_dict(cls, record: Any) -> Entry:
        """Read the JSON form; ValueError, TypeError or KeyError where it is none."""
        if record["kind"] not in KINDS or not is_digest(record["sha256"]) or not isinstance(record["reason"], str):
            raise ValueError("an entry has no kind, digest or reason")
        at, since = read_time(record["at"]), record.get("invalidSince")
        if since is not None and record["kind"] != "key":
            raise ValueError("only a key can be invalid since a time")
        return cls(
            kind=record["kind"],
            sha256=record["sha256"],
            reason=record["reason"],
            at=at,
            invalid_since=None if since is None else read_time(since),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationList:
    """A list whose signature was checked."""

    issuer: str  # id of the key that issued and signed it
    sequence: int  # its number, from 1; a newer list of the issuer has a larger one
    issued_at: datetime
    next_update: datetime
    entries: tuple[Entry, ...]  # what is revoked
    sha256: str  # digest of the file, and its bytes
    raw: bytes = field(repr=False)  # digest of the file, and its bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of what it says."""
        return {
            "issuer": self.issuer,
            "sequence": self.sequence,
            "issuedAt": time_text(self.issued_at),
            "nextUpdate": time_text(self.next_update),
            "revoked": [one.to_dict() for one in self.entries],
        }

    def check_follows(self, older: RevocationList, where: str) -> None:
        """Refuse to take this list after another one of the same issuer."""
        if self.sha256 == older.sha256:
            return
        key = self.issuer[:16]
        if self.sequence < older.sequence:
            raise VerificationError(
                f"the revocation list number {self.sequence} of key {key} is older than number {older.sequence}, "
                f"which {where}"
            )
        if self.sequence == older.sequence:
            raise VerificationError(
                f"key {key} has signed two revocation lists with the number {self.sequence}; the other one {where}"
            )
        held = {one.target: one for one in self.entries}
        for item in older.entries:
            if item.target in held and held[item.target].milder(item):
                raise VerificationError(
                    f"the revocation list number {self.sequence} of key {key} takes back a part of the revocation of "
                    f"{item.kind} {item.sha256[:16]} in number {older.sequence}, which {where}: it is invalid since a "
                    "later time"
                )
        lost = {one.target for one in older.entries} - set(held)
        if lost:
            kind, digest = min(lost)
            raise VerificationError(
                f"the revocation list number {self.sequence} of key {key} takes back the revocation of {kind} "
                f"{digest[:16]} in number {older.sequence}, which {where}; what is revoked stays revoked"
            )


def issue(
    signer: Signer,
    entries: Iterable[Entry],
    *,
    previous: RevocationList | None,
    next_update: datetime,
    issued_at: datetime | None = None,
) -> bytes:
    """Sign the next list of an issuer."""
    listed = {one.target: one for one in (previous.entries if previous else ())}
    for entry in entries:  # the first reason stays, unless the new entry is stricter
        if entry.target not in listed or listed[entry.target].milder(entry):
            listed[entry.target] = entry
    keyid = signer.public.keyid
    body = {
        "issuer": keyid,
        "sequence": 1 if previous is None else previous.sequence + 1,
        "issuedAt": time_text(issued_at or datetime.now(UTC)),
        "nextUpdate": time_text(next_update),
        "revoked": [one.to_dict() for _, one in sorted(listed.items())],
    }
    return sign_statement(f"revocations of key {keyid[:16]}", keyid, TYPE, body, [signer])


def read(raw: bytes, trusted: Sequence[PublicKey], *, where: str = "the revocation list") -> RevocationList:
    """Check a list's signature, and return what it says."""
    envelope = dsse.Envelope.from_bytes(raw)
    good = {key.keyid for key in signers_of(envelope, trusted, where)}
    with reading(envelope, TYPE, f"{where} is no revocation list") as said:
        body = said["predicate"]
        if body["issuer"] not in good:
            raise VerificationError(f"{where} is not signed by the key that it names as its issuer")
        if type(body["sequence"]) is not int or not 0 < body["sequence"] < _MOST:
            raise ValueError("it has no usable number")
        return RevocationList(
            issuer=body["issuer"],
            sequence=body["sequence"],
            issued_at=read_time(body["issuedAt"]),
            next_update=read_time(body["nextUpdate"]),
            entries=tuple(Entry.from_dict(one) for one in body["revoked"]),
            sha256=hashlib.sha256(raw).hexdigest(),
            raw=raw,
        )


def read_files(paths: Iterable[Path]) -> list[tuple[str, bytes]]:
    """Return name and bytes of lists: files, or folders whose ``*.json`` files are lists."""
    contents = []
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise CertificateError(f"the folder {path} has no revocation list (*.json)")
        limits = {"what": "revocation list", "too_large": "a revocation list"}
        contents += [(str(one), read_limited(one, LARGEST, **limits)) for one in files]
    return contents
