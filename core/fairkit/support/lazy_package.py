"""Packages whose names are loaded when they are first used, so that importing the package stays light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any


def imported(target: str) -> Any:
    """Return the object that ``module:name`` names, as entry points do; the module where no name follows."""
    module, _, name = target.partition("[")[0].partition(":")
    return reduce(getattr, filter(None, name.strip().split(".")), import_module(module.strip()))


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` for names that live in its modules."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    return load, lambda: sorted(homes)
