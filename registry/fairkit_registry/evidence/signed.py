"""What is signed here, in one form: an in-toto Statement about one subject, in a DSSE envelope.

Certificates, policy locks and tables are kinds of it. They differ in the type of their predicate, in how it is read,
and in what none of them may state; signing, reading and verifying are here, once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_registry.blobs import is_digest, read_limited
from fairkit_registry.errors import CertificateError, ContradictionError, VerificationError
from fairkit_registry.evidence.predicate import CLOCK_SKEW, read_time, time_text
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.jsonio import StrictJsonError, canonical, fingerprint, read_object

if TYPE_CHECKING:
    from fairkit_registry.evidence.signers import PublicKey, Signer


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
        raw = sign(made, PAYLOAD_TYPE, secrets).to_bytes() + b"\n"
        cls.read(raw)
        return raw

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Read what a file says without asking who says it. For display; never decide by it."""
        envelope = cls._envelope(raw)
        return cls._made(envelope, raw, tuple(signature.keyid for signature in envelope.signatures), verified=False)

    @classmethod
    def verify(cls, raw: bytes, trusted: Sequence[PublicKey]) -> Self:
        """Return what a trusted key has signed. The signature comes first; only the bytes that it covers are parsed."""
        if not trusted:
            raise CertificateError(f"name the public key that you trust with --key; keys inside {cls.WHAT} never count")
        envelope = cls._envelope(raw)
        good = signers(envelope, trusted)
        if not good:
            raise VerificationError(cls.refusal(envelope, trusted))
        result = cls._made(envelope, raw, tuple(key.keyid for key in good), verified=True)
        result.check()
        return result

    @classmethod
    def _envelope(cls, raw: bytes) -> Envelope:
        envelope = Envelope.from_bytes(raw)
        if envelope.payload_type != PAYLOAD_TYPE:
            raise VerificationError(
                f"the envelope's payload type is {envelope.payload_type!r}, that of {cls.WHAT} is {PAYLOAD_TYPE!r}: it "
                "was changed, or this is another kind of document"
            )
        return envelope

    @classmethod
    def refusal(cls, envelope: Envelope, trusted: Sequence[PublicKey]) -> str:
        """Return the likely reason why no trusted key has signed an envelope; it makes nothing valid."""
        claimed = sorted({signature.keyid for signature in envelope.signatures})
        own = sorted(key.keyid for key in trusted)
        if set(claimed) & set(own):
            return "the signature does not hold: it was changed, or it was not made by the key that it names"
        return (
            f"not signed by a key that you trust: {cls.WHAT} names key {_short(claimed)}, you trust {_short(own)}. "
            "(A key inside it is never trusted.)"
        )

    @classmethod
    def _made(cls, envelope: Envelope, raw: bytes, keyids: tuple[str, ...], *, verified: bool) -> Self:
        try:
            said = read_object(envelope.payload)
            types = (said.get("_type"), said.get("predicateType"))
            if types != (STATEMENT_TYPE, cls.TYPE):
                raise VerificationError(f"not {cls.WHAT}: what is signed is of type {types[1]!r}, not {cls.TYPE!r}")
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


# The DSSE envelope: bytes, their type, and signatures over both.


def encoded(raw: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(raw).decode("ascii")


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: ``DSSEv1 SP len(type) SP type SP len(body) SP body``."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature. The key id is a hint of the signer's and decides nothing."""

    sig: bytes
    keyid: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"keyid": self.keyid, "sig": encoded(self.sig)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A payload of a type, with signatures that nobody has checked yet."""

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, with base64 inside."""
        return {
            "payload": encoded(self.payload),
            "payloadType": self.payload_type,
            "signatures": [signature.to_dict() for signature in self.signatures],
        }

    def to_bytes(self) -> bytes:
        """Return the envelope as canonical JSON."""
        return canonical(self.to_dict())

    @classmethod
    def from_bytes(cls, raw: bytes) -> Envelope:
        """Read an envelope; fields that it does not know are ignored."""
        try:
            record = read_object(raw)
            if "dsseEnvelope" in record:
                raise CertificateError("a Sigstore bundle is not read; its `dsseEnvelope` is a certificate")
            signatures = record["signatures"]
            if not isinstance(signatures, list) or not signatures:
                raise CertificateError("not a certificate: the envelope has no signature")
            return cls(
                payload=_decode(record["payload"], "payload"),
                payload_type=_text(record["payloadType"], "payloadType"),
                signatures=tuple(_signature(signature) for signature in signatures),
            )
        except StrictJsonError as error:
            raise CertificateError(f"not a certificate (a DSSE envelope in JSON): {error}") from None
        except KeyError as error:
            raise CertificateError(f"not a certificate: the envelope has no {error.args[0]!r}") from None


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise CertificateError(f"not a certificate: the envelope's {what} is not a string")
    return value


def _decode(value: Any, what: str) -> bytes:
    text = _text(value, what)
    try:  # the specification allows both alphabets
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise CertificateError(f"the envelope's {what} is not base64: it was changed or damaged") from None


def _signature(record: Any) -> Signature:
    if not isinstance(record, dict):
        raise CertificateError("not a certificate: a signature of the envelope is not an object")
    # It may carry a certificate or a key of its own; only pinned keys count, so neither is read.
    if "timestamp" in record:
        raise CertificateError(
            "it carries a timestamp of an authority, which fairkit does not check: `openssl ts` does. Take it out of "
            "the envelope"
        )
    return Signature(sig=_decode(record["sig"], "signature"), keyid=_text(record.get("keyid", ""), "keyid"))


def statement_sha256(raw: bytes) -> str:
    """Return the digest of what a certificate states: its identity, whatever the envelope around it.

    Copies with another key id, doubled signatures or a mirrored s have the same one.
    """
    return hashlib.sha256(Envelope.from_bytes(raw).payload).hexdigest()


def sign(payload: bytes, payload_type: str, secrets: Sequence[Signer]) -> Envelope:
    """Sign a payload with every secret key.

    Keys in files sign deterministically: the same payload and key give the same bytes.
    """
    message = pae(payload_type, payload)
    signatures = tuple(Signature(sig=key.sign(message), keyid=key.public.keyid) for key in secrets)
    return Envelope(payload=payload, payload_type=payload_type, signatures=signatures)


def signers(envelope: Envelope, trusted: Sequence[PublicKey]) -> tuple[PublicKey, ...]:
    """Say which of the trusted keys have signed the envelope.

    Every trusted key is tried on every signature: the key id is only a hint, and a wrong one must
    neither hide a good signature nor lend weight to a bad one.
    """
    message = pae(envelope.payload_type, envelope.payload)
    return tuple(
        key
        for key in {key.keyid: key for key in trusted}.values()
        if any(key.verifies(signature.sig, message) for signature in envelope.signatures)
    )


# What is signed before a model is seen: a table, and with a policy a lock of the whole audit.


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
    name: str, sha256: str, rows: int, columns: Sequence[str], secrets: Sequence[Signer], *, purpose: str = ""
) -> bytes:
    """Sign a statement about a table."""
    at = time_text(datetime.now(UTC))
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
