"""The form of JSON values: the part of JSON Schema (2020-12) that fairkit's own schemas use, in functions.

A validator is a function of a value that returns the first mistake, or None. A keyword that is not known here is an
error of the schema's author, never ignored.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Mistake(NamedTuple):
    """Where a value does not have its form, outermost step first, and what it should be."""

    path: tuple[str | int, ...]
    message: str

    def inside(self, step: str | int) -> Mistake:
        """Return the same mistake, seen from the value around it."""
        return Mistake((step, *self.path), self.message)

    @property
    def place(self) -> str:
        """The path, as text; empty for the whole value."""
        return "/".join(map(str, self.path))


Check = Callable[[Any], Mistake | None]
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "number": (int, float), "integer": (int,),
}  # fmt: skip
"""Python's own types that surely are of a type; a value of another one is looked at more closely."""
_SHOWN = 80
_SILENT = {"$schema", "$id", "$defs", "title", "description", "then", "else"}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1,
}


def validator(schema: Mapping[str, Any], *others: Mapping[str, Any]) -> Check:
    """Return the check of a schema; `$ref` may name a part of it, or another one of the schemas by its `$id`."""
    documents = {str(one.get("$id", "")): one for one in (schema, *others)}
    return _Reader(documents, str(schema.get("$id", ""))).check(schema)


class _Reader:
    """Turns the schemas of one document into functions."""

    def __init__(self, documents: Mapping[str, Mapping[str, Any]], home: str) -> None:
        self.documents, self.home = documents, home
        self.known: dict[str, Check] = {}

    def check(self, schema: Any) -> Check:
        """Return the check of one schema: those of its keywords, in order."""
        if isinstance(schema, bool):
            return lambda value: None if schema else Mistake((), f"{_shown(value)} is not allowed here")
        parts = [self._keyword(name, argument, schema) for name, argument in _ordered(schema)]
        return parts[0] if len(parts) == 1 else _every(parts)

    def _keyword(self, name: str, argument: Any, schema: Mapping[str, Any]) -> Check:
        if name == "type":
            return _typed([argument] if isinstance(argument, str) else argument)
        if name in _PLAIN:
            return functools.partial(_PLAIN[name], argument)
        if name == "properties":
            return _properties({key: self.check(one) for key, one in argument.items()})
        if name in ("allOf", "anyOf", "oneOf"):
            return _MANY[name]([self.check(one) for one in argument])
        makers: dict[str, Callable[[], Check]] = {
            "$ref": lambda: self._reference(argument),
            "additionalProperties": lambda: _additional(
                self.check(argument), argument, frozenset(schema.get("properties", ()))
            ),
            "items": lambda: _items(self.check(argument)),
            "not": lambda: _negated(self.check(argument)),
            "if": lambda: _conditional(
                self.check(argument), *(self.check(schema.get(branch, True)) for branch in ("then", "else"))
            ),
        }
        if name not in makers:
            raise ValueError(f"the schema has the keyword {name!r}, which is not known here")
        return makers[name]()

    def _reference(self, text: str) -> Check:
        address, _, pointer = text.partition("#")
        home = address or self.home
        if home not in self.documents:
            raise ValueError(f"the schema refers to {text!r}, which is not known here")
        key = f"{home}#{pointer}"

        def followed(value: Any) -> Mistake | None:
            if key not in self.known:  # read when it is first met: a schema may refer to itself
                part: Any = self.documents[home]
                for step in filter(None, pointer.split("/")):
                    part = part[step]
                self.known[key] = _Reader(self.documents, home).check(part)
            return self.known[key](value)

        return followed


