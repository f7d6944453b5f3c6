"""Servers of models: what their addresses may hold, and the token that goes to them and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Collection
from urllib.parse import parse_qsl, urlsplit

from fairkit.errors import ParameterError
from fairkit.sources.reach import keeps_secrets
from fairkit.support.escaping import visible

TOKEN = "FAIRKIT_ENDPOINT_TOKEN"  # noqa: S105 -- the name of a variable
"""The environment variable with the token; it is sent as a header and stored nowhere."""


def check_address(url: str, example: str, queries: Collection[str] = ()) -> None:
    """Refuse what is no http address, or may hold a secret; `queries` are the parameters that it may have."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port of letters; the address is not shown, since it may hold a secret
        raise ParameterError(f"the address of the endpoint cannot be read; write {example}") from None
    sent = {key for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if "@" in parts.netloc or parts.fragment or sent - set(queries) or (parts.query and not sent):
        raise ParameterError(
            "the address of the endpoint holds a user, a password, a query or a fragment; leave them out, and put a "
            f"token into the environment variable {TOKEN}"
        )
    if not usable:
        raise ParameterError(f"{visible(url)} is no address of an endpoint; write {example}")


def token_for(url: str) -> str:
    """Return the environment's token where it may be sent to an address; empty without one."""
    token = os.environ.get(TOKEN, "").strip()
    if not token.isascii() or any(ord(sign) < 33 for sign in token):
        raise ParameterError(f"the token in {TOKEN} holds signs that no header can carry")
    if token and not keeps_secrets(url):
        raise ParameterError(
            f"the token in {TOKEN} is not sent to {visible(url)} without encryption; name an https:// address"
        )
    return token


def without_token(text: object) -> str:
    """Return a server's words as one short line, without the token."""
    line, token = " ".join(str(text).split()), os.environ.get(TOKEN, "").strip()
    return visible((line.replace(token, "***") if token else line)[:300]) or "no reason"
