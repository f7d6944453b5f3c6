"""Asking a time-stamping authority (RFC 3161) about a signature: over HTTP, or through a plugin."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError
from fairkit.support.escaping import visible
from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence.timestamps import LARGEST, library

if TYPE_CHECKING:
    from fairkit.timestamps import TimestampAuthority

Ask = Callable[[bytes], bytes]
"""Returns what an authority answers about a signature, in DER; raises CertificateError where it refuses."""

_SECONDS, _CONNECT = 20.0, 5.0
_OK = 200
_SHA256 = "2.16.840.1.101.3.4.2.1"


def asking(address: str) -> Ask:
    """Return a function that asks an authority about signatures, and refuses what is no timestamp of them."""
    rfc3161 = library()
    over_http = address.startswith(("https://", "http://"))
    opened = None if over_http else _plugged(address)

    def ask(signature: bytes) -> bytes:
        digest, nonce = hashlib.sha256(signature).digest(), None
        if opened is None:
            content, nonce = _asked_over_http(rfc3161, address, signature)
        else:
            content = _asked_plugin(*opened, signature)
        _check(rfc3161, content, digest, nonce, visible(address))
        return content

    return ask


def _plugged(address: str) -> tuple[TimestampAuthority, Any]:
    """Open the authority of ``NAME:...``; return it with its plugin."""
    from fairkit import plugins

    name, colon, _ = address.partition(":")
    plugin = plugins.load(name) if colon and name in {found.name for found in plugins.find()} else None
    if plugin is None or not plugin.timestamp_authorities:
        raise CertificateError(
            f"{visible(address)} is no address of a time-stamping authority: https://..., or NAME:... of a plugin that "
            "reaches one"
        )
    with plugins.blame(plugin.found, f"opening {visible(address)}"):
        return plugin.timestamp_authorities[0].open(address), plugin.found


def _asked_plugin(authority: TimestampAuthority, owner: Any, signature: bytes) -> bytes:
    from fairkit import plugins

    with plugins.blame(owner, "asking for a timestamp"):
        content = authority.ask(signature)
    if not isinstance(content, bytes) or len(content) > LARGEST:
        told = f"{len(content)} bytes" if isinstance(content, bytes) else type(content).__name__
        raise CertificateError(
            f"the plugin {owner.name!r} gives no timestamp (RFC 3161) but {told}; it is to return DER of at most "
            f"{LARGEST} bytes"
        )
    return content


def _asked_over_http(rfc3161: Any, url: str, signature: bytes) -> tuple[bytes, int]:
    """Return the answer, and the nonce that is to be in it."""
    import fairkit_http

    try:
        import httpx
        from rfc3161_client.base import HashAlgorithm
    except ImportError:
        raise MissingExtraError("httpx", "timestamp") from None
    builder = rfc3161.TimestampRequestBuilder().data(signature).hash_algorithm(HashAlgorithm.SHA256)
    query = builder.nonce(nonce=True).cert_request(cert_request=True).build()
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    cutter, deadline = fairkit_http.Cutter(), time.monotonic() + _SECONDS
    request = {"content": query.as_bytes(), "headers": headers, "extensions": {"trace": cutter.trace}}
    try:
        with (
            httpx.Client(timeout=httpx.Timeout(_SECONDS, connect=_CONNECT)) as client,
            cutter.within(_SECONDS),
            client.stream("POST", url, **request) as answer,
        ):
            content = fairkit_http.collect(answer.iter_raw(), LARGEST, deadline)
    except (httpx.HTTPError, httpx.InvalidURL, fairkit_http.OversizedError, fairkit_http.LateError) as error:
        why = {
            fairkit_http.OversizedError: "it answers without end",
            fairkit_http.LateError: "it takes too long to answer",
        }
        raise CertificateError(
            f"cannot reach the time-stamping authority {visible(url)}: {why.get(type(error)) or visible(str(error))}"
        ) from None
    if answer.status_code != _OK:
        raise CertificateError(f"the time-stamping authority {visible(url)} answers with status {answer.status_code}")
    return content, query.nonce


def _check(rfc3161: Any, content: bytes, digest: bytes, nonce: int | None, shown: str) -> None:
    """Refuse an answer that grants nothing, or is about other bytes than those with a SHA-256, or not to this query."""
    try:
        told = rfc3161.decode_timestamp_response(content)
        fits, bare = told.status == 0, False
        if fits:
            imprint = told.tst_info.message_imprint
            fits = imprint.hash_algorithm.dotted_string == _SHA256 and imprint.message == digest
            fits = fits and (nonce is None or told.tst_info.nonce == nonce)
            bare = not told.signed_data.certificates
    except (ValueError, AttributeError) as error:
        raise CertificateError(f"{shown} gives no timestamp (RFC 3161): {visible(str(error))[:200]}") from None
    if not fits:
        raise CertificateError(f"{shown} refuses, or gives a timestamp of something else")
    if bare:
        raise CertificateError(
            f"{shown} gives a timestamp without its own certificate: nobody could check it with the root alone. A "
            "query asks for it (certReq)"
        )
