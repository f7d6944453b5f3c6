"""What libraries and child processes find in the environment: a safe path, threads that do not spin, a cache."""

from __future__ import annotations

import os
import stat
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's names for them


def prepare_libraries() -> None:
    """Set what is not set already; it must run before numpy is imported.

    Threads that wait by spinning slow each other down many times over where others work too, and cost processor time
    everywhere: a third of that of an audit with `restricted-dro`. The matrix products of an audit are short: a second
    thread of OpenBLAS makes them no faster, the first spins while it waits for it, and the last digits of a learned
    metric then depend on the number of cores. What is parallel here (numba, onnxruntime, learners) has its own threads.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # every process of ours: no module comes from the working folder
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "NUMBA_CACHE_DIR" not in os.environ:
        folder = cache_folder()
        if folder is not None:
            os.environ["NUMBA_CACHE_DIR"] = str(folder)
    _keep_memory()


def _keep_memory() -> None:
    """Have glibc keep what a batch needed for the next one: pages that go and come again cost a tenth of an audit."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with suppress(ImportError, AttributeError, OSError):  # another libc, which has its own ways
        import ctypes

        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_TRIM_THRESHOLD, 64 << 20)


def cache_folder() -> Path | None:
    """Return a folder of this user alone in which compiled kernels can be kept; None where there is none.

    The installed package may lie where nothing can be written. A kernel that is read back is code: no other user may
    have put it there.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 -- may have no home
    user = getattr(os, "getuid", lambda: 0)()
    folder = Path(home) / "fairkit" / "numba"
    if _ours(folder, user):
        return folder
    import tempfile  # takes 5 ms, and writes a file

    folder = Path(tempfile.gettempdir()) / f"fairkit-numba-{user}"
    return folder if _ours(folder, user) else None


def _ours(folder: Path, user: int) -> bool:
    """Make a folder, and tell whether it is this user's alone and can be written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    closed = os.name == "nt" or (status.st_uid == user and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return stat.S_ISDIR(status.st_mode) and closed and os.access(folder, os.W_OK)


def load_compute() -> None:
    """Import `pyarrow.compute` without the docstrings of its functions' options, which take half of the time."""
    if "pyarrow.compute" not in sys.modules:
        with _standing_in("pyarrow.vendored.docscrape", NumpyDocString=lambda text: defaultdict(tuple)):
            import_module("pyarrow.compute")


@contextmanager
def _standing_in(name: str, **attributes: Any) -> Iterator[None]:
    """Let what is imported inside find these attributes in place of a module; where it asks for more, the module."""

    def real(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        sys.modules.pop(name, None)
        return getattr(import_module(name), attribute)

    standing = ModuleType(name)
    vars(standing).update(attributes, __getattr__=real)
    sys.modules.setdefault(name, standing)
    try:
        yield
    finally:
        if sys.modules.get(name) is standing:
            del sys.modules[name]
