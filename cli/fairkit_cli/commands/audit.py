"""`fairkit audit`: a model and a data file in, findings and a verdict out."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairkit_cli import options as opt
from fairkit_cli.formats import text_of
from fairkit_cli.packs import PackName, ToolScores, asked_by, counted_above_the_median
from fairkit_cli.terminal.output import exit_code, write

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
    if output is not None:
        from fairkit.support.files import check_writable

        check_writable(output)
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
    from fairkit_cli.subject import chosen
    from fairkit_cli.terminal.console import progress_bar

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
