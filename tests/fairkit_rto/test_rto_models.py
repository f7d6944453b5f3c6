"""The plugin from a file to a file: four kinds of models on Adult, and what it refuses."""

from __future__ import annotations

import io
import json
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from tests.commands import invoke

import fairkit
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.mitigators import Run, Table
from fairkit_onnx.file import OnnxModel
from fairkit_repair.mitigation.run import mitigate
from fairkit_rto.mitigator import RandomizedThresholds

NUMBERS = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]


@pytest.fixture(scope="module")
def adult(public_data):
    import pandas as pd

    frame = pd.read_parquet(public_data / "adult.parquet", columns=[*NUMBERS, "sex", "race", "income", "split"])
    return frame[frame.split == "train"], frame[frame.split == "test"]


def forest(X, y):
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(n_estimators=30, max_depth=10, random_state=0).fit(X, y)
    return to_onnx(model, X[:1], options={"zipmap": False})


def lightgbm_model(X, y):
    import lightgbm
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = lightgbm.LGBMClassifier(n_estimators=40, verbose=-1, n_jobs=1).fit(X.astype(np.float64), y)
    return onnxmltools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, X.shape[1]]))])


def xgboost_model(X, y):
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = xgboost.XGBClassifier(n_estimators=40, max_depth=4, n_jobs=1).fit(X, y)
    return onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, X.shape[1]]))])


def torch_model(X, y):
    import torch

    torch.manual_seed(0)
    scale = torch.tensor(X.std(axis=0))
    net = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    inputs, target = torch.tensor(X) / scale, torch.tensor(y.astype(np.float32))[:, None]
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(inputs), target).backward()
        optimizer.step()
    with torch.no_grad():
        net[0].weight /= scale
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the exporter that needs no further package
        torch.onnx.export(
            net,
            torch.tensor(X[:1]),
            buffer,
            input_names=["X"],
            output_names=["logit"],
            dynamic_axes={"X": {0: "n"}, "logit": {0: "n"}},
            dynamo=False,
        )
    return onnx.load_from_string(buffer.getvalue())


MODELS = {
    "forest": (forest, {}),
    "lightgbm": (lightgbm_model, {}),
    "xgboost": (xgboost_model, {}),
    "torch": (torch_model, {"score_kind": "logit"}),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", MODELS)
def test_models_on_adult_come_out_within_parity(adult, kind):
    train, test = adult
    make, values = MODELS[kind]
    first = train[:14_000]
    base = make(first[NUMBERS].to_numpy(np.float32), (first.income == ">50K").to_numpy().astype(int))
    roles = {"label": "income", "favorable": ">50K", "sensitive": "sex", "features": NUMBERS}
    data, held_out = fairkit.load_data(train[14_000:], **roles), fairkit.load_data(test, **roles)
    result = mitigate(RandomizedThresholds, data, test=held_out, model=OnnxModel.load(base), **values)

    before, after = (
        report.find("demographic_parity_difference", "sex").value for report in (result.before, result.after)
    )
    allowed = 2 * np.sqrt(0.25 / (test.sex == "Female").sum())
    assert after <= allowed < 0.05 < before
    assert result.fitted.details["violation_on_fit_rows"] <= 1e-9
    accuracies = [report.find("accuracy").value for report in (result.before, result.after)]
    assert accuracies[1] > accuracies[0] - 0.03

    # plain onnxruntime, and the same draws: the decisions of the rule in numpy
    session = ort.InferenceSession(result.onnx, providers=["CPUExecutionProvider"])
    u = np.random.default_rng(0).random((len(test), 1), dtype=np.float32)
    matrix = next(entry.name for entry in session.get_inputs() if entry.name not in ("sex", "u"))
    feeds = {matrix: test[NUMBERS].to_numpy(np.float32), "sex": test[["sex"]].to_numpy(object), "u": u}
    decision, chance = session.run(["decision", "decision_probability"], feeds)
    predicted = result.fitted.predict(Table.from_dataset(held_out).columns).decision_probability
    np.testing.assert_allclose(chance[:, 0], predicted, atol=1e-6)
    differing = decision[:, 0] != (u[:, 0] < predicted)
    assert not differing[np.abs(u[:, 0] - predicted) > 1e-6].any()
    assert differing.sum() <= 1


@pytest.mark.long
def test_parity_in_intersections_and_what_sex_alone_does(adult):
    train, _test = adult
    first = train[:14_000]
    base = OnnxModel.load(forest(first[NUMBERS].to_numpy(np.float32), (first.income == ">50K").to_numpy().astype(int)))
    gaps = {}
    for split in ("sex", "sex+race"):
        data = fairkit.load_data(train[14_000:], label="income", favorable=">50K", sensitive=split, features=NUMBERS)
        table = Table.from_dataset(data)
        model = RandomizedThresholds.with_values({"gamma": 0.1, "rho": 0.2}).fit(table, Run(), model=base)
        h = model.predict(table.columns).decision_probability
        sex, race = train[14_000:].sex.to_numpy(), train[14_000:].race.to_numpy()
        gaps[split] = {
            name: h[(race == name) & (sex == "Male")].mean() - h[(race == name) & (sex == "Female")].mean()
            for name in np.unique(race)
        }
    assert max(abs(gap) for gap in gaps["sex+race"].values()) <= 1e-6  # the scores of the file are float32
    assert max(abs(gap) for gap in gaps["sex"].values()) > 0.03


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    n = 500
    sex = rng.integers(0, 2, n)
    x = rng.normal(0.7 * sex, 1).astype(np.float32)
    good = rng.random(n) < 1 / (1 + np.exp(-x))
    race = np.array(["A", "B", "C"], dtype=object)[rng.integers(0, 3, n)]
    return {"x": x.astype(float), "sex": np.array(["F", "M"], dtype=object)[sex], "race": race, "y": good.astype(int)}


def sigmoid_model() -> OnnxModel:
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["p"])],
        "hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [None, 1])],
    )
    return OnnxModel.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))


