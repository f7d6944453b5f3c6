"""Tables of decisions as files: whether a batch is one, and its digest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from fairkit.sources.finders import is_address


def file_of(data: Any) -> Path | None:
    """Return the file that a batch is; None for tables in memory and for addresses."""
    if isinstance(data, str) and is_address(data):
        return None
    return Path(data) if isinstance(data, str | os.PathLike) else None


def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file's bytes; None for folders and globs."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
