"""Transport between outputs: exact, entropic, and outputs too far apart."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fairkit.errors import DataError, ParameterError
from fairkit_similarity.learn import transport_plan
from fairkit_similarity.search.problem import same_rows
from fairkit_similarity.transport import Support, entropic_plan

_spec = importlib.util.spec_from_file_location("individual_oracles", Path(__file__).with_name("oracles.py"))
oracles = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oracles)


@pytest.mark.long
@pytest.mark.parametrize("block", range(12))
def test_losses_equal_the_linear_program(block):
    for seed in range(20 * block, 20 * block + 20):
        z, values, labels, epsilon = oracles.random_problem(seed)
        n = len(labels)
        solution = Support(z).losses(values, labels).solve(epsilon, tolerance=0)
        C = oracles.distances(z)
        expected = oracles.linear_program(values[labels].T, C, np.full(n, 1 / n), epsilon)
        assert solution.value == pytest.approx(expected, abs=1e-8), seed
        assert solution.lower_bound == pytest.approx(expected, abs=1e-8), seed
        plan = transport_plan(solution)
        np.testing.assert_allclose(np.bincount(plan.source, plan.mass, n), 1 / n, atol=1e-14)
        np.testing.assert_allclose(C[plan.target, plan.source], plan.distance, atol=1e-12)
        assert plan.cost <= epsilon + 1e-12
        assert values[labels[plan.source], plan.target] @ plan.mass == pytest.approx(solution.lower_bound, abs=1e-12)


@pytest.mark.parametrize("kind", ["squared", "absolute"])
@pytest.mark.parametrize("block", range(4))
def test_outputs_equal_the_linear_program(kind, block):
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        z, values, _, epsilon = oracles.random_problem(seed)
        h = values.T
        t = h if seed % 2 else np.random.default_rng(seed).random(h.shape)
        gap = np.abs(h[:, None, :] - t[None, :, :])
        R = (gap**2 if kind == "squared" else gap).mean(axis=-1)
        n = len(h)
        expected = oracles.linear_program(R, oracles.distances(z), np.full(n, 1 / n), epsilon)
        solution = Support(z).outputs(h, t, kind=kind).solve(epsilon, tolerance=0)
        assert solution.value == pytest.approx(expected, abs=1e-8), seed
        assert solution.lower_bound == pytest.approx(expected, abs=1e-8), seed


def test_weights_equal_the_linear_program():
    for seed in range(20):
        z, values, labels, epsilon = oracles.random_problem(seed)
        weights = np.random.default_rng(seed).integers(0, 4, len(labels)) + (np.arange(len(labels)) == 0)
        share = weights / weights.sum()
        expected = oracles.linear_program(values[labels].T, oracles.distances(z), share, epsilon)
        solution = Support(z).losses(values, labels, weights=weights).solve(epsilon, tolerance=0)
        assert solution.value == pytest.approx(expected, abs=1e-8), seed


def large(n=5_000, d=24, seed=0):
    """A problem with several levels of nodes, skewed columns, categories and equal rows."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, d)) * rng.random(d)
    z[:, 0] = np.where(rng.random(n) < 0.02, 1e4, 0.0)
    z[:, 1:6] = np.eye(5)[rng.integers(0, 5, n)]
    z[n // 2 :] = z[rng.integers(0, n // 2, n - n // 2)]
    labels = rng.integers(0, 2, n)
    score = 1 / (1 + np.exp(-(z[:, 6:] @ rng.normal(size=d - 6)) - rng.normal(size=n)))
    return z, -np.log(np.stack([1 - score, score])), labels


@pytest.mark.long
@pytest.mark.parametrize("eta", [0.0, 1e-3, 0.3, 5.0, 1e6])
def test_the_search_equals_all_distances(eta):
    z, values, labels = large(n=2_500)
    problem = Support(z).losses(values, labels)
    queries = np.arange(len(problem.where))
    lines = problem.answers(eta, queries, problem.where)
    R, C = values[labels].T, oracles.distances(z)
    np.testing.assert_allclose(lines.at(eta)[problem.query], (R - eta * C).max(axis=0), rtol=0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("eta", [0.0, 0.3, 5.0])
def test_the_search_on_outputs_equals_all_distances(eta):
    z, values, _ = large(n=2_500)
    problem = Support(z).outputs(values.T)
    lines = problem.answers(eta, np.arange(2_500), problem.where)
    R = ((values.T[:, None, :] - values.T[None, :, :]) ** 2).mean(axis=-1)
    np.testing.assert_allclose(lines.at(eta), (R - eta * oracles.distances(z)).max(axis=0), rtol=0, atol=1e-9)


@pytest.mark.long
def test_a_solution_bounds_every_dual_value():
    z, values, labels = large(n=2_500)
    solution = Support(z).losses(values, labels).solve(0.2, tolerance=0)
    R, C = values[labels].T, oracles.distances(z)
    weights = np.full(len(z), 1 / len(z))
    at = oracles.dense_dual(R, C, weights, 0.2, solution.eta)
    assert solution.value == pytest.approx(at, abs=1e-10)
    assert solution.lower_bound == pytest.approx(at, abs=1e-10)
    for eta in solution.eta * np.array([0.5, 0.9, 1.1, 2.0]):
        assert oracles.dense_dual(R, C, weights, 0.2, eta) >= solution.lower_bound
    mean = weights @ solution.contributions() + solution.eta * 0.2
    assert mean == pytest.approx(solution.value, abs=1e-10)


def test_the_pilot_leaves_few_full_evaluations():
    z, values, labels = large(n=20_000)
    solution = Support(z).losses(values, labels).solve(0.2, tolerance=1e-6)
    assert solution.value - solution.lower_bound <= 1e-6
    assert solution.evaluations < 4.0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["losses", "outputs"])
def test_the_curve_rises_and_is_concave(kind):
    z, values, labels = large(n=6_000)
    support = Support(z)
    problem = support.losses(values, labels) if kind == "losses" else support.outputs(values[1])
    epsilons = [0.0, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 1e9]
    solutions = problem.curve(epsilons, tolerance=0)
    curve = np.array([solution.value for solution in solutions])
    assert (np.diff(curve) >= -1e-10).all()
    slopes = np.diff(curve) / np.diff(epsilons)
    assert (np.diff(slopes) <= 1e-9 * slopes[0]).all()
    alone = (support.losses(values, labels) if kind == "losses" else support.outputs(values[1])).solve(0.1, tolerance=0)
    assert curve[4] == pytest.approx(alone.value, abs=1e-10)
    largest = problem.answers(0.0, np.arange(len(problem.where)), problem.where).reward
    assert curve[-1] == pytest.approx(problem.weights @ largest, abs=1e-10)


def test_the_order_of_rows_does_not_matter():
    z, values, labels = large()
    order = np.random.default_rng(1).permutation(len(z))
    one = Support(z).losses(values, labels).solve(0.1, tolerance=0)
    two = Support(z[order]).losses(values[:, order], labels[order]).solve(0.1, tolerance=0)
    assert one.value == pytest.approx(two.value, abs=1e-12)


def test_same_inputs_same_bytes_whatever_the_threads():
    import numba

    z, values, labels = large()
    plans = []
    for threads in (1, 2):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        plans.append(transport_plan(Support(z).losses(values, labels).solve(0.1)))
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    assert plans[0].target.tobytes() == plans[1].target.tobytes()
    assert plans[0].mass.tobytes() == plans[1].mass.tobytes()


def test_one_row_is_split_and_the_budget_is_spent():
    z, values, labels = large()
    solution = Support(z).losses(values, labels).solve(0.05, tolerance=0)
    plan = transport_plan(solution)
    assert plan.cost == pytest.approx(0.05, abs=1e-12)
    assert plan.mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert ((solution.share > 0) & (solution.share < 1)).sum() <= 1
    weights = plan.label_weights(labels, len(z), 2)
    assert (weights * values.T).sum() == pytest.approx(solution.value, abs=1e-10)
    assert 0.0 < plan.moved < 1.0
    gains = plan.gain[plan.top(10)]
    assert (np.diff(gains) <= 0).all()
    assert gains[0] == pytest.approx(plan.gain.max())


def test_no_budget_moves_rows_only_among_equals():
    z, values, labels = large()
    solution = Support(z).losses(values, labels).solve(0.0)
    group, _ = same_rows(z)
    best = np.full((2, group.max() + 1), -np.inf)
    np.maximum.at(best, (slice(None), group), values)
    assert solution.value == pytest.approx(best[labels, group].mean(), abs=1e-12)
    assert transport_plan(solution).cost == 0.0


@pytest.mark.long
def test_sampled_queries_keep_the_whole_support():
    z, values, labels = large(n=3_000)
    rows = np.random.default_rng(2).choice(3_000, 200, replace=True)
    sampled = Support(z).losses(values, labels, rows=rows).solve(0.1, tolerance=0)
    R, C = values[labels][rows].T, oracles.distances(z)[:, rows]
    at = [oracles.dense_dual(R, C, np.full(200, 1 / 200), 0.1, eta) for eta in sampled.eta * np.array([0.99, 1, 1.01])]
    assert sampled.value == pytest.approx(at[1], abs=1e-10)
    assert at[1] <= min(at) + 1e-12


def test_outputs_certificate_of_constant_and_blind_models():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(800, 3)).round(1)
    assert Support(z).outputs(np.ones(800)).solve(1.0).value == 0.0
    assert Support(z).outputs(z.sum(axis=1)).solve(0.0).value == pytest.approx(0.0, abs=1e-12)
    hidden = rng.normal(size=800)
    doubled = np.concatenate([z, z])
    assert Support(doubled).outputs(np.concatenate([hidden, -hidden])).solve(0.0).value > 0.5


