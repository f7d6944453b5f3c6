"""What is signed here, in one form: an in-toto Statement about one subject, in a DSSE envelope.

Certificates, policy locks and tables are kinds of it. They differ in the type of their predicate, in how it is read,
and in what none of them may state; signing, reading and verifying are here, once.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed(ABC):
    """What somebody states about one subject. `verify` gives one whose signature was checked, `read` one that was not.

    The predicate's `TYPE` is a name; nothing is ever fetched from it.
    """

    TYPE: ClassVar[str]
    WHAT: ClassVar[str]  # as refusals call it
    LARGEST: ClassVar[int]  # bytes of the largest file that is read

    raw: bytes = field(repr=False, default=b"", compare=False)  # the file
    statement_sha256: str = ""  # its identity, whatever the envelope around it
    keyids: tuple[str, ...] = ()  # after `verify`: the trusted keys that signed. After `read`: what the file claims
    verified: bool = False

    @classmethod
    @abstractmethod
    def interpret(cls, name: str, sha256: str, predicate: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a statement about this subject; raise what reading a wrong form raises."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what no honest signer states, whoever signed it."""

    @classmethod
    def sign(cls, name: str, sha256: str, predicate: Mapping[str, Any], secrets: Sequence[Signer]) -> bytes:
        """Return a signed statement; nothing is signed that has not the form of its kind."""
        if not secrets:
            raise CertificateError(f"{cls.WHAT} needs a key: fairkit key new PATH makes one")
        try:
            made = canonical(
                {
                    "_type": STATEMENT_TYPE,
                    "subject": [{"name": name, "digest": {"sha256": sha256}}],
                    "predicateType": cls.TYPE,
                    "predicate": predicate,
                }
            )
        except (ValueError, TypeError) as error:
            raise CertificateError(f"{cls.WHAT} cannot be written as JSON: {error}") from None
        raw = dsse.sign(made, PAYLOAD_TYPE, secrets).to_bytes() + b"\n"
        cls.read(raw)
        return raw

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Read what a file says without asking who says it. For display; never decide by it."""
        envelope = cls._envelope(raw)
        return cls._made(envelope, raw, tuple(one.keyid for one in envelope.signatures), verified=False)

    @classmethod
    def verify(cls, raw: bytes, trusted: Sequence[PublicKey]) -> Self:
        """Return what a trusted key has signed. The signature comes first; only the bytes that it covers are parsed."""
        if not trusted:
            raise CertificateError(f"name the public key that you trust with --key; keys inside {cls.WHAT} never count")
        envelope = cls._envelope(raw)
        good = dsse.signers(envelope, trusted)
        if not good:
            raise VerificationError(cls.refusal(envelope, trusted))
        found = cls._made(envelope, raw, tuple(key.keyid for key in good), verified=True)
        found.check()
        return found

    @classmethod
    def _envelope(cls, raw: bytes) -> dsse.Envelope:
        envelope = dsse.Envelope.from_bytes(raw)
        if envelope.payload_type != PAYLOAD_TYPE:
            raise VerificationError(
                f"the envelope's payload type is {envelope.payload_type!r}, that of {cls.WHAT} is {PAYLOAD_TYPE!r}: it "
                "was changed, or this is another kind of document"
            )
        return envelope

    @classmethod
    def refusal(cls, envelope: dsse.Envelope, trusted: Sequence[PublicKey]) -> str:
        """Return the likely reason why no trusted key has signed an envelope; it makes nothing valid."""
        claimed = sorted({one.keyid for one in envelope.signatures})
        own = sorted(key.keyid for key in trusted)
        if set(claimed) & set(own):
            return "the signature does not hold: it was changed, or it was not made by the key that it names"
        return (
            f"not signed by a key that you trust: {cls.WHAT} names key {_short(claimed)}, you trust {_short(own)}. "
            "(A key inside it is never trusted.)"
        )

    @classmethod
    def _made(cls, envelope: dsse.Envelope, raw: bytes, keyids: tuple[str, ...], *, verified: bool) -> Self:
        try:
            said = read_object(envelope.payload)
            known = (said.get("_type"), said.get("predicateType"))
            if known != (STATEMENT_TYPE, cls.TYPE):
                raise VerificationError(f"not {cls.WHAT}: what is signed is of type {known[1]!r}, not {cls.TYPE!r}")
            (subject,) = said["subject"]
            name, digest = subject["name"], subject["digest"]["sha256"]
            if not isinstance(name, str) or not isinstance(digest, str):
                raise TypeError("its subject has no name and digest")
            made = cls.interpret(name, digest, said["predicate"], said)
        except CertificateError:
            raise
        except (StrictJsonError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CertificateError(f"not {cls.WHAT}, or damaged: {error!r}") from None
        identity = hashlib.sha256(envelope.payload).hexdigest()
        return cls(raw=raw, statement_sha256=identity, keyids=keyids, verified=verified, **made)

    @classmethod
    def read_file(cls, path: str | Path) -> bytes:
        """Return the bytes of a file that may come from anybody."""
        return read_limited(Path(path), cls.LARGEST, cls.WHAT)


def _short(keyids: Sequence[str]) -> str:
    return ", ".join(f"{keyid[:16]}..." if keyid else "(none)" for keyid in keyids)


def text(value: Any) -> str:
    """Return a value that must be text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def count(value: Any) -> int:
    """Return a value that must be a number of rows."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is no number of rows")
    return value


def read_limited(path: Path, limit: int, what: str) -> bytes:
    """Read a file that may come from anybody."""
    try:
        with path.open("rb") as handle:
            raw = handle.read(limit + 1)
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror or error}") from None
    if len(raw) > limit:
        raise CertificateError(f"{path} is too large to be {what} (more than {limit:,} bytes)")
    return raw
