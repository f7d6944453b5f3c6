r"""Commands that a plugin brings, and what they print with.

A distribution declares a command by an entry point of the group ``fairkit.commands``, whose name is what is typed::

    [project.entry-points."fairkit.commands"]
    greet = "my_plugin.command:greet"

It names a function as typer takes them, or a `typer.Typer` with several::

    import typer
    from typing import Annotated

    from fairkit.commands import console, end


    def greet(name: Annotated[str, typer.Argument(help="Whom to greet.")]) -> None:
        \"\"\"Greet somebody.\"\"\"
        console().write(f"Hello, {name}\n")
        raise end("pass")

`fairkit --help` lists it without importing it. Errors of `fairkit.FairkitError` become one message and exit code 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fairkit.progress import Progress
    from fairkit.results.findings import VerdictName

__all__ = ["COMMANDS", "EXIT_CODES", "Console", "console", "end", "provide"]

COMMANDS = "fairkit.commands"
"""The group of entry points that are commands."""

EXIT_CODES: Mapping[str | None, int] = {None: 0, "pass": 0, "fail": 1, "inconclusive": 3}
"""Of a verdict; None is no policy."""


class Console(Protocol):
    """What a command prints with."""

    def say(self, message: str) -> None:
        """Print a message on standard error."""

    def write(self, text: str) -> None:
        """Print lines of the result on standard output."""

    def json(self, value: Any) -> None:
        """Print the result for programs."""

    def progress(self) -> AbstractContextManager[Progress]:
        """Draw progress while something is done."""


_CONSOLE: ContextVar[Console] = ContextVar("fairkit_console")


def provide(found: Console) -> None:
    """Let commands print with this console."""
    _CONSOLE.set(found)


def console() -> Console:
    """Return the console of the running command.

    Raises
    ------
    LookupError
        No command runs.
    """
    return _CONSOLE.get()


def in_command() -> bool:
    """Tell whether a command runs, whose process is fairkit's alone."""
    return _CONSOLE.get(None) is not None


def end(verdict: VerdictName | None) -> Exception:
    """Return what a command raises at its end, for the exit code of a verdict."""
    import typer

    return typer.Exit(EXIT_CODES[verdict])
