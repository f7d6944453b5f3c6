"""Which source an address is for: whoever finds plugins says so here, and nothing here knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fairkit.sources.address import scheme_of

if TYPE_CHECKING:
    from fairkit.sources.interface import DataSource

Finder = Callable[[str], "type[DataSource] | None"]
"""Returns the source of a scheme; raises `PluginError` where several have it."""

_finders: list[Finder] = []


def add_finder(finder: Finder) -> None:
    """Have a function asked for the sources of schemes."""
    _finders.append(finder)


def find_source(scheme: str) -> type[DataSource] | None:
    """Return the source that has a scheme; None where there is none.

    Raises
    ------
    PluginError
        Several plugins bring one.
    """
    return next((found for finder in _finders if (found := finder(scheme)) is not None), None)


def is_address(text: str) -> bool:
    """Tell whether a text names a table by an address: it has ``://``, or begins with the scheme of a source.

    A file that is there is a path, whatever its name.
    """
    scheme = scheme_of(text)
    if scheme is None:
        return False
    if "://" in text:
        return True
    from pathlib import Path

    return find_source(scheme) is not None and not Path(text).exists()