def table_of(columns, sensitive="sex", **roles) -> Table:
    return Table.from_dataset(
        fairkit.load_data(columns, label="y", favorable=1, sensitive=sensitive, features=["x"], **roles)
    )


def fit(columns, sensitive="sex", seed=0, **values):
    method = RandomizedThresholds.with_values(values)
    return method.fit(table_of(columns, sensitive), Run(seed=seed), model=sigmoid_model())


def chances(model, columns):
    return model.predict(columns).decision_probability


@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_given_settings_are_used(small, solver):
    model = fit(small, gamma=0.2, rho=0.3, tolerance=0, solver=solver)
    h = chances(model, small)
    rates = [h[small["sex"] == value].mean() for value in ("F", "M")]
    np.testing.assert_allclose(rates, 0.3, atol=1e-6 if solver == "exact" else 0.02)
    assert model.details["violation_on_fit_rows"] <= 1e-9 or solver == "sgd"
    assert model.rule.pieces[0][0].width == 0.1
    assert "validation" not in model.details


@pytest.mark.long
def test_chosen_settings_meet_parity_on_the_validation_rows_and_repeat(small):
    one, other = fit(small), fit(small)
    assert one.rule == other.rule
    assert one.details["validation"]["violation"] <= one.details["validation"]["allowed"]
    loose = fit(small, tolerance="none", slack=0.3)
    assert loose.details["validation"]["expected_accuracy"] >= one.details["validation"]["expected_accuracy"]


def test_validation_rows_that_are_given_decide(small):
    half = {name: values[:250] for name, values in small.items()}
    rest = {name: values[250:] for name, values in small.items()}
    method = RandomizedThresholds.with_values({})
    model = method.fit(table_of(half), Run(seed=1), validation=table_of(rest), model=sigmoid_model())
    again = method.fit(table_of(half), Run(seed=2), validation=table_of(rest), model=sigmoid_model())
    assert model.rule == again.rule  # no split is drawn
    assert model.details["violation_on_fit_rows"] <= 1e-9


def test_equal_opportunity_is_learned_from_the_favorable_outcomes(small):
    model = fit(small, constraint="equal_opportunity", gamma=0.1, rho=0.6)
    h, good = chances(model, small), small["y"] == 1
    rates = [h[good & (small["sex"] == value)].mean() for value in ("F", "M")]
    np.testing.assert_allclose(rates, 0.6, atol=1e-6)
    assert abs(h[small["sex"] == "F"].mean() - h[small["sex"] == "M"].mean()) > 0.01


@pytest.mark.parametrize("solver", ["exact", "sgd"])
@pytest.mark.parametrize("epsilon", [0, 0.01])
def test_covariance_is_kept_within_every_subgroup(small, solver, epsilon):
    model = fit(small, "sex+race", constraint="covariance", gamma=0.2, tolerance=epsilon, solver=solver)
    h = chances(model, small)
    s = (small["sex"] == "M").astype(float)
    for race in "ABC":
        own = small["race"] == race
        covariance = np.mean(h[own] * s[own]) - h[own].mean() * s[own].mean()
        assert abs(covariance) <= epsilon + (1e-6 if solver == "exact" else 0.02)
    assert model.details["rho"] is None


def test_weights_count_in_the_constraint(small):
    weights = np.random.default_rng(1).integers(1, 4, 500).astype(float)
    table = Table.from_dataset(
        fairkit.load_data(small | {"w": weights}, label="y", favorable=1, sensitive="sex", features=["x"], weights="w")
    )
    model = RandomizedThresholds.with_values({"gamma": 0.1, "rho": 0.4}).fit(table, Run(), model=sigmoid_model())
    h = chances(model, small)
    for value in ("F", "M"):
        own = small["sex"] == value
        assert np.average(h[own], weights=weights[own]) == pytest.approx(0.4, abs=1e-6)


