"""JSON of one form only: written canonically, read strictly."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any


class StrictJsonError(ValueError):
    """Bytes that are not the JSON object they should be; the text says why."""


def canonical(value: Any) -> bytes:
    """Write a JSON value in one form: sorted keys, no spaces, UTF-8, no NaN.

    The same value always gives the same bytes, so that it can be hashed and signed.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # half a surrogate pair, as file names may have it, is no UTF-8: it becomes its JSON escape
    return text.encode("utf-8", "backslashreplace")


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of a JSON value's canonical form, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Parsers differ in which of two equal keys they take: what was signed must have one reading.
    record = dict(pairs)
    if len(record) != len(pairs):
        raise StrictJsonError("a key stands twice in one object")
    return record


def _refuse_constant(name: str) -> Any:
    raise StrictJsonError(f"{name} is not JSON")


_LONGEST_NUMBER = 400
"""Digits; the largest float has 309."""


def _whole(text: str) -> int:
    if len(text) > _LONGEST_NUMBER or not math.isfinite(float(text)):
        raise StrictJsonError(f"{text[:20]}... is a number that no float holds")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise StrictJsonError(f"{text[:20]} is a number that no float holds")
    return value


def read_object(raw: bytes) -> dict[str, Any]:
    """Parse bytes that must be one JSON object without double keys, NaN, infinities or larger numbers."""
    if raw.startswith(b"\xef\xbb\xbf"):  # not a part of JSON, and not of what was signed
        raise StrictJsonError("it begins with a byte-order mark; save it as UTF-8 without one")
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_int=_whole,
            parse_float=_finite,
        )
    except StrictJsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise StrictJsonError(f"it is not JSON ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise StrictJsonError("it is not a JSON object")
    return value
