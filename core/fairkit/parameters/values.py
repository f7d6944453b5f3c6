"""Reading a parameter's value as its type, from text, TOML or Python; saying what a type takes."""

from __future__ import annotations

import collections.abc
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from fairkit.support.names import listed_names

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NONE = {"none", "null", ""}


class Unreadable(Exception):  # noqa: N818 - whoever knows the parameter's name catches it and says it
    """The value does not fit the type."""


def convert(hint: Any, value: Any) -> Any:
    """Read a value as a type."""
    if hint is Any:
        return value
    for applies, read in _CONVERTERS:
        if applies(hint):
            return read(hint, value)
    simple = {bool: _convert_bool, int: _convert_int, float: _convert_float, str: _convert_str}.get(hint)
    if simple is not None:
        return simple(value)
    if isinstance(hint, type) and isinstance(value, hint):
        return value
    raise Unreadable


def _convert_mapping(_: Any, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Unreadable
    return dict(value)


def _convert_literal(hint: Any, value: Any) -> Any:
    for choice in get_args(hint):
        if value == choice or (isinstance(value, str) and value == str(choice)):
            return choice
    raise Unreadable


def _convert_union(hint: Any, value: Any) -> Any:
    options = get_args(hint)
    if type(None) in options and (value is None or (isinstance(value, str) and value.lower() in _NONE)):
        return None
    for option in options:
        if option is type(None):
            continue
        try:
            return convert(option, value)
        except Unreadable:
            continue
    raise Unreadable


def _convert_sequence(hint: Any, value: Any) -> Any:
    inner = [argument for argument in get_args(hint) if argument is not Ellipsis]
    if isinstance(value, str):
        # a text with a comma in it stands in double quotes
        items: list[Any] = [*listed_names(value)]
    elif isinstance(value, (list, tuple)):
        items = list(value)
    else:
        items = [value]
    fixed = get_origin(hint) is tuple and Ellipsis not in get_args(hint) and bool(inner)
    if fixed and len(items) != len(inner):
        raise Unreadable
    hints = inner if fixed else [inner[0] if inner else Any] * len(items)
    converted = [convert(one, item) for one, item in zip(hints, items, strict=True)]
    return converted if hint is list or get_origin(hint) is list else tuple(converted)


def _convert_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise Unreadable


def _convert_int(value: Any) -> int:
    if isinstance(value, bool):
        raise Unreadable
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unreadable from error
    if not isinstance(value, str) and number != value:
        raise Unreadable
    return number


def _convert_float(value: Any) -> float:
    if isinstance(value, bool):
        raise Unreadable
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unreadable from error
    if math.isnan(number):
        raise Unreadable
    return number


def _convert_str(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable
    return value


def guess(value: Any) -> Any:
    """Read text whose type nobody declared: int, float, true or false, else the text itself."""
    if not isinstance(value, str):
        return value
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(value.lower(), value)


def type_text(hint: Any) -> str:
    """Name the values of a type: ``number``, ``a | b``, ``list of text``."""
    simple = {Any: "any value", bool: "true or false", int: "integer", float: "number", str: "text"}
    arguments = [argument for argument in get_args(hint) if argument is not Ellipsis]
    if get_origin(hint) is Literal:
        text = " | ".join(str(choice) for choice in arguments)
    elif _is_union(hint):
        text = " or ".join("none" if one is type(None) else type_text(one) for one in arguments)
    elif is_mapping(hint):
        text = "KEY=VALUE pairs"
    elif _is_sequence(hint):
        fixed = get_origin(hint) is tuple and Ellipsis not in get_args(hint)
        inner = [type_text(one) for one in arguments]
        text = ",".join(inner) if fixed else "list of " + (inner[0] if inner else "values")
    else:
        text = simple.get(hint, getattr(hint, "__name__", str(hint)))
    return text


def is_mapping(hint: Any) -> bool:
    """Say whether the type is one of KEY=VALUE pairs."""
    return hint is dict or get_origin(hint) in (dict, collections.abc.Mapping)


def _is_sequence(hint: Any) -> bool:
    return hint in (tuple, list) or get_origin(hint) in (tuple, list, collections.abc.Sequence)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (typing.Union, types.UnionType)


_CONVERTERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], Any]], ...] = (
    (lambda hint: get_origin(hint) is Literal, _convert_literal),
    (_is_union, _convert_union),
    (is_mapping, _convert_mapping),
    (_is_sequence, _convert_sequence),
)
