"""`fairkit data`: what a table says of people before any model."""

from __future__ import annotations

from typing import Annotated

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.commands.audit import drawing, run_audit, show
from fairkit_cli.options.data import Drop, Favorable, Features, Label, SensitiveColumns
from fairkit_cli.options.declare import option
from fairkit_cli.terminal.output import exit_code


def data(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="A CSV or Parquet file, a folder, a glob, or an address.")
    ] = None,
    label: Label = None,
    favorable: Favorable = None,
    sensitive: SensitiveColumns = None,
    features: Features = None,
    drop: Drop = None,
    population: Annotated[
        list[str] | None,
        option("--population", "COL:GROUP=SHARE", "A group's share of the population, as sex:female=.51. Repeatable."),
    ] = None,
    maximums: opt.MaxRules = None,
    minimums: opt.MinRules = None,
    confidence: opt.Confidence = None,
    output_format: opt.ReportFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Look at a table before any model: groups, outcomes, missing values, and columns that tell the group."""
    if output is not None:
        from fairkit.support.files import check_writable

        check_writable(output)
    columns = opt.DataOptions(
        data=table, label=label, favorable=favorable, sensitive=sensitive, features=features, drop=drop
    )
    typed = opt.AuditOptions(
        auditors=["data"],
        assignments=_assignments(population),
        maximums=maximums,
        minimums=minimums,
        confidence=confidence,
    )
    with drawing(output_format):
        report = run_audit(None, columns, typed, config)
    show(report, output_format, output)
    raise typer.Exit(exit_code(report.verdict))


def _assignments(population: list[str] | None) -> list[str]:
    """Return the auditor's parameters: ``sex:female=.51`` is ``data.population.sex=female:.51``."""
    shares: dict[str, list[str]] = {}
    for text in population or ():
        place, equals, share = text.rpartition("=")
        column, colon, group = place.partition(":")
        if not (equals and colon and group and share):
            raise ParameterError(f"--population {text!r} is not COLUMN:GROUP=SHARE, as in --population sex:female=.51")
        shares.setdefault(column, []).append(f"{group}:{share}")
    return [f"data.population.{column}={','.join(texts)}" for column, texts in shares.items()]
