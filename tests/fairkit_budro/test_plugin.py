"""The plugin: from a table to an ONNX file, its parameters, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit import plugins
from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Run, Table
from fairkit_budro.boosting import BoostingRows, BoostingSettings, train
from fairkit_budro.plans import ExactPlan, Fixed
from fairkit_budro.plugin import BuDRO
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import export, run_columns
from fairkit_repair.mitigation.choose import stratified
from fairkit_similarity import learn
from fairkit_similarity.learn import subspace
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.transport import Support

RUN = Run(seed=1, threads=1)
SMALL = {"n_estimators": 12, "max_depth": 3, "learning_rate": 0.1, "min_child_weight": 1.0}


def frame(n=500, seed=0, classes=2):
    """Sex raises the outcome beside a skill; a hobby stands for sex."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n)
    hobby = np.where(rng.random(n) < 0.8, sex, 1 - sex)
    skill, age = rng.normal(size=n), rng.integers(18, 80, n)
    pull = 1.5 * skill + 1.5 * sex + 0.8 * hobby - 1.1
    label = np.clip(np.round(pull + rng.logistic(size=n) * 0.5), 0, classes - 1).astype(int)
    return {
        "skill": skill,
        "age": age,
        "hobby": np.array(["chess", "boxing"])[hobby].tolist(),
        "sex": np.array(["f", "m"])[sex].tolist(),
        "got": np.array(["no", "some", "all"])[label].tolist() if classes == 3 else label,
        "weight": rng.integers(1, 4, n).astype(float),
    }


def dataset(sensitive="sex", classes=2, n=500, **more):
    roles = {"drop": ["weight"]} | more
    good = {} if classes == 3 else {"favorable": 1}
    return fairkit.load_data(
        pa.table(frame(n, classes=classes)), label="got", sensitive=sensitive, name="people", **good, **roles
    )


def table(**given):
    return Table.from_dataset(dataset(**given))


def fit(rows=None, run=RUN, **values):
    return BuDRO.with_values(SMALL | values).fit(table() if rows is None else rows, run)


def test_it_is_installed_under_its_name():
    assert plugins.load("budro").mitigators == (BuDRO,)


@pytest.mark.parametrize("values", [{}, {"plan": "entropic", "gamma": 0.01}, {"plan": "sampled", "sample": 300}])
def test_every_plan_trains_and_tells_its_path(values):
    seen = []
    run = Run(seed=1, threads=1, progress=lambda doing, step, total, **now: seen.append((step, total, now)))
    model = fit(table(n=250), run, **values)
    path = model.details["path"]
    assert len(path["value"]) == SMALL["n_estimators"]
    assert model.details["trees"] == SMALL["n_estimators"] + 1
    assert path["value"][0] == pytest.approx(np.log(2), abs=0.1)
    assert (np.array(path["value"]) >= np.array(path["loss"]) - 1e-9).all()
    if values.get("plan") != "sampled":
        np.testing.assert_allclose(path["cost"], 0.1, rtol=1e-4)
    assert [step for step, _, _ in seen] == list(range(1, 13))
    assert set(seen[0][2]) == {"eta", "inner_maximum", "transport_cost", "gap"}
    json.dumps(model.details, allow_nan=False)


def test_the_gap_is_smaller_than_plain_boosting_at_the_same_settings():
    """The paper's point: training on the worst case lowers it."""
    rows = table()
    fair, plain = fit(rows, n_estimators=60), fit(rows, n_estimators=60, epsilon=0.0)
    score = {"fair": fair.predict(rows.columns).score, "plain": plain.predict(rows.columns).score}
    from fairkit_similarity.transport import Support

    z = fair.metric.transform({name: rows.columns[name] for name in fair.metric.columns})
    labels = rows.target.astype(int)
    gaps = {}
    for name, s in score.items():
        problem = Support(z).losses(np.stack([-np.log(1 - s), -np.log(s)]), labels)
        gaps[name] = problem.solve(0.1).value - problem.mass @ problem.own
    assert gaps["fair"] < 0.6 * gaps["plain"]


