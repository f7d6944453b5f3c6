"""The Poisson loss: bounds of its discretisation, exact programs, other libraries, insurance from end to end."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import fairkit
from fairkit.errors import FairkitError
from fairkit.mitigators import Groups, Run, Table
from fairkit_fair_regression.losses import Grid, Loss, Rates, cover_labels
from fairkit_fair_regression.plugin import FairRegression
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import run_columns

RATES = [Rates(0.002, 6.0, 0.1, 4.0), Rates(0.01, 0.5, 0.1, 300.0), Rates(1.0, 3.0, 2.0, 2.5)]


@pytest.mark.parametrize("rates", RATES)
def test_the_loss_is_half_the_deviance_in_the_unit_interval_and_1_lipschitz(rates):
    from sklearn.metrics import mean_poisson_deviance

    loss, u = Loss("poisson", rates=rates), np.linspace(0, 1, 301)
    y = np.unique(np.concatenate([np.linspace(0, rates.largest, 60), np.geomspace(1e-4, rates.largest, 40)]))
    table = loss(y[:, None], u[None, :])
    assert table.min() >= 0
    assert table.max() <= 1
    assert np.abs(np.diff(table, axis=1)).max() <= u[1] * (1 + 1e-9)
    mu = rates.to_rate(u)
    assert (mu[0], mu[-1]) == (pytest.approx(rates.low), pytest.approx(rates.high))
    deviance = [[mean_poisson_deviance([own], [rate]) for rate in mu[::50]] for own in y[::9]]
    np.testing.assert_allclose(table[::9, ::50] / loss.unit, deviance, atol=1e-9)
    np.testing.assert_allclose(rates.from_log(np.log(mu)), u, atol=1e-12)


@pytest.mark.parametrize("size", [10, 40])
@pytest.mark.parametrize("rates", RATES[:2])
def test_rounding_costs_no_more_deviance_than_derived(rates, size):
    """A rate moves by a factor of at most e^δ, δ = αL/2: for E y = μ the deviance grows by 2μ(e^δ - 1 - δ) at most."""
    grid, loss = Grid(size), Loss("poisson", rates=rates)
    u = np.linspace(0, 1, 4_001)
    rounded = grid.values[grid.levels(u)]
    delta, mu = rates.span / size / 2 * (1 + 1e-6), rates.to_rate(u)
    assert np.abs(np.log(rates.to_rate(rounded) / mu)).max() <= delta
    # the loss is linear in y but for a term without u: the expected excess is that of the mean
    excess = (loss(mu, rounded) - loss(mu, u)) / loss.unit
    assert (excess >= -1e-12).all()
    assert (excess <= 2 * mu * (np.exp(delta) - 1 - delta)).all()
    y = np.geomspace(1e-3, rates.largest, 30)[:, None]
    assert np.abs(loss(y, rounded) - loss(y, u)).max() <= grid.step / 2 * (1 + 1e-6)


def test_the_cover_keeps_counts_and_is_fine_beside_the_mean():
    rates, rng = RATES[1], np.random.default_rng(0)
    counts = rng.poisson(0.1, 500).astype(float)
    loss = Loss("poisson", rates=dataclasses.replace(rates, mean=counts.mean()))
    cover = cover_labels(counts, 1 / 40, loss)
    np.testing.assert_array_equal(cover.labels[cover.codes], counts)
    labels = np.concatenate([rng.uniform(0, 0.3, 300), rng.uniform(0.3, 300, 300), np.zeros(50)])
    cover = cover_labels(labels, 1 / 40, Loss("poisson", rates=rates))
    near, half = cover.labels[cover.codes], 1 / 80 * (1 + 1e-9)
    assert (np.abs(near - labels) <= half * (1 + half) * np.maximum(np.maximum(near, labels), rates.mean)).all()
    assert len(cover.labels) <= 80 * (1 + np.log(300 / 0.1)) + 2


def _kinds(rows=600, seed=0):
    """Rows of eight cells: four kinds, mixed differently in two groups, with counts."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, rows)
    shares = np.array([[0.1, 0.4, 0.8], [0.4, 0.7, 0.9]])
    kinds = (rng.random(rows)[:, None] > shares[codes]).sum(axis=1)
    target = rng.poisson(np.array([0.2, 0.5, 1.2, 2.5])[kinds] * (1 + 0.2 * codes)).astype(float)
    cells = kinds + 4 * codes
    table = Table(
        columns={"cell": cells.astype(float)},
        features=("cell",),
        target=target,
        groups={"g": Groups(None, ("a", "b"), codes.astype(np.int64))},
        weights=None,
        task="regression",
    )
    return table, cells


