"""What commands of plugins print with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.terminal.output import print_json, say, write
from fairkit_cli.terminal.progress import progress_bar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fairkit.progress import Progress


class Terminal:
    """The console of `fairkit.commands`."""

    def say(self, message: str) -> None:
        """Print a message on standard error."""
        say(message)

    def write(self, text: str) -> None:
        """Print lines of the result on standard output."""
        write(lambda terminal: text)

    def json(self, value: Any) -> None:
        """Print the result for programs."""
        print_json(value)

    def progress(self) -> AbstractContextManager[Progress]:
        """Draw progress while something is done."""
        return progress_bar()
