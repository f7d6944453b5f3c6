"""Parameters of methods: declared as frozen dataclasses, and read from text, TOML or Python values."""

from __future__ import annotations

import collections.abc
import dataclasses
import operator
import types
import typing
import warnings
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from fairkit.errors import ParameterError, RenamedWarning, did_you_mean
from fairkit.support.escaping import listed_names

__all__ = [
    "ParameterInfo", "current_names", "describe_parameters", "parameter", "parameters_to_dict", "parse_parameters",
    "split_assignment",
]  # fmt: skip


# Parameters of plugins: declared once as a frozen dataclass, read from `key=value` text, TOML or Python.


T = TypeVar("T")


class ParameterInfo(NamedTuple):
    """One parameter, described for people.

    `name`: what is written before the ``=``; `type`: what is understood after it, such as ``"float, 0 to 1"`` or
    ``"last | best | mixture"``; `default`: the default as it would be written on the command line; None where the
    parameter must be given; `help`: one sentence.
    """

    name: str
    type: str
    default: str | None
    help: str


def parameter(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    former: Mapping[str, float] | None = None,
    former_values: Mapping[str, str] | None = None,
) -> Any:
    """Declare one field of a parameters dataclass, with what people and checks need to know.

    Parameters
    ----------
    default
        The default; leave it out where the parameter must be given. A mapping becomes a fresh copy.
    help
        One sentence for ``fairkit plugins show`` and the docs.
    minimum, maximum
        Bounds that the value, or each value of a list, may reach.
    above, below
        Bounds that it may not reach.
    former
        Names that the parameter had before, each with the factor that turns a number given under it into one of
        today: 1 where only the name has changed. They work until the next minor version, with a warning.
    former_values
        Texts that stood for today's values before: ``{"fnr": "equal_opportunity"}``.

    Returns
    -------
    Any
        A `dataclasses.field`.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    ... class Parameters:
    ...     strength: float = parameter(1.0, help="How much to repair; 0 changes nothing.", minimum=0)
    >>> parse_parameters(Parameters, {"strength": "0.5"}, owner="my-plugin")
    Parameters(strength=0.5)
    """
    metadata = {
        "help": help,
        "minimum": minimum,
        "maximum": maximum,
        "above": above,
        "below": below,
        "former": dict(former or {}),
        "former_values": dict(former_values or {}),
    }
    if isinstance(default, Mapping):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def parse_parameters(cls: type[T], values: Mapping[str, Any], *, owner: str) -> T:
    """Make an instance of a parameters dataclass from text or typed values, checked.

    Parameters
    ----------
    cls
        A frozen dataclass whose fields are int, float, bool, str, ``Literal``, tuples or lists of those,
        unions of those with None, or ``Mapping[str, ...]``; the latter is filled by dotted keys too
        (``lightgbm.max_bin=63``).
    values
        Text as on the command line (``"a,b"`` is a list, ``"none"`` is None) or values as from TOML and
        Python (a list where a tuple is declared, an int where a float is, one item where a list is).
    owner
        The plugin's name, for messages.

    Returns
    -------
    T
        The instance.

    Raises
    ------
    ParameterError
        A key is unknown, a value is of the wrong type or out of range, or a needed one is missing.
    """
    fields = _fields(cls)
    hints = typing.get_type_hints(cls)
    parsed: dict[str, Any] = {}
    for key, value in current_names(cls, values, owner=owner).items():
        name, dot, inner = key.partition(".")
        if name not in fields:
            hint = did_you_mean(key, fields, what="parameters")
            raise ParameterError(f"{owner} has no parameter {key!r}. {hint}")
        if dot:
            if not is_mapping(hints[name]):
                raise ParameterError(f"{owner}.{name} has no parts, so {key!r} means nothing; write {name}=VALUE")
            parsed.setdefault(name, {})[inner] = guess(value)
        else:
            today = _current_value(fields[name], value, owner=owner)
            converted = _converted(hints[name], today, owner=owner, name=name)
            parsed[name] = {**parsed.get(name, {}), **converted} if is_mapping(hints[name]) else converted
            _check_range(fields[name], parsed[name], owner=owner)
    missing = [name for name, field in fields.items() if _required(field) and name not in parsed]
    if missing:
        raise ParameterError(f"{owner} needs {' and '.join(missing)}: give the parameter `{missing[0]}=VALUE`")
    return cls(**parsed)


def current_names(cls: type[Any], values: Mapping[str, Any], *, owner: str) -> dict[str, Any]:
    """Replace former names of parameters by today's, with a `RenamedWarning` for each.

    `cls`: A parameters dataclass; `values`: values by name; names that are unknown stay; `owner`: the plugin's name,
    for messages; returns the values by today's names, numbers on today's scale.
    """
    fields = _fields(cls)
    renamed = {
        old: (name, factor)
        for name, field in fields.items()
        for old, factor in field.metadata.get("former", {}).items()
    }
    result: dict[str, Any] = {}
    for key, value in values.items():
        old, dot, inner = key.partition(".")
        if old in fields or old not in renamed:
            result[key] = value
            continue
        name, factor = renamed[old]
        if name in values:
            raise ParameterError(f"{owner}: {old} is the former name of {name}; give {name} only")
        scaled = "" if factor == 1 else f" ({name} = {factor:g} * {old})"
        _renamed(f"{owner}.{old} is now called {owner}.{name}{scaled}; the old name works until the next version")
        result[name + dot + inner] = _scaled(value, factor)
    return result


