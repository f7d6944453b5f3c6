"""Importing numba without what it does not need: a quarter of a second of every certificate."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


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