def _ordered(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the keywords that check something; the type first, so that a mistake names it."""
    parts = [(name, argument) for name, argument in schema.items() if name not in _SILENT]
    return sorted(parts, key=lambda part: (part[0] != "type", part[0] in ("anyOf", "oneOf", "allOf", "if")))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _typed(names: Sequence[str]) -> Check:
    kinds = frozenset(kind for name in names for kind in _KINDS[name])

    def check(value: Any) -> Mistake | None:
        if type(value) in kinds or any(_TYPES[name](value) for name in names):
            return None
        return Mistake((), f"{_shown(value)} is not of type {', '.join(map(repr, names))}")

    return check


def _required(names: Sequence[str], value: Any) -> Mistake | None:
    missing = [name for name in names if name not in value] if isinstance(value, dict) else []
    return Mistake((), f"{missing[0]!r} is a required property") if missing else None


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _constant(wanted: Any, value: Any) -> Mistake | None:
    return None if _same(wanted, value) else Mistake((), f"{_shown(value)} is not {wanted!r}")


def _choice(choices: Sequence[Any], value: Any) -> Mistake | None:
    if any(_same(choice, value) for choice in choices):
        return None
    return Mistake((), f"{_shown(value)} is not one of {list(choices)!r}")


def _pattern(text: str, value: Any) -> Mistake | None:
    # Python's $ also stands before a last line break
    if not isinstance(value, str) or re.search(re.sub(r"\$$", r"\\Z", text), value):
        return None
    return Mistake((), f"{_shown(value)} does not match {text!r}")


def _bounded(holds: Callable[[Any, Any], bool], words: str) -> Callable[[Any, Any], Mistake | None]:
    def check(limit: Any, value: Any) -> Mistake | None:
        if not _TYPES["number"](value) or holds(value, limit):
            return None
        return Mistake((), f"{_shown(value)} is {words} {limit}")

    return check


def _sized(
    kind: type[list[Any]] | type[dict[str, Any]], holds: Callable[[int, int], bool], relation: str
) -> Callable[[int, Any], Mistake | None]:
    def check(limit: int, value: Any) -> Mistake | None:
        if not isinstance(value, kind) or holds(len(value), limit):
            return None
        return Mistake((), f"{_shown(value)} has {relation} {limit} parts")

    return check


_PLAIN: dict[str, Callable[[Any, Any], Mistake | None]] = {
    "required": _required,
    "const": _constant,
    "enum": _choice,
    "pattern": _pattern,
    "minimum": _bounded(lambda value, limit: value >= limit, "less than the minimum of"),
    "maximum": _bounded(lambda value, limit: value <= limit, "greater than the maximum of"),
    "exclusiveMinimum": _bounded(lambda value, limit: value > limit, "not above"),
    "exclusiveMaximum": _bounded(lambda value, limit: value < limit, "not below"),
    "minItems": _sized(list, lambda size, limit: size >= limit, "fewer than"),
    "maxItems": _sized(list, lambda size, limit: size <= limit, "more than"),
    "minProperties": _sized(dict, lambda size, limit: size >= limit, "fewer than"),
}


def _properties(checks: Mapping[str, Check]) -> Check:
    def check(value: Any) -> Mistake | None:
        if isinstance(value, dict):
            for name, part in checks.items():
                mistake = part(value[name]) if name in value else None
                if mistake is not None:
                    return mistake.inside(name)
        return None

    return check


def _additional(part: Check, argument: Any, named: frozenset[str]) -> Check:
    def check(value: Any) -> Mistake | None:
        for name in value if isinstance(value, dict) else ():
            if name not in named:
                if argument is False:
                    return Mistake((), f"the property {name[:_SHOWN]!r} is not one of its form")
                mistake = part(value[name])
                if mistake is not None:
                    return mistake.inside(name)
        return None

    return check


def _items(part: Check) -> Check:
    def check(value: Any) -> Mistake | None:
        for place, item in enumerate(value if isinstance(value, list) else ()):
            mistake = part(item)
            if mistake is not None:
                return mistake.inside(place)
        return None

    return check


def _every(parts: Sequence[Check]) -> Check:
    def check(value: Any) -> Mistake | None:
        for part in parts:
            mistake = part(value)
            if mistake is not None:
                return mistake
        return None

    return check


def _some(parts: Sequence[Check], *, only: bool) -> Check:
    def check(value: Any) -> Mistake | None:
        mistakes = []
        for part in parts:
            mistakes.append(part(value))
            if mistakes[-1] is None and not only:
                return None
        fitting = mistakes.count(None)
        if fitting == 1:
            return None
        if fitting:
            return Mistake((), f"{_shown(value)} is valid under more than one of the given schemas")
        deepest = max((one for one in mistakes if one is not None), key=lambda one: len(one.path))
        return deepest if deepest.path else Mistake((), f"{_shown(value)} is not valid under any of the given schemas")

    return check


_MANY: dict[str, Callable[[Sequence[Check]], Check]] = {
    "allOf": _every,
    "anyOf": functools.partial(_some, only=False),
    "oneOf": functools.partial(_some, only=True),
}


def _negated(part: Check) -> Check:
    return lambda value: None if part(value) is not None else Mistake((), f"{_shown(value)} is excluded")


def _conditional(condition: Check, then: Check, otherwise: Check) -> Check:
    return lambda value: then(value) if condition(value) is None else otherwise(value)
