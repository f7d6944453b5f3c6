"""The entry points of installed distributions, which are read again only where a folder of `sys.path` has changed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

Place = tuple[str, int, int, int]  # a folder or archive of `sys.path`: name, device, inode, time of change in ns

LISTED: ContextVar[list[Any] | None] = ContextVar("listed", default=None)
"""The plugins of what is done inside `listed_once`, when somebody has looked for them."""


@contextmanager
def listed_once() -> Iterator[None]:
    """Look for plugins once for all that is done inside: what is installed does not change in a command or an audit."""
    before = LISTED.set([])
    try:
        yield
    finally:
        LISTED.reset(before)


class Entry(NamedTuple):
    """An entry point: what it is called, the ``module:name`` that it names, and whose it is."""

    name: str
    value: str
    distribution: str
    version: str


def entry_points(group: str) -> list[Entry]:
    """List the entry points of a group, in the order of `sys.path`.

    Reading all distributions takes a few ms; whatever installs or removes one changes the folder that holds it.
    """
    return list(_of(group, tuple(map(_place, sys.path))))


@lru_cache(maxsize=8)
def _of(group: str, places: tuple[Place, ...]) -> tuple[Entry, ...]:
    finders = [finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_distributions")]
    # a folder that may not be read is none; `Path` would raise
    if finders or any(str(path).endswith(".egg") or os.path.isfile(path) for path, *_ in places):  # noqa: PTH113
        from importlib import metadata  # takes 50 ms, and reads archives, too

        entries = metadata.entry_points(group=group)
        return tuple(Entry(e.name, e.value, e.dist.name, e.dist.version) for e in entries if e.dist is not None)
    return tuple(_read(group, places))


def _read(group: str, places: tuple[Place, ...]) -> Iterator[Entry]:
    for info, text in _texts(places).items():
        if f"[{group}]" not in text:
            continue
        head = (_text(f"{info}/METADATA") or _text(f"{info}/PKG-INFO")).partition("\n\n")[0]
        facts = dict(re.findall(r"^(Name|Version): *(.*?)\s*$", head, re.MULTILINE))
        _, *parts = re.split(r"^\s*\[(.*)\]\s*$", text, flags=re.MULTILINE)  # names of sections, each with its lines
        for line in dict(zip(parts[::2], parts[1::2], strict=True)).get(group, "").splitlines():
            name, equals, value = map(str.strip, line.partition("="))
            if equals and not name.startswith("#"):
                yield Entry(name, value, facts.get("Name", "unknown"), facts.get("Version", "0"))


@lru_cache(maxsize=2)
def _texts(places: tuple[Place, ...]) -> dict[str, str]:
    """Return the entry points of every distribution by the folder of its metadata; of a name the first counts."""
    infos: dict[str, str] = {}
    for path, *_ in places:
        with suppress(OSError):  # no such folder
            for one in os.scandir(path or "."):
                if one.name.lower().endswith((".dist-info", ".egg-info")):
                    name = re.sub(r"[-_.]+", "_", one.name.rpartition(".")[0].partition("-")[0])
                    infos.setdefault(name.lower(), one.path)
    return {info: _text(f"{info}/entry_points.txt") for info in infos.values()}


def _text(path: str) -> str:
    # there may be none; `Path` would double the time of hundreds
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read()
    return ""


def _place(path: str) -> Place:
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return path, 0, 0, 0
    return path, state.st_dev, state.st_ino, state.st_mtime_ns
