"""Secret keys in PKCS #8, encrypted with a passphrase: PBES2 with scrypt and AES-256 (RFC 5958, 8018, 7914).

`cryptography` reads this form and does not write it: its own encryption of PKCS #8 stretches the passphrase with
2,048 rounds only. `openssl pkey` reads it too.
"""

from __future__ import annotations

import base64
import os
import textwrap

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
