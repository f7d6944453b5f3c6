"""numba starts without the rest of scipy.linalg, and whoever wants that later gets the real one."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("numba")

CODE = """
import sys
import numpy as np
from fairkit_similarity.search.starting import start_numba
start_numba()
from fairkit_similarity.search.problem import same_rows
group, first = same_rows(np.array([[1.0], [2.0], [1.0]]))
assert group.tolist() == [0, 1, 0] and first.tolist() == [0, 1]
assert "scipy.linalg" not in sys.modules and "scipy.linalg.cython_blas" in sys.modules
import numba
dot = numba.njit(lambda a, b: a @ b)
assert np.allclose(dot(np.eye(2), np.full((2, 2), 3.0)), 3.0)
import scipy.linalg
assert np.allclose(scipy.linalg.solve(2.0 * np.eye(2), [1.0, 2.0]), [0.5, 1.0])
from scipy.linalg import cython_blas
start_numba()
assert sys.modules["scipy.linalg"] is scipy.linalg
print("fine")
"""


@pytest.mark.long
def test_numba_finds_blas_and_scipy_stays_whole():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr
