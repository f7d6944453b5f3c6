"""Frozen dataclasses whose methods are written when they are first used.

`dataclasses` compiles six functions for each class, half a millisecond: of 600 classes a command uses few.
"""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Do what `dataclasses.dataclass` does; what is not frozen is left to it."""
        make = partial(_frozen if options.get("frozen") else dataclasses.dataclass, **options)
        return make if cls is None else make(cls)


__all__ = ["asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]

_NOTHING = {"init": False, "repr": False, "eq": False}
_WRITES = {
    "__init__": {"init": True, "frozen": True},
    "__repr__": {"repr": True},
    "__eq__": {"eq": True},
    "__hash__": {"unsafe_hash": True},
}
"""What `dataclasses` is asked for, to write one method."""


def _frozen(cls: type, *, frozen: bool, init: bool = True, repr: bool = True, eq: bool = True, **options: bool) -> Any:
    explicit = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    child = any(map(is_dataclass, cls.__mro__[1:]))  # then `dataclasses` asks that both are frozen or none
    made: Any = dataclasses.dataclass(**_NOTHING, frozen=child, **options)(cls)
    made.__dataclass_params__.frozen = frozen
    asked = {"__init__": init, "__repr__": repr, "__eq__": eq, "__hash__": eq}
    methods = _SHARED | (_STATE if options.get("slots") else {})
    for name, method in (methods | {name: _Later(name, made) for name in _WRITES if asked[name]}).items():
        if name not in explicit:
            setattr(made, name, method)
    return made


class _Later:
    """A method that takes its own place in the class when it is first looked at."""

    def __init__(self, name: str, cls: Any) -> None:
        self.name, self.cls = name, cls

    def __get__(self, instance: object, owner: type) -> Any:
        body: dict[str, Any] = {one.name: one for one in fields(self.cls)}
        body |= {"__annotations__": {name: one.type for name, one in body.items()}}
        also = ("__module__", "__qualname__", "__doc__", "__post_init__")
        body |= {name: getattr(self.cls, name) for name in also if hasattr(self.cls, name)}
        model: Any = dataclasses.dataclass(**_NOTHING | _WRITES[self.name])(type(self.cls.__name__, (), body))
        setattr(self.cls, self.name, vars(model)[self.name])
        return vars(model)[self.name].__get__(instance, owner)


def _refuse(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_SHARED = {"__setattr__": _refuse, "__delattr__": _refuse}
_STATE = {"__getstate__": lambda self: [getattr(self, one.name) for one in fields(self)], "__setstate__": _set_state}
