"""The solver against linear programs over all predictors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairkit.errors import ParameterError
from fairkit.mitigators import Groups, Run, Table
from fairkit_fair_regression.losses import Grid, Loss, fit_hinge, hinge_slopes, make_parity, netted
from fairkit_fair_regression.plugin import FairRegression
from fairkit_fair_regression.solver import Pool, Response, SolverSettings, solve
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import run_columns

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


# The hinge form of the cost-sensitive oracle: against its linear program as published, and enumeration.
def hinge_loss(costs, predictions):
    """Return φ(f) of each row, shape [n]: the definition, term by term."""
    step = 1 / costs.shape[1]
    thresholds = step * np.arange(1, costs.shape[1] + 1)
    signs = np.where(costs <= 0, 1.0, -1.0)
    margins = step / 2 - signs * (predictions[:, None] - thresholds)
    return np.asarray((np.abs(costs) * np.maximum(margins, 0.0)).sum(axis=1))


def _published(matrix, costs):
    """Solve the paper's program: one variable t for each row and threshold, |β| <= 1, the intercept free."""
    from scipy.optimize import linprog

    rows, size = costs.shape
    z = np.arange(1, size + 1) / size
    width = matrix.shape[1] + 1
    features = np.column_stack([matrix, np.ones(rows)])
    left, right = [], []
    for i, j in itertools.product(range(rows), range(size)):
        label = 1.0 if costs[i, j] <= 0 else -1.0
        line = np.zeros(width + rows * size)
        line[:width] = -label * features[i]
        line[width + i * size + j] = -1.0
        left.append(line)
        right.append(-0.5 / size - label * z[j])
    prices = np.concatenate([np.zeros(width), np.abs(costs).ravel()])
    limits = [(-1, 1)] * (width - 1) + [(None, None)] + [(0, None)] * (rows * size)
    return linprog(prices, A_ub=np.array(left), b_ub=np.array(right), bounds=limits).fun


