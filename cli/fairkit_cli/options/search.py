"""How a search under a policy is asked for, on the command line and in the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.support.lazy_dataclass import dataclass
from fairkit_cli.options.data import (
    DATA,
    POLICY,
    Favorable,
    Label,
    MissingValues,
    Rare,
    SensitiveColumns,
    Weights,
    first_known,
    listed,
    option,
    split_names,
)

if TYPE_CHECKING:
    from fairkit_cli.config import Config


Objective = Annotated[
    str | None,
    option(
        "--objective",
        "WHAT",
        "What is kept or made best: rate (the share approved; default with --model), accuracy, balanced_accuracy, or "
        "cost=A:B (a false approval : a false refusal). Default without a model: accuracy.",
        POLICY,
    ),
]
Value = Annotated[
    str | None,
    option("--value", "COL", "The column with what approving each person brings: its sum is made best.", POLICY),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """The options of a search as they were typed; None where nothing was."""

    sure: Annotated[
        float | None,
        Rare(
            "mitigate.sure",
            "With a policy: the most accurate model whose predicted chance of passing is at least this is picked "
            "(0.95).",
        ),
    ] = None
    budget: Annotated[float | None, Rare("mitigate.budget", "With a policy: minutes that the search may take (5).")] = (
        None
    )
    methods: Annotated[
        list[str] | None,
        Rare("mitigate.methods", "With a policy: the methods to try, A,B. Default: all that can meet it."),
    ] = None
    blind: Annotated[
        bool | None,
        typer.Option("--blind", help="With a policy: the model decides without the group.", rich_help_panel=POLICY),
    ] = None
    deterministic: Annotated[
        bool | None,
        Rare(
            "mitigate.deterministic",
            "With a policy: true: no decision is drawn by chance; false: drawn ones wherever they are more accurate. "
            "Default: drawn ones only where nothing else passes.",
        ),
    ] = None
    anyway: Annotated[
        bool | None,
        Rare(
            "mitigate.anyway",
            "Search also where the test rows are too few for any model to pass with a chance of one half.",
        ),
    ] = None

    def typed(self) -> list[str]:
        """Return the options that were given, as they are typed."""
        options = [name for name in self.__slots__ if getattr(self, name) is not None]
        return ["--blind" if name == "blind" else f"--set mitigate.{name}" for name in options]

    def arguments(self, config: Config) -> dict[str, Any]:
        """Return keyword arguments for `fairkit.repair`; options win over the configuration file."""
        table = config.mitigate
        return {
            "sure": first_known(self.sure, table.get("sure"), 0.95),
            "budget": first_known(self.budget, table.get("budget"), 5.0),
            "methods": split_names(self.methods) or listed(table.get("methods")) or None,
            "blind": bool(first_known(self.blind, table.get("blind"), False)),
            "deterministic": table.get("deterministic") if self.deterministic is None else self.deterministic,
            "anyway": bool(self.anyway),
        }


# The options of `fairkit watch`: columns, and what becomes of alarms.


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOptions:
    """What becomes of alarms, as it was typed."""

    levels: Annotated[
        str | None,
        option(
            "--levels",
            "A,B",
            "The alarms that are delivered and end with exit code 1: fail, changed, shares. Default: all. Others are "
            "only written down.",
            ALARMS,
        ),
    ] = None
    alarm_file: Annotated[
        Path | None, option("--alarm-file", "FILE", "Append each alarm to this file, one JSON line each.", ALARMS)
    ] = None
    demote: Annotated[
        bool | None,
        typer.Option("--demote", help="Take the registry's alias back when a rule fails.", rich_help_panel=ALARMS),
    ] = None
    demote_changed: Annotated[
        bool | None,
        typer.Option(
            "--demote-changed",
            help="Take the registry's alias back also when a rule is broken lately.",
            rich_help_panel=ALARMS,
        ),
    ] = None
    registry: Annotated[
        Path | None,
        typer.Option(
            "--registry",
            help="The registry's folder, for --demote; else FAIRKIT_REGISTRY, else [registry] path, else "
            "./fairkit-registry.",
            rich_help_panel=ALARMS,
        ),
    ] = None
