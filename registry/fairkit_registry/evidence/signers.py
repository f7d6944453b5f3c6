"""What certificates are signed with: key files, encrypted or not, and keys that plugins reach."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import shlex
import stat
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from fairkit.errors import FairkitError, PluginError
from fairkit.support.files import check_writable, write_atomic
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry.blobs import read_limited
from fairkit_registry.errors import KeyFileError, RegistryError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from fairkit.signers import Signer as Plugged


FILE = "FAIRKIT_KEY_PASSPHRASE_FILE"
"""The environment variable that names a file with the passphrase in its first line; /dev/fd/3 is a descriptor."""
_LONGEST = 4096

KINDS = ("ed25519", "p256")
"""The kinds of keys that `new_key_pair` makes."""

AskPassphrase = Callable[[str], str]
"""Asks for the passphrase of what its argument names; raises KeyFileError where nobody can answer."""


class Signer(Protocol):
    """A secret key that can sign, wherever it is."""

    @property
    def public(self) -> PublicKey:
        """Its public half."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature over a message: 64 bytes for ed25519, ECDSA with SHA-256 in DER for P-256."""


@dataclass(frozen=True, slots=True)
class KeySigner:
    """A key in memory."""

    key: Ed25519PrivateKey | EllipticCurvePrivateKey
    public: PublicKey

    def sign(self, message: bytes) -> bytes:
        """Return the signature; the same message gives the same bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if isinstance(self.key, Ed25519PrivateKey):
            return self.key.sign(message)
        return self.key.sign(message, _ecdsa())


@dataclass(frozen=True, slots=True)
class PluggedSigner:
    """A key that a plugin reaches; what it signs is checked at once."""

    inner: Plugged
    public: PublicKey

    def sign(self, message: bytes) -> bytes:
        """Return the signature."""
        signature = self.inner.sign(message)
        if not isinstance(signature, bytes) or not self.public.verifies(signature, message):
            raise KeyFileError(
                f"the signer {self.inner.name!r} returned a signature that its public key does not verify; nothing is "
                "signed. Is it the right key, of the kind ed25519 or ECDSA P-256 with SHA-256 in DER?"
            )
        return signature


def _ecdsa() -> ECDSA:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        return ECDSA(SHA256(), deterministic_signing=True)
    except (TypeError, UnsupportedAlgorithm):  # an older OpenSSL: as good a signature, other bytes each time
        return ECDSA(SHA256())


def nobody_answers(what: str) -> str:
    """Refuse to answer for a passphrase."""
    raise KeyFileError(f"{what} is encrypted, and no passphrase was given")


def written_passphrase(what: str) -> str:
    """Return the passphrase of something from the file that the environment names."""
    if not os.environ.get(FILE):
        raise FairkitError(
            f"{what} needs a passphrase, and there is no terminal to ask for it: set {FILE} to a file that holds "
            "it in its first line (mode 0600), or to a descriptor such as /dev/fd/3"
        )
    return _from_file(os.environ[FILE])


@functools.cache
def _from_file(name: str) -> str:
    """Read the first line, once: a pipe gives it only once, and several keys may ask."""
    path = Path(name)
    try:
        check_private(path, "passphrase file", f"({FILE} names it)")
        with path.open("rb") as handle:
            line = handle.readline(_LONGEST).rstrip(b"\r\n")
        passphrase = line.decode("utf-8")
    except OSError as error:
        raise FairkitError(f"cannot read the passphrase in {path} ({FILE}): {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FairkitError(f"the passphrase in {path} ({FILE}) is not UTF-8") from None
    if not passphrase:
        raise FairkitError(f"the first line of {path} ({FILE}) is empty; it is to hold the passphrase")
    return passphrase


def load_secret(path: str | Path, *, insecure: bool = False, passphrase: AskPassphrase = nobody_answers) -> Signer:
    """Return the signer that a key file (PEM, PKCS #8, ed25519 or ECDSA P-256) or a plugin's address names."""
    name, colon, _ = str(path).partition(":")
    if colon and name.replace("-", "").isalnum() and len(name) > 1 and not Path(path).exists():
        return _plugged(name, str(path), passphrase)
    path = Path(path)
    raw = read_limited(path, _LARGEST_KEY_FILE, "a secret key", KeyFileError)
    if b"PUBLIC KEY" in raw:
        raise KeyFileError(f"{path} is a public key; signing needs the secret one, the file without .pub")
    if b"PRIVATE KEY-----" not in raw:
        raise KeyFileError(f"{path} is not a secret key in PEM; make one with: fairkit key new PATH")
    if not insecure:
        check_private(path, "secret key", "--insecure-key takes it as it is")
    return _parse(raw, path, passphrase)


def _parse(raw: bytes, path: Path, passphrase: AskPassphrase) -> Signer:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    locked = b"ENCRYPTED" in raw
    password = passphrase(f"the secret key {path}").encode("utf-8") if locked else None
    try:
        key = load_pem_private_key(raw, password=password)
    except (ValueError, TypeError, UnsupportedAlgorithm, MemoryError):
        if locked:
            raise KeyFileError(f"the passphrase does not open the secret key {path} (or the file is damaged)") from None
        raise KeyFileError(f"the secret key {path} is damaged, or of a form that is not read (PKCS #8 is)") from None
    fits = isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)
    if not (isinstance(key, Ed25519PrivateKey) or fits):
        raise KeyFileError(
            f"{path}: certificates are signed with ed25519 or ECDSA P-256; make a key with: fairkit key new PATH"
        )
    return KeySigner(key, as_public(key.public_key(), str(path)))  # type: ignore[arg-type]  # narrowed above


