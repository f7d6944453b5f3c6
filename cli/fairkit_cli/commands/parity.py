"""`fairkit parity`: does a file decide as the model did?"""

from __future__ import annotations

from typing import Annotated

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import record_text, write


@opt.expanded
def parity(
    model: Annotated[str, typer.Argument(metavar="MODEL.onnx", help="The file, or a name in the registry.")],
    *,
    columns: opt.DataOptions,
    predictions: opt.PredictionColumns = None,
    threshold: Annotated[
        float | None, opt.option("--threshold", "T", "Compare decisions by this threshold in place of the file's own.")
    ] = None,
    output_format: opt.TableFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Compare a file's decisions and scores with those that the model made, columns of the data, row by row.

    Exit code 1 where decisions differ. In Python: fairkit.parity(file, estimator, X).
    """
    from fairkit.data.predictions import PredictionRoles
    from fairkit_cli.config import load_announced
    from fairkit_cli.subject import load_model
    from fairkit_comparing.parity import parity as compared

    settings = load_announced(config)
    if not predictions and not settings.data.get("predictions"):
        raise ParameterError("which decisions? Name the column with what the model said: --predictions decision=COL")
    named = PredictionRoles.parse(predictions) if predictions else PredictionRoles.of(settings.data["predictions"])
    loaded = load_model(model, settings)
    carried = {**loaded.settings, "label": None, "sensitive": None}
    found = compared(loaded, None, opt.load_dataset(columns, settings, carried, predictions=named), threshold=threshold)
    write(lambda _: record_text(found.to_dict()) if output_format == "json" else f"{found}\n", output)
    raise typer.Exit(0 if found else 1)
