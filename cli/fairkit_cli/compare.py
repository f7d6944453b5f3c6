"""`fairkit compare`: models on the same rows, and which differences are significant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.output import record_text, write

if TYPE_CHECKING:
    from fairkit.results.comparisons import Comparison


@opt.expanded
def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="A.onnx B.onnx ...", help="Model files, or names in the registry; the first is the base."
        ),
    ],
    columns: opt.DataOptions,
    where: opt.EngineOptions,
    sandbox: opt.SandboxOptions,
    task: opt.TaskName = None,
    score_output: opt.ScoreOutput = None,
    decision_output: opt.DecisionOutput = None,
    score_kind: opt.ScoreKindName = None,
    favorable_class: opt.FavorableClass = None,
    threshold: opt.Threshold = None,
    confidence: opt.Confidence = None,
    output_format: opt.PageFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Compare models with the first of them on the same rows: what is significantly better or worse?"""
    from fairkit.comparing.run import compare as run
    from fairkit.config import load_config
    from fairkit.files import check_writable
    from fairkit.onnx.model import OnnxModel
    from fairkit_cli.audit import drawing
    from fairkit_cli.names import model_file
    from fairkit_cli.progress import progress_bar

    if output is not None:
        check_writable(output)
    settings = load_config(config)
    told = opt.AuditOptions(
        task=task,
        score_output=score_output,
        decision_output=decision_output,
        score_kind=score_kind,
        favorable_class=favorable_class,
        threshold=threshold,
        confidence=confidence,
    )
    audited = opt.audit_settings(told, settings)
    loaded = [OnnxModel.load(model_file(model, settings)) for model in models]
    for name, one in zip(models, loaded, strict=True):
        if not Path(name).exists():
            one.name = name  # in the registry a file is called after its digest
    carried = next((model.settings for model in loaded if model.settings), {})
    file = "test" if "test" in settings.data else "path"
    data = opt.load_dataset(columns, settings, carried, file=file)
    with drawing(output_format), progress_bar() as progress:
        result = run(
            loaded,
            data,
            confidence=audited.confidence,
            options=audited.options,
            progress=progress,
            **where.arguments(),
        )
    write(lambda terminal: text_of(result, output_format, terminal), output)


def text_of(result: Comparison, output_format: str, terminal: bool) -> str:
    """Return a comparison in a format."""
    if output_format == "json":
        return record_text(result.to_dict())
    if output_format == "html":
        from fairkit_cli.html.comparison import comparison_page

        return comparison_page(result)
    from fairkit_cli.text.comparison import comparison_text

    return comparison_text(result, terminal=terminal)
