"""Other settings for a watch: a new watch in its folder, which names the former one and counts from the next day on.

A rule that is chosen after looking at the counts would not keep its promise on them. So what was counted stays with the
former settings, in a folder beside, with its statements and alarms; the new rules speak about later decisions only.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.errors import ParameterError
from fairkit.support.files import FileError, explain, sync_folder
from fairkit_watch.beginning import begin
from fairkit_watch.folder import OpenWatch
from fairkit_watch.log import StateError
from fairkit_watch.records import LOG

if TYPE_CHECKING:
    from fairkit_watch.settings import WatchSettings

NEXT = ".next"
"""The new watch, until it is in its place."""


def change(folder: Path, settings: WatchSettings) -> Path:
    """Let a watch go on with other settings; return the folder in which the former one is now."""
    recover(folder)
    with OpenWatch.open(folder) as watch:
        if replace(settings, follows=watch.settings.follows, since=watch.settings.since) == watch.settings:
            raise ParameterError("nothing would change: the watch has these settings")
        state = watch.look()
        log = (folder / LOG).read_bytes()
        previous_folder = _free(folder)
        settings = replace(
            settings,
            since=_after(state.until) or settings.since,
            follows={
                "settings": watch.settings.digest,
                "log": hashlib.sha256(log).hexdigest(),
                "folder": previous_folder.name,
                "until": state.until,
                "rows": state.rows,
                "alarms": len(state.alarms),
                "confidence": watch.settings.confidence,
            },
        )
        begin(folder / NEXT, settings)
    if (folder / LOG).read_bytes() != log:
        raise StateError(f"another process wrote to the watch {str(folder)!r}; nothing was changed, try again")
    try:
        folder.replace(previous_folder)
        (previous_folder / NEXT).replace(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise FileError(explain(error, "cannot change", folder)) from error
    return previous_folder


def recover(folder: Path) -> None:
    """Finish a change that was interrupted; nothing is lost, whenever that was."""
    if folder.exists():
        unfinished = folder / NEXT
        if unfinished.exists():  # interrupted before anything moved: the new watch has counted nothing
            unfinished.replace(folder.parent / f".fairkit-watch-{secrets.token_hex(8)}")
        return
    waiting = [one for one in folder.parent.glob(f"{folder.name}.before-*") if (one / NEXT).exists()]
    if len(waiting) > 1:
        raise StateError(f"{len(waiting)} folders beside {str(folder)!r} hold an unfinished change; restore a backup")
    for one in waiting:
        (one / NEXT).replace(folder)


def _after(day: str | None) -> str | None:
    if day is None:
        return None
    return (datetime.date.fromisoformat(day) + datetime.timedelta(days=1)).isoformat()


def _free(folder: Path) -> Path:
    """Return the first free name for the former watch."""
    number = 1
    while (folder.parent / f"{folder.name}.before-{number}").exists():
        number += 1
    return folder.parent / f"{folder.name}.before-{number}"
