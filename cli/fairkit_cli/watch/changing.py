"""`fairkit watch set`: other rules or columns for a watch, and what that does to its statements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import echo, print_json
from fairkit_cli.watch.begin import State

if TYPE_CHECKING:
    from fairkit_watch.settings import Columns


@opt.expanded
def set_(
    state: State,
    *,
    columns: opt.WatchedColumns,
    maximums: opt.MaxRules = None,
    minimums: opt.MinRules = None,
    leave_out: Annotated[
        list[str] | None,
        opt.option(
            "--leave-out",
            "METRIC[:COL]",
            "The rules on this metric go; repeatable. --max and --min add rules, and replace one on the same "
            "metric, column and side.",
        ),
    ] = None,
    horizon: Annotated[
        int | None,
        opt.option(
            "--horizon",
            "DAYS",
            "Days after which an outcome is known, or counts as unresolved; 0: outcomes come with decisions.",
        ),
    ] = None,
    selective: Annotated[
        bool | None,
        typer.Option("--selective/--not-selective", help="Whether outcomes exist for favorable decisions only."),
    ] = None,
    confidence: opt.Confidence = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Give a watch other rules or columns; what is not named stays.

    A rule that is chosen after looking at the counts would not keep its promise on them. So the new rules speak about
    the decisions of later days. What was counted stays as it is beside the folder, with its statements and alarms.
    """
    from fairkit_watch.changing import change, recover
    from fairkit_watch.records import read_settings
    from fairkit_watch.watch import Watch

    recover(state)
    settings = read_settings(state)
    sensitive = opt.split_names(columns.sensitive)
    named: dict[str, Any] = {
        "sensitive": None if sensitive is None else tuple(sensitive),
        "missing": columns.missing,
        "horizon": horizon,
        "selective": selective,
        "confidence": confidence,
    }
    changed = replace(
        settings,
        rules=_rules(settings.rules, maximums, minimums, leave_out),
        columns=_columns(settings.columns, columns),
        **{name: value for name, value in named.items() if value is not None},
    )
    previous = change(state, changed)
    with Watch.open(state, write=False) as watch:
        if output_format == "json":
            told = {"state": str(state), "former": str(previous), "settings": watch.settings.to_dict()}
            print_json(told | {"policy": watch.settings.digest})
            return
        names = ", ".join(question.name for question in watch.judge.questions) or "no rules"
        echo(
            f"watch    {state}",
            f"watches  {names}",
            f"before   {previous}: `fairkit watch show {previous}`; outcomes of its decisions still go there",
            f"promise  {watch.settings.former}",
        )


def _rules(
    rules: tuple[Any, ...], maximums: list[str] | None, minimums: list[str] | None, leave_out: list[str] | None
) -> tuple[Any, ...]:
    """Return the rules without those that go, with those that come."""
    from fairkit.results.rules import Rule

    new = opt.rules_of(maximums, minimums)
    remaining = [Rule.from_dict(record) for record in rules]
    for text in leave_out or ():
        metric, _, column = text.partition(":")
        gone = [one for one in remaining if one.metric == metric and (not column or one.sensitive == column)]
        if not gone:
            raise ParameterError(f"--leave-out {text!r}: the watch has no such rule")
        remaining = [one for one in remaining if one not in gone]
    replaced = {(one.metric, one.sensitive, one.side) for one in new}
    remaining = [one for one in remaining if (one.metric, one.sensitive, one.side) not in replaced]
    return tuple(one.to_dict() for one in (*remaining, *new))


def _columns(before: Columns, typed: opt.WatchedColumns) -> Columns:
    """Return the columns with what was typed in place of what was."""
    names = ("label", "favorable", "weights", "id", "day")
    return replace(before, **{name: getattr(typed, name) for name in names if getattr(typed, name) is not None})
