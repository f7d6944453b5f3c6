"""The end of a command that went wrong: bad input is one message and code 2, a bug is one line and code 70."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairkit.errors import FairkitError
from fairkit_cli.helping import as_options
from fairkit_cli.terminal.output import BUG, INTERRUPTED, USAGE, give_up, lasting_interrupts, say
from fairkit_cli.terminal.plain import folded

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = 20
"""Reports of bugs that are kept; older ones are deleted."""

_SURROUNDINGS = frozenset(
    getattr(errno, name)
    for name in (
        "EACCES", "EDQUOT", "EFBIG", "EIO", "EISDIR", "ELOOP", "EMFILE", "ENAMETOOLONG", "ENFILE", "ENODEV", "ENOMEM",
        "ENOSPC", "ENOTDIR", "ENXIO", "EPERM", "EPIPE", "EROFS", "ESTALE", "ETIMEDOUT", "ETXTBSY",
    )
    if hasattr(errno, name)
)  # fmt: skip
"""Errors of the system that say something about files and disks, not about fairkit."""


@contextmanager
def guarded() -> Iterator[None]:
    """Within the block, turn every exception into a message and an exit code."""
    try:
        with lasting_interrupts():
            yield
    except (KeyboardInterrupt, typer.Abort) as error:
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from error
    except (FairkitError, MemoryError, OSError) as error:
        text = told(error)
        give_up()
        if text is None:
            raise _bug(error) from error
        say(text)
        raise typer.Exit(USAGE) from error
    except Exception as error:
        if isinstance(error, typer.Exit) or hasattr(error, "exit_code"):
            message = str(getattr(error, "format_message", str)())
            if message and "\n" not in message:  # typer's own: it says what was typed wrongly, and exits with 2
                lines = folded(f"Error: {message}", terminal=sys.stderr.isatty())
                error.format_message = lambda: "\n".join(lines).removeprefix("Error: ")  # type: ignore[attr-defined]
            raise
        raise _bug(error) from error


def told(error: BaseException) -> str | None:
    """Return the message for an error that the user can act on, and None for a bug."""
    if isinstance(error, FairkitError):
        return as_options(str(error))
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; use fewer rows, or a machine with more"
    if isinstance(error, OSError) and error.errno in _SURROUNDINGS:
        where = f"{os.fsdecode(error.filename)!r}: " if isinstance(error.filename, str | bytes) else ""
        return f"{where}{error.strerror}"
    return None


def _bug(error: BaseException) -> typer.Exit:
    """Keep the traceback in a file, and say where."""
    trace = "".join(traceback.format_exception(error))
    kind = type(error).__name__
    try:
        path = keep(trace)
    except OSError:
        print(trace, file=sys.stderr)  # noqa: T201 -- nowhere else to put it
        say(f"an error inside fairkit ({kind}); its details are above, as no folder for them can be written")
    else:
        say(f"an error inside fairkit ({kind}); the details are in {path}")
    return typer.Exit(BUG)


def keep(trace: str) -> Path:
    """Write a traceback to the user's state folder, or to the folder for temporary files, readable by the user only."""
    import platform
    import tempfile

    about = f"fairkit {_version()}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv!r}\n\n"
    text = (about + trace).encode("utf-8", "backslashreplace")
    try:
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        path = _write(folder, text)
    except OSError:
        return _write(Path(tempfile.gettempdir()), text)
    for old in sorted(folder.glob("error-*.txt"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def _folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_state_dir("fairkit", appauthor=False)) / "errors"


def _write(folder: Path, text: bytes) -> Path:
    import tempfile

    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    handle, name = tempfile.mkstemp(prefix=f"error-{stamp}-", suffix=".txt", dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    return Path(name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fairkit")
    except PackageNotFoundError:
        return "(not installed)"