def test_same_rows_numbers_places():
    z = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0], [2.0, 1e-300]])
    group, first = same_rows(z)
    assert group.tolist() == [0, 1, 0, 2]
    assert first.tolist() == [0, 1, 3]


def test_new_losses_need_no_new_support():
    z, values, labels = large()
    support = Support(z)
    first = support.losses(values, labels).solve(0.1)
    again = support.losses(1.05 * values, labels, eta=first.eta).solve(0.1, eta=first.eta)
    assert again.value == pytest.approx(1.05 * first.value, abs=1e-7)


@pytest.mark.parametrize("epsilon", [-0.1, np.nan, np.inf])
def test_a_budget_must_be_finite_and_not_negative(epsilon):
    problem = Support(np.zeros((2, 1))).losses(np.ones((1, 2)), np.zeros(2, dtype=int))
    with pytest.raises(ParameterError, match="epsilon"):
        problem.solve(epsilon)


def test_bad_arrays_are_told():
    with pytest.raises(DataError, match="row 1"):
        Support(np.array([[0.0], [np.nan]]))
    with pytest.raises(DataError, match="scale the column"):
        Support(np.array([[0.0], [1e20]]))
    with pytest.raises(DataError, match="at least one row"):
        Support(np.zeros((0, 2)))
    support = Support(np.zeros((2, 1)))
    with pytest.raises(DataError, match="not finite"):
        support.losses(np.array([[0.0, np.inf]]), np.zeros(2, dtype=int))
    with pytest.raises(DataError, match="do not fit"):
        support.losses(np.zeros((1, 3)), np.zeros(3, dtype=int))
    with pytest.raises(DataError, match="weights"):
        support.losses(np.zeros((1, 2)), np.zeros(2, dtype=int), weights=np.array([-1.0, 1.0]))
    with pytest.raises(DataError, match="no row is asked"):
        support.outputs(np.zeros(2), rows=np.array([], dtype=int))


