from __future__ import annotations

import numpy as np
import pytest

from fairkit_fairgbm.constraints import Constraints, make_cells
from fairkit_fairgbm.trainer import TrainerSettings, TrainingRows, train


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
