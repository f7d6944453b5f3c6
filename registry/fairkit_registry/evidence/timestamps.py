"""Proven time: what a time-stamping authority (RFC 3161) says about a signature.

The token is over the bytes of a signature: it proves that the signature was there at that time, whatever the signer
says.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError
from fairkit.support.escaping import visible
from fairkit_registry.errors import CertificateError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fairkit_registry.evidence.dsse import Envelope
    from fairkit_registry.evidence.keys import PublicKey

CLOCK_SKEW = timedelta(minutes=5)
"""How much later than its token an audit may say that it was made: clocks differ."""
LARGEST = 1 << 20
"""Bytes of the largest answer of an authority that is taken, and of a file of roots that is read."""


def library() -> Any:
    """Return the library that reads timestamps, or raise MissingExtraError."""
    try:
        import rfc3161_client
    except ImportError:
        raise MissingExtraError("rfc3161-client", "timestamp") from None
    return rfc3161_client


def read_roots(paths: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the roots in PEM files, each as its own text."""
    if not paths:
        return ()
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import load_pem_x509_certificates

    texts = []
    for path in paths:
        try:
            with Path(path).open("rb") as handle:
                roots = load_pem_x509_certificates(handle.read(LARGEST))
        except OSError as error:
            raise CertificateError(f"cannot read the timestamp root {path}: {error.strerror or error}") from None
        except ValueError:
            raise CertificateError(f"{path} holds no root of a time-stamping authority (X.509 in PEM)") from None
        texts += [root.public_bytes(Encoding.PEM).decode("ascii") for root in roots]
    return tuple(texts)


def proven(envelope: Envelope, keys: Sequence[PublicKey], roots: Sequence[str]) -> datetime:
    """Return since when it is proven that one of these keys has signed: the earliest of its good timestamps."""
    from fairkit_registry.evidence.dsse import pae

    message = pae(envelope.payload_type, envelope.payload)
    stamped = [
        one for one in envelope.signatures if one.timestamps and any(key.verifies(one.sig, message) for key in keys)
    ]
    times, refused = [], []
    for sig, token in [(one.sig, token) for one in stamped for token in one.timestamps]:
        try:
            times.append(time_of(token, sig, roots))
        except VerificationError as error:
            refused.append(str(error))
    if not times:
        raise VerificationError(
            refused[0] if refused else "no trusted signature on it has a timestamp, and one is asked for"
        )
    return min(times)


def proven_each(envelope: Envelope, keys: Sequence[PublicKey], roots: Sequence[str]) -> dict[str, datetime]:
    """Return since when the signature of each key is proven to exist, for those where it is; see `proven`."""
    found = {}
    for key in keys:
        with suppress(VerificationError):
            found[key.keyid] = proven(envelope, [key], roots)
    return found


def time_of(token: bytes, signature: bytes, roots: Sequence[str]) -> datetime:
    """Return since when some bytes are proven to exist, by a token of one of the authorities."""
    from cryptography.x509 import load_pem_x509_certificate

    rfc3161 = library()
    builder = rfc3161.VerifierBuilder()
    for pem in dict.fromkeys(roots):
        builder = builder.add_root_certificate(load_pem_x509_certificate(pem.encode("ascii")))
    try:
        told = rfc3161.decode_timestamp_response(token)
        builder.build().verify_message(told, signature)
        at: datetime = told.tst_info.gen_time
    except (rfc3161.VerificationError, ValueError) as error:
        why = visible(" ".join(str(error).split()))[:200]
        raise VerificationError(
            f"the timestamp is not by an authority that you trust, or of something else: {why}"
        ) from None
    return at
