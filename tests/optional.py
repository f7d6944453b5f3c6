"""Libraries that may be absent, and that take seconds to import."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class LazyModule:
    """A module that is imported when it is first used; the test file is skipped where it is not installed."""

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for marks
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
