"""Where alarms go: standard output, a file, and the registry's alias."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError, ParameterError
from fairkit.support.files import FileError, check_writable, explain, sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairkit_cli.options import AlarmOptions
    from fairkit_watch.alarms import Alarm
    from fairkit_watch.watch import Watch

LEVELS = ("fail", "changed", "shares")
RECENT = 30
"""Days within which an alarm takes the alias back, where it was not taken back at once."""


class Delivery:
    """Delivers alarms as a command's options say."""

    def __init__(self, typed: AlarmOptions) -> None:
        self.typed = typed
        self.notes: list[str] = []
        self.demoted: dict[str, Any] | None = None
        self.levels = _levels(typed.levels)
        if typed.alarm_file is not None:
            check_writable(typed.alarm_file)

    @property
    def _demotes(self) -> tuple[str, ...]:
        if self.typed.demote_changed:
            return ("fail", "changed")
        return ("fail",) if self.typed.demote else ()

    def check(self, watch: Watch) -> None:
        """Refuse, before anything is counted, what cannot be delivered."""
        if self._demotes and watch.settings.alias is None:
            raise ParameterError(
                "--demote takes an alias back, and this watch is about none; begin it with fairkit watch init "
                "MODEL@ALIAS"
            )
        if self.typed.registry is not None and not self._demotes:
            raise ParameterError("--registry is where --demote takes the alias back; give that, or leave it out")

    def deliver(self, watch: Watch, new: Sequence[Alarm]) -> tuple[Alarm, ...]:
        """Send what did not arrive yet, take the alias back if asked to; return the new alarms of the levels."""
        places: tuple[tuple[str, bool, Callable[[Watch, Alarm], bool]], ...] = (
            ("file", self.typed.alarm_file is not None, self._write),
            ("registry", bool(self._demotes), self._demote),
        )
        for place, wanted, send in places:
            for alarm in watch.undelivered(place) if wanted else ():
                if self._meant(watch, alarm, place) and send(watch, alarm):
                    watch.delivered(alarm, place)
        return tuple(alarm for alarm in new if alarm.level in self.levels)

    def _meant(self, watch: Watch, alarm: Alarm, place: str) -> bool:
        """Say whether an alarm goes to a place: an alias is not taken back for what is long ago."""
        if place != "registry":
            return alarm.level in self.levels
        newest = date.fromisoformat(max(watch.data.days, default=alarm.day))
        recent = (newest - date.fromisoformat(alarm.day)).days <= RECENT
        return alarm.level in self._demotes and recent

    def _write(self, watch: Watch, alarm: Alarm) -> bool:
        """Append an alarm to the file; say so if that fails."""
        path = Path(str(self.typed.alarm_file))
        try:
            _append_line(path, alarm)
        except FileError as error:
            self.notes.append(f"alarm {alarm.number} is not in {path}: {error}; it is written with the next call")
            return False
        return True

    def _demote(self, watch: Watch, alarm: Alarm) -> bool:
        """Take the alias back; say so if that fails."""
        from fairkit_cli.registry.common import open_registry
        from fairkit_registry import names
        from fairkit_registry.promotion.run import demote

        reference = names.parse(str(watch.settings.model))
        evidence = {
            "watch": watch.settings.digest,
            "totals": hashlib.sha256(watch.totals()).hexdigest(),
            "alarm": alarm.to_dict(),
        }
        try:
            with open_registry(self.typed.registry) as store:
                done = demote(store, reference.name, int(reference.version or 0), str(watch.settings.alias), evidence)
        except FairkitError as error:
            self.notes.append(
                f"{watch.settings.model} could not be taken back from {watch.settings.alias!r}: {error}; it is tried "
                "again with the next call"
            )
            return False
        self.demoted = done.to_dict()
        verb = "was taken back" if done.done else "was left as it is"
        self.notes.append(f"{done.name}@{done.alias} {verb}: {done.reason}")
        return True


def _levels(text: str | None) -> tuple[str, ...]:
    if text is None:
        return LEVELS
    named = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in named:
        if name not in LEVELS:
            raise ParameterError(f"--levels: there is no level {name!r}; the levels are {', '.join(LEVELS)}")
    return named


def _append_line(path: Path, alarm: Alarm) -> None:
    line = json.dumps(alarm.to_dict(), sort_keys=True).encode() + b"\n"
    if path.exists() and not path.is_file():  # a device or a pipe
        try:
            with path.open("wb", buffering=0) as device:
                device.write(line)
        except OSError as error:
            raise FileError(explain(error, "cannot write", path)) from error
        return
    _write_end(path, path.stat().st_size if path.is_file() else 0, line)


def _write_end(path: Path, size: int, line: bytes) -> None:
    """Write at the end of a file, and flush it; a file that cannot take it stays as it was."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise FileError(explain(error, "cannot write", path)) from error
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        try:
            file.truncate(size)
            file.seek(size)
            rest = memoryview(line)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(size)
            raise FileError(explain(error, "cannot write", path)) from error
    if size == 0:
        sync_folder(path.parent)
