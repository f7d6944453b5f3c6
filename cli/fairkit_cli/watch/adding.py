"""`fairkit watch add`, `label` and `show`: decisions and outcomes come in, alarms go out, statements are shown."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import FairkitError, ParameterError
from fairkit.support.files import FileError, check_writable, explain, sync_folder
from fairkit_cli import options as opt
from fairkit_cli.options.search import DayColumn, IdColumn
from fairkit_cli.terminal.output import FAILED, echo, exit_code, print_json, record_text, say, write
from fairkit_cli.watch.begin import State

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Sequence

    from fairkit_cli.options import AlarmOptions
    from fairkit_watch.alarms import Added, Alarm, WatchSnapshot
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
        for target, wanted, send in places:
            for alarm in watch.undelivered(target) if wanted else ():
                if self._meant(watch, alarm, target) and send(watch, alarm):
                    watch.delivered(alarm, target)
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
        from fairkit_cli.registry.versions import open_registry
        from fairkit_registry import jsonio as names
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


Batch = Annotated[
    str | None, opt.option("--batch", "NAME", "The name of these rows; a name counts once. Default: the file's name.")
]
AsOf = Annotated[
    str | None, opt.option("--as-of", "DAY", "The day of the look; later decisions are refused. Default: today.")
]


@opt.expanded
def add(
    state: State,
    *,
    data: Annotated[
        str,
        opt.option(
            "--data", "FILE", "Decisions: a CSV or Parquet file, a folder of such files, a glob, or an address."
        ),
    ],
    day: DayColumn = None,
    batch: Batch = None,
    as_of: AsOf = None,
    alarms: opt.AlarmOptions,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add decisions. Exit code 1: a new alarm; 2: nothing was counted (unusable, or added before)."""
    today = read_as_of(as_of)

    def do(watch: Watch) -> Added:
        return watch.add(data, day=day, batch=batch, today=today, alarms=False)

    _run(state, do, alarms, output_format, data)


@opt.expanded
def label(
    state: State,
    *,
    data: Annotated[str, opt.option("--data", "FILE", "Ids and outcomes: CSV or Parquet.")],
    id: IdColumn = None,
    label: Annotated[
        str | None, opt.option("--label", "COL", "The outcome column. Default: that of the watch.")
    ] = None,
    batch: Batch = None,
    as_of: AsOf = None,
    alarms: opt.AlarmOptions,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add outcomes of decisions that were added before. They count when their day's cohort closes."""
    today = read_as_of(as_of)

    def do(watch: Watch) -> Added:
        return watch.label(data, id=id, label=label, batch=batch, today=today, alarms=False)

    _run(state, do, alarms, output_format)


def read_as_of(text: str | None) -> datetime.date | None:
    """Read the day of the look."""
    from fairkit_watch.settings import read_day

    return None if text is None else read_day(text)


def _run(state: Path, do: Any, typed: opt.AlarmOptions, output_format: str, data: str = "SINCE") -> None:
    """Do something that changes counts, deliver what is alarming, and say it."""
    from fairkit_watch.log import StateError
    from fairkit_watch.watch import Watch

    delivery = Delivery(typed)  # what is wrong with it is said before anything is counted
    with Watch.open(state) as watch:
        delivery.check(watch)
        try:
            added = do(watch)
        except StateError:
            delivery.deliver(watch, watch.new_alarms())  # of an add that was killed before it raised them
            raise
        new = delivery.deliver(watch, watch.new_alarms())
    if output_format == "json":
        print_json({**added.to_dict(), "alarms": [alarm.to_dict() for alarm in new], "demoted": delivery.demoted})
    else:
        echo(*lines(added))
        for one in new:
            echo(f"ALARM {one.level}  {one.day}  {one.text}")
        if new and watch.settings.sensitive:
            echo("Which columns carry it, then and now:", f"$ {why_command(watch.settings.sensitive, data)}")
    for text in (*added.notes, *delivery.notes):
        say(text)
    if new:
        raise typer.Exit(FAILED)


def why_command(sensitive: Sequence[str], since: str) -> str:
    """Return the command that divides the gap among the model's columns, before and after."""
    names = shlex.quote(",".join(sensitive))
    return f"fairkit compare MODEL --data BEFORE --against {shlex.quote(since)} --sensitive {names} --auditor why"


def lines(added: Added) -> list[str]:
    """Return lines about an added batch: its rows, days, and labels without a row."""
    days = "" if not added.days else added.days[0] if len(added.days) == 1 else f"{added.days[0]} to {added.days[-1]}"
    summary = [f"{added.batch}: {added.rows:,} rows{f' of {days}' if days else ''}"]
    if added.unknown:
        summary.append(f"{added.unknown:,} labels are for ids that no open cohort has")
    if added.closed:
        summary.append(f"{len(added.closed)} cohorts closed, up to {added.closed[-1]}")
    return summary


@opt.expanded
def show(
    state: State,
    *,
    as_of: AsOf = None,
    output_format: Annotated[str, opt.formats("table", "json", "html")] = "table",
    output: opt.Output = None,
) -> None:
    """Show a watch. Exit code by the policy at this look: 0 pass, 1 fail, 3 undecided."""
    from fairkit_watch.watch import Watch

    day = read_as_of(as_of)
    with Watch.open(state, write=False) as watch:
        snapshot = watch.look(day)
        write(lambda terminal: _text(watch, snapshot, output_format, terminal), output)
    raise typer.Exit(exit_code("inconclusive" if snapshot.verdict == "undecided" else snapshot.verdict))


def _text(watch: Watch, snapshot: WatchSnapshot, output_format: str, terminal: bool) -> str:
    if output_format == "json":
        return record_text(snapshot.to_dict())
    if output_format == "html":
        return _page(watch, snapshot)
    from fairkit_cli.pages.watch import watch_page
    from fairkit_cli.render.text import text_page

    return text_page(watch_page(snapshot), terminal=terminal)


def _page(watch: Watch, snapshot: WatchSnapshot) -> str:
    from fairkit_cli.pages.watch import Shares, watch_page
    from fairkit_cli.render.html import html_page
    from fairkit_cli.render.svg import warm
    from fairkit_watch.records import courses, weekly_shares

    data = watch.data
    shares = {name: Shares(*weekly_shares(data, split), split.groups) for name, split in data.splits.items() if name}
    with warm():
        drawn = courses(watch.judge, data) if data.days else ()
        return html_page(watch_page(snapshot, drawn, shares))
