"""In-toto statements: what certificates and statements about tables have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairkit_registry.errors import CertificateError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


def statement(name: str, sha256: str, predicate_type: str, predicate: dict[str, Any]) -> dict[str, Any]:
    """Return an in-toto Statement v1 about one file."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def predicate_type(raw: bytes) -> str:
    """Return the type of the predicate that an envelope or a bundle says it has; empty where there is none."""
    from fairkit_registry.evidence.dsse import Envelope
    from fairkit_registry.jsonio import StrictJsonError, read_object

    try:
        told = read_object(Envelope.from_bytes(raw).payload).get("predicateType")
    except (CertificateError, StrictJsonError):
        return ""
    return told if isinstance(told, str) else ""


def read_limited(path: Path, limit: int, *, what: str, too_large: str) -> bytes:
    """Read a file that may come from anybody.

    Raises
    ------
    CertificateError
        It cannot be read, or has more than `limit` bytes.
    """
    try:
        with path.open("rb") as handle:
            raw = handle.read(limit + 1)
    except OSError as error:
        raise CertificateError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    if len(raw) > limit:
        raise CertificateError(f"{path} is too large to be {too_large}")
    return raw
