"""The standard streams of the command: they exist, take any text, and show warnings as messages."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Any

from fairkit_cli.terminal.output import say


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
