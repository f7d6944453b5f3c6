"""The command `fairkit`: its subcommands, and one place for errors."""

from __future__ import annotations

import gc
import warnings
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from fairkit.commands import COMMANDS, provide
from fairkit.installed import entry_points
from fairkit_cli.config import trust
from fairkit_cli.lazy import lazy_group
from fairkit_cli.process_environment import prepare_libraries
from fairkit_cli.terminal.failures import guarded
from fairkit_cli.terminal.output import Terminal, echo, end_at_once, flush, own_process, prepare, say, told


class GuardedGroup(TyperGroup):
    """Turns whatever goes wrong in a subcommand into one message and an exit code (see `guarded`)."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Read the command line; also what --help and --version print may not be taken."""
        with guarded():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        with guarded(), told(ctx.params.get("timings", False)):
            result = super().invoke(ctx)
            flush()
            return result


_COMMANDS = {
    "alternatives": "fairkit_cli.commands.alternatives:alternatives",
    "audit": "fairkit_cli.commands.audit:audit",
    "compare": "fairkit_cli.commands.compare:compare",
    "data": "fairkit_cli.commands.audit:data",
    "demo": "fairkit_cli.commands.init:demo",
    "frontier": "fairkit_cli.commands.frontier:frontier",
    "init": "fairkit_cli.commands.init:init",
    "mitigate": "fairkit_cli.commands.mitigate:mitigate",
    "parity": "fairkit_cli.commands.compare:parity",
    "plan": "fairkit_cli.commands.plan:plan",
    "certify": "fairkit_cli.commands.certify:certify",
    "packs": "fairkit_cli.commands.report:app",
    "report": "fairkit_cli.commands.report:report",
    "verify": "fairkit_cli.commands.certify:verify",
    "key": "fairkit_cli.commands.certify:key",
    "policy": "fairkit_cli.commands.certify:app",
    "registry": "fairkit_cli.registry:app",
    "plugins": "fairkit_cli.plugins:app",
    "watch": "fairkit_cli.watch:app",
    "why": "fairkit_cli.commands.audit:why",
}


def commands_of() -> dict[str, str]:
    """Return where each command is, those of plugins first; what fairkit has itself keeps its name."""
    return {entry_point.name: entry_point.value for entry_point in entry_points(COMMANDS)} | _COMMANDS


def root_group() -> type[TyperGroup]:
    """Return the class of the root command."""
    return lazy_group(commands_of(), GuardedGroup)


app = typer.Typer(
    name="fairkit",
    cls=root_group(),
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
    trust_host: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-host",
            metavar="HOST",
            help="Let secrets of the environment go to this host, which a fairkit.toml names (repeatable).",
        ),
    ] = None,
    timings: Annotated[
        bool,
        typer.Option(
            "--timings",
            help="Print how long each phase took (on stderr, and in a JSON result that is an object under `timings`).",
        ),
    ] = False,
) -> None:
    """Audit ONNX models for fairness, mitigate what is found, keep signed evidence.

    Exit codes: 0 done (with a policy: pass), 1 the policy or a verification failed, 2 bad usage or input,
    3 the policy is inconclusive, 70 an error inside fairkit, 130 interrupted.
    """
    prepare_libraries()
    provide(Terminal())
    trust(trust_host or ())
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


def run() -> None:
    """Run the command."""
    gc.set_threshold(100_000)  # what is imported is kept anyway: looking through it again and again costs a tenth
    prepare()
    own_process()
    try:
        app()
    finally:
        end_at_once()
