"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit.progress import Progress


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Return a function that draws progress on stderr if that is a terminal."""
    from fairkit.progress import no_progress

    if not sys.stderr.isatty():
        yield no_progress
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
