"""Refuse what cannot fit before it is tried."""

from __future__ import annotations

import os
from contextlib import suppress

from fairkit.errors import DataError

_BYTES_PER_NUMBER = 8
_COPIES = 4
"""Encoded features, their projection, its copy in tree order, and what a step holds besides."""
_PER_ROW = 400
"""Bounding boxes, answers and bookkeeping of a row."""


def needed_bytes(rows: int, features: int, outputs: int) -> int:
    """Say how much memory a certificate takes, about: it grows with rows x features, never with rows²."""
    return rows * (_COPIES * _BYTES_PER_NUMBER * features + 6 * _BYTES_PER_NUMBER * outputs + _PER_ROW)


def available_bytes() -> int | None:
    """Return the free memory; None where the system does not tell."""
    with (
        suppress(OSError, ValueError),
        open("/proc/meminfo", encoding="ascii") as file,  # noqa: PTH123 -- not a file that a Path walks to
    ):
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def check_memory(rows: int, features: int, outputs: int = 2) -> None:
    """Compare what is needed with what is free."""
    need, free = needed_bytes(rows, features, outputs), available_bytes()
    if free is not None and need > free:
        raise DataError(
            f"a certificate for {rows:,} rows with {features:,} encoded features needs about {need / 2**30:.1f} GiB "
            f"of memory; {free / 2**30:.1f} GiB are free. Give fewer rows, or fewer columns to the metric (columns=A,B)"
        )
