"""`fairkit audit`: a model and a data file in, findings and a verdict out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.formats import text_of
from fairkit_cli.options.data import Drop, Favorable, Features, Label, SensitiveColumns, option
from fairkit_cli.packs import PackName, ToolScores, asked_by, counted_above_the_median
from fairkit_cli.terminal.output import exit_code, progress_bar, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.results.report import Report


@opt.expanded
def audit(
    model: opt.AuditedModel = None,
    *,
    columns: opt.DataOptions,
    predictions: opt.PredictionColumns = None,
    served: opt.EndpointOptions,
    conditions: opt.ConditionOptions,
    typed: opt.AuditOptions,
    functions: opt.Functions = None,
    where: opt.EngineOptions,
    sandbox: opt.SandboxOptions,
    about: opt.About = None,
    pack: PackName = None,
    tool_scores: ToolScores = False,
    output_format: opt.ReportFormat = "table",
    output: opt.Output = None,
    save: opt.Copies = None,
    config: opt.ConfigFile = None,
) -> None:
    """Audit an ONNX model, or decisions in a table: what is unequal between groups, how sure are we, is it allowed?"""
    copies = {path: copy_format(path) for path in save or ()}
    with drawing("html" if "html" in copies.values() else output_format):
        report = run_audit(
            model,
            columns,
            typed,
            config,
            where,
            predictions,
            served,
            conditions,
            about,
            pack,
            tool_scores=tool_scores,
            functions=functions,
        )
    for path, form in copies.items():
        show(report, form, path)
    show(report, output_format, output)
    raise typer.Exit(exit_code(report.verdict))


def run_audit(
    model: str | None,
    data: opt.DataOptions,
    typed: opt.AuditOptions,
    config_file: Path | None = None,
    where: opt.EngineOptions | None = None,
    predictions: Sequence[str] | None = None,
    served: opt.EndpointOptions | None = None,
    conditions: opt.ConditionOptions | None = None,
    about: Sequence[str] | None = None,
    pack: str | None = None,
    *,
    tool_scores: bool = False,
    functions: Sequence[str] | None = None,
) -> Report:
    """Do what the command does up to the report."""
    from fairkit.auditing.run import audit as run
    from fairkit_cli.config import load_announced
    from fairkit_cli.packs import chosen

    config = load_announced(config_file)
    data, conditions = asked_by(pack, data, conditions or opt.ConditionOptions(), config)
    settings = opt.audit_settings(typed, config)
    facts = opt.stated_facts(about, config, dated=True)
    subject = chosen(model, predictions, config, served, opt.named_auditors(typed, config))
    settings = subject.settings(settings, typed, config)
    dataset = subject.dataset(data, config, conditions)
    settings = counted_above_the_median(pack, subject, dataset, settings, scores=tool_scores)
    metrics = dict(_imported(functions)) if functions else None
    with progress_bar() as progress:
        engine = (where or opt.EngineOptions()).arguments()
        return run(subject.model, dataset, progress=progress, about=facts, settings=settings, metrics=metrics, **engine)


def _imported(functions: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Import the functions of audit.metric; a module of the working folder is found, as by `python -m`."""
    import sys

    from fairkit.functions import imported

    sys.path.append(str(Path.cwd()))  # last: what is installed wins
    try:
        for text in functions:
            yield imported(text)
    finally:
        sys.path.remove(str(Path.cwd()))


def show(report: Report, output_format: str, output: Path | None) -> None:
    """Print a report, or write it to a file."""
    write(lambda terminal: text_of(report, output_format, terminal), output, verdict=report.verdict)


def copy_format(path: Path) -> str:
    """Return the format of a file of --save, which is checked before the audit."""
    from fairkit.results.rendering import format_of
    from fairkit.support.files import check_writable

    check_writable(path)
    return format_of(path)


def drawing(output_format: str) -> AbstractContextManager[None]:
    """Open the time during which a page's renderer starts, or refuse at once where it is not installed."""
    if output_format != "html":
        return nullcontext()
    from fairkit_cli.render.svg import warm

    return warm()


# `fairkit why`: what carries the gap between groups, and what allowed columns leave of it.


_PANEL = "What is divided"
Names = list[str] | None


@opt.expanded_but({"auditors": "audit.auditors"})
def why(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL.onnx", help="The model file, or a name in the registry.")
    ] = None,
    *,
    columns: opt.DataOptions,
    predictions: opt.PredictionColumns = None,
    served: opt.EndpointOptions,
    conditions: opt.ConditionOptions,
    allow: Annotated[
        Names, option("--allow", "A,B", "Columns in which a difference is allowed: say what is left of it.", _PANEL)
    ] = None,
    subgroup: Annotated[
        bool,
        typer.Option("--subgroup", help="Search the worst-treated group, and divide its gap.", rich_help_panel=_PANEL),
    ] = False,
    refit: Annotated[
        Path | None, option("--refit", "FILE", "Train again on this table, with and without a column.", _PANEL)
    ] = None,
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
    if not report.findings:
        raise ParameterError(
            "there is no gap to divide: that takes two groups with people, and a model or, where predictions are "
            "columns, decisions with their outcome (--label COL --favorable V)"
        )
    write(lambda terminal: _text(report, output_format, terminal), output, verdict=report.verdict)
    raise typer.Exit(exit_code(report.verdict))


def _quoted(conditions: Sequence[str]) -> str:
    """Return conditions as one list, in which a comma inside of one is quoted."""
    return ",".join(text if "," not in text else '"{}"'.format(text.replace('"', '""')) for text in conditions)


def _conditions(report: Report) -> list[str]:
    """Return the conditions of the group that the search listed."""
    from fairkit.results.findings import texts_of

    worst = next((f for f in report.findings if f.metric == "worst_subgroup_gap"), None)
    conditions = None if worst is None else worst.evidence.get("conditions")
    if not conditions:
        raise ParameterError("no subgroup was found; name its conditions with --set why.people=")
    return texts_of(conditions)


def _text(report: Report, output_format: str, terminal: bool) -> str:
    """Return the lines alone; other formats have the whole report."""
    if output_format != "table":
        return text_of(report, output_format, terminal)
    from fairkit_cli.pages.individuals import why_parts
    from fairkit_cli.pages.parts import Page, Section
    from fairkit_cli.pages.report import verdict
    from fairkit_cli.render.text import text_page

    judged = [] if report.verdict is None else [Section(None, verdict(report))]
    return text_page(Page("Why", [*judged, *why_parts(report)]), terminal=terminal)


# `fairkit data`: what a table says of people before any model.


def data(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A CSV or Parquet file, a folder, a glob, or an address.")
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
        pattern, equals, share = text.rpartition("=")
        column, colon, group = pattern.partition(":")
        if not (equals and colon and group and share):
            raise ParameterError(f"--population {text!r} is not COLUMN:GROUP=SHARE, as in --population sex:female=.51")
        shares.setdefault(column, []).append(f"{group}:{share}")
    return [f"data.population.{column}={','.join(texts)}" for column, texts in shares.items()]