def test_tiny_learning_rates_survive_the_export():
    """Scores within 1e-5 of 1/2: every decision of the file is that of the margins in memory."""
    rows = table()
    model = fit(rows, learning_rate=1e-7, max_depth=4)
    proto = export(model, rows)
    found = run_columns(open_session(proto), rows.columns)
    margins = model.margins(model.encoder.transform(rows.columns))
    assert 0 < np.abs(margins).max() < 1e-5
    assert 0.2 < (margins >= 0).mean() < 0.8
    np.testing.assert_array_equal(found["decision"].ravel(), margins >= 0)
    np.testing.assert_array_equal(model.predict(rows.columns).decision_probability, margins >= 0)


def test_the_file_adds_up_the_trees_as_xgboost_does():
    from tests.oracles import predict_trees

    from fairkit_onnx.write.trees import xgboost_trees

    rows = table()
    model = fit(rows, balanced=True, xgboost={"max_bin": 16})
    matrix = model.encoder.transform(rows.columns)
    found, outputs, base = xgboost_trees(model.booster)
    assert base == [0.0]
    expected = predict_trees(found, matrix, outputs, base)[:, 0]
    np.testing.assert_allclose(model.margins(matrix), expected, atol=1e-7)


def test_a_file_of_several_classes_gives_the_probabilities_of_the_model():
    rows = table(classes=3)
    assert rows.task == "multiclass"
    model = fit(rows, n_estimators=20)
    proto = export(model, rows)
    found = run_columns(open_session(proto), rows.columns)["probabilities"]
    np.testing.assert_allclose(found, model.predict(rows.columns).score, atol=1e-6)
    assert (found.argmax(axis=1) == rows.target).mean() > 0.5


def test_a_row_of_weight_two_is_two_rows(tmp_path):
    """For the adversary and for the trees; lambda and min_child_weight stand on the scale of n, so they are 0."""
    once = Table.from_dataset(dataset(weights="weight", drop=()))
    twice = once.take(np.repeat(np.arange(500), once.weights.astype(int))).with_weights(None)
    learn.subspace({name: once.columns[name] for name in once.features}, ["sex"]).save(tmp_path / "metric.json")
    models = [
        fit(
            rows,
            fair_metric=str(tmp_path / "metric.json"),
            reg_lambda=0.0,
            min_child_weight=0.0,
            xgboost={"tree_method": "exact"},
        )
        for rows in (once, twice)
    ]
    paths = [model.details["path"]["value"] for model in models]
    np.testing.assert_allclose(paths[0], paths[1], atol=1e-4)
    scores = [model.predict(once.columns).score for model in models]
    assert np.mean(np.abs(scores[0] - scores[1]) < 1e-3) > 0.97  # ties between splits may fall otherwise
    assert abs(scores[0] - fit(once.with_weights(None)).predict(once.columns).score).max() > 0.01


@pytest.mark.long
def test_directions_choose_whose_predictor_is_ignored(tmp_path):
    """BuDRO's appendix C; the audit of the result is under the metric of training."""
    data = dataset(sensitive=["sex", "age:40"])
    rows = Table.from_dataset(data)
    columns = {name: rows.columns[name] for name in rows.features}
    wanted = learn.subspace(columns, ["sex", "age"], directions=["sex"], strength=1e-6).sha256
    assert fit(rows, directions=["sex"]).details["metric_sha256"] == wanted
    with pytest.raises(DataError, match="no direction left"):
        fit(rows)  # skill and hobby have two features, and two predictors take them
    result = fairkit.mitigate("budro", data, output=tmp_path / "fair.onnx", threads=1, directions=["sex"], **SMALL)
    saved = FairMetric.load(tmp_path / "fair.metric.json")
    assert saved.description["directions"] == ["sex"]
    assert result.after.find("performance_gap").parameters["metric_sha256"] == saved.sha256
    with pytest.raises(ParameterError, match="'skill' is not one of the sensitive columns"):
        fit(rows, directions=["skill"])
    with pytest.raises(ParameterError, match="directions belongs to fair_metric=subspace"):
        fit(rows, directions=["sex"], fair_metric=str(tmp_path / "fair.metric.json"))


def test_sensitive_values_without_a_column_are_named_by_their_groups():
    import pandas as pd

    columns = frame()
    x = np.column_stack([columns["skill"], columns["age"]])
    sex = pd.DataFrame({"sex": columns["sex"], "young": np.array(columns["age"]) < 40})
    free, bound = (
        fairkit.mitigator("budro")(directions=names, **SMALL).fit(x, columns["got"], sensitive_features=sex).model_
        for names in ([], ["young"])
    )
    gone = [model.metric.matrix.shape[1] for model in (free, bound)]
    assert gone[0] == gone[1] + 1


