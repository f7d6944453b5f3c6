"""Signed statements about endpoints: what answers there answered as the certified file does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.predicate import time_text
from fairkit_registry.evidence.statement import reading, sign_statement, signers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

TYPE = "https://fairkit.dev/endpoint-attestation/v1"
"""The predicate type. It is a name; nothing is ever fetched from it."""


def sign_attestation(
    comparison: Any,
    secrets: Sequence[Signer],
    *,
    certificate_sha256: str | None = None,
    attested_at: datetime | None = None,
) -> bytes:
    """Sign what a comparison of an endpoint with a file found, whatever it is."""
    predicate = {
        **comparison.to_dict(),
        "certificate": certificate_sha256,
        "attestedAt": time_text(attested_at or datetime.now(UTC)),
    }
    return sign_statement(comparison.model_name, comparison.model_sha256, TYPE, predicate, secrets)


def verify_attestation(raw: bytes, trusted: Sequence[PublicKey]) -> dict[str, Any]:
    """Check that a trusted key signed an attestation, and return what it says."""
    envelope = dsse.Envelope.from_bytes(raw)
    signers_of(envelope, trusted, "the attestation")
    with reading(envelope, TYPE, "no attestation of an endpoint") as said:
        body: dict[str, Any] = said["predicate"]
        (subject,) = said["subject"]
        if subject["digest"]["sha256"] != body["model_sha256"]:
            raise VerificationError("the attestation contradicts itself: it names two models")
    return body
