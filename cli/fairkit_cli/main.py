"""The command `fairkit`: its subcommands, and one place for errors."""

from __future__ import annotations

import warnings
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from fairkit_cli import (
    attest,
    audit,
    certify,
    compare,
    demo,
    frontier,
    init,
    mitigate,
    packs,
    plan,
    plugins,
    registry,
    report,
    revoke,
    sign_data,
    verify,
    watch,
)
from fairkit_cli.failures import guarded
from fairkit_cli.interrupts import end_at_once, own_process
from fairkit_cli.output import echo, flush, say
from fairkit_cli.streams import prepare
from fairkit_cli.surroundings import prepare_libraries
from fairkit_cli.timings import with_timings


class GuardedGroup(TyperGroup):
    """Turns whatever goes wrong in a subcommand into one message and an exit code (see `guarded`)."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Read the command line; also what --help and --version print may not be taken."""
        with guarded():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        with guarded():
            result = super().invoke(ctx)
            flush()
            return result


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

        echo(f"fairkit {version('fairkit')}")
        raise typer.Exit


@app.callback()
def _main(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Audit ONNX models for fairness, mitigate what is found, keep signed evidence.

    Exit codes: 0 done (with a policy: pass), 1 the policy or a verification failed, 2 bad usage or input,
    3 the policy is inconclusive, 70 an error inside fairkit, 130 interrupted.
    """
    prepare_libraries()
    warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a renamed parameter as a note; show other warnings as Python does."""
    from fairkit.errors import RenamedWarning

    if issubclass(category, RenamedWarning):
        say(f"note: {message}")
    else:
        _usual(message, category, filename, lineno, file, line)


_usual = warnings.showwarning

app.command("attest")(with_timings(attest.attest))
app.command("audit")(with_timings(audit.audit))
app.command("compare")(with_timings(compare.compare))
app.command("demo")(with_timings(demo.demo))
app.command("frontier")(with_timings(frontier.frontier))
app.command("init")(with_timings(init.init))
app.command("mitigate")(with_timings(mitigate.mitigate))
app.command("plan")(with_timings(plan.plan))
app.command("certify")(with_timings(certify.certify))
app.command("packs")(with_timings(packs.packs))
app.command("report")(with_timings(report.report))
app.command("revoke")(with_timings(revoke.revoke))
app.command("sign-data")(with_timings(sign_data.sign_data))
app.command("verify")(with_timings(verify.verify))
app.add_typer(certify.key, name="key")
app.add_typer(registry.app, name="registry")
app.add_typer(plugins.app, name="plugins")
app.add_typer(watch.app, name="watch")


def run() -> None:
    """Run the command."""
    prepare()
    own_process()
    try:
        app()
    finally:
        end_at_once()
