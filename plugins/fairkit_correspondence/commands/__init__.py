"""`fairkit ask ...`: paired questions to a language model, at a price that is known before."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from fairkit_cli.lazy import lazy_group

_COMMANDS = {
    "run": "fairkit_correspondence.commands.running:run",
    "compare": "fairkit_correspondence.commands.compared:compare",
    "plan": "fairkit_correspondence.commands.planned:plan",
}


class AskGroup(TyperGroup):
    """Takes a plan's file where a subcommand would stand: `fairkit ask PLAN.toml` is `fairkit ask run PLAN.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments."""
        if args and args[0] not in (*_COMMANDS, "--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=lazy_group(_COMMANDS, AskGroup),
    no_args_is_help=True,
    help="Ask a language model the same questions under different names: `fairkit ask PLAN.toml --endpoint URL ...`.",
    add_completion=False,
    rich_markup_mode=None,
)
app.callback()(lambda: None)
