"""Which source an address is for: whoever finds plugins says so here, and nothing here knows them."""

from __future__ import annotations

import os.path
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairkit.errors import DataError
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
    """Return the source that has a scheme; None where there is none."""
    return next((found for finder in _finders if (found := finder(scheme)) is not None), None)


def source_at(text: str) -> type[DataSource] | None:
    """Return the source of an address; None where a text names a file.

    An address has ``://``, or begins with the scheme of a source; a file that is there is a path, whatever its name.
    """
    scheme = scheme_of(text)
    if scheme is None or _is_file(text):
        return None
    found = find_source(scheme)
    if found is None and "://" in text:
        raise DataError(
            f"no source is installed for addresses that begin with {scheme}: -- see `fairkit plugins`; for a file on "
            "this machine give its path"
        )
    return found


def is_address(text: str) -> bool:
    """Tell whether a text names a table by an address (see `source_at`)."""
    scheme = scheme_of(text)
    return scheme is not None and not _is_file(text) and ("://" in text or find_source(scheme) is not None)


def _is_file(text: str) -> bool:
    """Tell whether a text that could be an address is a path; one that is too long for a path is none."""
    return "://" not in text and os.path.exists(text)  # noqa: PTH110 -- the path's own raises for a long query
