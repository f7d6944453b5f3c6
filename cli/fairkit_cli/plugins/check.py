"""`fairkit plugins check`: the contract checks on any installed plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.terminal.output import FAILED, echo, print_json

if TYPE_CHECKING:
    from fairkit_testing import Outcome

PluginName = Annotated[str, typer.Argument(metavar="NAME", help="The plugin's name.")]
Settings = Annotated[
    list[str] | None, opt.option("--set", "KEY=VALUE", "A parameter of the plugin for the checks; repeatable.")
]


def check(name: PluginName, settings: Settings = None, output_format: opt.TableFormat = "table") -> None:
    """Run the contract checks on a plugin. Exit code 1: at least one failed."""
    from fairkit.parameters.declare import split_assignment
    from fairkit_testing import run_checks

    outcomes = []
    for outcome in run_checks(name, settings=dict(split_assignment(text) for text in settings or ())):
        outcomes.append(outcome)
        if output_format == "table":
            echo(*_line(outcome).splitlines())
    if output_format == "json":
        print_json({"plugin": name, "checks": [_record(one) for one in outcomes]})
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    if output_format == "table":
        expected = sum(outcome.status == "expected failure" for outcome in outcomes)
        shown = f"{len(outcomes) - failed - expected} passed, {failed} failed"
        echo(shown + (f", {expected} failed as expected" if expected else ""))
    if failed:
        raise typer.Exit(FAILED)


def _line(outcome: Outcome) -> str:
    mark = {"passed": "ok", "failed": "FAILED", "expected failure": "expected failure"}[outcome.status]
    text = f"{outcome.check} [{outcome.subject}]: {mark}"
    return f"{text}: {outcome.message}" if outcome.message else text


def _record(outcome: Outcome) -> dict[str, str]:
    return {"check": outcome.check, "subject": outcome.subject, "status": outcome.status, "message": outcome.message}
