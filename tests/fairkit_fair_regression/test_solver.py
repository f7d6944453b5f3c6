"""The solver against linear programs over all predictors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairkit_fair_regression.losses import Grid, Loss, make_parity, netted
from fairkit_fair_regression.solver import Pool, Response, SolverSettings, solve

EXACT = SolverSettings(nu=1e-9, bound=50.0, iterations=200, least=1)


class Exact:
    """All predictors in a table: best responses by looking through them."""

    def __init__(self, costs, values):
        self.costs, self.values, self.calls = costs, values, 0

    def respond(self, multipliers):
        self.calls += 1
        best = int((self.costs + self.values @ multipliers).argmin())
        return Response(float(self.costs[best]), self.values[best], best)

    def optimum(self, bounds):
        result = linprog(
            self.costs, A_ub=self.values.T, b_ub=bounds, A_eq=np.ones((1, len(self.costs))), b_eq=[1.0], method="highs"
        )
        return result.fun if result.status == 0 else None


def _random(seed, predictors=300, constraints=8):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(predictors, constraints)) * 0.2
    costs = 0.5 - 0.8 * values.max(axis=1) + 0.1 * rng.random(predictors)
    values[0], costs[0] = 0.0, 1.0
    return Exact(costs, values), rng


@pytest.mark.long
@given(st.integers(0, 10_000), st.floats(0.0, 0.3))
@settings(max_examples=25, deadline=None)
def test_the_mixture_is_the_optimum_of_the_linear_program_over_all_predictors(seed, epsilon):
    oracle, _ = _random(seed)
    bounds, pool = np.full(8, epsilon), Pool()
    found = solve(pool, bounds, oracle.respond, EXACT)
    chosen = [pool.responses[place].member for place in found.places]
    assert np.array(found.weights) @ oracle.costs[chosen] == pytest.approx(found.objective, abs=1e-12)
    np.testing.assert_allclose(np.array(found.weights) @ oracle.values[chosen], found.values, atol=1e-12)
    assert found.converged
    assert found.objective == pytest.approx(oracle.optimum(bounds), abs=1e-7)
    assert found.violation < 1e-9
    assert sum(found.weights) == pytest.approx(1)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_gap_is_never_negative_and_never_grows_and_bounds_the_distance_to_the_optimum(seed):
    oracle, _ = _random(seed)
    bounds = np.full(8, 0.02)
    found = solve(Pool(), bounds, oracle.respond, SolverSettings(nu=1e-9, bound=50.0, iterations=6, least=6))
    gaps = [moment.gap for moment in found.history]
    assert min(gaps) >= 0
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(gaps))
    assert gaps[-1] < gaps[0]
    assert found.objective + 50.0 * found.violation - oracle.optimum(bounds) <= gaps[-1] + 1e-9


def test_a_mixture_has_at_most_as_many_members_as_tight_bounds_and_one():
    for seed in range(20):
        oracle, _ = _random(seed)
        bounds = np.full(8, 0.05)
        found = solve(Pool(), bounds, oracle.respond, EXACT)
        tight = int((found.values > bounds - 1e-8).sum())
        assert len(found.places) <= tight + 1


def test_multipliers_are_the_price_of_the_bounds():
    oracle, _ = _random(5)
    bounds, step = np.full(8, 0.05), 1e-5
    found = solve(Pool(), bounds, oracle.respond, EXACT)
    for place in range(8):
        moved = bounds.copy()
        moved[place] += step
        slope = (oracle.optimum(bounds) - oracle.optimum(moved)) / step
        assert found.multipliers[place] == pytest.approx(slope, abs=1e-3)


def test_a_frontier_asks_less_when_it_shares_its_predictors():
    oracle, _ = _random(7)
    pool, shared = Pool(), 0
    levels = np.linspace(0.2, 0.02, 10)
    objectives = []
    for level in levels:
        found = solve(pool, np.full(8, level), oracle.respond, EXACT)
        shared += found.calls
        objectives.append(found.objective)
        assert found.objective == pytest.approx(oracle.optimum(np.full(8, level)), abs=1e-7)
    apart = sum(solve(Pool(), np.full(8, level), oracle.respond, EXACT).calls for level in levels)
    assert pool.calls == shared
    assert shared < 0.6 * apart
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(objectives))


def test_without_costs_the_least_violation_is_found():
    rng = np.random.default_rng(3)
    values = rng.random((200, 4)) + 0.2
    oracle = Exact(np.zeros(200), values)
    pool = Pool()
    pool.add(oracle.respond(np.full(4, 0.25)))
    found = solve(
        pool, np.zeros(4), oracle.respond, SolverSettings(nu=1e-9, bound=1.0, iterations=200, least=1, strength=0.0)
    )
    best = linprog(
        np.append(np.zeros(200), 1.0),
        A_ub=np.hstack([values.T, -np.ones((4, 1))]),
        b_ub=np.zeros(4),
        A_eq=np.append(np.ones(200), 0.0)[None, :],
        b_eq=[1.0],
        method="highs",
    ).fun
    assert found.violation == pytest.approx(best, abs=1e-7)


def test_too_small_a_bound_on_multipliers_leaves_a_violation_and_says_so():
    oracle, _ = _random(9)
    bounds = np.full(8, 0.0)
    found = solve(Pool(), bounds, oracle.respond, SolverSettings(nu=1e-9, bound=0.01, iterations=100, least=1))
    assert found.violation > 0.01
    assert found.converged


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3])
def test_parity_over_all_functions_of_a_small_feature(epsilon):
    rng = np.random.default_rng(11)
    n = 200
    codes = rng.integers(0, 2, n)
    feature = np.clip(rng.integers(0, 4, n) + codes, 0, 3)
    labels = np.clip(feature / 4 + 0.2 * rng.random(n), 0, 1)
    grid = Grid(4)
    parity = make_parity(grid, Loss("squared"), labels, codes, 2)
    forms = np.array(list(itertools.product(range(5), repeat=4)))
    measured = [parity.measure(form[feature]) for form in forms]
    oracle = Exact(np.array([m[0] for m in measured]), np.array([m[1] for m in measured]))
    bounds = parity.bounds(np.full(2, epsilon))
    found = solve(Pool(), bounds, oracle.respond, EXACT, simplify=netted)
    assert found.objective == pytest.approx(oracle.optimum(bounds), abs=1e-7)
    assert found.violation < 1e-9
    assert oracle.calls < 150
