"""Signed daily statements of a watch, each of which names the digest of the one before it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.predicate import time_text
from fairkit_registry.evidence.statement import PAYLOAD_TYPE, sign_statement, signers_of
from fairkit_registry.jsonio import StrictJsonError, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

TYPE = "https://fairkit.dev/watch/v1"
"""The predicate type. It is a name; nothing is ever fetched from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One daily statement."""

    day: str  # the day that it is about
    subject: tuple[str, str]
    body: Mapping[str, Any]  # what it says: totals' digest, rows, verdict, alarms
    previous: str | None  # SHA-256 of the line before it; None for the first
    keyids: tuple[str, ...]  # the trusted keys that signed, or what the file claims where nobody checked
    digest: str  # SHA-256 of its own line


def sign_heartbeat(
    day: str,
    subject: tuple[str, str],
    body: Mapping[str, Any],
    previous: str | None,
    secrets: Sequence[Signer],
    *,
    signed_at: datetime | None = None,
) -> bytes:
    """Sign a daily statement."""
    name, digest = subject
    predicate = {**body, "day": day, "previous": previous, "signedAt": time_text(signed_at or datetime.now(UTC))}
    return sign_statement(name, digest, TYPE, predicate, secrets).removesuffix(b"\n")


def read_heartbeats(raw: bytes, trusted: Sequence[PublicKey] | None = None) -> list[Heartbeat]:
    """Read a chain of statements, one a line."""
    heartbeats: list[Heartbeat] = []
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):
        envelope = dsse.Envelope.from_bytes(line)
        keyids = tuple(one.keyid for one in envelope.signatures)
        if trusted is not None:
            good = signers_of(envelope, trusted, f"statement {number} of the watch")
            keyids = tuple(key.keyid for key in good)
        heartbeat = _interpret(envelope, keyids, hashlib.sha256(line).hexdigest(), number)
        expected = heartbeats[-1].digest if heartbeats else None
        if heartbeat.previous != expected:
            raise VerificationError(
                f"statement {number} of the watch ({heartbeat.day}) does not continue the one before it: one was "
                "removed or changed"
            )
        heartbeats.append(heartbeat)
    return heartbeats


def _interpret(envelope: dsse.Envelope, keyids: tuple[str, ...], digest: str, number: int) -> Heartbeat:
    try:
        statement = read_object(envelope.payload)
        if envelope.payload_type != PAYLOAD_TYPE or statement.get("predicateType") != TYPE:
            raise CertificateError(f"line {number} is no statement of a watch: it is of another type")
        (subject,), body = statement["subject"], statement["predicate"]
        day, previous = body["day"], body["previous"]
        name, sha256 = subject["name"], subject["digest"]["sha256"]
        if not all(isinstance(one, str) for one in (day, name, sha256, previous or "")):
            raise TypeError("a name, day or digest is no text")
    except (StrictJsonError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(f"line {number} is no statement of a watch: {error}") from None
    return Heartbeat(day=day, subject=(name, sha256), body=body, previous=previous, keyids=keyids, digest=digest)
