"""The two certificates on ONNX files of four kinds of models, on synthetic people and on Adult."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import fairkit
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.results.report import Report
from fairkit.results.rules import Rule

FEATURES = ["age", "hours", "male"]


def people(n=1_500, seed=0):
    rng = np.random.default_rng(seed)
    male = rng.integers(0, 2, n).astype(np.float32)
    age = rng.normal(40, 10, n).round().astype(np.float32)
    hours = (38 + 6 * male + rng.normal(0, 6, n)).round().astype(np.float32)
    rich = rng.random(n) < 1 / (1 + np.exp(-(0.06 * (age - 40) + 0.12 * (hours - 40) + 1.5 * (male - 0.5))))
    return {"age": age, "hours": hours, "male": male, "rich": np.where(rich, "yes", "no").astype(object)}


def dataset(columns, **roles):
    return fairkit.load_data(columns, label="rich", favorable="yes", sensitive=["male"], name="people", **roles)


def training(columns):
    return np.stack([columns[name] for name in FEATURES], axis=1), (columns["rich"] == "yes").astype(int)


def lightgbm_file(X, y):
    import lightgbm
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = lightgbm.LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1, random_state=0).fit(X, y)
    return onnxmltools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, X.shape[1]]))])


def xgboost_file(X, y):
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1).fit(X, y)
    return onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, X.shape[1]]))])


def forest_file(X, y):
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(n_estimators=20, max_depth=6, random_state=0).fit(X, y)
    return to_onnx(model, X[:1], options={"zipmap": False})


def torch_file(X, y):
    import torch

    torch.manual_seed(0)
    scale, shift = torch.tensor(X.std(axis=0)), torch.tensor(X.mean(axis=0))
    net = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    inputs, target = (torch.tensor(X) - shift) / (scale + 1e-6), torch.tensor(y, dtype=torch.float32)[:, None]
    step = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(60):
        step.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(inputs), target).backward()
        step.step()

    class Probability(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return torch.sigmoid(self.net((x - shift) / (scale + 1e-6)))

    import onnx

    file = io.BytesIO()
    torch.onnx.export(
        Probability(), (torch.tensor(X[:2]),), file, dynamo=False,
        input_names=["X"], output_names=["probability"], dynamic_axes={"X": {0: "n"}, "probability": {0: "n"}},
    )  # fmt: skip
    return onnx.load_model_from_string(file.getvalue())


MAKERS = {"lightgbm": lightgbm_file, "xgboost": xgboost_file, "forest": forest_file, "torch": torch_file}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    X, y = training(people(seed=1))
    paths = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of converters and exporters, not of ours
        for name, make in MAKERS.items():
            paths[name] = folder / f"{name}.onnx"
            paths[name].write_bytes(make(X, y).SerializeToString())
    return paths


def run(model, data, auditor="restricted-dro", options=None, **parameters):
    return fairkit.audit(model, data, auditors=[auditor], parameters={auditor: parameters}, options=options)


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKERS)
def test_performance_gap_of_every_kind_of_model(files, kind):
    report = run(files[kind], dataset(people()), epsilon=[0.01, 0.1])
    near, far = report.findings
    assert (near.metric, near.parameters["epsilon"], far.parameters["epsilon"]) == ("performance_gap", 0.01, 0.1)
    for finding in report.findings:
        evidence = finding.evidence
        low, high = finding.interval
        assert 0.0 <= low < finding.value < high
        assert evidence["lower_bound"] == pytest.approx(finding.value, abs=1e-7)
        assert finding.value <= evidence["upper_confidence_bound"] < high + 0.1
        assert evidence["dual"] > 0.0
        assert evidence["baseline_loss"] > 0.0
        assert 0.0 < evidence["transported_share"] <= 1.0
        assert evidence["mean_distance"] == pytest.approx(finding.parameters["epsilon"], rel=1e-9)
        assert any("under this fair metric" in note for note in finding.notes)
        assert sum("transported_share has no interval" in note for note in finding.notes) == 1
    assert near.value < far.value
    assert near.evidence["dual"] >= far.evidence["dual"]


@pytest.mark.long
def test_pairs_are_people_of_the_table(files):
    columns = people()
    finding = run(files["lightgbm"], dataset(columns), epsilon=0.05).findings[0]
    scores = (
        fairkit.OnnxModel.load(files["lightgbm"]).bind(dataset(columns), fairkit.ModelOptions()).predict(columns).score
    )
    assert len(finding.evidence["pairs"]) == 5
    for pair in finding.evidence["pairs"]:
        one, two = pair["from"], pair["to"]
        assert pair["scores"] == pytest.approx([scores[one], scores[two]], abs=1e-12)
        rich = columns["rich"][one] == "yes"
        losses = [-np.log(score if rich else 1 - score) for score in pair["scores"]]
        assert pair["losses"] == pytest.approx(losses, abs=1e-6)
        assert pair["gain"] == pytest.approx(losses[1] - losses[0], abs=1e-6)
        assert pair["gain"] > 0.0
        for name in FEATURES:
            same = columns[name][one] == columns[name][two]
            assert (name in pair["same"]) == same
            if not same:
                assert pair["differs"][name] == [columns[name][one], columns[name][two]]
    gains = [pair["gain"] for pair in finding.evidence["pairs"]]
    assert gains == sorted(gains, reverse=True)


def test_the_report_is_repeatable_json(files):
    first, again = (run(files["lightgbm"], dataset(people()), epsilon=0.1, queries=400) for _ in range(2))
    text = json.dumps(first.to_dict(), allow_nan=False)
    assert text == json.dumps(again.to_dict(), allow_nan=False)
    assert Report.from_dict(json.loads(text)).findings[0].evidence["dual"] == first.findings[0].evidence["dual"]
    assert first.findings[0].parameters["queries"] == 400
    assert any("400 sampled rows" in note for note in first.findings[0].notes)


@pytest.mark.parametrize("kind", ["lightgbm", "torch"])
def test_dif_needs_no_label(files, kind):
    columns = {name: values for name, values in people().items() if name != "rich"}
    data = fairkit.load_data(columns, sensitive=["male"], features=FEATURES, favorable="yes", name="people")
    second = fairkit.ModelOptions(favorable_class=1) if kind == "lightgbm" else None
    finding = run(files[kind], data, "dif", second, epsilon=0.1, output="probability").findings[0]
    assert finding.metric == "dif"
    assert 0.0 < finding.interval[0] < finding.value < finding.interval[1] < 1.0
    assert finding.evidence["baseline"] == 0.0


def test_logits_are_made_from_probabilities_and_said(files):
    data = dataset(people())
    finding = run(
        files["forest"], data, "dif", epsilon=0.0, fair_metric="euclidean", columns=["age", "hours"]
    ).findings[0]
    assert any("made from its probabilities" in note for note in finding.notes)
    model = fairkit.OnnxModel.load(files["forest"]).bind(data, fairkit.ModelOptions())
    score = np.clip(model.predict(people()).score, 1e-6, 1 - 1e-6)
    logit = np.log(score / (1 - score))
    columns = people()
    keys = list(zip(columns["age"].tolist(), columns["hours"].tolist(), strict=True))
    best = [
        max((logit[i] - logit[j]) ** 2 / 4 for i in range(len(keys)) if keys[i] == keys[j]) for j in range(0, 1_500, 1)
    ]
    assert finding.value == pytest.approx(np.mean(best), abs=1e-9)


class Constant:
    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)

    def predict(self, X):
        return np.full(len(X), "yes")

    classes_ = np.array(["no", "yes"])


class Doubler:
    feature_names_in_ = np.array(FEATURES)

    def predict(self, X):
        return 2.0 * np.asarray(X["age"], dtype=float)


def test_a_constant_model_treats_all_alike():
    data = dataset(people())
    assert run(Constant(), data, "dif", epsilon=1.0).findings[0].value == 0.0
    assert run(Constant(), data, epsilon=1.0).findings[0].value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("loss", "exponent"), [("squared", 2), ("absolute", 1)])
def test_losses_of_a_regression_reach_the_farthest_row(loss, exponent):
    columns = {k: v.astype(float) for k, v in people().items() if k != "rich"}
    columns["pay"] = columns["age"] * 2 + np.random.default_rng(0).normal(size=1_500)
    data = fairkit.load_data(columns, label="pay", sensitive=["male"], name="people")
    finding = run(Doubler(), data, epsilon=1e6, loss=loss).findings[0]
    f, y = 2 * columns["age"], columns["pay"]
    largest = np.maximum(np.abs(f.max() - y), np.abs(f.min() - y)) ** exponent
    assert finding.value == pytest.approx((largest - np.abs(f - y) ** exponent).mean(), rel=1e-9)
    with pytest.raises(ParameterError, match="squared or absolute"):
        run(Doubler(), data, epsilon=0.1, loss="logistic")
    with pytest.raises(ParameterError, match="output=score"):
        run(Doubler(), data, "dif", epsilon=0.1, output="logit")


class ThreeWays:
    feature_names_in_ = np.array(FEATURES)
    classes_ = np.array(["a", "b", "c"])

    def predict_proba(self, X):
        age = (np.asarray(X["age"], dtype=float) - 40) / 10
        raw = np.exp(np.stack([age, 0 * age, -age], axis=1))
        return raw / raw.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.mark.parametrize("loss", ["logistic", "zero_one", "squared", "absolute"])
def test_multi_class_against_all_pairs(loss):
    columns = {k: v[:300] for k, v in people().items() if k != "rich"}
    columns["grade"] = np.random.default_rng(0).choice(np.array(["a", "b", "c"], dtype=object), 300)
    data = fairkit.load_data(columns, label="grade", sensitive=["male"], name="people")
    finding = run(ThreeWays(), data, epsilon=0.2, loss=loss, fair_metric="euclidean", columns=["age"]).findings[0]
    P = ThreeWays().predict_proba(columns)
    code = np.searchsorted(["a", "b", "c"], columns["grade"].astype(str))
    table = {
        "logistic": -np.log(np.clip(P, 1e-6, 1)),
        "zero_one": 1.0 - np.eye(3)[P.argmax(axis=1)],
        "squared": ((P[:, None, :] - np.eye(3)[None]) ** 2).sum(axis=-1),
        "absolute": 1.0 - P,
    }[loss]
    C = (columns["age"][:, None].astype(float) - columns["age"][None].astype(float)) ** 2
    eta = finding.evidence["dual"]
    M = eta * 0.2 + (table[:, code] - eta * C).max(axis=0).mean()
    assert finding.value == pytest.approx(M - table[np.arange(300), code].mean(), abs=1e-7)


@pytest.mark.long
def test_policies_look_at_the_upper_bound(files):
    data = dataset(people())
    finding = run(files["lightgbm"], data, epsilon=0.05).findings[0]
    bound = finding.evidence["upper_confidence_bound"]

    def verdict(limit):
        rule = Rule.parse(f"performance_gap@{finding.parameters['support']}={limit}", "max")
        return fairkit.audit(
            files["lightgbm"], data, auditors=["restricted-dro"],
            parameters={"restricted-dro": {"epsilon": 0.05}}, policy=[rule],
        ).verdict  # fmt: skip

    assert verdict(bound + 1e-6) == "pass"
    assert verdict((finding.interval[0] + bound) / 2) == "inconclusive"
    assert verdict(finding.interval[0] / 2) == "fail"


def test_a_saved_metric_gives_the_same_certificate(files, tmp_path):
    data, path = dataset(people()), tmp_path / "metric.json"
    one = run(files["lightgbm"], data, epsilon=0.1, save_metric=str(path)).findings[0]
    two = run(files["lightgbm"], data, epsilon=0.1, fair_metric=str(path)).findings[0]
    assert two.value == one.value
    assert two.parameters["metric_sha256"] == one.parameters["metric_sha256"]
    other = fairkit.load_data(
        {k: v for k, v in people().items() if k != "hours"} | {"hour": people()["hours"]},
        label="rich", favorable="yes", sensitive=["male"],
    )  # fmt: skip
    with pytest.raises(DataError, match="made for the column 'hours'"):
        run(Constant(), other, epsilon=0.1, fair_metric=str(path))


def test_few_rows_are_inconclusive(files):
    few = {name: values[:20] for name, values in people().items()}
    finding = run(files["lightgbm"], dataset(few), epsilon=0.1).findings[0]
    assert finding.interval is None
    assert "20 effective rows" in finding.inconclusive


class LabelsOnly:
    feature_names_in_ = np.array(FEATURES)
    classes_ = np.array(["no", "yes"])

    def predict(self, X):
        return np.where(np.asarray(X["age"]) > 40, "yes", "no")


def test_labels_only_models_have_a_zero_one_gap():
    data = dataset(people())
    with pytest.raises(ModelError, match="zero_one"):
        run(LabelsOnly(), data, epsilon=0.1)
    with pytest.raises(ModelError, match="labels only"):
        run(LabelsOnly(), data, "dif", epsilon=0.1)
    assert 0.0 < run(LabelsOnly(), data, epsilon=0.1, loss="zero_one").findings[0].value <= 1.0


@pytest.mark.parametrize(
    ("auditor", "parameters", "told"),
    [
        ("restricted-dro", {"epsilon": -1}, "epsilon"),
        ("restricted-dro", {"epsilon": "inf"}, "finite"),
        ("restricted-dro", {"epsilon": []}, "at least one epsilon"),
        ("restricted-dro", {"fair_metric": "subspaec"}, "Did you mean 'subspace'"),
        ("restricted-dro", {"fair_metric": "euclidean"}, "needs the columns"),
        ("restricted-dro", {"fair_metric": "euclidean", "columns": "agee"}, "Did you mean 'age'"),
        ("restricted-dro", {"loss": "hinge"}, "loss"),
    ],
)
def test_bad_parameters_are_told(auditor, parameters, told):
    with pytest.raises(ParameterError, match=told):
        run(Constant(), dataset(people()), auditor, **parameters)


def test_bad_data_is_told():
    columns = people()
    nobody = fairkit.load_data(columns, label="rich", favorable="yes", features=FEATURES)
    with pytest.raises(ParameterError, match="`sensitive`"):
        run(Constant(), nobody, epsilon=0.1)
    alone = fairkit.load_data(
        {"male": columns["male"], "rich": columns["rich"]}, label="rich", favorable="yes", sensitive="male"
    )
    with pytest.raises(DataError, match="no direction left"):
        run(Constant(), alone, epsilon=0.1)


def test_what_cannot_fit_is_refused(monkeypatch):
    monkeypatch.setattr("fairkit_similarity.search.starting.available_bytes", lambda: 1_000_000)
    with pytest.raises(DataError, match="GiB"):
        run(Constant(), dataset(people(10_000)), epsilon=0.1)


def test_other_audits_do_not_import_numba():
    code = (
        "import sys, numpy as np, fairkit, fairkit_individual\n"
        "fairkit_individual.fairkit_auditors()\n"
        "import fairkit_similarity.metric, fairkit_similarity.learn\n"
        "heavy = {'numba', 'sklearn', 'scipy', 'pandas', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_of_model_of_adult_has_its_bounds(public_data, kind, tmp_path):
    import pandas as pd

    frame = pd.read_parquet(public_data / "adult.parquet").dropna().iloc[:6_000]
    numbers = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
    table = {name: frame[name].to_numpy(np.float32) for name in numbers}
    table["male"] = (frame["sex"] == "Male").to_numpy(np.float32)
    table["rich"] = frame["income"].to_numpy(object)
    X = np.stack([table[name] for name in [*numbers, "male"]], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = MAKERS[kind](X, (table["rich"] == ">50K").astype(int)).SerializeToString()
    data = fairkit.load_data(table, label="rich", favorable=">50K", sensitive=["male"], name="adult")
    gap = run(file, data, epsilon=0.1).findings[0]
    assert 0.0 < gap.interval[0] < gap.value < gap.interval[1]
    assert len(gap.evidence["pairs"]) >= 2
    from fairkit_cli.formats import screen

    text = screen(Report.from_dict(run(file, data, epsilon=0.1).to_dict()), terminal=False)
    assert "Pair 1" in text
    assert f"row {gap.evidence['pairs'][0]['from']:,}" in text
    assert "the model's score" in text
