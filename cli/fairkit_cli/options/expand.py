"""Let a command take its options in groups, with the limits and the list of plugins that go with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from fairkit_cli.options.running import SandboxOptions


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take `DataOptions`, `AuditOptions`, `EngineOptions` as parameters: their fields become options.

    typer reads a command's options from its signature; this writes the fields into it, in place of the parameter.
    """
    signature = inspect.signature(command, eval_str=True)
    gathered: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }
    shown: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in gathered:
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(gathered[name], include_extras=True)
        shown += [
            inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
            for field, hint in hints.items()
        ]

    def run(**typed: Any) -> Any:
        for name, cls in gathered.items():
            typed[name] = cls(**{field.name: typed.pop(field.name) for field in fields(cls)})
        from fairkit.plugins import listed_once

        with _limited(typed), listed_once():
            return command(**typed)

    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    run.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


@contextmanager
def _limited(typed: Mapping[str, Any]) -> Iterator[None]:
    """Let the models of a command that takes `SandboxOptions` have these limits."""
    options = next((value for value in typed.values() if isinstance(value, SandboxOptions)), None)
    if options is None:
        yield
        return
    from fairkit_cli.config import load_config
    from fairkit_onnx.sandbox.limits import using

    with using(options.limits(load_config(typed.get("config")))):
        yield
