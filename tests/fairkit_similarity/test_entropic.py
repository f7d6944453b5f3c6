"""The entropic plan: feasible, below the exact value, and converging to it."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.errors import ParameterError
from fairkit_similarity.transport import Support, entropic_plan


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


def test_bad_parameters():
    z, values, labels = problem(0)
    with pytest.raises(ParameterError, match="gamma"):
        entropic_plan(z, values, labels, 0.1, 0.0)
    with pytest.raises(ParameterError, match="epsilon"):
        entropic_plan(z, values, labels, 0.0, 0.1)
