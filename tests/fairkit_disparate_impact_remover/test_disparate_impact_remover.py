"""Repair: equal distributions, order within groups, identity for equal groups; the file repairs itself."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_disparate_impact_remover import DisparateImpactRemover, learn_repair, median_repair
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import export, run_columns


def _ones(samples):
    return [np.ones(len(x)) for x in samples]


def test_two_normal_groups_meet_at_the_mean_of_their_quantiles():
    from scipy.stats import ks_2samp

    rng = np.random.default_rng(0)
    samples = [rng.normal(0.0, 1.0, 4_000), rng.normal(3.0, 2.0, 4_000)]
    maps = median_repair(samples, _ones(samples), 4_000)
    repaired = [steps(x.astype(np.float32)) for steps, x in zip(maps, samples, strict=False)]
    assert ks_2samp(*repaired).statistic < 0.01
    # the quantile functions of N(0, 1) and N(3, 4) average to that of N(1.5, 1.5²)
    for sample in repaired:
        assert abs(sample.mean() - 1.5) < 0.1
        assert abs(sample.std() - 1.5) < 0.1
    assert ks_2samp(*samples).statistic > 0.6


def test_order_within_a_group_is_kept():
    rng = np.random.default_rng(1)
    samples = [rng.normal(size=300), rng.exponential(size=200), rng.integers(0, 5, 250).astype(float)]
    for steps, x in zip(median_repair(samples, _ones(samples), 100), samples, strict=False):
        assert (np.diff(steps(np.sort(x).astype(np.float32))) >= 0).all()


def test_groups_of_one_distribution_are_left_alone():
    x = np.arange(50.0)
    for steps in median_repair([x, x, x], _ones([x] * 3), 1_000):
        assert np.array_equal(steps(x.astype(np.float32)), x.astype(np.float32))


def test_weights_stand_for_copies():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 8, 40).astype(float), rng.integers(3, 12, 50).astype(float)
    times = rng.integers(1, 4, 40)
    copied = median_repair([np.repeat(a, times), b], _ones([np.repeat(a, times), b]), 100)
    weighted = median_repair([a, b], [times.astype(float), np.ones(50)], 100)
    for one, two in zip(copied, weighted, strict=True):
        assert np.allclose(one.values, two.values, atol=1e-5)


def _data(n=700):
    rng = np.random.default_rng(3)
    sex = rng.choice(["f", "m"], n)
    age = rng.integers(20, 60, n)
    income = 30 + 5 * (sex == "m") + 0.1 * age + rng.normal(size=n)
    income[::17] = np.nan
    job = np.where(rng.random(n) < 0.5, "full", "part")
    good = np.where(np.nan_to_num(income, nan=35) + rng.normal(size=n) > 37, "yes", "no")
    columns = {"sex": sex, "age": age, "income": income, "job": job, "good": good}
    return fairkit.load_data(columns, label="good", favorable="yes", sensitive=["sex", "age:30:45"])


def test_partial_repair_lies_between():
    from scipy.stats import ks_2samp

    table = Table.from_dataset(_data())
    groups = table.groups["sex"]
    by = {amount: learn_repair(table, groups, "lightgbm", amount=amount) for amount in (0.0, 0.5, 1.0)}
    place = by[1.0].names.index("income")
    x0, x5, x1 = (by[amount].transform(table.columns)[:, place] for amount in (0.0, 0.5, 1.0))
    raw = table.columns["income"].astype(np.float32)
    assert np.array_equal(x0, raw, equal_nan=True)
    assert np.allclose(x5, (x0 + x1) / 2, atol=1e-4, equal_nan=True)
    seen = ~np.isnan(raw)
    male = table.columns["sex"] == "m"
    assert ks_2samp(x1[seen & male], x1[seen & ~male]).statistic < 0.02
    assert ks_2samp(raw[seen & male], raw[seen & ~male]).statistic > 0.8


@pytest.mark.parametrize("learner", ["lightgbm", "logistic"])
def test_the_file_repairs_itself(learner):
    table = Table.from_dataset(_data())
    method = DisparateImpactRemover.with_values({"quantiles": 50, "repair": 0.8})
    model = method.fit(table, Run(learner=learner))
    assert model.notes == ("Text columns are not repaired: job.",)
    proto = export(model, table)
    rng = np.random.default_rng(4)
    new = {
        "sex": rng.choice(np.array(["f", "m", "x", None], dtype=object), 500),
        "age": rng.integers(0, 99, 500),
        "income": np.where(rng.random(500) < 0.1, np.nan, rng.normal(35, 9, 500)),
        "job": rng.choice(np.array(["full", "part", "none"], dtype=object), 500),
    }
    got = run_columns(open_session(proto), new)["score"].ravel()
    assert np.abs(got - model.predict(new).score).max() < 1e-5
    assert len(np.unique(got)) > 20


def test_bad_parameters_are_refused():
    with pytest.raises(fairkit.ParameterError, match="repair must be 0 to 1"):
        DisparateImpactRemover.with_values({"repair": "1.5"})
