"""Watching that nothing is written: the working folder and the folder of temporary files stay empty."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairkit_testing.require import require


@contextmanager
def nothing_left_behind(doing: str) -> Iterator[Path]:
    """Run a block in an empty working folder with empty room for temporary files; both must be empty after."""
    before, temporary = Path.cwd(), tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        work, room = Path(folder) / "work", Path(folder) / "tmp"
        work.mkdir()
        room.mkdir()
        os.chdir(work)
        tempfile.tempdir = str(room)
        try:
            yield work
            left = [str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()]
        finally:
            os.chdir(before)
            tempfile.tempdir = temporary
    require(not left, f"{doing} left files behind: {', '.join(sorted(left))}")
