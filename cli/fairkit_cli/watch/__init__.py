"""`fairkit watch ...`: a model's decisions over time, with statements that hold at every look."""

from __future__ import annotations

import typer

from fairkit_cli.timings import with_timings
from fairkit_cli.watch import adding, begin, running, showing

app = typer.Typer(
    no_args_is_help=True, help="Watch a model's decisions over time; every statement holds at every look."
)

app.command("init")(with_timings(begin.init))
app.command("add")(with_timings(adding.add))
app.command("label")(with_timings(adding.label))
app.command("show")(with_timings(showing.show))
app.command("run")(with_timings(running.run))
