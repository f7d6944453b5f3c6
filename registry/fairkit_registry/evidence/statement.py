"""In-toto statements: what certificates and statements about tables have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


def statement(name: str, sha256: str, predicate_type: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return an in-toto Statement v1 about one file."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def sign_statement(
    name: str, sha256: str, predicate_type: str, predicate: Mapping[str, Any], secrets: Sequence[Signer]
) -> bytes:
    """Return an in-toto Statement v1 about one file in a DSSE envelope, as JSON."""
    made = canonical(statement(name, sha256, predicate_type, predicate))
    return dsse.sign(made, PAYLOAD_TYPE, secrets).to_bytes() + b"\n"


def signers_of(envelope: dsse.Envelope, trusted: Sequence[PublicKey], what: str) -> tuple[PublicKey, ...]:
    """Return the trusted keys that signed an envelope."""
    good = dsse.signers(envelope, trusted)
    if not good:
        raise VerificationError(f"{what} is not signed by a key that you trust")
    return good


@contextmanager
def reading(envelope: dsse.Envelope, predicate_type: str, refusal: str, advice: str = "") -> Iterator[dict[str, Any]]:
    """Return the statement in an envelope, to be read inside: it has this type, and the form that the block takes."""
    try:
        said = read_object(envelope.payload)
        known = (envelope.payload_type, said.get("_type"), said.get("predicateType"))
        if known != (PAYLOAD_TYPE, STATEMENT_TYPE, predicate_type):
            raise CertificateError(f"{refusal}: its predicate is of type {known[2]!r}{advice}")
        yield said
    except (StrictJsonError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(f"{refusal}: {error}") from None


def predicate_type(raw: bytes) -> str:
    """Return the type of the predicate that an envelope or a bundle says it has; empty where there is none."""
    try:
        told = read_object(dsse.Envelope.from_bytes(raw).payload).get("predicateType")
    except (CertificateError, StrictJsonError):
        return ""
    return told if isinstance(told, str) else ""


def read_limited(path: Path, limit: int, *, what: str, too_large: str) -> bytes:
    """Read a file that may come from anybody."""
    try:
        with path.open("rb") as handle:
            raw = handle.read(limit + 1)
    except OSError as error:
        raise CertificateError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    if len(raw) > limit:
        raise CertificateError(f"{path} is too large to be {too_large}")
    return raw
