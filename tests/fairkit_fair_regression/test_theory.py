"""Theorem 4 of Agarwal, Dudík & Wu (2019): the algorithm ends, and what its mixture keeps."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_fair_regression.losses import Grid, Loss, make_parity
from fairkit_fair_regression.solver import Pool, Response, SolverSettings, solve


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("bound", "nu"), [(10.0, 0.05), (100.0, 0.01)])
def test_theorem_4(seed, bound, nu):
    """At most 16 B² log(2 |A| N + 1) / ν² iterations; cost ≤ cost(Q) + 2ν; |γ| ≤ ε + (2 + 2ν) / B."""
    from scipy.optimize import linprog

    rng, size, groups = np.random.default_rng(seed), 8, 3
    codes = rng.integers(0, groups, 200)
    labels = np.clip(rng.normal(0.3 + 0.2 * codes, 0.2), 0, 1)
    parity = make_parity(Grid(size), Loss("squared"), labels, codes, groups)
    tilts = rng.random((150, 1)) * np.array([[-0.1, 0.0, 0.1]]) + rng.random((150, 1))
    levels = np.clip(np.round(size * (tilts[:, codes] * labels)), 0, size).astype(np.int64)
    levels[0] = size // 2
    measured = [parity.measure(one) for one in levels]
    costs, values = np.array([cost for cost, _ in measured]), np.stack([g for _, g in measured])

    def respond(multipliers):
        best = int((costs + values @ multipliers).argmin())
        return Response(float(costs[best]), values[best], best)

    epsilon = 0.1
    bounds = parity.bounds(np.full(groups, epsilon))
    optimum = linprog(costs, A_ub=values.T, b_ub=bounds, A_eq=np.ones((1, len(costs))), b_eq=[1.0]).fun
    most = 16 * bound**2 * np.log(2 * groups * size + 1) / nu**2
    found = solve(Pool(), bounds, respond, SolverSettings(nu=nu, bound=bound, iterations=500, least=1))
    assert found.converged
    assert found.iterations <= most
    assert found.objective <= optimum + 2 * nu
    assert found.values.max() <= epsilon + (2 + 2 * nu) / bound