def test_a_rate_that_moves_every_group_the_same_way_is_told(small):
    assert any("same direction" in note for note in fit(small, gamma=0.1, rho=0.95).notes)
    assert not any("same direction" in note for note in fit(small, gamma=0.1, rho=0.55).notes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rho": 1.2}, "rho must be 0 to 1"),
        ({"rho": -0.1}, "rho must be 0 to 1"),
        ({"gamma": 0}, "gamma must be at least 1e-06"),
        ({"tolerance": -0.1}, "tolerance must be at least 0"),
        ({"solver": "newton"}, "solver cannot be 'newton'"),
        ({"constraint": "covariance", "rho": 0.3}, "no common rate"),
        ({"gama": 0.1}, "Did you mean 'gamma'"),
    ],
)
def test_bad_parameters_are_refused(values, message):
    with pytest.raises(ParameterError, match=message):
        RandomizedThresholds.with_values(values)


def test_bad_rows_are_refused(small):
    with pytest.raises(DataError, match="first sensitive column has 3"):
        fit(small, "race+sex", constraint="covariance")
    few = dict(small, y=np.where((small["sex"] == "F") & (np.arange(500) > 40), 0, small["y"]))
    with pytest.raises(DataError, match=r"group 'F' has \d+ rows with the favorable outcome"):
        fit(few, constraint="equal_opportunity")
    with pytest.raises(ModelError, match="NaN or infinite scores"):
        fit(dict(small, x=np.where(np.arange(500) == 3, np.nan, small["x"])))


# `fairkit mitigate` with post-processing plugins: a file comes out, or one message and no file.
PLUGINS = ("rto", "threshold-optimizer", "reject-option", "shift-inference")


def graph(link, kind=TensorProto.FLOAT, out="p"):
    nodes = [helper.make_node(link, ["x"], ["y" if kind != TensorProto.FLOAT else out])]
    if kind != TensorProto.FLOAT:
        nodes.append(helper.make_node("Cast", ["y"], [out], to=kind))
    built = helper.make_graph(
        nodes,
        "hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info(out, kind, [None, 1])],
    )
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 900
    sex = rng.integers(0, 2, n)
    x = rng.normal(0.8 * sex - 0.4, 1)
    frame = pd.DataFrame(
        {
            "x": x,
            "sex": np.array(["F", "M"])[sex],
            "granted": np.where(rng.random(n) < 1 / (1 + np.exp(-x)), "yes", "no"),
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.assign(sex=np.where(np.arange(n) < 4, "X", frame.sex)).to_parquet(tmp_path / "small.parquet")
    frame.assign(x=frame.x.where(np.arange(n) != 5)).to_parquet(tmp_path / "gaps.parquet")
    onnx.save(graph("Sigmoid"), str(tmp_path / "base.onnx"))
    onnx.save(graph("Identity"), str(tmp_path / "logit.onnx"))
    onnx.save(graph("Sign", TensorProto.INT64, "label"), str(tmp_path / "label.onnx"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, model="base.onnx", data="rows.parquet", plugin="rto"):
    fixed = ["mitigate", "--plugin", plugin, "--data", data, "--label", "granted", "--favorable", "yes"]
    fixed += ["--sensitive", "sex", "--features", "x", "--output", "fair.onnx", "--format", "json"]
    return invoke(*fixed, *(["--model", model] if model else []), *arguments)


@pytest.mark.long
@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_repaired_file_comes_out(folder, plugin):
    done = run(plugin=plugin)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["plugin"] == plugin
    session = ort.InferenceSession(str(folder / "fair.onnx"), providers=["CPUExecutionProvider"])
    assert [entry.name for entry in session.get_inputs()] in (["x", "sex", "u"], ["x", "sex"])  # by chance, or not
    assert [entry.name for entry in session.get_outputs()] == ["score", "decision_probability", "decision"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"model": None}, "name it with --model"),
        ((), {"model": "label.onnx"}, "labels are -1 and 1"),
        ((), {"model": "none.onnx"}, "no model file"),
        ((), {"data": "small.parquet"}, "fewer than min_group=30"),
        ((), {"data": "gaps.parquet"}, "NaN or infinite scores for 1"),
        (("--set", "rho=1.5"), {}, "rho must be 0 to 1, not 1.5"),
        (("--set", "ro=0.2"), {}, "Did you mean"),
        (("--set", "solver=newton"), {}, "solver cannot be 'newton'"),
        (("--set", "sensitive=race"), {}, "no sensitive split 'race'"),
        (("--set", "score_output=q"), {}, "no output 'q'"),
        (("--learner", "forest"), {}, "takes no learner"),
    ],
)
def test_bad_input_is_one_message_and_no_file(folder, arguments, options, message):
    done = run(*arguments, **options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not done.stdout
    assert not (folder / "fair.onnx").exists()
