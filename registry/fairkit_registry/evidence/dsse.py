"""The DSSE envelope: bytes, their type, and signatures over both.

The format is DSSE 1.0 (https://github.com/secure-systems-lab/dsse). What is signed is the
pre-authentication encoding (PAE), so that a payload cannot be passed off as one of another type.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer


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
            "signatures": [one.to_dict() for one in self.signatures],
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
                signatures=tuple(_signature(one) for one in signatures),
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
        if any(key.verifies(one.sig, message) for one in envelope.signatures)
    )
