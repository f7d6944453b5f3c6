"""The options of `fairkit watch`: columns, and what becomes of alarms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairkit_cli.options.data import Favorable, Label, MissingValues, SensitiveColumns, Weights
from fairkit_cli.options.declare import DATA, option

ALARMS = "Alarms"

IdColumn = Annotated[str | None, option("--id", "COL", "The column by which later labels name a decision.", DATA)]
DayColumn = Annotated[
    str | None,
    option(
        "--day",
        "COL",
        "The column of the day, or one day (2026-11-21) for all rows. Default: a day in the file's name.",
        DATA,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedColumns:
    """The columns of decisions' tables as they were typed; None where nothing was."""

    label: Label = None
    favorable: Favorable = None
    sensitive: SensitiveColumns = None
    weights: Weights = None
    missing: MissingValues = None
    id: IdColumn = None
    day: DayColumn = None


Levels = Annotated[
    str | None,
    option(
        "--levels",
        "A,B",
        "The alarms that are delivered and end with exit code 1: fail, changed, shares. Default: all. Others are "
        "only written down.",
        ALARMS,
    ),
]
AlarmFile = Annotated[
    Path | None, option("--alarm-file", "FILE", "Append each alarm to this file, one JSON line each.", ALARMS)
]
Demote = Annotated[
    bool | None,
    typer.Option("--demote", help="Take the registry's alias back when a rule fails.", rich_help_panel=ALARMS),
]
DemoteChanged = Annotated[
    bool | None,
    typer.Option(
        "--demote-changed",
        help="Take the registry's alias back also when a rule is broken lately.",
        rich_help_panel=ALARMS,
    ),
]
RegistryFolder = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        help="The registry's folder, for --demote; else FAIRKIT_REGISTRY, else [registry] path, else "
        "./fairkit-registry.",
        rich_help_panel=ALARMS,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOptions:
    """What becomes of alarms, as it was typed."""

    levels: Levels = None
    alarm_file: AlarmFile = None
    demote: Demote = None
    demote_changed: DemoteChanged = None
    registry: RegistryFolder = None
