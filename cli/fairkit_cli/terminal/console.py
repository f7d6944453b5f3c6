"""Progress, and what commands of plugins print with."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairkit_cli.terminal.output import print_json, say, write

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fairkit.progress import Progress


PAUSE = 15.0
"""Seconds between two lines of progress where there is no terminal."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Return a function that draws progress on stderr; where that is no terminal, it writes a line now and then."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from fairkit_cli.terminal.plain import messages, shown

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%", markup=False),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}", markup=False),
    )
    with Progress(*columns, console=messages(), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(doing: str, done: int, total: int, **values: float) -> None:
            now = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in values.items())
            if doing not in tasks:
                tasks[doing] = bar.add_task(shown(doing), total=total or None, now="")
            bar.update(tasks[doing], completed=done, total=total or None, now=shown(now))

        yield show


def _lines() -> Progress:
    """Return a function that says how far long work is, one line in so many seconds (`PAUSE`)."""
    begun = last = time.monotonic()

    def show(doing: str, done: int, total: int, **values: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PAUSE:
            last = now
            say(f"{doing}{f', {done:,} of {total:,}' if total else ''}; {now - begun:,.0f} s so far")

    return show


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