def _program(table, cells, loss, size, tolerance):
    """Return the exact optimum over all mixtures of functions of the cell: each has its own distribution of levels."""
    from scipy.optimize import linprog

    values = Grid(size).values
    share = np.bincount(cells) / len(cells)
    costs = [loss(table.target[cells == k][:, None], values[None, :]).sum(axis=0) for k in range(8)]
    left = []
    for group, z in itertools.product(range(2), range(1, size + 1)):
        own = np.where(np.arange(8) // 4 == group, share, 0.0)
        gaps = own / own.sum() - share
        line = np.outer(gaps, np.arange(size + 1) >= z).ravel()
        left += [line, -line]
    sums = np.kron(np.eye(8), np.ones(size + 1))
    found = linprog(
        np.concatenate(costs) / len(cells),
        A_ub=np.array(left),
        b_ub=np.full(len(left), tolerance),
        A_eq=sums,
        b_eq=np.ones(8),
    )
    return found.fun


@pytest.mark.parametrize("tolerance", [0.03, 0.12])
def test_the_mixture_has_the_optimum_of_the_exact_program(tolerance):
    """A tree gives every cell its own rate: the class holds all functions, and the program is exact."""
    from sklearn.tree import DecisionTreeRegressor

    table, cells = _kinds()
    settings = {"loss": "poisson", "grid": 10, "tolerance": tolerance, "nu": 1e-6, "rate_range": [0.1, 6]}
    method = FairRegression(FairRegression.with_values(settings).parameters, estimator=DecisionTreeRegressor())
    training = method.training(table, Run(threads=1))
    best = _program(table, cells, training.loss, 10, tolerance)
    model = training.fit()
    assert model.details["violation"] <= 1e-9
    assert model.details["objective"] == pytest.approx(best, rel=1e-3)
    fine = _program(table, cells, training.loss, 40, tolerance)
    assert fine <= best <= fine + 1 / 20  # rounding costs α/2 at most (lemma 1), in the unit of the loss
    deviance = 2 * training.loss.rates.divisor
    free = _program(table, cells, training.loss, 10, 1.0)
    assert (best - fine) * deviance < 0.02 < (best - free) * deviance + 0.02


def _insurance(rows, seed):
    """Claims of drivers: men drive more, and the yearly distance and the sex raise the rate."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(rows) < 0.45, "female", "male").astype(object)
    distance = rng.gamma(4, 4, rows) * np.where(sex == "male", 1.4, 1.0)
    age, area = rng.integers(18, 80, rows), rng.choice(["city", "town", "country"], rows)
    logs = 0.9 * (age < 26) + 0.05 * (distance - 15) + 0.35 * (area == "city") + 0.3 * (sex == "male")
    years = rng.uniform(0.1, 1, rows)
    claims = rng.poisson(0.1 * np.exp(logs) * years)
    return {
        "age": age.astype(float),
        "distance": distance,
        "area": area.astype(object),
        "sex": sex,
        "years": years,
        "frequency": claims / years,
    }


def _data(rows=3_000, seed=0):
    features = ["age", "distance", "area", "sex"]
    return fairkit.load_data(
        _insurance(rows, seed), label="frequency", sensitive="sex", features=features, weights="years"
    )


@pytest.mark.long
def test_without_bounds_it_is_the_poisson_regression_of_scikit_learn_and_lightgbm():
    import lightgbm
    from sklearn.linear_model import PoissonRegressor

    table = Table.from_dataset(_data())
    method = FairRegression.with_values({"loss": "poisson"})
    linear = method.baseline(table, Run(learner="linear", threads=1))
    matrix = linear.encoder.transform(table.columns).astype(float)
    own = PoissonRegressor(alpha=1e-6, max_iter=2_000, tol=1e-8)
    own.fit(matrix, table.target, sample_weight=table.weights)
    np.testing.assert_allclose(linear.predict(table.columns).score, own.predict(matrix), rtol=1e-3)
    trees = method.baseline(table, Run(learner="lightgbm", threads=1))
    matrix = trees.encoder.transform(table.columns)
    data = lightgbm.Dataset(
        matrix,
        table.target,
        weight=table.weights / table.weights.mean(),
        categorical_feature=list(trees.encoder.categorical),
    )
    settings = {"objective": "poisson", "verbosity": -1, "deterministic": True, "num_threads": 1, "seed": 0}
    expected = lightgbm.train(settings, data, num_boost_round=100).predict(matrix)
    low, high = trees.loss.rates.low, trees.loss.rates.high
    np.testing.assert_allclose(trees.predict(table.columns).score, np.clip(expected, low, high), rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("learner", "values"),
    [
        ("linear", {}),
        ("lightgbm", {"settings.n_estimators": 15, "settings.num_leaves": 8}),
        ("xgboost", {"settings.n_estimators": 20, "settings.max_depth": 3}),
        ("forest", {"settings.n_estimators": 10, "settings.min_samples_leaf": 60}),
        ("linear", {"oracle": "ls"}),
        ("logistic", {"oracle": "cs", "grid": 20}),
    ],
)
def test_insurance_rates_come_to_parity_in_one_file(learner, values):
    data, test = _data(2_000), _data(2_000, 1)
    settings = {"loss": "poisson", "tolerance": 0.05, "iterations": 4, "threads": 1} | values
    found = fairkit.mitigate("fair-regression", data, test=test, learner=learner, **settings)
    assert found.details["violation"] <= 0.005
    assert found.before.find("statistical_parity_ks", "sex").value > 0.08
    assert found.after.find("statistical_parity_ks", "sex").value <= 0.05 + 0.05
    rows = Table.from_dataset(test)
    output = run_columns(open_session(found.onnx), rows.columns)
    scores = output.get("member_scores", output["score"])
    low, high = found.details["rate_range"]
    assert low * (1 - 1e-6) <= scores.min() < scores.max() <= high * (1 + 1e-6)
    mean = scores @ np.array(found.details["weights"])
    charged, claimed = (np.average(x, weights=rows.weights) for x in (mean, rows.target))
    assert charged == pytest.approx(claimed, rel=0.35 if learner == "logistic" else 0.2)


def test_group_losses_are_bounded_in_deviance():
    from sklearn.metrics import mean_poisson_deviance

    table = Table.from_dataset(_data(1_500))
    settings = {"loss": "poisson", "tolerance": 0.1, "iterations": 4}
    model = FairRegression.with_values(settings).fit(table, Run(learner="linear", threads=1))
    scores = model.scale.to_label(
        model.scale.snapped(model.unconstrained.predict(model.encoder.transform(table.columns)))
    )
    divisor = model.details["deviance_divisor"]
    groups = table.groups["sex"].codes
    own = [
        mean_poisson_deviance(table.target[groups == g], scores[groups == g], sample_weight=table.weights[groups == g])
        for g in range(2)
    ]
    zeta = {"loss": "poisson", "constraint": "bounded_group_loss", "zeta": 1.001 * max(own) / divisor}
    bounded = FairRegression.with_values(zeta).fit(table, Run(learner="linear", threads=1))
    assert bounded.details["violation"] <= 1e-6


def test_bad_input_is_told():
    table = _kinds(200)[0]

    def fails(values, match, own=table, learner="linear"):
        with pytest.raises(FairkitError, match=match):
            FairRegression.with_values({"loss": "poisson"} | values).fit(own, Run(learner=learner, threads=1))

    fails({}, "200 values of the label are negative", dataclasses.replace(table, target=table.target - 9))
    fails({}, "the same value", dataclasses.replace(table, target=table.target * 0))
    two = dataclasses.replace(table, target=np.minimum(table.target, 1), task="binary")
    fails({}, "use loss=logistic for classes", two)
    fails({"rate_range": [1, 2]}, "is no range of rates")
    fails({"rate_range": [0, 2]}, "rate_range")
    fails({"rate_range": [1]}, "is no range of rates")
    fails({"rate_range": [0.1, 2], "loss": "squared"}, "goes with loss=poisson")
    fails({"label_range": [-1, 9]}, "begins at 0 or above")
    fails({"label_range": [0, 1]}, "leave the declared range")
    fails({"constraint": "seo"}, "least squares")
    fails({}, "needs rates", learner="logistic")


def test_priors_of_compas_and_crimes_per_population(public_data):
    """Real counts and rates: the distributions come together, at a price in deviance."""
    import pandas as pd
    from sklearn.metrics import mean_poisson_deviance

    frame = pd.read_parquet(public_data / "compas.parquet")
    frame = frame[frame["race"].isin(["African-American", "Caucasian"])].dropna(subset=["priors_count", "age"])
    frame = frame.reset_index(drop=True).astype({"priors_count": float})
    data = fairkit.load_data(
        frame, label="priors_count", sensitive="race", features=["age", "sex", "race", "c_charge_degree"]
    )
    table = Table.from_dataset(data)
    settings = {"loss": "poisson", "tolerance": 0.05, "iterations": 8}
    model = FairRegression.with_values(settings).fit(table, Run(learner="linear", threads=1))
    assert model.details["violation"] <= 0.005
    scores = model.member_scores(table.columns) @ np.array(model.weights)
    deviance = mean_poisson_deviance(table.target, scores)
    assert deviance < mean_poisson_deviance(table.target, np.full(len(scores), table.target.mean()))
