"""Options that stand alone in several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairkit_cli.options.declare import OUTPUT, Rare, formats, option, setting_option

AuditedModel = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL.onnx]",
        help="The model file, a name in the registry, or a table of answers from `fairkit ask`; without one, "
        "--predictions or --endpoint says what.",
    ),
]
Confidence = Annotated[float | None, setting_option("confidence")]
Seed = Annotated[int | None, setting_option("seed")]
Assignments = Annotated[
    list[str] | None,
    option("--set", "KEY=VALUE", "A parameter of a plugin; repeatable. `fairkit plugins show NAME` lists them."),
]
Functions = Annotated[
    list[str] | None,
    Rare(
        "audit.metric",
        "A function of your own as a metric of every group, NAME=MODULE:FUNCTION, as in "
        "mcc=sklearn.metrics:matthews_corrcoef. It is imported, so that its code runs.",
    ),
]
TableFormat = Annotated[str, formats("table", "json")]
PageFormat = Annotated[str, formats("table", "json", "html")]
ReportFormat = Annotated[str, formats("table", "json", "junit", "html", "markdown")]
VersionFormat = Annotated[
    str,
    formats(
        "table",
        "json",
        "markdown: a model card",
        "hf-card: one for the Hugging Face Hub",
        "cyclonedx: a bill of materials",
        "html: its audit",
        exporters=True,
    ),
]
Output = Annotated[
    Path | None, option("--output", "FILE", "Write the result to this file instead of standard output.", OUTPUT)
]
Copies = Annotated[
    list[Path] | None,
    option(
        "--save",
        "FILE",
        "Write the report to this file too, in the format that its name ends in: .html, .md, .json, .xml for JUnit "
        "(repeatable).",
        OUTPUT,
    ),
]
ConfigFile = Annotated[
    Path | None, option("--config", "FILE", "The configuration file. Default: the nearest fairkit.toml, here or above.")
]

SigningKeys = Annotated[list[str], option("--key", "FILE", "Secret key to sign with, or pkcs11:... (repeatable).")]
InsecureKey = Annotated[
    bool, typer.Option("--insecure-key", help="Sign with a key that other users of this machine can read.")
]
