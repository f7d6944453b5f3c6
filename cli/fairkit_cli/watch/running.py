"""`fairkit watch run`: a loop that adds what comes into a folder, and survives restarts."""

from __future__ import annotations

import datetime
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import DataError, FairkitError, ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import FAILED, echo, json_lines, put, say
from fairkit_cli.watch.adding import read_as_of
from fairkit_cli.watch.begin import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fairkit_cli.watch.delivery import Delivery
    from fairkit_watch.alarms import Alarm
    from fairkit_watch.watch import Watch

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@opt.expanded
def run(
    state: State,
    *,
    folder: Annotated[
        Path,
        opt.option(
            "--folder",
            "FOLDER",
            "Where decisions come in as CSV or Parquet files, each once and whole: write a file under a name that "
            "begins with a dot, and rename it.",
        ),
    ],
    labels: Annotated[
        Path | None, opt.option("--labels", "FOLDER", "Where outcomes come in; another folder than that of decisions.")
    ] = None,
    every: Annotated[str, opt.option("--every", "TIME", "How often to look: 30s, 15m, 1h or 1d. Default: 1h.")] = "1h",
    once: Annotated[
        bool, typer.Option("--once", help="Look once and end: for a scheduler such as cron. Exit code 1: a new alarm.")
    ] = False,
    as_of: Annotated[
        str | None,
        opt.option("--as-of", "DAY", "The day of the look, for a replay of the past. Default: today, at each look."),
    ] = None,
    alarms: opt.AlarmOptions,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add the files of a folder as they come, each once, until interrupted. Unusable files are reported and left."""
    pause, day = _seconds(every), read_as_of(as_of)
    for one in (folder, labels):
        if one is not None and not one.is_dir():
            raise DataError(f"there is no folder {str(one)!r}")
    if labels is not None and labels.resolve() == folder.resolve():
        raise ParameterError("--labels and --folder are one folder; outcomes come in another one than decisions")
    from fairkit_cli.watch.delivery import Delivery
    from fairkit_watch.records import today as clock_day
    from fairkit_watch.watch import Watch

    delivery = Delivery(alarms)

    said: set[str] = set()
    while True:
        with Watch.open(state) as watch:
            new = _round(watch, (folder, labels), delivery, said, day or clock_day())
        if output_format == "json":
            if new:
                put(json_lines(new) + "\n")
        else:
            for alarm in new:
                echo(f"ALARM {alarm.level}  {alarm.day}  {alarm.text}")
        if once:
            raise typer.Exit(FAILED if new else 0)
        time.sleep(pause)


def _round(
    watch: Watch, folders: tuple[Path, Path | None], delivery: Delivery, said: set[str], today: datetime.date
) -> tuple[Alarm, ...]:
    """Add every file that was not added before, in the order of the names, and deliver what is alarming."""
    delivery.check(watch)
    alarms: list[Alarm] = []
    folder, labels = folders

    def each(paths: Iterator[tuple[str, Path]], add: Callable[[Path, str], object]) -> None:
        known = watch.book.batches()
        for name, path in paths:
            if name in known:
                _note_change(path, known[name], said)
                continue
            try:
                add(path, name)
                alarms.extend(delivery.deliver(watch, watch.new_alarms()))
                delivery.heartbeat(watch)
            except FairkitError as error:
                if f"{name}: {error}" not in said:
                    said.add(f"{name}: {error}")
                    say(f"{path} was not added: {error}")

    each(_files(folder, ""), lambda path, name: watch.add(path, batch=name, today=today, alarms=False))
    if labels is not None:
        each(_files(labels, "labels/"), lambda path, name: watch.label(path, batch=name, today=today, alarms=False))
    alarms.extend(delivery.deliver(watch, watch.new_alarms(today)))
    for text in delivery.notes:
        say(text)
    delivery.notes.clear()
    return tuple(alarms)


def _note_change(path: Path, record: Mapping[str, Any], said: set[str]) -> None:
    """Say once that a file has changed since it was added: what was counted stays."""
    from fairkit_watch.batch_files import file_digest

    added = datetime.datetime.fromisoformat(str(record["at"])).timestamp()
    if path.stat().st_mtime <= added or str(path) in said:
        return
    said.add(str(path))
    if file_digest(path) != record.get("sha256"):
        say(
            f"{path} has changed since it was added; what was counted stays. Give further decisions a file of their own"
        )


def _files(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    """Yield the data files of a folder with their names in it; hidden ones are not finished."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if path.suffix in (".csv", ".parquet", ".pq") and path.is_file() and not hidden:
            yield f"{prefix}{relative.as_posix()}", path


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text)
    if found is None:
        raise ParameterError(f"--every {text!r} is no time; write 30s, 15m, 1h or 1d")
    return int(found[1]) * _UNITS[found[2]]
