"""Correlation remover: against fairlearn for one column, against the definition for several."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_correlation_remover import CorrelationRemover, learn_encoding, remove_correlation
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import export, run_columns


def _apply(features, sensitive, matrix, mean):
    return np.concatenate([features, sensitive - mean], axis=1) @ matrix


@pytest.mark.parametrize("alpha", [1.0, 0.4])
def test_one_column_is_fairlearns(alpha):
    from fairlearn.preprocessing import CorrelationRemover as Theirs

    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, (300, 1)).astype(float)
    x = rng.normal(size=(300, 3)) + s * [1.0, -2.0, 0.5] + 3.0
    theirs = Theirs(sensitive_feature_ids=[0], alpha=alpha).fit_transform(np.hstack([s, x]))
    ours = _apply(x, s, *remove_correlation(x, s, np.ones(300), alpha))
    assert np.abs(ours - theirs).max() < 1e-10


def test_several_columns_have_a_mean_each():
    rng = np.random.default_rng(1)
    s = np.column_stack([rng.integers(0, 2, 500), 40 + 10 * rng.normal(size=500)]).astype(float)
    x = rng.normal(size=(500, 2)) + s @ np.array([[1.0, 0.2], [0.05, -0.1]])
    ours = _apply(x, s, *remove_correlation(x, s, np.ones(500)))
    correlation = np.corrcoef(np.hstack([ours, s]), rowvar=False)[:2, 2:]
    assert np.abs(correlation).max() < 1e-12
    # removing correlation moves no mean; one scalar mean over both columns would
    assert np.abs(ours.mean(axis=0) - x.mean(axis=0)).max() < 1e-12


def test_dependent_columns_and_weights():
    rng = np.random.default_rng(2)
    code = rng.integers(0, 3, 400)
    s = np.eye(3)[code]
    x = rng.normal(size=(400, 2)) + np.array([[0.0, 1.0], [2.0, -1.0], [5.0, 0.0]])[code]
    w = rng.random(400) + 0.1
    ours = _apply(x, s, *remove_correlation(x, s, w))
    means = [np.average(ours[code == k], axis=0, weights=w[code == k]) for k in range(3)]
    assert np.abs(np.diff(means, axis=0)).max() < 1e-10


def _table(n=600):
    rng = np.random.default_rng(3)
    sex = rng.choice(["f", "m"], n)
    age = rng.integers(20, 60, n)
    income = 30 + 5 * (sex == "m") + 0.2 * age + rng.normal(size=n)
    job = np.where(rng.random(n) < 0.3 + 0.4 * (sex == "m"), "full", "part")
    columns = {"sex": sex, "age": age, "income": income, "job": job}
    good = np.where(income + rng.normal(size=n) > 41, "yes", "no")
    data = fairkit.load_data(columns | {"good": good}, label="good", favorable="yes", sensitive=["sex", "age:30:45"])
    return Table.from_dataset(data)


def test_encoded_rows_are_uncorrelated_with_text_and_numbers():
    table = _table()
    z = learn_encoding(table, 1.0).transform(table.columns).astype(float)
    male = (table.columns["sex"] == "m").astype(float)
    for s in (male, table.columns["age"].astype(float)):
        assert np.abs([np.corrcoef(z[:, j], s)[0, 1] for j in range(z.shape[1])]).max() < 1e-5
    assert "sex=m" not in learn_encoding(table, 1.0).names


@pytest.mark.parametrize("learner", ["lightgbm", "logistic"])
def test_the_file_removes_correlation_itself(learner):
    table = _table()
    model = CorrelationRemover().fit(table, Run(learner=learner))
    proto = export(model, table)
    assert {entry.name for entry in proto.graph.input} == {"sex", "age", "income", "job"}
    flipped = dict(table.columns) | {"sex": np.where(table.columns["sex"] == "m", "f", "m").astype(object)}
    got = run_columns(open_session(proto), flipped)["score"].ravel()
    assert np.abs(got - model.predict(flipped).score).max() < 1e-5
    assert np.abs(got - model.predict(table.columns).score).max() > 1e-3


def test_no_sensitive_columns_is_a_clear_error():
    table = _table(50)
    import dataclasses

    with pytest.raises(fairkit.DataError, match="reads the sensitive columns"):
        CorrelationRemover().fit(dataclasses.replace(table, groups={}), Run())
