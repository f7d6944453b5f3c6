"""`fairkit registry ...`: versions of models with their certificates."""

from __future__ import annotations

import typer

from fairkit_cli.registry import aliases as registry_aliases
from fairkit_cli.registry import care as registry_care
from fairkit_cli.registry import versions as registry_versions
from fairkit_cli.timings import with_timings

app = typer.Typer(no_args_is_help=True, help="Versions of ONNX models with their certificates.")

app.command("add")(with_timings(registry_versions.add))
app.command("list")(registry_versions.list_models)
app.command("show")(registry_versions.show)
app.command("log")(registry_versions.log)
app.command("diff")(registry_versions.diff)
app.command("alias")(registry_aliases.alias)
app.command("promote")(with_timings(registry_aliases.promote))
app.command("verify")(with_timings(registry_aliases.verify))
app.command("export")(with_timings(registry_care.export))
app.command("import")(with_timings(registry_care.import_archive))
app.command("check")(with_timings(registry_care.check))
app.command("gc")(registry_care.gc)
