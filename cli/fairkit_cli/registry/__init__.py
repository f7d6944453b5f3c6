"""`fairkit registry ...`: versions of models with their certificates."""

from __future__ import annotations

import typer

from fairkit_cli.registry import aliases as registry_aliases
from fairkit_cli.registry import care as registry_care
from fairkit_cli.registry import versions as registry_versions

app = typer.Typer(no_args_is_help=True, help="Versions of ONNX models with their certificates.")

app.command("add")(registry_versions.add)
app.command("list")(registry_versions.list_models)
app.command("show")(registry_versions.show)
app.command("log")(registry_versions.log)
app.command("diff")(registry_versions.diff)
app.command("alias")(registry_aliases.alias)
app.command("promote")(registry_aliases.promote)
app.command("verify")(registry_aliases.verify)
app.command("export")(registry_care.export)
app.command("import")(registry_care.import_archive)
app.command("check")(registry_care.check)
app.command("gc")(registry_care.gc)
