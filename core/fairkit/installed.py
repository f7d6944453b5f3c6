"""The entry points of installed distributions, which are read again only where a folder of `sys.path` has changed."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Place = tuple[str, int, int, int]
"""A folder or archive of `sys.path`: its name, device, inode, and time of change in ns."""


def entry_points(group: str) -> list[EntryPoint]:
    """List the entry points of a group, in the order of `sys.path`.

    Reading all distributions takes about 20 ms; whatever installs or removes one changes the folder that holds it.
    """
    return list(_of(group, tuple(map(_place, sys.path))))


def described(group: str) -> list[tuple[EntryPoint, str, str]]:
    """List the entry points of a group, each with the name and the version of its distribution."""
    return list(_described(group, tuple(map(_place, sys.path))))


@lru_cache(maxsize=2)
def _described(group: str, places: tuple[Place, ...]) -> tuple[tuple[EntryPoint, str, str], ...]:
    entries = _of(group, places)
    # each name and version is read from a file: once for a distribution, not for each of its entry points
    owners = {id(entry.dist): entry.dist for entry in entries}
    known = {key: ("unknown", "0") if owner is None else (owner.name, owner.version) for key, owner in owners.items()}
    return tuple((entry, *known[id(entry.dist)]) for entry in entries)


@lru_cache(maxsize=8)
def _of(group: str, places: tuple[Place, ...]) -> tuple[EntryPoint, ...]:
    return tuple(_all(places).select(group=group))


@lru_cache(maxsize=2)
def _all(places: tuple[Place, ...]) -> Any:
    from importlib import metadata  # takes 50 ms to load

    return metadata.entry_points()


def _place(path: str) -> Place:
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return path, 0, 0, 0
    return path, state.st_dev, state.st_ino, state.st_mtime_ns
