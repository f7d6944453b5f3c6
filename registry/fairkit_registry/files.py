"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from fairkit_registry.errors import RegistryError

if TYPE_CHECKING:
    from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain(error: OSError, doing: str, path: Path) -> RegistryError:
    """Turn an error of the operating system into one message that says how to mend it."""
    if error.errno in _FULL:
        hint = "the disk or quota is full: free some space and run the command again; nothing was changed"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = "the folder cannot be written: check its permissions, or name another with --registry"
    else:
        hint = "nothing was changed"
    return RegistryError(f"{doing} {path}: {error.strerror or error}. {hint[0].upper()}{hint[1:]}.")


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename in it survives a power failure."""
    if os.name == "nt":  # Windows cannot open folders; its renames are journalled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes, *, mode: int = 0o644, replace: bool = True) -> None:
    """Write a file under a temporary name, flush it, and rename it.

    Parameters
    ----------
    path
        Where it shall be.
    content
        Its bytes.
    mode
        Permissions of the new file; it never has wider ones, not even for a moment.
    replace
        False refuses to replace an existing file.

    Raises
    ------
    RegistryError
        The file exists and may not be replaced, or cannot be written.
    """
    if not replace and path.exists():
        raise RegistryError(f"{path} exists already; choose another name, or remove it first")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise explain(error, "cannot write", path) from None
