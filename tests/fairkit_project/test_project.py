"""Project: what is taken out is the fair metric's subspace; on Adult, consistency under sex and race is 1."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import export, run_columns
from fairkit_project import Project, learn_projection
from fairkit_similarity.learn import subspace


def _data(n=800):
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], n)
    race = rng.choice(["a", "b", "c"], n)
    age = rng.integers(20, 60, n)
    height = 165 + 12 * (sex == "m") + 4 * rng.normal(size=n)
    skill = rng.normal(size=n)
    skill[::23] = np.nan
    town = np.where(rng.random(n) < 0.2 + 0.5 * (race == "a"), "north", "south")
    good = np.where(0.1 * (height - 170) + np.nan_to_num(skill) + rng.normal(size=n) > 0, "yes", "no")
    columns = {"sex": sex, "race": race, "age": age, "height": height, "skill": skill, "town": town}
    columns |= {f"test{k}": rng.normal(size=n) + 0.3 * k * (race == "b") for k in range(5)}
    return fairkit.load_data(
        columns | {"good": good}, label="good", favorable="yes", sensitive=["sex", "race", "age:30:45"]
    )


def test_the_result_is_the_orthogonal_complement_in_the_features_own_axes():
    table = Table.from_dataset(_data())
    encoding = learn_projection(table)
    metric = subspace(table.columns, ["sex", "race", "age"])
    x = metric.encoder.encode(table.columns)
    expected = x @ (metric.matrix @ metric.matrix.T)
    own = metric.encoder.places(["sex", "race", "age"])
    assert np.abs(expected[:, own]).max() < 1e-9
    assert np.abs(encoding.transform(table.columns) - np.delete(expected, own, axis=1)).max() < 1e-5
    # a projector: applying it twice changes nothing
    assert np.abs(encoding.matrix @ encoding.matrix - encoding.matrix).max() < 1e-9
    assert encoding.names[:5] == ["height", "skill", "skill=(missing)", "town=south", "test0"]


def test_only_the_chosen_columns_predictors_are_taken_out():
    table = Table.from_dataset(_data())
    ranks = [
        np.linalg.matrix_rank(learn_projection(table, directions=names).matrix, tol=1e-9)
        for names in (None, ["sex"], [])
    ]
    assert ranks[2] == len(learn_projection(table).matrix)
    assert ranks == [ranks[2] - 5, ranks[2] - 1, ranks[2]]
    with pytest.raises(fairkit.ParameterError, match="'height' is not one of the sensitive columns"):
        learn_projection(table, directions=["height"])


def test_nothing_is_left_that_predicts_the_sensitive_column_linearly():
    from sklearn.linear_model import LogisticRegression

    data = _data()
    table = Table.from_dataset(data)
    male = table.columns["sex"] == "m"

    def accuracy(z):
        return LogisticRegression(max_iter=2_000).fit(z, male).score(z, male)

    z = learn_projection(table, strength=1e-3).transform(table.columns)
    x = np.column_stack([table.columns["height"], table.columns["town"] == "north"]).astype(float)
    assert accuracy((x - x.mean(axis=0)) / x.std(axis=0)) > 0.9
    assert accuracy(z) < 0.7


@pytest.mark.long
@pytest.mark.parametrize("learner", ["xgboost", "logistic"])
def test_the_file_projects_itself_and_never_reads_the_sensitive_columns(learner):
    table = Table.from_dataset(_data())
    model = Project().fit(table, Run(learner=learner))
    proto = export(model, table)
    read = {"height", "skill", "town", *(f"test{k}" for k in range(5))}
    assert {entry.name for entry in proto.graph.input} == read
    new = {f"test{k}": np.linspace(-k, k, 300) for k in range(5)} | {
        "height": np.linspace(140, 210, 300),
        "skill": np.where(np.arange(300) % 7 == 0, np.nan, np.linspace(-3, 3, 300)),
        "town": np.array(["north", "south", "west"] * 100, dtype=object),
    }
    got = run_columns(open_session(proto), new)["score"].ravel()
    assert np.abs(got - model.predict(new).score).max() < 1e-5


def test_a_batch_and_single_rows_get_the_same_score():
    table = Table.from_dataset(_data(300))
    proto = export(Project().fit(table, Run(learner="xgboost")), table)
    session = open_session(proto)
    together = run_columns(session, table.columns)["score"]
    alone = [run_columns(session, {k: v[i : i + 1] for k, v in table.columns.items()})["score"] for i in range(60)]
    assert np.abs(together[:60] - np.concatenate(alone)).max() < 1e-6


def test_groups_without_columns_behind_them():
    pytest.importorskip("sklearn")
    from fairkit_repair.sklearn.estimators import mitigator

    table = Table.from_dataset(_data())
    X = np.column_stack([table.columns["height"], np.nan_to_num(table.columns["skill"])])
    male = table.columns["sex"] == "m"
    fitted = mitigator("project")(learner="logistic").fit(X, table.target, sensitive_features=male)
    score = fitted.predict_proba(X)[:, 1]
    plain = mitigator("project")(learner="logistic").fit(X, table.target, sensitive_features=None)
    assert abs(score[male].mean() - score[~male].mean()) < 0.15
    assert score.shape == plain.predict_proba(X)[:, 1].shape


def test_only_sensitive_features_is_a_clear_error():
    data = fairkit.load_data(
        {"sex": ["f", "m"] * 20, "good": ["yes", "no", "no", "yes"] * 10},
        label="good",
        favorable="yes",
        sensitive="sex",
    )
    with pytest.raises(fairkit.DataError, match="all features are sensitive"):
        Project().fit(Table.from_dataset(data), Run())


@pytest.mark.long
def test_on_adult_sex_and_race_change_no_decision(public_data):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    # as in the papers: race is white or not; the original test part
    adult = pq.read_table(public_data / "adult.parquet", filters=[("split", "=", "test")])
    white = pc.if_else(pc.equal(adult["race"], "White"), "yes", "no")
    adult = adult.drop_columns("race").append_column("white", white)
    data = fairkit.load_data(
        adult,
        label="income",
        favorable=">50K",
        sensitive=["sex", "white"],
        drop=["split", "fnlwgt", "education", "native-country"],
    )
    table = Table.from_dataset(data)
    model = Project.with_values({"settings": {"n_estimators": 20}}).fit(table, Run(learner="xgboost", threads=1))
    content = export(model, table).SerializeToString()
    report = fairkit.audit(
        content, data, auditors=["consistency"], parameters={"consistency": {"sensitive": ["sex+white"]}}
    )
    assert report.find("consistency").value == 1.0
    assert fairkit.audit(content, data).find("balanced_accuracy").value > 0.7
