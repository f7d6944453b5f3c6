"""Public keys: ed25519 and ECDSA P-256, pinned by whoever verifies."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit_registry.errors import KeyFileError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_LARGEST_KEY_FILE = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A key that the user has decided to trust."""

    keyid: str
    pem: str  # the key in PEM
    kind: str  # `ed25519` or `ecdsa-p256`
    key: Ed25519PublicKey | EllipticCurvePublicKey

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Tell whether the signature over the message was made with this key's secret half."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            if isinstance(self.key, Ed25519PublicKey):
                self.key.verify(signature, message)
            else:
                self.key.verify(signature, message, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def as_public(key: object, where: str) -> PublicKey:
    """Return a key of `cryptography` as one that can be trusted."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if isinstance(key, Ed25519PublicKey):
        kind = "ed25519"
    elif isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        kind = "ecdsa-p256"
    else:
        raise KeyFileError(f"{where}: keys are ed25519 (or ECDSA P-256); this is a {type(key).__name__}")
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")
    return PublicKey(keyid=hashlib.sha256(der).hexdigest(), pem=pem, kind=kind, key=key)


def keyid_of(pem: str) -> str:
    """Return the key id of a public key in PEM without loading the key."""
    body = "".join(line for line in pem.splitlines() if not line.startswith("-----"))
    return hashlib.sha256(base64.b64decode(body)).hexdigest()


def parse_public(pem: str | bytes, *, where: str = "the public key") -> PublicKey:
    """Read a public key from PEM."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    raw = pem.encode("utf-8") if isinstance(pem, str) else pem
    if b"PRIVATE KEY" in raw:
        raise KeyFileError(f"{where} is a secret key; verify with the public one, the file that ends in .pub")
    try:
        key = load_pem_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{where} is not a public key in PEM ('-----BEGIN PUBLIC KEY-----')") from None
    return as_public(key, where)


def read_small(path: Path, what: str) -> bytes:
    """Return the bytes of a key file."""
    try:
        with path.open("rb") as handle:
            raw = handle.read(_LARGEST_KEY_FILE + 1)
    except OSError as error:
        raise KeyFileError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    if len(raw) > _LARGEST_KEY_FILE:
        raise KeyFileError(f"{path} is too large to be a {what}")
    return raw


def load_public(path: str | Path) -> PublicKey:
    """Read a public key file (PEM)."""
    path = Path(path)
    return parse_public(read_small(path, "public key"), where=str(path))
