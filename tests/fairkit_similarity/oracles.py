"""Slow, obvious twins of the solver: the linear program, and the dual with every distance in one matrix."""

from __future__ import annotations

import numpy as np


def distances(z):
    return ((z[:, None, :] - z[None, :, :]) ** 2).sum(axis=-1)


def linear_program(R, C, weights, epsilon):
    """max <R, Π> with Π ≥ 0, columns summing to the weights and <C, Π> ≤ ε; n x m variables."""
    import scipy.sparse as sp
    from scipy.optimize import linprog

    n, m = R.shape
    columns = sp.kron(np.ones((1, n)), sp.eye(m), format="csr")
    found = linprog(
        -R.ravel(), A_ub=C.ravel()[None], b_ub=[epsilon], A_eq=columns, b_eq=weights, method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    assert found.status == 0, found.message
    return -found.fun


def dense_dual(R, C, weights, epsilon, eta):
    """M(η) by its definition."""
    return eta * epsilon + weights @ (R - eta * C).max(axis=0)


def random_problem(seed, most=32):
    """Small problems of all sorts: ties, equal rows, one label only, one row only, few or many columns."""
    rng = np.random.default_rng(seed)
    n, d, K = int(rng.integers(1, most)), int(rng.integers(1, 21)), int(rng.integers(1, 4))
    z = rng.normal(size=(n, d))
    if seed % 2:
        z = np.round(z)
    if seed % 5 == 0:
        z = z[rng.integers(0, n // 3 + 1, n)]
    values = rng.random((K, n))
    if seed % 3 == 0:
        values = np.round(3 * values) / 3
    labels = rng.integers(0, K, n)
    epsilon = [0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 1e6][seed % 7] * d / 3
    return z, values, labels, epsilon
