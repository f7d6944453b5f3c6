"""One check of what the public functions are called with: an object where a name belongs is refused in words."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from fairkit.errors import ParameterError

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN: Mapping[str, tuple[Any, str]] = {
    "str": (str, "a name, as text"),
    "float": (Real, "a number"),
    "int": (Integral, "a whole number"),
    "bool": ((bool,), "True or False"),
    "Path": ((os.PathLike,), "a path"),
    "Mapping": (Mapping, "a mapping, {name: value}"),
    "None": (type(None), ""),
}
_OURS = {
    "Dataset": "what fairkit.load_data gives",
    "ModelOptions": "fairkit.ModelOptions(...)",
    "AuditSettings": "fairkit.AuditSettings(...)",
    "Sweep": "fairkit.Sweep(...)",
    "Choice": "fairkit.Choice(...)",
    "Mitigator": "a method's name or class",
}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check arguments by the annotations of a public function; one text where names belong is a list of one.

    Annotations with a type that is not known here take anything: what it is for looks at it.
    """
    signature = inspect.signature(function)
    kinds = {
        name: _parts(str(parameter.annotation))
        for name, parameter in signature.parameters.items()
        if parameter.kind != parameter.VAR_KEYWORD
    }

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        bound = signature.bind(*arguments, **named)
        for name, kind in kinds.items():
            value = bound.arguments.get(name)
            if value is None or kind == ["Dataset"]:  # `as_dataset` says what roles are
                continue
            if isinstance(value, str) and "Sequence[str]" in kind and "str" not in kind:
                bound.arguments[name] = (value,)
            elif not any(_takes(one, value) for one in kind):
                raise ParameterError(_refusal(name, value, kind))
        return function(*bound.args, **bound.kwargs)

    return call


def named_class(value: Any) -> str:
    """Return what a value is, in words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def _parts(annotation: str) -> list[str]:
    """Split ``A | B[C | D]`` at the outer bars."""
    return [part.strip() for part in re.split(r"\|(?![^\[]*\])", annotation)]


def _takes(kind: str, value: Any) -> bool:
    name, _, inner = kind.partition("[")
    inner = inner.removesuffix("]")
    if name == "Sequence":
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            return False
        return all(any(_takes(part, each) for part in _parts(inner)) for each in value)
    if name == "type":
        return isinstance(value, type) and inner in {cls.__name__ for cls in value.__mro__}
    if name == "Mapping" and inner.startswith("str, Mapping") and isinstance(value, Mapping):
        return all(isinstance(item, Mapping) for item in value.values())
    if name in _PLAIN:
        return isinstance(value, _PLAIN[name][0]) and (name not in ("float", "int") or not isinstance(value, bool))
    return name not in _OURS or name in {cls.__name__ for cls in type(value).__mro__}


def _words(kind: str) -> str:
    name, _, inner = kind.partition("[")
    if name == "Sequence":
        each = _words(_parts(inner[:-1])[0])
        return "names, as a list of texts" if inner == "str]" else f"a list of {each}" if each else "a list"
    return "" if name == "type" else _PLAIN.get(name, (None, _OURS.get(name, "")))[1]


def _refusal(name: str, value: Any, kinds: list[str]) -> str:
    wanted = " or ".join(dict.fromkeys(filter(None, map(_words, kinds))))
    said = f"`{name}` is {named_class(value)}"
    wrong = value
    if isinstance(value, list | tuple) and "Sequence[str]" in kinds:
        wrong = next(item for item in value if not isinstance(item, str))
        said = f"`{name}` holds {named_class(wrong)}"
    stated = getattr(wrong, "name", None)
    hint = f"; write its name, {stated!r}" if isinstance(wrong, type) and isinstance(stated, str) else ""
    if hasattr(value, "shape") and "str" in kinds:
        hint = "; arrays stand beside a matrix: `y`, `sensitive_features`, `sample_weight`"
    return f"{said}, and takes {wanted}{hint}"
