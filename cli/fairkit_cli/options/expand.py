"""Let a command take its options in groups, with the limits and the list of plugins that go with them.

What is rarely set has no option: a field that is declared with `Rare` is given as ``--set TABLE.KEY=VALUE``. Every
field of a group can be given so, whether it has an option or not.
"""

from __future__ import annotations

import copy
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fairkit.errors import ParameterError, did_you_mean
from fairkit.installed import listed_once
from fairkit.support.lazy_dataclass import dataclass, fields, is_dataclass
from fairkit_cli.options.data import Rare, SandboxOptions

ASSIGNMENTS = "assignments"
"""The parameter of ``--set`` in every command."""


@dataclass(frozen=True, slots=True)
class Field:
    """What ``--set TABLE.KEY=VALUE`` gives."""

    name: str  # of the command's parameter
    type: Any
    rare: Rare | None  # None where it has an option


def expanded_but(rare: Mapping[str, str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return `expanded` for a command in which these fields have no option, but the key that is named."""
    return lambda command: expanded(command, rare)


def expanded(command: Callable[..., Any], rare: Mapping[str, str] = types.MappingProxyType({})) -> Callable[..., Any]:
    """Let a command take `DataOptions`, `AuditOptions`, `EngineOptions` as parameters: their fields become options.

    typer reads a command's options from its signature; this writes the fields into it, in place of the parameter.
    """
    signature = inspect.signature(command, eval_str=True)
    gathered: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }
    flat: list[inspect.Parameter] = []
    fields_by_name: dict[str, Field] = {}
    for name, parameter in signature.parameters.items():
        hints = {name: parameter.annotation}
        if name in gathered:
            every = get_type_hints(gathered[name], include_extras=True)
            hints = {field.name: every[field.name] for field in fields(gathered[name])}
        keys = getattr(gathered.get(name), "KEYS", {})
        for each, hint in hints.items():
            mark = _mark(each, hint, rare)
            key = keys.get(each) if mark is None else mark.key
            if key is not None:
                fields_by_name[key] = Field(each, _plain(hint), mark)
            if mark is None:
                default = None if name in gathered else parameter.default
                kind = inspect.Parameter.KEYWORD_ONLY
                flat.append(inspect.Parameter(each, kind, default=default, annotation=hint))
    flat = [_with_keys(parameter, fields_by_name) if parameter.name == ASSIGNMENTS else parameter for parameter in flat]
    hidden = {
        field.name: _default(signature, field.name) for field in fields_by_name.values() if field.rare is not None
    }

    def run(**typed: Any) -> Any:
        typed = hidden | typed
        _assign(typed, fields_by_name)
        for name, cls in gathered.items():
            typed[name] = cls(**{field.name: typed.pop(field.name) for field in fields(cls)})
        with _limited(typed), listed_once():
            return command(**typed)

    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    run.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.keys = {key: field.rare for key, field in fields_by_name.items() if field.rare is not None}  # type: ignore[attr-defined]
    return run


def _mark(name: str, hint: Any, rare: Mapping[str, str]) -> Rare | None:
    """Return how a field is given that has no option; None where it has one."""
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    mark = next((extra for extra in extras if isinstance(extra, Rare)), None)
    if mark is None and name in rare:
        shown = next(extra for extra in extras if hasattr(extra, "help"))
        return Rare(rare[name], str(shown.help))
    return mark


def _plain(hint: Any) -> Any:
    """Return the type of a value: of ``str | None`` it is ``str``."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(hint) in (typing.Union, types.UnionType):
        return next(argument for argument in get_args(hint) if argument is not type(None))
    return hint


def _default(signature: inspect.Signature, name: str) -> Any:
    return signature.parameters[name].default if name in signature.parameters else None


def _with_keys(parameter: inspect.Parameter, known: Mapping[str, Field]) -> inspect.Parameter:
    """Name the keys without an option in the help of ``--set``."""
    keys = [key for key, field in known.items() if field.rare is not None]
    if not keys:
        return parameter
    option = copy.copy(get_args(parameter.annotation)[1])
    option.help = f"{option.help} Also: {', '.join(keys)}."
    return parameter.replace(annotation=Annotated[list[str] | None, option])


def _assign(typed: dict[str, Any], known: Mapping[str, Field]) -> None:
    """Give fields what ``--set`` says; what is left of it are parameters of plugins."""
    from fairkit.parameters import split_assignment

    tables = {key.partition(".")[0] for key in known}
    left: list[str] = []
    for text in typed.get(ASSIGNMENTS) or ():
        key, value = split_assignment(text)
        table, _, inner = key.partition(".")
        field = known.get(key)
        if field is None and table in tables and f"{table}.*" in known:
            field, value = known[f"{table}.*"], f"{inner}={value}"
        if field is None:
            if table in tables and "." in key:
                hint = did_you_mean(key, known, what="keys")
                raise ParameterError(f"--set {text!r}: this command has no key {key!r}. {hint}")
            left.append(text)
            continue
        several = get_origin(field.type) is list
        if not several and typed.get(field.name) not in (None, False):
            raise ParameterError(f"{key} is given twice: leave --set {text!r} or the option out")
        read = _read(field.type, value, key)
        typed[field.name] = [*(typed[field.name] or ()), *read] if several else read
    if ASSIGNMENTS in typed:
        typed[ASSIGNMENTS] = left or None


def _read(kind: Any, value: str, key: str) -> Any:
    """Read a value of an option's type."""
    try:
        if get_origin(kind) is list:
            return [value]
        if kind is bool:
            return {"true": True, "false": False}[value.lower()]
        return kind(value) if kind in (int, float, Path) else value
    except (KeyError, ValueError):
        takes = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ParameterError(f"--set {key}={value} is not understood; it takes {takes}") from None


@contextmanager
def _limited(typed: Mapping[str, Any]) -> Iterator[None]:
    """Let the models of a command that takes `SandboxOptions` have these limits."""
    options = next((value for value in typed.values() if isinstance(value, SandboxOptions)), None)
    if options is None:
        yield
        return
    from fairkit_cli.config import load_config
    from fairkit_onnx.sandbox.confine import using

    with using(options.limits(load_config(typed.get("config")))):
        yield