@pytest.mark.long
def test_the_metric_is_stored_beside_the_model_and_named_by_digest(tmp_path):
    result = fairkit.mitigate("budro", dataset(), output=tmp_path / "fair.onnx", threads=1, **SMALL)
    metric = FairMetric.load(tmp_path / "fair.metric.json")
    assert metric.sha256 == result.details["metric_sha256"]
    before, after = (report.find("performance_gap") for report in (result.before, result.after))
    assert after.parameters["metric_sha256"] == metric.sha256 == before.parameters["metric_sha256"]
    assert after.parameters["metric"] == "fair-metric.json"
    assert after.parameters["epsilon"] == 0.1
    assert after.interval is not None
    from fairkit_cli.formats import screen as comparison

    assert "performance_gap (epsilon 0.1)" in comparison(result, terminal=False)
    again = fairkit.mitigate("budro", dataset(), threads=1, **SMALL)
    assert again.onnx == result.onnx
    assert again.to_dict() == result.to_dict()
    same = fairkit.mitigate("budro", dataset(), threads=1, fair_metric=str(tmp_path / "fair.metric.json"), **SMALL)
    assert same.details["path"] == result.details["path"]


def test_a_target_ends_the_training():
    rows = table()
    free = fit(rows, n_estimators=40, learning_rate=0.3, epsilon=0.4, strength=0.1, target_gap=5.0)
    seen = free.details["validation"]
    assert seen["rounds"] == list(range(1, 42, 5))
    assert free.details["trees"] == 41
    target = seen["upper_confidence_bound"][2]
    kept = fit(rows, n_estimators=40, learning_rate=0.3, epsilon=0.4, strength=0.1, target_gap=target * 1.0001)
    told = dict(zip(*(kept.details["validation"][k] for k in ("rounds", "upper_confidence_bound")), strict=True))
    trees = kept.details["trees"]
    assert trees == kept.booster.num_boosted_rounds() < 41
    assert told[trees] <= target * 1.0001
    assert told[trees + 1] > target * 1.0001
    assert len(kept.details["path"]["value"]) == trees - 1
    none = fit(rows, n_estimators=10, learning_rate=0.3, epsilon=0.4, strength=0.1, target_gap=1e-9)
    assert none.details["trees"] == 1
    assert "after one round already" in none.notes[0]


def test_a_numeric_sensitive_column():
    rows = table(sensitive="age:30:50")
    model = fit(rows)
    assert model.metric.description["sensitive"] == ["age"]
    age = [name.startswith("age") for name in model.metric.encoder.features]
    np.testing.assert_allclose(model.metric.matrix[age], 0.0, atol=1e-12)


def test_it_is_an_estimator_of_scikit_learn():
    data = frame()
    X = np.column_stack([data["skill"], data["age"]])
    sex = np.array(data["sex"])
    model = fairkit.mitigator("budro")(
        n_estimators=5, max_depth=3, learning_rate=0.3, min_child_weight=1.0, strength=0.1, epsilon=0.4
    )
    model.fit(X, data["got"], sensitive_features=sex)
    assert (model.predict(X) == data["got"]).mean() > 0.6
    assert model.model_.audits is not None
    plain = fairkit.mitigator("budro")(n_estimators=5).fit(X, data["got"])
    assert not hasattr(plain.model_, "metric")  # nothing sensitive is named: plain XGBoost


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epsilon": -1}, "epsilon"),
        ({"plan": "entropic", "epsilon": 0}, "needs an epsilon above 0"),
        ({"xgboost": {"objective": "x"}}, "its own objective"),
        ({"xgboost": {"eta": 0.1}}, "give learning_rate itself"),
        ({"first_round": {"num_class": 3}}, "label tells"),
        ({"fair_metric": "subspce"}, "Did you mean"),
        ({"plan": "exat"}, "plan"),
        ({"validation_share": 0.01, "target_gap": 0.1}, "too few"),
    ],
)
def test_bad_parameters_are_refused(values, message):
    with pytest.raises((ParameterError, DataError), match=message):
        fit(**values)


def test_a_table_without_a_direction_left_is_refused():
    rows = table()
    only = {"sex": rows.columns["sex"]}
    narrow = Table(
        columns=only, features=("sex",), target=rows.target, groups=rows.groups, classes=rows.classes, roles=rows.roles
    )
    with pytest.raises(DataError, match="no direction left"):
        fit(narrow)


