"""`fairkit why`: what carries the gap between groups, and what allowed columns leave of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.commands.audit import run_audit
from fairkit_cli.formats import text_of
from fairkit_cli.options.declare import option
from fairkit_cli.terminal.output import exit_code, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.report import Report

_PANEL = "What is divided"
Names = list[str] | None
Allow = Annotated[
    Names, option("--allow", "A,B", "Columns in which a difference is allowed: say what is left of it.", _PANEL)
]
Subgroup = Annotated[
    bool, typer.Option("--subgroup", help="Search the worst-treated group, and divide its gap.", rich_help_panel=_PANEL)
]
Refit = Annotated[
    Path | None, option("--refit", "FILE", "Train again on this table, with and without a column.", _PANEL)
]


@opt.expanded_but({"auditors": "audit.auditors"})
def why(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL.onnx]", help="The model file, or a name in the registry.")
    ] = None,
    *,
    columns: opt.DataOptions,
    predictions: opt.PredictionColumns = None,
    served: opt.EndpointOptions,
    conditions: opt.ConditionOptions,
    allow: Allow = None,
    subgroup: Subgroup = False,
    refit: Refit = None,
    typed: opt.AuditOptions,
    where: opt.EngineOptions,
    sandbox: opt.SandboxOptions,
    output_format: opt.ReportFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Divide the gap between groups: among columns, among rates, and into what allowed columns explain and leave."""
    if typed.auditors:
        raise ParameterError("`fairkit why` runs the auditor why alone: leave --set audit.auditors= out")
    assignments = list(typed.assignments or ())
    if subgroup:
        searched = replace(typed, auditors=["subgroups"], assignments=None)  # type: ignore[type-var]
        first = run_audit(model, columns, searched, config, where, predictions, served, conditions)
        assignments.append(f"why.people={_quoted(_conditions(first))}")
    if allow:
        assignments.append(f"why.allowed={','.join(allow)}")
    if refit is not None:
        assignments.append(f"why.refit={refit}")
    typed = replace(typed, auditors=["why"], assignments=assignments)  # type: ignore[type-var]
    report = run_audit(model, columns, typed, config, where, predictions, served, conditions)
    write(lambda terminal: _text(report, output_format, terminal), output, verdict=report.verdict)
    raise typer.Exit(exit_code(report.verdict))


def _quoted(conditions: Sequence[str]) -> str:
    """Return conditions as one list, in which a comma inside of one is quoted."""
    return ",".join(text if "," not in text else '"{}"'.format(text.replace('"', '""')) for text in conditions)


def _conditions(report: Report) -> list[str]:
    """Return the conditions of the group that the search listed."""
    from fairkit.results.conditions import texts_of

    found = next((f for f in report.findings if f.metric == "worst_subgroup_gap"), None)
    conditions = None if found is None else found.evidence.get("conditions")
    if not conditions:
        raise ParameterError("no subgroup was found; name its conditions with --set why.people=")
    return texts_of(conditions)


def _text(report: Report, output_format: str, terminal: bool) -> str:
    """Return the lines alone; other formats have the whole report."""
    if output_format != "table":
        return text_of(report, output_format, terminal)
    from fairkit_cli.pages.head import verdict
    from fairkit_cli.pages.parts import Page, Section
    from fairkit_cli.pages.why import why_parts
    from fairkit_cli.render.text import text_page

    judged = [] if report.verdict is None else [Section(None, verdict(report))]
    return text_page(Page("Why", [*judged, *why_parts(report)]), terminal=terminal)
