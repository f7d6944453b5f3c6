"""Key pairs: ed25519 to sign with, ed25519 and ECDSA P-256 to verify with."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.support.files import check_writable, write_atomic
from fairkit_registry.errors import KeyFileError, RegistryError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_LARGEST_KEY_FILE = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A key that the user has decided to trust.

    Attributes
    ----------
    keyid
        SHA-256 of the key's DER form (SubjectPublicKeyInfo), in hexadecimal. A name for people
        and a hint for programs; it decides nothing.
    pem
        The key in PEM.
    kind
        ``ed25519`` or ``ecdsa-p256``.
    """

    keyid: str
    pem: str
    kind: str
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


def _public(key: object, where: str) -> PublicKey:
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
    """Read a public key from PEM.

    Raises
    ------
    KeyFileError
        It is not a public key in PEM, or of another kind than ed25519 and ECDSA P-256.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    raw = pem.encode("utf-8") if isinstance(pem, str) else pem
    if b"PRIVATE KEY" in raw:
        raise KeyFileError(f"{where} is a secret key; verify with the public one, the file that ends in .pub")
    try:
        key = load_pem_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{where} is not a public key in PEM ('-----BEGIN PUBLIC KEY-----')") from None
    return _public(key, where)


def _read_small(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as handle:
            raw = handle.read(_LARGEST_KEY_FILE + 1)
    except OSError as error:
        raise KeyFileError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    if len(raw) > _LARGEST_KEY_FILE:
        raise KeyFileError(f"{path} is too large to be a {what}")
    return raw


def load_public(path: str | Path) -> PublicKey:
    """Read a public key file (PEM).

    Raises
    ------
    KeyFileError
        The file is missing, or not a public key of an accepted kind.
    """
    path = Path(path)
    return parse_public(_read_small(path, "public key"), where=str(path))


def load_secret(path: str | Path, *, insecure: bool = False) -> Ed25519PrivateKey:
    """Read a secret ed25519 key file (PEM, PKCS #8, not encrypted).

    Parameters
    ----------
    path
        The file.
    insecure
        Take a key that other users of this machine can read or replace.

    Raises
    ------
    KeyFileError
        The file is missing, encrypted, not an ed25519 key, or open to others.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = Path(path)
    raw = _read_small(path, "secret key")
    if b"PUBLIC KEY" in raw:
        raise KeyFileError(f"{path} is a public key; signing needs the secret one, the file without .pub")
    try:
        key = load_pem_private_key(raw, password=None)
    except TypeError:
        raise KeyFileError(f"{path} is encrypted; decrypt it first, for instance with openssl pkey") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(
            f"{path} is not a secret key in PEM; make one with: fairkit key new PATH"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(
            f"{path}: certificates are signed with ed25519; make a key with: fairkit key new PATH"
        )
    if not insecure:
        _check_private(path)
    return key


def _check_private(path: Path) -> None:
    state = path.stat()
    if os.name == "nt" or not stat.S_ISREG(state.st_mode):  # Windows has other rights; a pipe is its reader's
        return
    if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"others can use the secret key {path} (its mode is {stat.S_IMODE(state.st_mode):04o}): anybody may have "
            f"signed with it. Make a new one; or, if nobody has read it, run: chmod 600 {shlex.quote(str(path))}. "
            "--insecure-key takes it as it is"
        )


def public_half(secret: Ed25519PrivateKey) -> PublicKey:
    """Return the public key that belongs to a secret one."""
    return _public(secret.public_key(), "the secret key")


def new_key_pair(path: str | Path) -> PublicKey:
    """Make an ed25519 key pair: `path` (secret, mode 0600) and `path`.pub, both PEM.

    Returns
    -------
    PublicKey
        The public half.

    Raises
    ------
    RegistryError
        One of the files exists already: a key is never replaced.
    FileError
        They cannot be written.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path = Path(path)
    public_path = path.with_name(path.name + ".pub")
    for existing in (path, public_path):
        if existing.exists():
            raise RegistryError(f"{existing} exists already; a key is never replaced: choose another name")
    check_writable(path)
    secret = Ed25519PrivateKey.generate()
    public = public_half(secret)
    pem = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_atomic(path, pem, mode=0o600, replace=False)
    write_atomic(public_path, public.pem, mode=0o644, replace=False)
    return public
