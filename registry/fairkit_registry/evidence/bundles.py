"""Sigstore bundles (v0.3): the form in which other tools carry a DSSE envelope with the timestamp of its signature."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError
from fairkit_registry.jsonio import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_KIND = "application/vnd.dev.sigstore.bundle"
_MOST_TIMESTAMPS = 32


def wrapped(envelope: Mapping[str, Any], hint: str) -> bytes:
    """Return a bundle around an envelope."""
    if len(envelope["signatures"]) != 1:
        raise CertificateError(
            f"a Sigstore bundle has exactly one signature, not {len(envelope['signatures'])}: make one for each key"
        )
    ((signature),) = envelope["signatures"]
    material: dict[str, Any] = {"publicKey": {"hint": hint}, "tlogEntries": []}
    if "timestamp" in signature:
        stamps = [{"signedTimestamp": signature["timestamp"]}]
        material["timestampVerificationData"] = {"rfc3161Timestamps": stamps}
    inner = {key: value for key, value in signature.items() if key != "timestamp"}
    return (
        canonical(
            {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": {**envelope, "signatures": [inner]}}
        )
        + b"\n"
    )


def is_bundle(record: Mapping[str, Any]) -> bool:
    """Tell whether a JSON object is a Sigstore bundle, of any version."""
    kind = record.get("mediaType")
    return isinstance(kind, str) and kind.startswith(_KIND)


def unwrapped(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the envelope in a bundle, its signature with the timestamps that came along.

    Nothing else of the bundle counts: keys and certificates in it are nobody's choice but its maker's.
    """
    inner, material = record.get("dsseEnvelope"), record.get("verificationMaterial")
    if not isinstance(inner, dict):
        raise CertificateError("not a certificate: the Sigstore bundle has no DSSE envelope")
    signatures = inner.get("signatures")
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        raise CertificateError("not a certificate: the Sigstore bundle's envelope must have one signature")
    own = {key: value for key, value in signatures[0].items() if key != "timestamp"}
    stamps = _stamps(material)
    return {**inner, "signatures": [own | ({"timestamp": stamps} if stamps else {})]}


def _stamps(material: Any) -> list[str]:
    data = material.get("timestampVerificationData") if isinstance(material, dict) else None
    listed = data.get("rfc3161Timestamps") if isinstance(data, dict) else None
    if listed is None:
        return []
    if not isinstance(listed, list) or len(listed) > _MOST_TIMESTAMPS:
        raise CertificateError("the Sigstore bundle's timestamps cannot be read: it was changed or damaged")
    found = [one.get("signedTimestamp") if isinstance(one, dict) else None for one in listed]
    if not all(isinstance(one, str) for one in found):
        raise CertificateError("a timestamp of the Sigstore bundle cannot be read: it was changed or damaged")
    return [str(one) for one in found]


def encoded(raw: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(raw).decode("ascii")