@pytest.mark.long
@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1.0, 1e6), (1e6, 0.0), (1e10, 0.0)])
def test_single_precision_bounds_lose_no_answer(scale, shift):
    z, values, labels = large(n=2_000)
    z = z * scale + shift
    solution = Support(z).losses(values, labels).solve(0.2 * scale**2, tolerance=0)
    R, C = values[labels].T, oracles.distances(z)
    at = oracles.dense_dual(R, C, np.full(len(z), 1 / len(z)), 0.2 * scale**2, solution.eta)
    assert solution.value == pytest.approx(at, abs=1e-9)


# The entropic plan: feasible, below the exact value, and converging to it.
def problem(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, 2)).round(seed % 2)
    return z, rng.random((2, 60)).round(2), rng.integers(0, 2, 60)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_the_value_converges_from_below(seed, epsilon):
    z, values, labels = problem(seed)
    exact = Support(z).losses(values, labels).solve(epsilon, tolerance=0).value
    gaps = []
    for gamma in (0.1, 0.01, 0.001):
        found = entropic_plan(z, values, labels, epsilon, gamma)
        assert found.cost <= epsilon * (1 + 1e-9)
        assert (found.label_weights * values.T).sum() == pytest.approx(found.value, abs=1e-12)
        assert found.label_weights.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(found.label_weights.sum(axis=0), np.bincount(labels, minlength=2) / 60, atol=1e-12)
        gaps.append(exact - found.value)
    assert min(gaps) >= -1e-12
    assert gaps[0] > gaps[1] - 1e-12
    assert gaps[2] <= 0.001 * np.log(60) + 1e-12  # entropy is at most log n