def describe_parameters(cls: type[Any]) -> list[ParameterInfo]:
    """Describe every parameter of a parameters dataclass, in the order of declaration.

    `cls`: the dataclass; returns name, type in words with its range, default as text, and help.
    """
    hints = typing.get_type_hints(cls)
    return [
        ParameterInfo(
            name,
            type_text(hints[name]) + _range_text(field.metadata),
            None if _required(field) else _default_text(field),
            str(field.metadata.get("help", "")),
        )
        for name, field in _fields(cls).items()
    ]


def parameters_to_dict(parameters: Any) -> dict[str, Any]:
    """Return a parameters instance as plain JSON values: tuples become lists."""
    return {name: _plain(getattr(parameters, name)) for name in _fields(type(parameters))}


def split_assignment(text: str) -> tuple[str, str]:
    """Split ``KEY=VALUE`` at its first ``=``."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ParameterError(f"{text!r} is not of the form KEY=VALUE, such as epsilon=0.1")
    return key.strip(), value.strip()


def _fields(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def _scaled(value: Any, factor: float) -> Any:
    if factor == 1 or value is None:
        return value
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    try:
        return [float(item) * factor for item in value] if isinstance(value, (list, tuple)) else value * factor
    except (TypeError, ValueError):
        return value  # what is no number is refused under today's name


def _current_value(field: dataclasses.Field[Any], value: Any, *, owner: str) -> Any:
    """Replace former texts of a value, also in lists, with a `RenamedWarning` for each."""
    replacements = field.metadata.get("former_values", {})
    if not replacements:
        return value
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        return value
    items = [item.strip() if isinstance(item, str) else item for item in items]
    for old in items:
        if isinstance(old, str) and old in replacements:
            new = replacements[old]
            _renamed(
                f"{owner}: {field.name}={old} is now {field.name}={new}; the old value works until the next version"
            )
    today = [replacements.get(item, item) if isinstance(item, str) else item for item in items]
    return ",".join(today) if isinstance(value, str) else today


def _renamed(text: str) -> None:
    warnings.warn(text, RenamedWarning, stacklevel=4)


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _converted(hint: Any, value: Any, *, owner: str, name: str) -> Any:
    try:
        return convert(hint, value)
    except Unreadable as error:
        if get_origin(hint) is Literal and isinstance(value, str):
            hint_text = did_you_mean(value, [str(choice) for choice in get_args(hint)], what="choices")
            raise ParameterError(f"{owner}: {name} cannot be {value!r}. {hint_text}") from error
        raise ParameterError(f"{owner}: {name} must be {type_text(hint)}, not {value!r}") from error


def _check_range(field: dataclasses.Field[Any], value: Any, *, owner: str) -> None:
    bounds = [(bound, holds) for name, (_, holds) in _BOUNDS.items() if (bound := field.metadata.get(name)) is not None]
    for number in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        if not all(holds(number, bound) for bound, holds in bounds):
            limits = _range_text(field.metadata).removeprefix(", ")
            raise ParameterError(f"{owner}: {field.name} must be {limits}, not {number}")


_BOUNDS = {
    "minimum": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "maximum": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def _range_text(metadata: Mapping[str, Any]) -> str:
    low, high = metadata.get("minimum"), metadata.get("maximum")
    if low is not None and high is not None:
        return f", {low:g} to {high:g}"
    parts = [f"{text} {metadata[name]:g}" for name, (text, _) in _BOUNDS.items() if metadata.get(name) is not None]
    return ", " + " and ".join(parts) if parts else ""


def _default_text(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


# Reading a parameter's value as its type, from text, TOML or Python; saying what a type takes.


_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NONE = {"none", "null", ""}


class Unreadable(Exception):  # noqa: N818 - whoever knows the parameter's name catches it and says it
    """The value does not fit the type."""


def convert(hint: Any, value: Any) -> Any:
    """Read a value as a type."""
    if hint is Any or (isinstance(hint, type) and hint not in (int, float) and isinstance(value, hint)):
        return value
    if get_origin(hint) is Literal:
        return _convert_literal(hint, value)
    if _is_union(hint):
        return _convert_union(hint, value)
    if is_mapping(hint) and isinstance(value, Mapping):
        return dict(value)
    if _is_sequence(hint):
        return _convert_sequence(hint, value)
    return _convert_plain(hint, value)


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
    converted = [convert(hint, item) for hint, item in zip(hints, items, strict=True)]
    return converted if hint is list or get_origin(hint) is list else tuple(converted)


def _convert_plain(kind: Any, value: Any) -> Any:
    if kind is bool and isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    if kind not in (int, float) or isinstance(value, bool):
        raise Unreadable
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unreadable from error
    # NaN is not itself, and a whole number is the value that it was read from
    if number != number or (kind is int and not isinstance(value, str) and number != value):  # noqa: PLR0124
        raise Unreadable
    return number


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
        text = " or ".join("none" if argument is type(None) else type_text(argument) for argument in arguments)
    elif is_mapping(hint):
        text = "KEY=VALUE pairs"
    elif _is_sequence(hint):
        fixed = get_origin(hint) is tuple and Ellipsis not in get_args(hint)
        inner = [type_text(argument) for argument in arguments]
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
