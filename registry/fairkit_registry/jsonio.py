"""JSON of one form only: written canonically, read strictly."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry.errors import RegistryError


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


# Names of models and their versions: `credit`, `credit@3`, `credit@production`.


_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_VERSION = re.compile(r"[1-9][0-9]{0,11}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A model's name with at most one of a version and an alias."""

    name: str
    version: int | None = None
    alias: str | None = None

    def __str__(self) -> str:
        """Write it as the user would."""
        tail = self.version if self.version is not None else self.alias
        return self.name if tail is None else f"{self.name}@{tail}"


def check_name(name: str) -> str:
    """Return the name back if a model may bear it."""
    if not _NAME.fullmatch(name):
        raise RegistryError(
            f"{name!r} is no name for a model: use up to 100 letters, digits, '.', '_' and '-', "
            "with a letter or digit first and last"
        )
    return name


def check_alias(alias: str) -> str:
    """Return the alias back if it is one: a letter first, so that it cannot be taken for a version."""
    if not _ALIAS.fullmatch(alias):
        raise RegistryError(
            f"{alias!r} is no alias: use up to 64 letters, digits, '.', '_' and '-', with a letter first"
        )
    return alias


def check_text(texts: Iterable[str]) -> None:
    """Refuse tags and notes that no file can hold."""
    for text in texts:
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise RegistryError(f"{text!r} is no valid Unicode; write tags and notes in UTF-8")


def parse(text: str) -> Reference:
    """Read `NAME`, `NAME@VERSION` or `NAME@ALIAS`."""
    name, at, tail = text.partition("@")
    check_name(name)
    if not at:
        return Reference(name=name)
    if _VERSION.fullmatch(tail):
        return Reference(name=name, version=int(tail))
    if tail[:1].isdigit() or not tail:
        raise RegistryError(f"{text!r}: after '@' stands a version from 1 (credit@3) or an alias (credit@production)")
    return Reference(name=name, alias=check_alias(tail))


def is_reference(text: str) -> bool:
    """Tell whether a text can name a model of a registry (and is no path or file name of a model)."""
    if text.endswith(".onnx"):
        return False
    try:
        parse(text)
    except RegistryError:
        return False
    return True
