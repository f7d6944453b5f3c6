"""Writing files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fairkit.errors import FairkitError


class FileError(FairkitError, OSError):
    """A file that cannot be written where it was asked for."""


def check_writable(path: Path) -> None:
    """Find out before long work whether a file can be written later.

    Raises
    ------
    FileError
        The folder does not exist or is not writable, or the path is a folder.
    """
    folder = path.parent
    if path.is_dir():
        raise FileError(f"{str(path)!r} is a folder; give a file name in it")
    if not folder.is_dir():
        raise FileError(f"the folder {str(folder)!r} does not exist; create it first: mkdir -p {folder}")
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    except OSError as error:
        raise FileError(f"nothing can be written to {str(folder)!r}: {error.strerror}") from error
    os.close(handle)
    Path(name).unlink()


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file under a temporary name, flush it to the disk, and rename it.

    Raises
    ------
    FileError
        It cannot be written; nothing is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    check_writable(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    finally:
        Path(name).unlink(missing_ok=True)
