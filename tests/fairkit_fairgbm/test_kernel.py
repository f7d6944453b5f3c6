"""The kernel against finite differences and slow twins."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_fairgbm import kernel
from fairkit_fairgbm.constraints import Constraints, Multipliers, make_cells


def proxies(scores, labels):
    """Value of each rate's proxy, and the rows that it is over."""
    return {
        "fnr": (2.5 / (1 + np.exp(scores)), labels == 1),
        "fpr": (2.5 / (1 + np.exp(-scores)), labels == 0),
        "positive_rate": (2.5 / (1 + np.exp(-scores)), labels >= 0),
    }


def true_rates(scores, labels, groups, weights, name, count):
    wrong = {"fnr": scores <= 0, "fpr": scores > 0, "positive_rate": scores > 0}[name]
    over = proxies(scores, labels)[name][1]
    return np.array(
        [np.average(wrong[over & (groups == g)], weights=weights[over & (groups == g)]) for g in range(count)]
    )


def lagrangian(scores, labels, groups, weights, constraints, multipliers):
    """Sum of the loss plus N times multipliers times proxy constraints, written out."""
    total = weights.sum()
    value = (weights * np.logaddexp(0, -(2 * labels - 1) * scores)).sum()
    for own, name, tolerance in zip(multipliers.by_group, constraints.rates, constraints.tolerances, strict=True):
        proxy, over = proxies(scores, labels)[name]
        rates = np.array(
            [np.average(proxy[over & (groups == g)], weights=weights[over & (groups == g)]) for g in range(len(own))]
        )
        order = np.argsort(-true_rates(scores, labels, groups, weights, name, len(own)))
        for b, multiplier in enumerate(own):
            other = order[0] if order[0] != b else order[1]
            value += total * multiplier * (rates[other] - rates[b] - tolerance)
    for multiplier, (name, limit) in zip(multipliers.overall, constraints.targets, strict=True):
        proxy, over = proxies(scores, labels)[name]
        value += total * multiplier * (np.average(proxy[over], weights=weights[over]) - limit)
    return value


def problem(groups, rates, weighted, seed=0, n=240):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n) * 2
    labels = (rng.random(n) < 0.4).astype(float)
    codes = rng.integers(0, groups, n)
    weights = rng.random(n).astype(np.float32) + np.float32(0.5) if weighted else None
    constraints = Constraints(rates, (0.01,) * len(rates), (("fpr", 0.05), ("fnr", 0.1)))
    cells = make_cells(
        codes, labels, [str(g) for g in range(groups)], None if weights is None else weights.astype(float)
    )
    multipliers = Multipliers(rng.random((len(rates), groups)), rng.random(2))
    return scores, labels, codes, weights, constraints, cells, multipliers


def run(scores, cells, weights, error, positive):
    gradient, hessian = np.empty((2, len(scores)), dtype=np.float32)
    loss = kernel.gradients(
        scores,
        cells.codes,
        weights,
        base=np.ones(len(error)),
        error=error,
        positive=positive,
        gradient=gradient,
        hessian=hessian,
    )
    return gradient, hessian, loss


RATES = [("fnr",), ("fpr",), ("fnr", "fpr"), ("positive_rate",), ("fnr", "positive_rate")]


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_the_lagrangians_derivative(groups, rates, weighted):
    scores, labels, codes, weights, constraints, cells, multipliers = problem(groups, rates, weighted)
    counted = kernel.count_positive(scores, cells.codes, weights, 2 * groups)
    coefficients = constraints.coefficients(multipliers, constraints.true_rates(counted, cells), cells)
    gradient, hessian, _ = run(scores, cells, weights, *coefficients)
    plain = np.ones(len(scores)) if weights is None else weights.astype(float)
    step = 1e-5
    for i in range(len(scores)):
        up, down = scores.copy(), scores.copy()
        up[i] += step
        down[i] -= step
        numeric = (
            lagrangian(up, labels, codes, plain, constraints, multipliers)
            - lagrangian(down, labels, codes, plain, constraints, multipliers)
        ) / (2 * step)
        assert gradient[i] == pytest.approx(numeric, abs=1e-6)
    p = 1 / (1 + np.exp(-scores))
    np.testing.assert_allclose(hessian, plain * p * (1 - p), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_and_counts_equal_their_slow_twins(weighted):
    scores, labels, codes, weights, _, cells, _ = problem(3, ("fnr", "positive_rate"), weighted, n=5000)
    plain = np.ones(len(scores)) if weights is None else weights.astype(float)
    expected = (plain * np.logaddexp(0, -(2 * labels - 1) * scores)).sum()
    assert run(scores, cells, weights, np.zeros(6), np.zeros(6))[2] == pytest.approx(expected, rel=1e-12)
    assert kernel.total_loss(scores, cells.codes, weights) == pytest.approx(expected, rel=1e-12)
    counted = kernel.count_positive(scores, cells.codes, weights, 6)
    cell = 2 * codes + labels.astype(int)
    np.testing.assert_allclose(counted, np.bincount(cell, plain * (scores > 0)), rtol=1e-12)


def test_extreme_scores_stay_finite():
    scores = np.array([-800.0, 800.0, -800.0, 800.0] * 200)
    labels = np.array([1.0, 1.0, 0.0, 0.0] * 200)
    cells = make_cells(np.zeros(800, dtype=np.int64), labels, ["a"])
    gradient, hessian, loss = run(scores, cells, None, np.ones(2), np.ones(2))
    assert np.isfinite(gradient).all()
    assert np.isfinite(hessian).all()
    assert np.isfinite(loss)
    assert gradient[0] == pytest.approx(-1)  # the loss pulls a lost positive up; the proxy's slope has faded
    assert gradient[1] == pytest.approx(0, abs=1e-30)


def test_a_proxy_adds_a_bounded_newton_step():
    scores = np.linspace(-30, 30, 800)
    labels = np.tile([0.0, 1.0], 400)
    cells = make_cells(np.zeros(800, dtype=np.int64), labels, ["a"])
    gradient, hessian, _ = run(scores, cells, None, np.full(2, 3.0), np.full(2, 2.0))
    plain, _, _ = run(scores, cells, None, np.zeros(2), None)
    np.testing.assert_allclose(
        np.abs(gradient.astype(float) - plain), 2.5 * hessian * np.where(labels, 1.0, 5.0), atol=1e-6
    )