def test_slopes_are_the_derivative_of_a_convex_loss():
    rng = np.random.default_rng(0)
    costs, kinks = rng.normal(size=(40, 6)), (np.arange(7) + 0.5) / 6
    slopes = hinge_slopes(costs)
    assert (np.diff(slopes, axis=1) >= -1e-12).all()
    at = rng.uniform(-0.3, 1.4, 40)
    piece = (at[:, None] > kinks).sum(axis=1)
    derivative = (hinge_loss(costs, at + 1e-7) - hinge_loss(costs, at - 1e-7)) / 2e-7
    np.testing.assert_allclose(slopes[np.arange(40), piece], derivative, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_the_program_has_the_optimum_of_the_published_one(seed, scale):
    """With features of size .05 the bound of the coefficients holds one of them."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(12, 3))
    matrix = (scale * signal).astype(np.float32)
    costs = np.arange(1, 6) / 5 - np.clip(0.5 + 0.3 * signal[:, :1], 0, 1) + 0.2 * rng.normal(size=(12, 5))
    model = fit_hinge(matrix, costs)
    own = hinge_loss(costs, model.predict(matrix.astype(float))).sum()
    assert own == pytest.approx(_published(matrix, costs), rel=1e-7)
    assert np.abs(model.coef_).max() <= 1 + 1e-9
    if scale < 1:
        assert np.abs(model.coef_).max() == pytest.approx(1)


def test_a_model_of_the_intercept_alone_is_the_best_kink():
    rng = np.random.default_rng(5)
    costs = rng.normal(size=(30, 8))
    model = fit_hinge(np.zeros((30, 1), dtype=np.float32), costs)
    kinks = (np.arange(9) + 0.5) / 8
    best = min(hinge_loss(costs, np.full(30, kink)).sum() for kink in kinks)
    assert hinge_loss(costs, np.full(30, model.intercept_)).sum() == pytest.approx(best, rel=1e-9)


def _cells():
    """Rows of three kinds, mixed differently in two groups; the label is the kind's."""
    kinds = np.array([0] * 20 + [1] * 10 + [2] * 10 + [0] * 5 + [1] * 10 + [2] * 25)
    codes = np.repeat([0, 1], 40)
    names = np.array(["u", "v", "w"], dtype=object)
    target = np.array([0.12, 0.45, 0.86])[kinds]
    table = Table(
        columns={"kind": names[kinds]},
        features=("kind",),
        target=target,
        groups={"g": Groups(None, ("a", "b"), codes.astype(np.int64))},
        weights=None,
        task="regression",
    )
    return table, kinds, codes


@pytest.mark.parametrize("tolerance", [0.02, 0.1])
def test_the_mixture_is_near_the_best_of_all_predictors_on_the_grid(tolerance):
    """All (N + 1)^3 predictors of the kind, and the best mixture of them by a linear program."""
    from scipy.optimize import linprog

    table, kinds, codes = _cells()
    size = 8
    parity = make_parity(Grid(size), Loss("squared"), table.target, codes, 2)
    every = np.array(list(itertools.product(range(size + 1), repeat=3)))
    measured = [parity.measure(levels[kinds]) for levels in every]
    costs, values = np.array([cost for cost, _ in measured]), np.stack([v for _, v in measured])
    limits = parity.bounds(np.full(2, tolerance))
    best = linprog(costs, A_ub=values.T, b_ub=limits, A_eq=np.ones((1, len(costs))), b_eq=[1.0]).fun
    settings = {"oracle": "hinge", "grid": size, "tolerance": tolerance, "label_range": [0, 1], "nu": 1e-5}
    model = FairRegression.with_values(settings).fit(table, Run(learner="linear", threads=1))
    constant = costs[(every == every[:, :1]).all(axis=1)].min()
    assert model.details["violation"] <= 1e-6
    assert best - 1e-9 <= model.details["objective"] <= best + 0.05 * (constant - best)


@pytest.mark.parametrize("loss", ["squared", "absolute", "logistic", "poisson"])
def test_every_loss_is_served_and_becomes_onnx(loss):
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, 240)
    x = rng.normal(size=240) - codes
    target = np.clip(0.5 + 0.15 * x + 0.1 * rng.normal(size=240), 0, 1)
    target = (target > 0.5).astype(float) if loss == "logistic" else target
    target = rng.poisson(3 * target).astype(float) if loss == "poisson" else target
    table = Table(
        columns={"x": x, "noise": rng.normal(size=240)},
        features=("x", "noise"),
        target=target,
        groups={"g": Groups(None, ("a", "b"), codes.astype(np.int64))},
        weights=None if loss == "squared" else rng.integers(1, 3, 240).astype(float),
        task="binary" if loss == "logistic" else "regression",
    )
    settings = {"oracle": "hinge", "loss": loss, "grid": 10, "tolerance": 0.05, "iterations": 3}
    model = FairRegression.with_values(settings).fit(table, Run(learner="linear", threads=1))
    assert model.details["violation"] <= 0.005
    scores = model.member_scores(table.columns)
    found = run_columns(open_session(model.to_onnx()), table.columns)
    assert (np.abs(found.get("member_scores", found["score"]) - scores) < 1e-4).mean() > 0.99
    assert np.ptp(scores @ np.array(model.weights)) > 0.05 * np.ptp(target)


@pytest.mark.parametrize(
    ("values", "learner", "match"),
    [
        ({"oracle": "hinge"}, "lightgbm", "use the learner linear"),
        ({"oracle": "hinge", "settings.alpha": 1}, "linear", "without settings"),
        ({"oracle": "hinge", "targets": "predictions"}, "linear", "leave out targets"),
        ({"oracle": "hinge", "grid": 40_000}, "linear", "fewer rows, or a smaller grid|coarser grid"),
        ({"oracle": "hinge", "constraint": "seo"}, "linear", "oracle=hinge is for"),
        ({"oracle": "cs", "targets": "predictions"}, "logistic", "leave out targets"),
    ],
)
def test_what_does_not_go_together_is_told(values, learner, match):
    from fairkit.errors import FairkitError

    with pytest.raises(FairkitError, match=match) as caught:
        FairRegression.with_values(values).fit(_cells()[0], Run(learner=learner, threads=1))
    assert isinstance(caught.value, ParameterError) or "coarser" in str(caught.value)


# Theorem 4 of Agarwal, Dudík & Wu (2019): the algorithm ends, and what its mixture keeps.
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("bound", "nu"), [(10.0, 0.05), (100.0, 0.01)])
def test_the_algorithm_ends_and_keeps_what_theorem_4_promises(seed, bound, nu):
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
