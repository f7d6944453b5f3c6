"""The search is compiled once for each version and machine: in a process that can be stopped, where time is limited."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, Problem
from fairkit_all_inputs.bounds.searching import Effort, answer
from fairkit_onnx.structure.cells import listed_block
from fairkit_onnx.structure.domain import Listed, Numbers, numbers_block

COMMAND = "from fairkit_all_inputs.bounds.compiling import compile_loops; compile_loops()"


class Compilation:
    """The compilation of the loops that a problem needs, in a process of its own where they are not compiled yet."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if sys.executable and not _compiled():
            self._process = subprocess.Popen(
                [sys.executable, "-c", COMMAND], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def ready(self, seconds: float) -> bool:
        """Wait for its end; tell whether the loops are there. What was compiled until then is kept for later."""
        if self._process is None:
            return True
        try:
            code = self._process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            self.stop()
            return False
        return code == 0

    def stop(self) -> None:
        """End the process where it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _compiled() -> bool:
    """Tell whether numba's cache has the loops that take long."""
    try:
        from fairkit_all_inputs.bounds import loops, merging
    except ImportError:
        return True  # without numba, which is said elsewhere
    kernels: list[Any] = [loops.search, loops.improve, merging.join, merging.gains]
    try:
        return all(one.signatures or one._cache._cache_file._load_index() for one in kernels)
    except AttributeError:  # another numba keeps its cache in another way
        return False


def compile_loops() -> None:
    """Ask every question of a small model, so that numba compiles the loops and keeps them."""
    blocks = [
        listed_block(Listed(columns=("a",), values=((0,), (1,), (2,)))),
        numbers_block(Numbers(name="b", low=0.0, high=3.0), np.arange(4.0), np.float32),
        listed_block(Listed(columns=("c",), values=((0,), (1,)))),
    ]
    tests: list[tuple[int, int]] = []
    yes, no, value, roots = [], [], [], []
    for number in range(4):
        start = len(tests)
        roots.append(start)
        tests += [(2, 1), (0, 1 << number % 3), (1, 3), (-1, 0), (-1, 0), (-1, 0), (-1, 0)]
        yes += [start + 1, start + 3, start + 5, -1, -1, -1, -1]
        no += [start + 2, start + 4, start + 6, -1, -1, -1, -1]
        value += [0.0, 0.0, 0.0, 1.0 + number, -1.0, 0.5, -2.0 * number]
    problem = Problem(
        blocks=blocks, changing=2, tests=tests, yes=yes, no=no, value=value, roots=roots, base=0.0, rounding=1e-6,
        threshold=100.0, logistic=True,
    )  # fmt: skip
    effort = Effort(boxes=50)
    for kind in (SCORE, FLIP, CHANCE):
        answer(problem, kind, effort=effort, starts=[(0, 0, 0)])
    from fairkit_all_inputs.bounds.merging import Merged

    Merged.of(problem.gap(0, 1)).inside(problem.layout.pack(problem.layout.full), problem.layout.grid)