def test_the_plan_is_the_softmax():
    z, values, labels = problem(0)
    found = entropic_plan(z, values, labels, 0.1, 0.05)
    C = ((z[:, None] - z[None]) ** 2).sum(-1)
    weight = np.exp((values[labels].T - found.eta * C) / 0.05)
    plan = weight / weight.sum(axis=0) / 60
    assert (plan * C).sum() == pytest.approx(0.1, rel=1e-6)
    arrived = np.stack([plan[:, labels == k].sum(axis=1) for k in (0, 1)], axis=1)
    np.testing.assert_allclose(found.label_weights, arrived, atol=1e-12)


def test_a_weight_of_two_is_a_row_twice():
    z, values, labels = problem(0)
    weights = np.random.default_rng(1).integers(1, 4, 60)
    twice = np.repeat(np.arange(60), weights)
    # the support gets the same rows twice as well: a row of weight 0 that is there to be moved to
    zero = (np.arange(len(twice)) == np.searchsorted(twice, twice)).astype(float)
    one = entropic_plan(z[twice], values[:, twice], labels[twice], 0.1, 0.05, weights=zero * weights[twice])
    two = entropic_plan(z[twice], values[:, twice], labels[twice], 0.1, 0.05)
    assert one.value == pytest.approx(two.value, abs=1e-12)
    assert one.eta == pytest.approx(two.eta, rel=1e-8)
    np.testing.assert_allclose(one.label_weights, two.label_weights, atol=1e-12)


def test_bad_parameters_are_refused():
    z, values, labels = problem(0)
    with pytest.raises(ParameterError, match="gamma"):
        entropic_plan(z, values, labels, 0.1, 0.0)
    with pytest.raises(ParameterError, match="epsilon"):
        entropic_plan(z, values, labels, 0.0, 0.1)


# Outputs that are too far apart to be squared are refused with a sentence.
def test_gaps_whose_square_no_number_holds_are_refused() -> None:
    support = Support(np.arange(6.0).reshape(3, 2))
    with pytest.raises(DataError, match="larger unit"):
        support.outputs(np.zeros(3), np.array([0.0, 1e200, 0.0]), kind="squared")
