"""Losses, grid and parity against the definitions, row by row."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairkit_fair_regression.losses import (
    Grid,
    Loss,
    Rates,
    best_levels,
    cover_labels,
    disparities,
    from_probability,
    make_parity,
    netted,
    to_probability,
)

LOSSES = [
    Loss("squared"),
    Loss("logistic"),
    Loss("absolute"),
    Loss("quantile", 0.2),
    Loss("poisson", rates=Rates(0.01, 0.8, 0.4, 1.0)),
]


def _rows(seed, n=60, groups=3, two=False):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n).astype(float) if two else rng.random(n)
    codes = np.concatenate([np.arange(groups), rng.integers(0, groups, n - groups)])
    return labels, codes, rng


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_losses_lie_in_the_unit_interval_and_are_1_lipschitz(loss):
    ends = np.linspace(0, 1, 201)
    y = np.array([0.0, 1.0]) if loss.name == "logistic" else ends
    table = loss(y[:, None], ends[None, :])
    assert table.min() >= 0
    assert table.max() <= 1
    assert np.abs(np.diff(table, axis=1)).max() <= ends[1] * (1 + 1e-9)


def test_squared_loss_is_half_the_squared_error_and_logistic_is_scaled_log_loss():
    y, p = np.array([0.0, 1.0, 1.0]), np.array([0.2, 0.6, 0.9])
    log_loss = -np.where(y == 1, np.log(p), np.log(1 - p))
    logistic = Loss("logistic")
    np.testing.assert_allclose(logistic(y, from_probability(p)) / logistic.unit, log_loss, rtol=1e-12)
    squared = Loss("squared")
    np.testing.assert_allclose(squared(y, p) / squared.unit, (y - p) ** 2, rtol=1e-12)


def test_probabilities_and_predictions_are_each_other_s_inverse_and_saturate():
    u = np.linspace(0, 1, 41)
    np.testing.assert_allclose(from_probability(to_probability(u)), u, atol=1e-12)
    assert from_probability(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_levels_count_the_thresholds_that_are_reached():
    grid = Grid(4)
    values = np.array([-0.3, 0.0, 0.2499, 0.25, 0.6, 0.9999, 1.0, 1.7])
    thresholds = np.arange(1, 5) / 4
    assert grid.levels(values).tolist() == [(values_ >= thresholds).sum() for values_ in values]
    assert grid.values.tolist() == [0.125, 0.375, 0.625, 0.875, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_every_label_is_covered_and_no_two_of_the_cover_are_near(values, size):
    labels, step = np.array(values), 1 / size
    cover = cover_labels(labels, step)
    assert np.abs(cover.labels[cover.codes] - labels).max() <= step / 2 * (1 + 1e-9)
    assert set(cover.labels) <= set(values)
    assert len(cover.labels) <= 2 * size
    if len(cover.labels) > 1:
        assert np.diff(cover.labels).min() > step / 2
    first = [next(y for y in cover.labels if abs(y - own) <= step / 2 * (1 + 1e-12)) for own in labels]
    np.testing.assert_array_equal(cover.labels[cover.codes], first)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_lemma_1_cost_is_the_discretised_loss_plus_a_constant(loss):
    labels, codes, rng = _rows(1, two=loss.name == "logistic")
    grid = Grid(7)
    parity = make_parity(grid, loss, labels, codes, 3)
    covered = parity.labels[parity.cells // 3]
    costs = grid.costs(loss, covered)
    z = np.arange(1, 8) / 7
    differences = []
    for _ in range(20):
        f = rng.random(len(labels)) * 1.2 - 0.1
        cost = np.mean([np.mean(costs[i] * (f[i] >= z)) for i in range(len(f))])
        rounded = np.minimum(np.floor(np.clip(f, 0, 1) * 7) / 7 + 0.5 / 7, 1)
        assert parity.measure(grid.levels(f))[0] == pytest.approx(np.mean(loss(covered, rounded)), abs=1e-12)
        differences.append(cost - np.mean(loss(covered, rounded)))
    assert np.ptp(differences) < 1e-12


@pytest.mark.parametrize("weighted", [False, True])
def test_constraint_values_are_differences_of_distributions(weighted):
    labels, codes, rng = _rows(2)
    weights = rng.exponential(size=len(labels)) if weighted else None
    grid = Grid(5)
    parity = make_parity(grid, LOSSES[0], labels, codes, 3, weights)
    f = rng.random(len(labels))
    _, values = parity.measure(grid.levels(f))
    w = np.ones(len(f)) if weights is None else weights
    for a, place in itertools.product(range(3), range(5)):
        reached = f >= (place + 1) / 5
        own = np.average(reached[codes == a], weights=w[codes == a])
        gamma = own - np.average(reached, weights=w)
        assert values[a * 5 + place] == pytest.approx(gamma, abs=1e-12)
        assert values[15 + a * 5 + place] == pytest.approx(-gamma, abs=1e-12)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_curves_are_the_lagrangian_of_every_predictor(seed):
    labels, codes, rng = _rows(seed, n=40)
    grid = Grid(6)
    parity = make_parity(grid, LOSSES[0], labels, codes, 3)
    multipliers = rng.exponential(size=36)
    levels = grid.levels(rng.random(40))
    cost, values = parity.measure(levels)
    curves = parity.curves(multipliers)
    by_rows = np.mean([curves[cell // 3, cell % 3, level] for cell, level in zip(parity.cells, levels, strict=True)])
    assert by_rows == pytest.approx(cost + multipliers @ values, abs=1e-12)


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_the_best_response_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    # four kinds of rows: two labels, two groups; a predictor of label and group has (N + 1)^4 forms
    labels, codes = np.tile([0.1, 0.1, 0.8, 0.8], 5), np.tile([0, 1, 0, 1], 5)
    keep = rng.permutation(20)[: 4 + seed % 16]
    keep = np.unique(np.concatenate([keep, np.arange(4)]))
    labels, codes = labels[keep], codes[keep]
    grid = Grid(3)
    parity = make_parity(grid, LOSSES[0], labels, codes, 2)
    multipliers = rng.exponential(0.3, size=12)
    found = best_levels(parity.curves(multipliers)).ravel()[parity.cells]
    own_cost, own_values = parity.measure(found)
    kinds = (labels > 0.5) * 2 + codes
    forms = [parity.measure(np.array(form)[kinds]) for form in itertools.product(range(4), repeat=4)]
    brute = min(cost + multipliers @ values for cost, values in forms)
    assert own_cost + multipliers @ own_values == pytest.approx(brute, abs=1e-12)


def test_netted_multipliers_give_the_same_curves_and_no_higher_price():
    labels, codes, rng = _rows(3)
    parity = make_parity(Grid(5), LOSSES[0], labels, codes, 3)
    multipliers = rng.exponential(size=30)
    net = netted(multipliers)
    np.testing.assert_allclose(parity.curves(net), parity.curves(multipliers), atol=1e-12)
    assert net.sum() < multipliers.sum()
    assert (net >= 0).all()


def test_disparities_are_zero_for_equal_and_one_half_for_disjoint_groups():
    assert np.abs(disparities(np.array([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0]]))).max() < 1e-15
    assert np.abs(disparities(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))).max() == 0.5
