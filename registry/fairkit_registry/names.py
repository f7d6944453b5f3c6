"""Names of models and their versions: `credit`, `credit@3`, `credit@production`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fairkit_registry.errors import RegistryError

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
