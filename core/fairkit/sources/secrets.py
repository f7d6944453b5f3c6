"""No secret is shown: foreign text loses what the environment keeps secret and what stands where passwords stand."""

from __future__ import annotations

import os
import re

from fairkit.support.escaping import visible

_SECRET_NAMES = re.compile(
    r"SECRET|TOKEN|PASSW|CREDENTIAL|ACCESS_KEY|ACCOUNT_KEY|API_?KEY|STORAGE_KEY|SAS|SIGNATURE|CONNECTION_STRING"
)
_SHORTEST = 4
"""Shorter values of the environment are no secrets, and would take letters out of every message."""
_LONGEST = 300
_USERINFO = re.compile(r"//[^/\s'\"]*:.*@|//[^/@\s'\"]*@|(?<!\w)[^/\s'\":]+:[^\s'\":/][^\s'\"]*@")
_WORDS = (
    r"[\w-]*(?:passw(?:or)?d|pwd|secret|token|credential|signature|api_?key|access_?key|account_?key|\bsig\b)"
    r"[\w-]*"
)
_ASSIGNED = re.compile(rf"(?i)({_WORDS}['\"]?\s*(?:=>|:=|=|:(?!:))\s*)('[^']*'|\"[^\"]*\"|[^\s&;,)'\"]+)")
_WRITTEN = re.compile(rf"(?i){_WORDS}(?:['\"]?\s*(?:=>|:=|=|:(?!:))\s*'|=[^\s'\"])")
"""A password in a query: a text after the word and a sign, or ``password=...`` without a blank."""


def masked(text: object) -> str:
    """Return text without the secrets of the environment, users and passwords in addresses, and assigned passwords."""
    shown = str(text)
    for value in sorted(_kept_secret(), key=len, reverse=True):
        shown = shown.replace(value, "***")
    return _ASSIGNED.sub(r"\1***", _USERINFO.sub("//***@", shown))


def said(error: BaseException) -> str:
    """Return a library's error message as one short line that holds no secret."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    return visible(masked(text)[:_LONGEST]) or type(error).__name__


def holds_secret(text: str) -> bool:
    """Tell whether something stands in the text that a password, a key or a token is written like."""
    return _USERINFO.search(text) is not None or _WRITTEN.search(text) is not None


def _kept_secret() -> set[str]:
    return {
        value.strip()
        for name, value in os.environ.items()
        if _SECRET_NAMES.search(name.upper()) and len(value.strip()) >= _SHORTEST
    } | ({os.environ["PGPASSWORD"]} if os.environ.get("PGPASSWORD") else set())
