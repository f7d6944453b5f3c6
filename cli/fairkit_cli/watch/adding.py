"""`fairkit watch add` and `fairkit watch label`: decisions and outcomes come in, alarms go out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit_cli import options as opt
from fairkit_cli.options.watching import DayColumn, IdColumn
from fairkit_cli.terminal.output import FAILED, echo, print_json, say
from fairkit_cli.watch.begin import State

if TYPE_CHECKING:
    import datetime

    from fairkit_watch.results import Added
    from fairkit_watch.watch import Watch

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

    _run(state, do, alarms, output_format)


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


def _run(state: Path, do: Any, typed: opt.AlarmOptions, output_format: str) -> None:
    """Do something that changes counts, deliver what is alarming, and say it."""
    from fairkit_cli.watch.delivery import Delivery
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
        print_json({**added.to_dict(), "alarms": [one.to_dict() for one in new], "demoted": delivery.demoted})
    else:
        echo(*lines(added))
        for one in new:
            echo(f"ALARM {one.level}  {one.day}  {one.text}")
    for text in (*added.notes, *delivery.notes):
        say(text)
    if new:
        raise typer.Exit(FAILED)


def lines(added: Added) -> list[str]:
    """Return lines about an added batch: its rows, days, and labels without a row."""
    days = "" if not added.days else added.days[0] if len(added.days) == 1 else f"{added.days[0]} to {added.days[-1]}"
    told = [f"{added.batch}: {added.rows:,} rows{f' of {days}' if days else ''}"]
    if added.unknown:
        told.append(f"{added.unknown:,} labels are for ids that no open cohort has")
    if added.closed:
        told.append(f"{len(added.closed)} cohorts closed, up to {added.closed[-1]}")
    return told
