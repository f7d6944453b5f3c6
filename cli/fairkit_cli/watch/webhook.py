"""Posting alarms: to one address, signed, without redirects."""

from __future__ import annotations

import hashlib
import hmac
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fairkit.errors import ParameterError
from fairkit.support.files import FileError, explain

if TYPE_CHECKING:
    from fairkit_cli.options import AlarmOptions

_SECONDS = 10.0


def hook_key(typed: AlarmOptions) -> bytes | None:
    """Check the address, and read the secret that signs what is posted."""
    if typed.webhook is None:
        if typed.webhook_key is not None:
            raise ParameterError("--webhook-key signs what is posted to --webhook URL; give that, or leave it out")
        return None
    parts = urlsplit(typed.webhook)
    near = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and near):
        raise ParameterError(f"--webhook {typed.webhook!r}: give an https address (http on this machine only)")
    if typed.webhook_key is None:
        return None
    try:
        key = typed.webhook_key.read_bytes().strip()
    except OSError as error:
        raise FileError(explain(error, "cannot read", typed.webhook_key)) from error
    if len(key) < 16:
        raise ParameterError(f"{typed.webhook_key} holds fewer than 16 bytes; a secret is longer")
    return key


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Posts go where they were told to, and nowhere else."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def post(url: str, body: bytes, key: bytes | None) -> None:
    """Post JSON, signed where there is a key."""
    headers = {"Content-Type": "application/json", "User-Agent": "fairkit"}
    if key is not None:
        headers["X-Fairkit-Signature"] = f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 -- https, or this machine
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=_SECONDS) as answer:
        answer.read(1)
