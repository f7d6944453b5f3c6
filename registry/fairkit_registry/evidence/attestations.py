"""Signed statements about endpoints: what answers there answered as the certified file does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.predicate import time_text
from fairkit_registry.evidence.statement import PAYLOAD_TYPE, STATEMENT_TYPE, statement
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

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
    """Sign what a comparison of an endpoint with a file found, whatever it is.

    Parameters
    ----------
    comparison
        What the endpoint's ``attest`` returned: it has ``model_name``, ``model_sha256`` and ``to_dict()``.
    secrets
        The keys to sign with.
    certificate_sha256
        The digest of the file's certificate, where one was checked.
    attested_at
        By default now.

    Returns
    -------
    bytes
        An in-toto Statement about the model's file in a DSSE envelope, as JSON.
    """
    predicate = {
        **comparison.to_dict(),
        "certificate": certificate_sha256,
        "attestedAt": time_text(attested_at or datetime.now(UTC)),
    }
    made = statement(comparison.model_name, comparison.model_sha256, TYPE, predicate)
    return dsse.sign(canonical(made), PAYLOAD_TYPE, secrets).to_bytes() + b"\n"


def verify_attestation(raw: bytes, trusted: Sequence[PublicKey]) -> dict[str, Any]:
    """Check that a trusted key signed an attestation, and return what it says.

    Raises
    ------
    VerificationError
        No trusted key did.
    CertificateError
        It is no attestation.
    """
    envelope = dsse.Envelope.from_bytes(raw)
    if not dsse.signers(envelope, trusted):
        raise VerificationError("the attestation is not signed by a key that you trust")
    try:
        said = read_object(envelope.payload)
        known = (envelope.payload_type, said.get("_type"), said.get("predicateType"))
        if known != (PAYLOAD_TYPE, STATEMENT_TYPE, TYPE):
            raise CertificateError(f"no attestation of an endpoint: its predicate is of type {known[2]!r}")
        body: dict[str, Any] = said["predicate"]
        (subject,) = said["subject"]
        if subject["digest"]["sha256"] != body["model_sha256"]:
            raise VerificationError("the attestation contradicts itself: it names two models")
    except (StrictJsonError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CertificateError | VerificationError):
            raise
        raise CertificateError(f"no attestation of an endpoint: {error}") from None
    return body
