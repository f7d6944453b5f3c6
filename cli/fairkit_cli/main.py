"""The command `fairkit`: its subcommands, and one place for errors."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairkit.errors import FairkitError
from fairkit_cli import audit, certify, compare, demo, frontier, init, mitigate, plugins, registry
from fairkit_cli.interrupts import lasting_interrupts

USAGE = 2
INTERRUPTED = 130


class GuardedGroup(TyperGroup):
    """Turns errors of the input into one message and exit code 2, and Ctrl-C into exit code 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            with lasting_interrupts():
                return super().invoke(ctx)
        except FairkitError as error:
            print(f"fairkit: {error}", file=sys.stderr)
            raise typer.Exit(USAGE) from error
        except KeyboardInterrupt as error:
            print("\nfairkit: interrupted; nothing was written", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    name="fairkit",
    cls=GuardedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"fairkit {version('fairkit')}")
        raise typer.Exit


@app.callback()
def _main(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Audit ONNX models for fairness, mitigate what is found, keep signed evidence.

    Exit codes: 0 done (with a policy: pass), 1 the policy or a verification failed, 2 bad usage or input,
    3 the policy is inconclusive.
    """
    # threads that wait by spinning slow each other down many times over where others work too
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


app.command("audit")(audit.audit)
app.command("compare")(compare.compare)
app.command("demo")(demo.demo)
app.command("frontier")(frontier.frontier)
app.command("init")(init.init)
app.command("mitigate")(mitigate.mitigate)
app.command("certify")(certify.certify)
app.command("verify")(certify.verify)
app.add_typer(certify.key, name="key")
app.add_typer(registry.app, name="registry")
app.add_typer(plugins.app, name="plugins")


def run() -> None:
    """Run the command."""
    app()
