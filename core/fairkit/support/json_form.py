"""The form of JSON values: the part of JSON Schema (2020-12) that our schemas use, in the words of `jsonschema`.

That library takes a quarter of a second to load, longer than all else of checking a certificate; tests compare both.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

Mistake = tuple[tuple[str | int, ...], str]
"""Where a value is not as its schema says, and what is wrong there."""

_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_WRONG: Mapping[str, tuple[str, Callable[[Any, Any], Any], str]] = {
    "minimum": ("number", operator.lt, "{!r} is less than the minimum of {!r}"),
    "maximum": ("number", operator.gt, "{!r} is greater than the maximum of {!r}"),
    "exclusiveMinimum": ("number", operator.le, "{!r} is less than or equal to the minimum of {!r}"),
    "exclusiveMaximum": ("number", operator.ge, "{!r} is greater than or equal to the maximum of {!r}"),
    "minItems": ("array", lambda value, least: len(value) < least, "{!r} is too short"),
    "maxItems": ("array", lambda value, most: len(value) > most, "{!r} is too long"),
    "minProperties": ("object", lambda value, least: len(value) < least, "{!r} does not have enough properties"),
    "pattern": ("string", lambda value, pattern: re.search(pattern, value) is None, "{!r} does not match {!r}"),
}
"""Of keywords about one type: the type, whether a value breaks them, and in which words."""
_EMPTY = "{!r} should be non-empty"


def mistakes(value: Any, schema: Any, *others: Any) -> Iterator[Mistake]:  # noqa: PLR0915 -- one line a keyword
    """Yield every mistake, in the order of the schema; it may refer to parts of itself and of `others`."""
    documents = {one.get("$id"): one for one in (schema, *others)}

    def fits(value: Any, schema: Any, home: Any) -> bool:
        return next(check(value, schema, home), None) is None

    def inner(value: Any, place: str | int, schema: Any, home: Any) -> Iterator[Mistake]:
        return (((place, *path), text) for path, text in check(value, schema, home))

    def check(value: Any, schema: Any, home: Any) -> Iterator[Mistake]:
        for name, argument in schema.items():
            if name in _WRONG:
                kind, wrong, text = _WRONG[name]
                if _is(value, kind) and wrong(value, argument):
                    yield (), (_EMPTY if (name, argument) == ("minItems", 1) else text).format(value, argument)
            elif isinstance(value, dict) and name in ("required", "properties", "additionalProperties"):
                yield from in_object(value, name, argument, schema, home)
            elif isinstance(value, list) and name in ("prefixItems", "items"):
                first = len(schema.get("prefixItems", ())) if name == "items" else 0
                parts = [argument] * (len(value) - first) if name == "items" else argument
                for index, part in zip(range(first, len(value)), parts, strict=False):
                    yield from inner(value[index], index, part, home)
            elif name == "$ref":
                address, _, pointer = argument.partition("#")
                document = documents[address] if address else home
                yield from check(value, reduce(operator.getitem, pointer.split("/")[1:], document), document)
            elif name == "if":
                yield from check(value, schema.get("then" if fits(value, argument, home) else "else", {}), home)
            elif name == "allOf":
                for part in argument:
                    yield from check(value, part, home)
            else:
                yield from (((), text) for text in in_all(value, name, argument, home))

    def in_object(value: Any, name: str, argument: Any, schema: Any, home: Any) -> Iterator[Mistake]:
        if name == "required":
            yield from (((), f"{key!r} is a required property") for key in argument if key not in value)
            return
        rest = [key for key in value if key not in schema.get("properties", ())]
        if argument is False and rest:
            names = f"{', '.join(map(repr, sorted(rest)))} {'was' if len(rest) == 1 else 'were'}"
            yield (), f"Additional properties are not allowed ({names} unexpected)"
            return
        for key, part in argument.items() if name == "properties" else dict.fromkeys(rest, argument).items():
            if key in value:
                yield from inner(value[key], key, part, home)

    def in_all(value: Any, name: str, argument: Any, home: Any) -> Iterator[str]:
        if name == "type":
            kinds = [argument] if isinstance(argument, str) else argument
            if not any(_is(value, kind) for kind in kinds):
                yield f"{value!r} is not of type {', '.join(map(repr, kinds))}"
        elif name == "const" and not _equal(value, argument):
            yield f"{argument!r} was expected"
        elif name == "enum" and not any(_equal(value, choice) for choice in argument):
            yield f"{value!r} is not one of {argument!r}"
        elif name == "not" and fits(value, argument, home):
            yield f"{value!r} should not be valid under {argument!r}"
        elif name in ("anyOf", "oneOf"):
            first, *more = [part for part in argument if fits(value, part, home)] or [None]
            if first is None:
                yield f"{value!r} is not valid under any of the given schemas"
            elif more and name == "oneOf":
                yield f"{value!r} is valid under each of {', '.join(map(repr, [*more, first]))}"

    return check(value, schema, schema)


def _is(value: Any, kind: str) -> bool:
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (kind == "number" or isinstance(value, int) or value.is_integer())


def _equal(one: Any, two: Any) -> bool:
    return isinstance(one, bool) == isinstance(two, bool) and bool(one == two)
