"""Solvers: the exact one, and Algorithm 1, which comes near it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairkit_rto.constraints import (
    Duals,
    SortedScores,
    Term,
    covariance_multiplier,
    evaluate,
    parity_threshold,
    ramp,
    sgd_thresholds,
    shuffled_epochs,
    sort_groups,
)


def one_group(margins, weights=None) -> SortedScores:
    margins = np.asarray(margins, dtype=float)
    return sort_groups(margins, np.zeros(len(margins), dtype=int), 1, weights)[0]


def solved(margins, gamma, rho, epsilon=0.0, weights=None) -> float:
    return parity_threshold([one_group(margins, weights)], gamma, rho, epsilon)


@pytest.mark.parametrize("gamma", [0.5, 0.05, 0.001])
def test_example_1_of_the_paper(gamma):
    # p(x) = 1/2, 1/3, 1/6 on -1, 0, 1 and p(s=1|x) = 1/2, 1, 0: in twelfths, s=1 has (3, 4, 0) and s=0 (3, 0, 2)
    margins = np.array([-1.0, 0.0, -1.0, 1.0])
    codes = np.array([1, 1, 0, 0])
    groups = sort_groups(margins, codes, 2, np.array([3.0, 4.0, 3.0, 2.0]))
    thresholds = np.array([parity_threshold([group], gamma, 0.4, 0.0) for group in groups])
    h = ramp(margins, thresholds[codes], gamma)
    np.testing.assert_allclose(h, [0.0, 0.7, 0.0, 1.0], atol=1e-9)


scores_of_any_kind = st.one_of(
    st.lists(st.floats(-1, 1), min_size=1, max_size=60),
    st.lists(st.sampled_from([-1.0, -0.8, -0.2, 0.0, 0.2, 0.6, 1.0]), min_size=1, max_size=60),
    st.lists(st.floats(0.1, 0.1 + 1e-7), min_size=1, max_size=60),
)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    margins=scores_of_any_kind,
    gamma=st.one_of(st.floats(1e-6, 1e-3), st.floats(1e-3, 2.0)),
    rho=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    weighted=st.booleans(),
)
def test_parity_is_exact_with_ties_and_for_every_width(margins, gamma, rho, weighted):
    weights = np.random.default_rng(len(margins)).integers(0, 4, len(margins)) + 1.0 if weighted else None
    threshold = solved(margins, gamma, rho, weights=weights)
    assert -1 - gamma <= threshold <= 1
    assert abs(np.average(ramp(np.array(margins), threshold, gamma), weights=weights) - rho) <= 1e-9


@settings(max_examples=100, deadline=None)
@given(margins=scores_of_any_kind, gamma=st.floats(1e-4, 2.0), rho=st.floats(0, 1), epsilon=st.floats(0, 0.5))
def test_a_constraint_that_does_not_bind_changes_nothing(margins, gamma, rho, epsilon):
    free = ramp(np.array(margins), 0.0, gamma).mean()
    threshold = solved(margins, gamma, rho, epsilon)
    reached = ramp(np.array(margins), threshold, gamma).mean()
    if rho - epsilon / 2 + 1e-9 < free < rho + epsilon / 2 - 1e-9:
        assert threshold == 0.0
    assert max(rho - epsilon / 2, 0) - 1e-9 <= reached <= min(rho + epsilon / 2, 1) + 1e-9
    # moved no further than needed
    assert min(free, rho - epsilon / 2) - 1e-9 <= reached <= max(free, rho + epsilon / 2) + 1e-9


def bisected(margins, gamma, rho):
    low, high = -1 - gamma, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if ramp(margins, middle, gamma).mean() > rho else (low, middle)
    return low


def test_agrees_with_bisection_on_smooth_scores():
    margins = np.random.default_rng(0).beta(2, 5, 5_000) * 2 - 1
    for gamma in (1e-3, 0.05, 0.7):
        for rho in (0.03007, 0.30003, 0.80001):  # no multiple of 1/n: no flat stretch
            assert solved(margins, gamma, rho) == pytest.approx(bisected(margins, gamma, rho), abs=1e-9)


@pytest.mark.parametrize("gamma", [0.2, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_minimises_the_regularised_objective(gamma, epsilon):
    from scipy.optimize import minimize

    margins = np.array([-0.9, -0.4, -0.35, 0.1, 0.1, 0.5, 0.8, 0.95])
    rho = 0.3
    bounds = [{"type": "ineq", "fun": lambda h, s=s: epsilon / 2 - s * (h.mean() - rho)} for s in (1, -1)]
    if not epsilon:
        bounds = [{"type": "eq", "fun": lambda h: h.mean() - rho}]
    program = minimize(
        lambda h: gamma / 2 * h @ h - margins @ h,
        np.full(len(margins), rho),
        jac=lambda h: gamma * h - margins,
        bounds=[(0, 1)] * len(margins),
        constraints=bounds,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    h = ramp(margins, solved(margins, gamma, rho, epsilon), gamma)
    np.testing.assert_allclose(h, program.x, atol=1e-5)


def test_narrow_ramps_converge_to_the_linear_program():
    from scipy.optimize import linprog

    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, 600)
    margins = np.round(np.tanh(rng.normal(0.3 * codes, 1)), 2)
    rho = 0.35
    program = linprog(
        -margins / len(margins),
        A_eq=np.stack([(codes == k) / (codes == k).sum() for k in range(3)]),
        b_eq=np.full(3, rho),
        bounds=(0, 1),
        method="highs",
    )
    gaps = []
    for gamma in (1.0, 0.1, 0.01, 1e-3, 1e-5):
        groups = sort_groups(margins, codes, 3)
        thresholds = np.array([parity_threshold([group], gamma, rho, 0.0) for group in groups])
        gaps.append(-program.fun - margins @ ramp(margins, thresholds[codes], gamma) / len(margins))
    assert gaps[0] > gaps[1] > 1e-4
    np.testing.assert_allclose(gaps[2:], 0.0, atol=1e-3)
    assert abs(gaps[-1]) <= 1e-6


def test_the_middle_of_a_flat_stretch():
    # with a ramp of .1, every t in [.1, .7] accepts exactly the upper half
    assert solved([-0.3, 0.1, 0.8, 0.9], 0.1, 0.5) == pytest.approx(0.4, abs=1e-9)
    assert solved([0.2, 0.4], 0.1, 0.0) == pytest.approx(0.7, abs=1e-9)
    assert solved([-0.5, -0.3], 0.1, 1.0) == pytest.approx((-1.1 - 0.6) / 2, abs=1e-9)


def test_one_group_of_all_rows_equals_several_taken_together():
    rng = np.random.default_rng(2)
    margins, codes = rng.uniform(-1, 1, 999), rng.integers(0, 4, 999)
    pooled = parity_threshold(sort_groups(margins, codes, 4), 0.05, 0.2, 0.0)
    assert pooled == pytest.approx(solved(margins, 0.05, 0.2), abs=1e-10)


def test_weights_are_repetitions():
    rng = np.random.default_rng(3)
    margins, weights = rng.uniform(-1, 1, 200), rng.integers(0, 5, 200)
    repeated = np.repeat(margins, weights)
    assert solved(margins, 0.05, 0.4, weights=weights.astype(float)) == pytest.approx(
        solved(repeated, 0.05, 0.4), abs=1e-9
    )


@pytest.mark.parametrize("groups", [3, 40])
@pytest.mark.parametrize("weighted", [False, True])
def test_groups_are_sorted_with_their_weights(groups, weighted):
    rng = np.random.default_rng(4)
    margins, codes = rng.uniform(-1, 1, 2_000), rng.integers(0, groups + 1, 2_000)
    weights = rng.integers(0, 3, 2_000).astype(float) if weighted else None
    kept = np.ones(2_000, dtype=bool) if weights is None else weights > 0
    for group, found in enumerate(sort_groups(margins, codes, groups, weights)):
        own = kept & (codes == group)
        np.testing.assert_array_equal(found.scores, np.sort(margins[own]))
        assert found.total == (own.sum() if weights is None else weights[own].sum())
        h = ramp(margins[own], 0.1, 0.3)
        expected = h.sum() if weights is None else weights[own] @ h
        assert found.ramp(np.array([0.1]), 0.3)[0] == pytest.approx(expected, abs=1e-9)


def test_the_scores_given_are_not_changed():
    margins = np.array([0.5, -0.5, 0.1])
    solved(margins, 0.1, 0.4)
    np.testing.assert_array_equal(margins, [0.5, -0.5, 0.1])


@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.02])
def test_covariance_in_a_subgroup(gamma, epsilon):
    rng = np.random.default_rng(5)
    inside = np.clip(rng.normal(0.3, 0.5, 400), -1, 1)
    outside = np.clip(rng.normal(-0.2, 0.5, 900), -1, 1)
    one, other = one_group(inside), one_group(outside)
    share = 400 / 1300
    t = covariance_multiplier(one, other, gamma, epsilon)
    h = np.concatenate([ramp(inside, t * (1 - share), gamma), ramp(outside, -t * share, gamma)])
    s = np.repeat([1.0, 0.0], [400, 900])
    covariance = np.mean(h * s) - h.mean() * s.mean()
    assert covariance == pytest.approx(epsilon, abs=1e-10)  # it was larger before, and is moved no further
    assert covariance_multiplier(one, other, gamma, 0.25) == 0.0


def test_covariance_minimises_its_objective():
    from scipy.optimize import minimize

    inside, outside = np.array([-0.3, 0.2, 0.7, 0.9]), np.array([-0.8, -0.5, 0.1, 0.3, 0.6])
    margins, s = np.concatenate([inside, outside]), np.repeat([1.0, 0.0], [4, 5])
    z, gamma = s - s.mean(), 0.5
    program = minimize(
        lambda h: gamma / 2 * h @ h - margins @ h,
        np.full(9, 0.5),
        jac=lambda h: gamma * h - margins,
        bounds=[(0, 1)] * 9,
        constraints=[{"type": "eq", "fun": lambda h: z @ h}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    t = covariance_multiplier(one_group(inside), one_group(outside), gamma, 0.0)
    np.testing.assert_allclose(ramp(margins, t * z, gamma), program.x, atol=1e-5)


def test_the_derivative_of_the_sum():
    group = one_group(np.linspace(-1, 1, 101))
    terms = [Term(group), Term(group, -0.5, -0.5)]
    (value, ahead), (slope, _) = evaluate(terms, np.array([0.123, 0.123 + 1e-7]), 0.4)
    assert (ahead - value) / 1e-7 == pytest.approx(slope, rel=1e-5)


def test_rate_of_no_scores_in_reach():
    assert evaluate([Term(one_group([-1.0, -0.9]))], np.zeros(1), 0.1)[0] == 0.0


# Algorithm 1: its updates, and that it comes near the exact solution.
def parity(groups: int, rho: float, epsilon: float = 0.0) -> Duals:
    return Duals(owner=np.arange(groups), factors=np.ones(groups), offset=rho, slack=epsilon / 2)


def test_two_steps_by_hand():
    # rate .1 √(1/2); first h = clip(.5/1) = .5: λ = max(0, -η(.3 - .5)) = .2η, μ = max(0, -η(-.3 + .5)) = 0
    eta = 0.1 * np.sqrt(1 / 2)
    rows = [(np.array([0.5, 0.4]), np.zeros(2, dtype=int), np.ones(2))]
    found = sgd_thresholds(rows, parity(1, 0.3), gamma=1.0, steps=2)
    first = 0.2 * eta
    h = 0.4 - first
    second = max(0.0, first - eta * (0.3 - h)) - max(0.0, -eta * (h - 0.3))
    assert found[0] == pytest.approx(second, abs=1e-15)


@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_comes_near_the_exact_thresholds(gamma):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 20_000)
    margins = np.clip(rng.normal(0.4 * codes - 0.5, 0.4), -1, 1)
    exact = np.array([parity_threshold([g], gamma, 0.3, 0.0) for g in sort_groups(margins, codes, 2)])
    stream = shuffled_epochs((margins, codes, np.ones(len(margins))), 5, rng)
    found = sgd_thresholds(stream, parity(2, 0.3), gamma=gamma, steps=5 * len(margins))
    np.testing.assert_allclose(found, exact, atol=0.02)
    error = [abs(ramp(margins, t[codes], gamma)[codes == 0].mean() - 0.3) for t in (exact, found)]
    assert error[0] < 1e-9 < error[1] < 0.02


def test_a_slack_constraint_stays_at_zero():
    margins = np.tile([-1.0, 1.0], 500)
    rows = [(margins, np.zeros(1000, dtype=int), np.ones(1000))]
    assert sgd_thresholds(rows, parity(1, 0.5, epsilon=2.0), gamma=0.1, steps=1000)[0] == 0.0


def test_epochs_give_every_row_once_each_and_depend_on_the_seed_alone():
    rows = (np.arange(10.0), np.arange(10), np.ones(10))
    a, b = ([part[0] for part in shuffled_epochs(rows, 2, np.random.default_rng(7))] for _ in range(2))
    np.testing.assert_array_equal(np.concatenate(a), np.concatenate(b))
    np.testing.assert_array_equal(np.sort(np.concatenate(a)), np.repeat(np.arange(10.0), 2))
