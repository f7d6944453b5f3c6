"""What a command writes: results to standard output or a file, messages to standard error, and its exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fairkit.commands import EXIT_CODES
from fairkit.errors import FairkitError
from fairkit.support.escaping import json_text, visible
from fairkit.support.timings import phase, running
from fairkit_cli.terminal.plain import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


PASSED, FAILED, USAGE, INCONCLUSIVE, BUG, INTERRUPTED = 0, 1, 2, 3, 70, 130
"""The exit codes of every command."""


class OutputError(FairkitError, OSError):
    """Standard output that does not take what is written to it."""


def exit_code(verdict: str | None) -> int:
    """Return the exit code of a verdict; None is no policy."""
    return EXIT_CODES[verdict]


def echo(*lines: str) -> None:
    """Print lines for people; what acts on a terminal is shown instead, and no name begins a line (see `visible`)."""
    terminal = sys.stdout.isatty()
    put("".join(f"{part}\n" for line in lines or ("",) for part in folded(visible(line), terminal=terminal)))


def record_text(value: Any) -> str:
    """Return a result as JSON, with the timings taken so far where --timings asks for them."""
    taken = running()
    if taken is not None and isinstance(value, dict):
        value = value | {"timings": taken.to_dict()}
    return json_text(value) + "\n"


def print_json(value: Any) -> None:
    """Print a result for programs."""
    put(record_text(value))


def print_as(output_format: str, record: Any, *lines: str) -> None:
    """Print a result for programs where the format is ``json``, else its lines for people."""
    if output_format == "json":
        print_json(record)
    else:
        echo(*lines)


def json_lines(records: Iterable[Any]) -> str:
    """Return records as a JSON list with a line for each: an indented one takes long for thousands."""
    return "[" + ",\n".join(json_text(one.to_dict(), indent=None) for one in records) + "]"


def put(text: str) -> None:
    """Write text to standard output as it is, and flush it: an error is found here, not when the process ends."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        give_up()
        raise _output_error(error) from error


def flush() -> None:
    """Flush standard output."""
    put("")


def give_up() -> None:
    """Throw away what standard output does not take, so that the end of the process does not try it again."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def _output_error(error: OSError) -> OutputError:
    if error.errno == errno.EPIPE:
        return OutputError("the program that reads the output closed it before all was written")
    return OutputError(
        f"the result cannot be written to standard output: {error.strerror or error}; "
        "write it to a file with --output FILE, or check where the output goes"
    )


def write(text: Callable[[bool], str], output: Path | None = None, *, verdict: str | None = None) -> None:
    """Print what is made for a terminal (True) or else (False), or write the latter to a file and tell its verdict."""
    from fairkit.support.files import write_atomic

    with phase("write"):
        if output is None:
            put(text(sys.stdout.isatty()))
            return
        write_atomic(output, text(False))
    say(f"wrote {output}{', verdict ' + verdict if verdict else ''}")


def say(message: str) -> None:
    """Print a message on standard error; its further lines are indented, so that none of them looks like another.

    A standard error that takes nothing is passed over: there is nobody to tell.
    """
    lines = f"fairkit: {visible(message, lines=True)}".replace("\n", "\n  ").split("\n")
    text = "\n".join(part for line in lines for part in folded(line, terminal=sys.stderr.isatty()))
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 -- the one place
    except (OSError, ValueError):
        return


def prepare() -> None:
    """Make the standard streams fit to be written to; once, before anything else.

    A stream that was closed is replaced, so that no file of ours takes its number: what is written to it is an error
    that is noticed. A character that a stream's encoding lacks is written as an escape. Warnings of libraries, which
    may quote names from the data, are shown as messages.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 -- a number, kept open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show


def _show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    say(f"{category.__name__}: {message}")
