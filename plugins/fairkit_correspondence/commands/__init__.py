"""`fairkit ask ...`: paired questions to a language model, at a price that is known before."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from fairkit_correspondence.commands.planned import plan
from fairkit_correspondence.commands.running import run


class AskGroup(TyperGroup):
    """Takes a plan's file where a subcommand would stand: `fairkit ask PLAN.toml` is `fairkit ask run PLAN.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=AskGroup,
    no_args_is_help=True,
    help="Ask a language model the same questions under different names: `fairkit ask PLAN.toml --endpoint URL ...`.",
    add_completion=False,
    rich_markup_mode=None,
)
app.callback()(lambda: None)
for name, command in (("run", run), ("plan", plan)):
    app.command(name)(command)
