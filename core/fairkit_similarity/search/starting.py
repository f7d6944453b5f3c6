"""Importing numba without what it does not need: a quarter of a second of every certificate."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from fairkit.errors import DataError


def start_numba() -> None:
    """Import numba, and of scipy.linalg only the module in which numba looks for BLAS.

    numba's first compiled function imports `scipy.linalg.cython_blas`, and with it all of `scipy.linalg`, some 150
    modules. Here that one module is imported under a package that stands for `scipy.linalg` meanwhile. Whoever imports
    `scipy.linalg` later gets the real one.
    """
    importlib.import_module("numba")
    if "scipy.linalg" in sys.modules or "numba.np.arraymath" in sys.modules:
        return
    try:
        scipy = importlib.import_module("scipy")
    except ImportError:
        return
    standing = ModuleType("scipy.linalg")
    standing.__path__ = [str(Path(next(iter(scipy.__path__))) / "linalg")]
    sys.modules["scipy.linalg"] = standing
    try:
        importlib.import_module("scipy.linalg.cython_blas")
    except ImportError:  # another layout of scipy: numba finds its way
        pass
    finally:
        del sys.modules["scipy.linalg"]


# Refuse what cannot fit before it is tried.


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
