"""The signature of a model in the form of OpenSSF Model Signing, which `model_signing verify key` takes.

It is a Sigstore bundle (v0.3) around a DSSE envelope. It says whose file this is, and nothing about fairness:
certificates do.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from fairkit_registry.errors import CertificateError, KeyFileError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.bundles import wrapped
from fairkit_registry.evidence.statement import PAYLOAD_TYPE, statement
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from fairkit_registry.evidence.signers import Signer

TYPE = "https://model_signing/signature/v1.0"


def sign_model(name: str, sha256: str, signer: Signer) -> bytes:
    """Sign one model file."""
    if signer.public.kind != "ecdsa-p256":
        raise KeyFileError(
            f"OpenSSF Model Signing takes no {signer.public.kind} key; make one with: fairkit key new PATH --type p256"
        )
    # the subject is a digest over the digests of all files; there is one
    subject = hashlib.sha256(bytes.fromhex(sha256)).hexdigest()
    predicate = {
        "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": []},
        "resources": [{"name": ".", "algorithm": "sha256", "digest": sha256}],
    }
    payload = canonical(statement(name, subject, TYPE, predicate))
    signature = dsse.Signature(sig=signer.sign(dsse.pae(PAYLOAD_TYPE, payload)))
    envelope = dsse.Envelope(payload=payload, payload_type=PAYLOAD_TYPE, signatures=(signature,))
    # Model Signing compares the hint: the digest of the key's PEM, where our key ids are of its DER
    return wrapped(envelope.to_dict(), hashlib.sha256(signer.public.pem.encode("ascii")).hexdigest())


def signs_model(raw: bytes, sha256: str) -> bool:
    """Tell whether bytes are a signature of this form over the file with this digest; by whom is not asked."""
    try:
        said = read_object(dsse.Envelope.from_bytes(raw).payload)
        listed = [one["digest"] for one in said["predicate"]["resources"]] if said["predicateType"] == TYPE else []
    except (CertificateError, StrictJsonError, KeyError, TypeError):
        return False
    return listed == [sha256]