def _plugged(name: str, address: str, passphrase: AskPassphrase) -> Signer:
    from fairkit import plugins

    if name not in {info.name for info in plugins.find()}:
        raise KeyFileError(
            f"cannot read the secret key {address}: there is no such file, and no plugin {name!r} that signs"
        )
    plugin = plugins.load(name)
    if not plugin.signers:
        raise PluginError(
            f"the plugin {name!r} offers no signer; --key takes a file, or NAME:... of a plugin that signs"
        )
    inner = plugin.signers[0].open(address, passphrase=passphrase)
    return PluggedSigner(inner, parse_public(inner.public_pem, where=address))


def check_private(path: Path, what: str, otherwise: str) -> None:
    """Refuse a file of secrets that other users of this machine can use."""
    state = path.stat()
    if os.name == "nt" or not stat.S_ISREG(state.st_mode):  # Windows has other rights; a pipe is its reader's
        return
    if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"others can use the {what} {path} (its mode is {stat.S_IMODE(state.st_mode):04o}): anybody may have "
            f"signed with it. Make a new one; or, if nobody has read it, run: chmod 600 {shlex.quote(str(path))}. "
            f"{otherwise}"
        )


def new_key_pair(
    path: str | Path, *, kind: Literal["ed25519", "p256"] = "ed25519", passphrase: str | None = None
) -> PublicKey:
    """Make a key pair: `path` (secret, mode 0600) and `path`.pub, both PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from fairkit_registry.evidence.signers import encrypt

    path = Path(path)
    check_new(path)
    if passphrase == "":
        raise KeyFileError("an empty passphrase protects nothing; choose one, or say --no-passphrase")
    makers: dict[str, Callable[[], Ed25519PrivateKey | EllipticCurvePrivateKey]] = {
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    }
    secret = makers[kind]()
    public = as_public(secret.public_key(), "the new key")
    encoding = Encoding.PEM if passphrase is None else Encoding.DER
    raw = secret.private_bytes(encoding, PrivateFormat.PKCS8, NoEncryption())
    written = raw if passphrase is None else encrypt(raw, passphrase.encode("utf-8"))
    write_atomic(path, written, mode=0o600, replace=False)
    write_atomic(path.with_name(path.name + ".pub"), public.pem, mode=0o644, replace=False)
    return public


def check_new(path: Path) -> None:
    """Refuse a place where a key is already, or where none can be written."""
    for existing in (path, path.with_name(path.name + ".pub")):
        if existing.exists():
            raise RegistryError(f"{existing} exists already; a key is never replaced: choose another name")
    check_writable(path)


_N, _R, _P = 1 << 14, 8, 5
"""Cost of scrypt: 16 MiB, five times over. OpenSSL takes 32 MiB at most, so the work is in the repetitions."""

_PBES2 = "1.2.840.113549.1.5.13"
_SCRYPT = "1.3.6.1.4.1.11591.4.11"
_AES_256_CBC = "2.16.840.1.101.3.4.1.42"


def encrypt(der: bytes, passphrase: bytes) -> bytes:
    """Return a PKCS #8 key, given in DER, as ``ENCRYPTED PRIVATE KEY`` in PEM."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    from cryptography.hazmat.primitives.padding import PKCS7

    salt, start = os.urandom(16), os.urandom(16)
    key = Scrypt(salt=salt, length=32, n=_N, r=_R, p=_P).derive(passphrase)
    padder = PKCS7(128).padder()
    cipher = Cipher(algorithms.AES(key), modes.CBC(start)).encryptor()
    sealed = cipher.update(padder.update(der) + padder.finalize()) + cipher.finalize()
    stretching = _sequence(_oid(_SCRYPT), _sequence(_octets(salt), *map(_integer, (_N, _R, _P))))
    scheme = _sequence(_oid(_PBES2), _sequence(stretching, _sequence(_oid(_AES_256_CBC), _octets(start))))
    body = base64.b64encode(_sequence(scheme, _octets(sealed))).decode("ascii")
    lines = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", *textwrap.wrap(body, 64), "-----END ENCRYPTED PRIVATE KEY-----"]
    return ("\n".join(lines) + "\n").encode("ascii")


def _tagged(tag: int, content: bytes) -> bytes:
    """DER: tag, length, content."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _octets(content: bytes) -> bytes:
    return _tagged(0x04, content)


def _integer(value: int) -> bytes:
    return _tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = bytearray()
    for number in (40 * first + second, *rest):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(0x80 | number & 0x7F)
        content += bytes(reversed(digits))
    return _tagged(0x06, bytes(content))


# Public keys: ed25519 and ECDSA P-256, pinned by whoever verifies.


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


def load_public(path: str | Path) -> PublicKey:
    """Read a public key file (PEM)."""
    raw = read_limited(Path(path), _LARGEST_KEY_FILE, "a public key", KeyFileError)
    return parse_public(raw, where=str(path))
