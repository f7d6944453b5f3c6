"""The worst case of a round: against the linear programme, by Danskin's theorem, and what must hold."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_budro import plans
from fairkit_budro import plans as candidates
from fairkit_budro.boosting import class_losses, derivatives
from fairkit_budro.plans import EntropicPlan, ExactPlan, Fixed, SampledPlan
from fairkit_similarity.search.descent import nearest
from fairkit_similarity.transport import Support


def problem(n=30, k=2, epsilon=0.3, seed=0, d=2, weighted=False, decimals=1):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, d)).round(decimals)
    labels = rng.integers(0, k, n)
    mass = rng.integers(1, 4, n) if weighted else np.ones(n)
    return Fixed(support=Support(z), labels=labels, mass=mass / mass.sum(), epsilon=epsilon, classes=k)


def margins(n, k, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) if k == 2 else rng.normal(size=(n, k))


def linear_program(fixed, values):
    from scipy.optimize import linprog

    n, z = len(fixed.labels), fixed.support.z
    C = ((z[:, None] - z[None]) ** 2).sum(-1)
    R = values[fixed.labels].T
    columns = np.kron(np.ones((1, n)), np.eye(n))  # Σ_i Π_ij, Π flattened by rows i
    found = linprog(
        -R.ravel(), A_ub=C.ravel()[None], b_ub=[fixed.epsilon], A_eq=columns, b_eq=fixed.mass, method="highs"
    )
    return -found.fun


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5, 50.0])
def test_the_exact_plan_is_the_linear_programs(k, weighted, epsilon):
    fixed = problem(k=k, epsilon=epsilon, weighted=weighted)
    values = class_losses(margins(30, k))
    found = ExactPlan(fixed)(values)
    assert found.value == pytest.approx(linear_program(fixed, values), abs=1e-6)
    assert found.upper == pytest.approx(found.value, abs=1e-6)
    assert (found.weights * values.T).sum() == pytest.approx(found.value, abs=1e-12)
    by_label = np.bincount(fixed.labels, fixed.mass, minlength=k)
    np.testing.assert_allclose(found.weights.sum(axis=0), by_label, atol=1e-14)
    assert found.cost <= epsilon + 1e-12
    if epsilon < 10:
        assert found.cost == pytest.approx(epsilon, abs=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3])
def test_the_gradient_is_that_of_the_inner_maximum(k):
    fixed = problem(k=k, decimals=8)
    f = margins(30, k)
    gradient, _ = derivatives(f, ExactPlan(fixed)(class_losses(f)).weights)
    for place in np.ndindex(f.shape):
        step = np.zeros_like(f)
        step[place] = 1e-4
        up, down = (linear_program(fixed, class_losses(f + s)) for s in (step, -step))
        assert gradient[place] == pytest.approx((up - down) / 2e-4, abs=2e-4)


@pytest.mark.parametrize("k", [2, 4])
def test_derivatives_are_those_of_the_weighted_loss(k):
    f, weights = margins(7, k), np.random.default_rng(1).random((7, k))
    gradient, hessian = derivatives(f, weights)

    def loss(at):
        return (class_losses(at).T * weights).sum()

    for place in np.ndindex(f.shape):
        step = np.zeros_like(f)
        step[place] = 1e-3
        up, here, down = loss(f + step), loss(f), loss(f - step)
        assert gradient[place] == pytest.approx((up - down) / 2e-3, abs=1e-5)
        curvature = (up - 2 * here + down) / 1e-6
        assert hessian[place] == pytest.approx(curvature * (1 if k == 2 else 2), abs=1e-4)


def test_margins_far_out_give_finite_losses():
    for f in (np.array([-1e4, 1e4]), np.array([[1e4, -1e4, 0.0]])):
        assert np.isfinite(class_losses(f)).all()
        assert np.isfinite(derivatives(f, np.ones((len(f), max(2, f.ndim + 1))))[0]).all()


def test_the_entropic_plan_tends_to_the_exact_one():
    fixed = problem(n=60, weighted=True)
    values = class_losses(margins(60, 2))
    exact = ExactPlan(fixed)(values)
    gaps = []
    for gamma in (0.1, 0.01, 0.001):
        found = EntropicPlan(fixed, gamma)(values)
        assert found.cost <= fixed.epsilon + 1e-9
        np.testing.assert_allclose(
            found.weights.sum(axis=0), np.bincount(fixed.labels, fixed.mass, minlength=2), atol=1e-12
        )
        gaps.append(exact.value - found.value)
    assert gaps[0] > gaps[1] > gaps[2] >= -1e-6
    assert gaps[2] < 0.005


def test_the_sampled_plan_is_right_on_average():
    fixed = problem(n=400, d=3, decimals=6)
    values = class_losses(margins(400, 2))
    exact = ExactPlan(fixed)(values)
    plan = SampledPlan(fixed, 1, 300, np.random.default_rng(0))
    found = [plan(values) for _ in range(20)]
    assert np.mean([one.cost for one in found]) == pytest.approx(fixed.epsilon, rel=0.1)
    assert np.mean([one.eta for one in found]) == pytest.approx(exact.eta, rel=0.1)
    for one in found:
        assert one.weights.sum() == pytest.approx(1.0)
        assert (one.weights * values.T).sum() == pytest.approx(one.value, abs=1e-12)
        # duality at the found η: no plan of the same cost is worth more
        bound = exact.value + exact.eta * (one.cost - fixed.epsilon)
        assert one.value <= bound + 2e-6


@pytest.mark.long
def test_the_nearest_rows_are_the_nearest():
    z = np.random.default_rng(0).normal(size=(700, 20)) * np.linspace(3, 0.1, 20)
    z[:, 0] = np.where(z[:, 0] > 6, 1e3, 0)
    rows, distance = nearest(z, 33)
    C = ((z[:, None] - z[None]) ** 2).sum(-1)
    np.testing.assert_allclose(distance, np.sort(C, axis=1)[:, :33], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(C, rows, axis=1), distance, rtol=1e-6, atol=1e-6)
    assert (rows[:, 0] == np.arange(700)).all()


@pytest.mark.parametrize("length", [2, 30, 400])
def test_lists_and_tree_together_answer_as_the_tree_alone(length, monkeypatch):
    monkeypatch.setattr(candidates, "NEAREST", length)
    fixed = problem(n=400, d=20, decimals=3)
    values = class_losses(3.0 * margins(400, 2))
    transport = fixed.support.losses(values, fixed.labels, weights=fixed.mass)
    everyone, stay = np.arange(len(transport.where)), transport.staying()
    for eta in (1e-3, 0.03, 0.2, 5.0):
        transport.lists = None
        alone = transport.answers(eta, everyone, stay.answer)
        transport.lists = plans.Candidates(fixed.support, transport.where)
        together = transport.answers(eta, everyone, stay.answer)
        np.testing.assert_array_equal(together.answer, alone.answer)
        np.testing.assert_allclose(together.at(eta), alone.at(eta), rtol=0, atol=1e-14)


@pytest.fixture
def small_lists(monkeypatch):
    monkeypatch.setattr(plans, "FEW_PLACES", 100)
    monkeypatch.setattr(candidates, "NEAREST", 24)


def drifting(fixed, rounds, seed=0):
    """Scores that move as boosting moves them: down the gradient of the last worst case, by regions."""
    rng = np.random.default_rng(seed)
    z, n = fixed.support.z, len(fixed.labels)
    f = 0.05 * rng.normal(size=n)
    weights = np.zeros((n, 2))
    weights[np.arange(n), fixed.labels] = fixed.mass
    while rounds:
        yield f
        gradient, _ = derivatives(f, weights)
        region = np.round(z[:, :2] + rng.normal(size=2)).astype(int) @ np.array([100, 1])
        _, code = np.unique(region, return_inverse=True)
        pull = np.bincount(code, gradient) / np.maximum(np.bincount(code, weights.sum(1)), 1e-12)
        f = f - 0.1 * pull[code]
        rounds -= 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["exact", "sampled"])
def test_between_exact_rounds_the_plan_stays_near_the_exact_one(small_lists, kind):
    fixed = problem(n=2_000, d=4, decimals=6, epsilon=0.1, weighted=True)
    rng = np.random.default_rng(0)
    plan = ExactPlan(fixed, 10) if kind == "exact" else SampledPlan(fixed, 10, 500, rng)
    exact, searched = ExactPlan(fixed, 1), []
    for f in drifting(fixed, 25):
        values = class_losses(f)
        found, best = plan(values), exact(values)
        searched.append(found.searched)
        assert found.weights.sum(axis=0) == pytest.approx(np.bincount(fixed.labels, fixed.mass), abs=1e-12)
        assert (found.weights * values.T).sum() == pytest.approx(found.value, abs=1e-12)
        if kind == "exact":
            assert found.cost == pytest.approx(0.1, abs=1e-12)
            assert best.upper * 0.995 <= found.value <= best.upper + 1e-12
            if found.searched == "all":
                assert found.upper == pytest.approx(best.upper, abs=2e-6)
    everywhere = [number for number, where in enumerate(searched) if where == "all"]
    assert everywhere == [0, 1, 2, 4, 8, 10, 20]
    assert best.searched == "all"


@pytest.mark.long
def test_lists_that_hold_all_rows_lose_nothing(small_lists, monkeypatch):
    monkeypatch.setattr(candidates, "NEAREST", 10_000)
    fixed = problem(n=300, d=3, decimals=6)
    plan, exact = ExactPlan(fixed, 10), ExactPlan(fixed, 1)
    for f in drifting(fixed, 12):
        values = class_losses(f)
        assert plan(values).value == pytest.approx(exact(values).value, abs=3e-6)


def test_no_budget_moves_mass_among_equal_rows_only(small_lists):
    fixed = problem(n=600, d=2, decimals=1, epsilon=0.0)
    plan = ExactPlan(fixed, 10)
    for seed in range(4):
        values = class_losses(margins(600, 2, seed))
        found = plan(values)
        best = np.array([values[:, fixed.support.group == g].max(axis=1) for g in fixed.support.group])
        expected = (best[np.arange(600), fixed.labels] * fixed.mass).sum()
        assert found.cost == 0.0
        assert found.value == pytest.approx(expected, abs=1e-12)
