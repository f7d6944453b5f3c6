"""What the scikit-learn faces of methods share: explicit keyword arguments, pickles, parameters, files."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.parameters.declare import current_names, parse_parameters
from fairkit.support.files import write_atomic
from fairkit_onnx.write.export import serialised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx

    from fairkit.mitigators import Mitigator


STEP_CHECKS = ("_validate_steps", "_validate_transformers")
"""Where scikit-learn asks whether a step before the last is a transformer."""


class Face:
    """An estimator made from a method's class; `restores` makes its class again when it is unpickled."""

    _method: type[Any]
    restores: ClassVar[Any]
    """Class method or static method: from a method to its estimator's class."""

    def __getattr__(self, name: str) -> Any:
        # scikit-learn would say that this is no transformer, not what to write; everybody else is told that the
        # attribute is missing, so that no tool takes the estimator for a transformer
        if name == "transform" and sys._getframe(1).f_code.co_name in STEP_CHECKS:
            raise TypeError(
                f"{self._method.name!r} trains a model of its own and gives no table to a next step. Make it the last "
                f"step, with the learner inside: Pipeline([..., ('model', fairkit.mitigator({self._method.name!r})"
                "(...))]), and fit with model__sensitive_features=... (a method that trains takes learner=...)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> Any:
        return _restore, (type(self).restores, self._method, dict(self.__dict__))

    def _made(self) -> Any:
        """Return the method with the parameters as they were set; a mapping that was left out is left out."""
        fields = dataclasses.fields(self._method.Parameters)
        given = {field.name: getattr(self, field.name) for field in fields}
        factory = {field.name for field in fields if field.default_factory is not dataclasses.MISSING}
        values = {name: value for name, value in given.items() if value is not None or name not in factory}
        return self._method(parse_parameters(self._method.Parameters, values, owner=self._method.name))


def face(
    method: type[Mitigator], bases: tuple[Any, ...], *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> type[Any]:
    """Make an estimator's class."""
    own = {field.name: _default(field) for field in dataclasses.fields(method.Parameters)}
    body = {
        "__init__": _initialiser(method, {**before, **own, **after}),
        "__doc__": method.__doc__,
        "__module__": method.__module__,
        "_method": method,
    }
    # the class takes the method's place by its name only: pickles find it through `_restore`
    return type(f"{method.__name__}Estimator", bases, body)


def written(proto: onnx.ModelProto, path: str | Path | None) -> bytes:
    """Return a model's bytes, written to a path if one is given."""
    content = serialised(proto)
    if path is not None:
        write_atomic(Path(path), content)
    return content


def _initialiser(method: type[Mitigator], defaults: Mapping[str, Any]) -> Any:
    """Make an ``__init__`` with explicit keyword arguments: scikit-learn reads its signature."""

    def __init__(self: Any, **values: Any) -> None:  # noqa: N807 - it becomes a method
        values = current_names(method.Parameters, values, owner=method.name)
        for name, default in defaults.items():
            setattr(self, name, values.pop(name, default))
        if values:
            raise TypeError(f"{type(self).__name__} has no parameter {next(iter(values))!r}")

    kinds = inspect.Parameter
    own = [kinds("self", kinds.POSITIONAL_OR_KEYWORD)]
    own += [kinds(name, kinds.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    __init__.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return __init__


def _default(field: dataclasses.Field[Any]) -> Any:
    # mappings: scikit-learn wants defaults that cannot be changed
    return None if field.default is dataclasses.MISSING else field.default


def _restore(make: Callable[[Any], type[Any]], method: type[Mitigator], state: dict[str, Any]) -> Any:
    """Unpickle: make the class again, then fill the instance."""
    estimator = make(method)()
    estimator.__dict__.update(state)
    return estimator