def test_one_class_and_constant_features():
    rows = table()
    with pytest.raises(DataError, match="same class"):
        fit(rows.take(rows.target == 1))
    same = {name: np.full(len(rows), values[0], dtype=values.dtype) for name, values in rows.columns.items()}
    same["sex"] = rows.columns["sex"]
    constant = Table(
        columns=same,
        features=("skill", "age"),
        target=rows.target,
        groups=rows.groups,
        classes=rows.classes,
        roles=rows.roles,
    )
    with pytest.raises(DataError, match="constant"):
        fit(constant)


def test_no_budget_with_duplicates():
    rows = table()
    places = np.repeat(np.arange(100), 5)
    model = fit(rows.take(places), epsilon=0.0)
    assert max(model.details["path"]["cost"]) == 0.0
    assert np.isfinite(model.details["path"]["value"]).all()
    json.dumps(model.details, allow_nan=False)


def test_interrupted_training_leaves_nothing(tmp_path):
    def stop(doing, step, total, **values):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fairkit.mitigate("budro", dataset(), output=tmp_path / "fair.onnx", progress=stop, **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_it_is_xgboost_where_nobody_moves():
    """Without a budget and without equal rows the trees are stock XGBoost's."""
    import xgboost

    rows = table()
    model = fit(rows, epsilon=0.0, balanced=False)
    matrix = model.encoder.transform(rows.columns)
    params = {
        "objective": "binary:logistic",
        "base_score": 0.5,
        "eta": 0.1,
        "max_depth": 3,
        "tree_method": "hist",
        "seed": 1,
        "nthread": 1,
    }
    stock = xgboost.train(params, xgboost.DMatrix(matrix, label=rows.target), 13)
    expected = stock.predict(xgboost.DMatrix(matrix), output_margin=True)
    z = model.metric.transform({name: rows.columns[name] for name in model.metric.columns})
    assert len(np.unique(z, axis=0)) == len(z)
    np.testing.assert_allclose(model.margins(matrix), expected, atol=1e-5)


# The deterministic trace of the authors' German notebook, through this trainer.
TRACE = {0: 0.69145, 10: 0.69105, 50: 0.68973, 100: 0.68839, 200: 0.68591}
"""Of the 500 rounds of the notebook."""


@pytest.fixture(scope="module")
def inner_maxima(public_data):
    import numba
    import pandas as pd

    frame = pd.read_parquet(public_data / "german.parquet")
    labels = (frame["class"] == 2).to_numpy(int)
    kept = ~stratified(labels, 0.2, np.random.default_rng(0))
    columns = {name: frame[name].to_numpy()[kept] for name in frame.columns if name != "class"}
    columns = {name: values.astype(float if values.dtype.kind == "i" else object) for name, values in columns.items()}
    labels = labels[kept]
    numba.set_num_threads(1)  # on 800 rows several take longer
    metric = subspace(columns, ["age"])
    n = len(labels)
    fixed = Fixed(
        support=Support(metric.transform(columns)), labels=labels, mass=np.full(n, 1 / n), epsilon=1.0, classes=2
    )
    rows = BoostingRows(
        matrix=metric.encoder.encode(columns).astype(np.float32),
        labels=labels,
        mass=fixed.mass,
        factors=np.array([1.0, (labels == 0).sum() / labels.sum()]),
    )
    params = {
        "objective": "binary:logistic",
        "base_score": 0.5,
        "tree_method": "hist",
        "nthread": 1,
        "max_depth": 10,
        "eta": 0.005,
        "lambda": 1.0 * n,
        "min_child_weight": 0.1,
    }
    first = {"lambda": 1.0, "min_child_weight": 0.1 / n}
    trained = train(rows, ExactPlan(fixed), BoostingSettings(rounds=201, params=params, first=first))
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    return [moment.value for moment in trained.path]


@pytest.mark.long
@pytest.mark.parametrize(("number", "expected"), TRACE.items())
def test_the_inner_maxima_are_those_of_the_authors(inner_maxima, number, expected):
    assert inner_maxima[number] == pytest.approx(expected, abs=0.0015)


@pytest.mark.long
def test_the_inner_maximum_falls(inner_maxima):
    assert (np.diff(inner_maxima[::10]) < 0).all()
