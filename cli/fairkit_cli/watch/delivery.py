"""Where alarms go: standard output, a file, the registry's alias; and the daily statement."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError, ParameterError
from fairkit.support.files import FileError, check_writable, explain, sync_folder
from fairkit_cli.watch.statements import HEARTBEATS, check_statements, subject_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairkit_cli.options import AlarmOptions
    from fairkit_registry.evidence.heartbeats import Heartbeat
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
        self._secrets = self._load()
        if typed.alarm_file is not None:
            check_writable(typed.alarm_file)

    def _load(self) -> list[Any]:
        if self.typed.heartbeat is None:
            if self.typed.insecure_key:
                raise ParameterError("--insecure-key is about --heartbeat KEY; give that, or leave it out")
            return []
        from fairkit_cli.terminal.passphrases import load_signers

        return list(load_signers([self.typed.heartbeat], insecure=bool(self.typed.insecure_key)))

    @property
    def _demotes(self) -> tuple[str, ...]:
        if self.typed.demote_changed:
            return ("fail", "changed")
        return ("fail",) if self.typed.demote else ()

    def check(self, watch: Watch) -> None:
        """Refuse, before anything is counted, what cannot be delivered or signed."""
        if self._secrets:
            _chain(watch)
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
        from fairkit_registry.promotion.demotion import demote

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

    def heartbeat(self, watch: Watch) -> None:
        """Sign a statement for the newest day, if there is none yet."""
        if not self._secrets:
            return
        from fairkit_registry.evidence.heartbeats import sign_heartbeat
        from fairkit_watch import snapshot as looking

        path, data = watch.book.folder / HEARTBEATS, watch.data
        size, chain = _chain(watch)
        last = chain[-1] if chain else None
        if not data.days or (last is not None and last.day >= data.days[-1]):
            return
        rules = looking.rule_looks(watch.judge, data, weeks=False)
        body = watch.statement() | {
            "verdict": looking.worst(rules),
            "rules": [
                {"metric": one.metric, "sensitive": one.sensitive, one.kind: one.limit, "verdict": one.verdict}
                for one in rules
            ],
        }
        previous = None if last is None else last.digest
        if last is None and len(data.days) > 1:
            self.notes.append(
                f"the first signed statement of this watch covers all days since {data.days[0]}; if others were "
                "signed before, somebody has replaced the folder"
            )
        line = sign_heartbeat(data.days[-1], subject_of(watch), body, previous, self._secrets)
        _write_end(path, size, line + b"\n")


def _chain(watch: Watch) -> tuple[int, list[Heartbeat]]:
    """Return the bytes and the statements of a watch; nothing is signed over a log that was cut or rewritten."""
    from fairkit_registry.evidence.heartbeats import read_heartbeats

    path = watch.book.folder / HEARTBEATS
    raw = path.read_bytes() if path.exists() else b""
    whole = raw[: raw.rfind(b"\n") + 1]
    chain = read_heartbeats(whole)
    check_statements(watch, chain)
    return len(whole), chain


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
