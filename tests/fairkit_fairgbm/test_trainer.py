"""The Lagrangian's derivatives, and the trainer that follows them."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_fairgbm import kernel
from fairkit_fairgbm.constraints import Constraints, Multipliers, make_cells
from fairkit_fairgbm.trainer import TrainerSettings, TrainingRows, train


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
    scores, labels, codes, weights, constraints, cells, multipliers = problem(groups, rates, weighted, n=80)
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


# The trainer.
def sample(n=3000, seed=0, groups=2, weighted=False):
    """Group 1 is harder to recognise as positive: an unconstrained model misses more of them."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    x = rng.normal(size=(n, 4))
    logit = 1.5 * x[:, 0] - 1.2 * group + 0.8 * x[:, 1] * (group == 0)
    y = (logit + rng.logistic(size=n) > 0).astype(float)
    X = np.column_stack([x, group]).astype(np.float32)
    weights = (rng.random(n) + 0.5).astype(np.float32) if weighted else None
    cells = make_cells(group, y, [str(g) for g in range(groups)], None if weights is None else weights.astype(float))
    return TrainingRows(X, cells, weights), y


def settings(rounds=60, **changes):
    params = {"verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 3} | changes.pop("params", {})
    return TrainerSettings(
        **({"rounds": rounds, "multiplier_rate": 2.0, "multiplier_cap": 5.0, "params": params} | changes)
    )


FNR = Constraints(("fnr",), (0.01,))
PARAMS = [
    {},
    {"bagging_fraction": 0.7, "bagging_freq": 1, "feature_fraction": 0.6},
    {"scale_pos_weight": 3.0},
    {"is_unbalance": True},
    {"boost_from_average": False},
    {"data_sample_strategy": "goss"},
]


@pytest.mark.long
@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("constraints", [Constraints((), ()), Constraints(("fnr", "fpr"), (1.0, 1.0))])
def test_without_an_active_constraint_the_trees_are_stock_lightgbms(params, weighted, constraints):
    import lightgbm

    rows, y = sample(weighted=weighted)
    chosen = settings(params=params)
    stock = lightgbm.train(
        dict(chosen.params) | {"objective": "binary"}, lightgbm.Dataset(rows.matrix, y, weight=rows.weights), 60
    )
    ours = train(rows, constraints, chosen)
    difference = stock.predict(rows.matrix, raw_score=True) - ours.booster.predict(rows.matrix, raw_score=True)
    assert np.abs(difference - ours.start).max() < 1e-9
    assert ours.multipliers.size == 0 or not ours.multipliers.any()


@pytest.mark.long
@pytest.mark.parametrize("name", ["fnr", "fpr", "positive_rate"])
@pytest.mark.parametrize("groups", [2, 3])
def test_the_constraint_holds_at_the_end_on_the_training_rows(name, groups):
    rows, _ = sample(groups=groups, n=6000)
    free = train(rows, Constraints((name,), (1.0,)), settings(100)).train[-1]
    held = train(rows, Constraints((name,), (0.0,)), settings(100)).train[-20:]
    mean = np.mean([moment.rates.by_group[0] for moment in held], axis=0)
    assert free.gap > 0.1
    assert mean.max() - mean.min() < 0.03
    assert held[-1].gap < 0.06


def test_two_constraints_at_once():
    rows, _ = sample(n=6000)
    found = train(rows, Constraints(("fnr", "fpr"), (0.01, 0.01)), settings(150)).train[-1]
    by_group = found.rates.by_group
    assert np.abs(by_group[:, 0] - by_group[:, 1]).max() < 0.05


def test_a_limit_on_the_overall_rate_holds():
    rows, _ = sample(n=6000)
    free = train(rows, Constraints((), (), (("fpr", 0.9),)), settings()).train[-1]
    held = train(rows, Constraints((), (), (("fpr", 0.05),)), settings(100)).train[-1]
    assert free.rates.overall[0] > 0.1
    assert held.rates.overall[0] == pytest.approx(0.05, abs=0.015)


def test_an_operating_point_is_reached_from_below():
    rows, _ = sample(n=6000)
    target, small = (("fpr", 0.4),), {"num_leaves": 4}
    limit = train(rows, Constraints((), (), target), settings(150, params=small)).train[-1]
    point = train(rows, Constraints((), (), target, two_sided=True), settings(150, params=small)).train[-1]
    assert limit.rates.overall[0] < 0.3
    assert point.rates.overall[0] == pytest.approx(0.4, abs=0.03)


@pytest.mark.long
@pytest.mark.parametrize("rate", [0.5, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("rounds", [50, 400])
def test_no_rate_diverges(rate, rounds):
    rows, _ = sample(n=1000)
    found = train(rows, FNR, settings(rounds, multiplier_rate=rate))
    assert np.isfinite(found.multipliers).all()
    assert found.multipliers.max() <= 5.0 * 0.5
    assert found.train[-1].loss < 0.7


def test_the_path_is_what_the_prefixes_give():
    rows, _ = sample()
    held, _ = sample(seed=1)
    found = train(rows, FNR, settings(20), validation=held)
    assert len(found.train) == len(found.validation) == 20
    assert found.multipliers.shape == (20, 2)
    for rounds in (1, 7, 20):
        for part, path in ((rows, found.train), (held, found.validation)):
            scores = found.start + found.booster.predict(part.matrix, raw_score=True, num_iteration=rounds)
            labels, group = part.cells.codes & 1, part.cells.codes >> 1
            moment = path[rounds - 1]
            sign = np.where(labels == 1, 1, -1)
            assert moment.loss == pytest.approx(np.logaddexp(0, -sign * scores).mean(), rel=1e-9)
            assert moment.error == pytest.approx(((scores > 0) != labels).mean())
            fnr = [1 - (scores > 0)[(labels == 1) & (group == g)].mean() for g in (0, 1)]
            np.testing.assert_allclose(moment.rates.by_group[0], fnr)


def test_multipliers_follow_the_rule():
    rows, _ = sample()
    found = train(rows, FNR, settings(15))
    share = min(rows.cells.weight[1::2]) / rows.cells.total
    own = np.zeros(2)
    for moment, after in zip(found.train, found.multipliers, strict=True):
        a, b = moment.rates.by_group[0]
        own = np.clip(own + 2.0 * 0.1 * share * (np.array([b - a, a - b]) - 0.01), 0, 5.0 * share)
        own -= own.min()
        np.testing.assert_allclose(after, own, atol=1e-12)


def test_same_inputs_same_trees():
    rows, _ = sample(groups=3, n=3000)
    first, second = (train(rows, FNR, settings(30)).booster.model_to_string() for _ in range(2))
    assert first == second


def test_early_stopping_looks_at_the_constraint():
    rows, _ = sample(n=1500)
    held, _ = sample(seed=1, n=1500)
    found = train(rows, FNR, settings(400, patience=15), validation=held)
    assert 16 <= found.rounds < 400


def test_an_interrupt_ends_at_the_round():
    rows, _ = sample()
    rounds = []

    def progress(doing, step, total, **values):
        rounds.append((step, total, sorted(values)))
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(rows, FNR, settings(100), progress=progress)
    assert rounds[-1] == (5, 100, ["loss", "violation"])
