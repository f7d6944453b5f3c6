"""Proven time: what a time-stamping authority (RFC 3161) says about a signature.

The token is over the bytes of a signature: it proves that the signature was there at that time, whatever the signer
says.
"""

from __future__ import annotations

import time
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
_LARGEST = 1 << 20
_SECONDS, _CONNECT = 20.0, 5.0
_OK = 200


def _library() -> Any:
    try:
        import rfc3161_client
    except ImportError:
        raise MissingExtraError("rfc3161-client", "timestamp") from None
    return rfc3161_client


def ask(url: str, signature: bytes) -> bytes:
    """Ask a time-stamping authority about a signature.

    Parameters
    ----------
    url
        The authority's address, https or http: a token proves itself.
    signature
        Its bytes; only their digest is sent.

    Returns
    -------
    bytes
        The authority's answer, in DER, whose nonce and digest are those that were asked about.

    Raises
    ------
    CertificateError
        It cannot be reached, refuses, or answers something else.
    """
    library = _library()
    import fairkit_http

    try:
        import httpx
        from rfc3161_client.base import HashAlgorithm
    except ImportError:
        raise MissingExtraError("httpx", "timestamp") from None
    builder = library.TimestampRequestBuilder().data(signature).hash_algorithm(HashAlgorithm.SHA256)
    query = builder.nonce(nonce=True).cert_request(cert_request=True).build()
    if not url.startswith(("https://", "http://")):
        raise CertificateError(f"{visible(url)} is no address of a time-stamping authority: https://...")
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    cutter, deadline = fairkit_http.Cutter(), time.monotonic() + _SECONDS
    request = {"content": query.as_bytes(), "headers": headers, "extensions": {"trace": cutter.trace}}
    try:
        with (
            httpx.Client(timeout=httpx.Timeout(_SECONDS, connect=_CONNECT)) as client,
            cutter.within(_SECONDS),
            client.stream("POST", url, **request) as answer,
        ):
            content = fairkit_http.collect(answer.iter_raw(), _LARGEST, deadline)
    except (httpx.HTTPError, httpx.InvalidURL, fairkit_http.OversizedError, fairkit_http.LateError) as error:
        why = {
            fairkit_http.OversizedError: "it answers without end",
            fairkit_http.LateError: "it takes too long to answer",
        }
        raise CertificateError(
            f"cannot reach the time-stamping authority {visible(url)}: "
            f"{why.get(type(error)) or visible(str(error))}"
        ) from None
    if answer.status_code != _OK:
        raise CertificateError(
            f"the time-stamping authority {visible(url)} answers with status {answer.status_code}"
        )
    try:
        told = library.decode_timestamp_response(content)
        fits = told.status == 0 and told.tst_info.nonce == query.nonce
        fits = fits and told.tst_info.message_imprint.message == query.message_imprint.message
    except (ValueError, AttributeError) as error:
        raise CertificateError(
            f"{visible(url)} gives no timestamp (RFC 3161): {visible(str(error))[:200]}"
        ) from None
    if not fits:
        raise CertificateError(f"{visible(url)} refuses, or gives a timestamp of something else")
    return content


def read_roots(paths: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the roots in PEM files, each as its own text.

    Raises
    ------
    CertificateError
        A file cannot be read, or holds no certificate.
    """
    if not paths:
        return ()
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import load_pem_x509_certificates

    texts = []
    for path in paths:
        try:
            with Path(path).open("rb") as handle:
                roots = load_pem_x509_certificates(handle.read(_LARGEST))
        except OSError as error:
            raise CertificateError(
                f"cannot read the timestamp root {path}: {error.strerror or error}"
            ) from None
        except ValueError:
            raise CertificateError(
                f"{path} holds no root of a time-stamping authority (X.509 in PEM)"
            ) from None
        texts += [root.public_bytes(Encoding.PEM).decode("ascii") for root in roots]
    return tuple(texts)


def proven(envelope: Envelope, keys: Sequence[PublicKey], roots: Sequence[str]) -> datetime:
    """Return since when it is proven that one of these keys has signed: the earliest of its good timestamps.

    Parameters
    ----------
    envelope
        What was signed.
    keys
        The trusted keys that count.
    roots
        PEM of the authorities' roots that the caller has decided to trust, at least one.

    Raises
    ------
    VerificationError
        None of their signatures has a timestamp by these authorities.
    """
    from fairkit_registry.evidence.dsse import pae

    message = pae(envelope.payload_type, envelope.payload)
    stamped = [
        one
        for one in envelope.signatures
        if one.timestamps and any(key.verifies(one.sig, message) for key in keys)
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
    """Return since when some bytes are proven to exist, by a token of one of the authorities.

    Raises
    ------
    VerificationError
        It is by another authority, or about other bytes.
    """
    from cryptography.x509 import load_pem_x509_certificate

    library = _library()
    builder = library.VerifierBuilder()
    for pem in dict.fromkeys(roots):
        builder = builder.add_root_certificate(load_pem_x509_certificate(pem.encode("ascii")))
    try:
        told = library.decode_timestamp_response(token)
        builder.build().verify_message(told, signature)
        at: datetime = told.tst_info.gen_time
    except (library.VerificationError, ValueError) as error:
        why = visible(" ".join(str(error).split()))[:200]
        raise VerificationError(
            f"the timestamp is not by an authority that you trust, or of something else: {why}"
        ) from None
    return at
