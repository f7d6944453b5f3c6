"""Frozen dataclasses whose methods are written when they are first used.

`dataclasses` compiles six functions for each class, half a millisecond: of 600 classes a command uses few, and most of
these for an object or two, which are filled without a compiled ``__init__``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, asdict, field, fields, is_dataclass, replace
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


_FEW = 50
"""So many objects of a class cost less than compiling its ``__init__``."""


class _Later:
    """A method that takes its own place in the class when it is first looked at, ``__init__`` a few objects later."""

    def __init__(self, name: str, cls: Any) -> None:
        self.name, self.cls, self.left = name, cls, _FEW

    def __get__(self, instance: object, owner: type) -> Any:
        if self.name == "__init__" and instance is not None and self.left:
            self.left -= 1
            return partial(self._fill, instance, owner)
        return self._compiled().__get__(instance, owner)

    def _fill(self, instance: Any, owner: type, /, *args: Any, **given: Any) -> None:
        """Do what the compiled ``__init__`` does; wrong arguments are left to its messages."""
        every = fields(self.cls)
        names = [one.name for one in every if one.init and not one.kw_only]
        values = dict(zip(names, args, strict=False)) | given
        wrong = len(values) < len(args) + len(given) or not values.keys() <= {one.name for one in every if one.init}
        for one in every:
            if one.name not in values and (one.init or one.default is not one.default_factory):
                values[one.name] = one.default if one.default_factory is MISSING else one.default_factory()
                wrong |= values[one.name] is MISSING
        if wrong:
            self._compiled().__get__(instance, owner)(*args, **given)
            return
        for name, value in values.items():
            object.__setattr__(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()

    def _compiled(self) -> Any:
        body: dict[str, Any] = {one.name: one for one in fields(self.cls)}
        body |= {"__annotations__": {name: one.type for name, one in body.items()}}
        also = ("__module__", "__qualname__", "__doc__", "__post_init__")
        body |= {name: getattr(self.cls, name) for name in also if hasattr(self.cls, name)}
        model: Any = dataclasses.dataclass(**_NOTHING | _WRITES[self.name])(type(self.cls.__name__, (), body))
        setattr(self.cls, self.name, vars(model)[self.name])
        return vars(model)[self.name]


def _refuse(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_SHARED = {"__setattr__": _refuse, "__delattr__": _refuse}
_STATE = {"__getstate__": lambda self: [getattr(self, one.name) for one in fields(self)], "__setstate__": _set_state}
