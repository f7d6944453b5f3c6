"""Real models of five libraries, audited from their ONNX files: the numbers are those of the model in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fairkit
from fairkit_datasets.loans import loans_table

if TYPE_CHECKING:
    import pandas as pd

TEXT = ["sex", "region", "employment"]
NUMBERS = ["age", "income", "debt_ratio", "amount"]
FEATURES = [*TEXT, *NUMBERS]
ROWS = 2_500


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    frame = loans_table(ROWS, seed=11).to_pandas()
    frame["income"] = frame["income"] / 1000.0
    frame["amount"] = frame["amount"] / 1000.0
    return frame


def _matrix(frame: pd.DataFrame, columns: Sequence[str] = NUMBERS) -> np.ndarray:
    return frame[list(columns)].to_numpy(np.float32)


def _float_types(frame: pd.DataFrame) -> list[tuple[str, Any]]:
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    kinds = {name: StringTensorType([None, 1]) if name in TEXT else FloatTensorType([None, 1]) for name in FEATURES}
    return [(name, kinds[name]) for name in frame.columns if name in FEATURES]


def _pipeline(classifier: Any) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    scale = "passthrough" if "Forest" in type(classifier).__name__ else StandardScaler()
    return make_pipeline(ColumnTransformer([("text", OneHotEncoder(), TEXT), ("number", scale, NUMBERS)]), classifier)


def _to_onnx(model: Any, types: Any, **options: Any) -> onnx.ModelProto:
    from skl2onnx import convert_sklearn

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the converter's own deprecations
        proto = convert_sklearn(model, initial_types=types, target_opset={"": 17, "ai.onnx.ml": 3}, **options)
    result: onnx.ModelProto = proto
    return result


@dataclass(frozen=True)
class Expected:
    """What the model in memory says: decisions, and scores of the favorable label."""

    decision: np.ndarray
    score: np.ndarray | None = None


def _data(frame: pd.DataFrame, **roles: Any) -> fairkit.Dataset:
    given = {
        "label": "decision",
        "favorable": "approved",
        "sensitive": ["sex", "ethnicity"],
        "features": FEATURES,
        **roles,
    }
    return fairkit.load_data(frame, **given)


def _same(found: fairkit.Report, frame: pd.DataFrame, expected: Expected, **roles: Any) -> None:
    """The report's findings equal those of the model's own predictions."""
    table = frame.assign(own_decision=expected.decision.astype(float))
    if expected.score is not None:
        table["own_score"] = expected.score.astype(float)
    model = fairkit.PredictedColumns(
        decision_probability="own_decision", score=None if expected.score is None else "own_score"
    )
    report = fairkit.audit(model, _data(table, **roles))
    _same_findings(found, report)


def _same_findings(found: fairkit.Report, report: fairkit.Report) -> None:
    assert {(f.metric, f.sensitive) for f in found.findings} == {(f.metric, f.sensitive) for f in report.findings}
    for finding in report.findings:
        other = found.find(finding.metric, finding.sensitive, parameters=finding.parameters)
        assert other.value == pytest.approx(finding.value, abs=2e-5, rel=1e-3), finding.metric
        assert other.interval == pytest.approx(finding.interval, abs=1e-4, rel=2e-3)
    assert found.data.groups == report.data.groups


def _classifier(name: str) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    if name == "logistic":
        return LogisticRegression(max_iter=1000)
    return RandomForestClassifier(n_estimators=12, max_depth=6, random_state=0)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["logistic", "forest"])
@pytest.mark.parametrize("zipmap", [True, False], ids=["zipmap", "array"])
def test_sklearn_pipeline_one_input_per_column(kind: str, zipmap: bool, people: pd.DataFrame) -> None:
    as_float = people.astype(dict.fromkeys(NUMBERS, np.float32))
    pipeline = _pipeline(_classifier(kind)).fit(as_float[FEATURES], people["decision"])
    options = {} if zipmap else {"options": {id(pipeline): {"zipmap": False}}}
    proto = _to_onnx(pipeline, _float_types(people), **options)
    proba = pipeline.predict_proba(as_float[FEATURES])[:, 0]
    assert list(pipeline.classes_) == ["approved", "denied"]  # the favorable label sorts first
    report = fairkit.audit(proto, _data(people))
    assert "The model's class 'approved' is the favorable label." in report.model.notes
    expected = Expected(pipeline.predict(as_float[FEATURES]) == "approved", proba)
    _same(report, people, expected)
    _same_findings(fairkit.audit(pipeline, _data(as_float)), report)


def test_names_that_the_converter_changed(people: pd.DataFrame) -> None:
    frame = people.rename(columns={"debt_ratio": "debt-ratio", "amount": "amount.k"})
    frame = frame.astype({"debt-ratio": np.float32, "amount.k": np.float32})
    columns = ["debt-ratio", "amount.k"]
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(ColumnTransformer([("all", "passthrough", columns)]), _classifier("logistic"))
    model.fit(frame[columns], people["decision"])
    proto = _to_onnx(model, [(name, FloatTensorType([None, 1])) for name in columns])
    assert {entry.name for entry in proto.graph.input} == {"debt_ratio", "amount_k"}
    report = fairkit.audit(proto, _data(frame, features=None))
    expected = Expected(model.predict(frame[columns]) == "approved", model.predict_proba(frame[columns])[:, 0])
    _same(report, frame, expected, features=columns)


def _matrix_model(people: pd.DataFrame, target: Any, kind: str = "logistic", width: Any = None, **options: Any) -> Any:
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    steps = [StandardScaler()] if kind == "logistic" else []
    model = make_pipeline(*steps, _classifier(kind)).fit(_matrix(people), target)
    if options.pop("array", False):
        options["options"] = {id(model): {"zipmap": False}}
    return model, _to_onnx(model, [("X", FloatTensorType([width, len(NUMBERS)]))], **options)


@pytest.mark.long
@pytest.mark.parametrize("array", [True, False])
@pytest.mark.parametrize("kind", ["logistic", "forest"])
def test_sklearn_on_one_matrix(kind: str, array: bool, people: pd.DataFrame) -> None:
    model, proto = _matrix_model(people, people["decision"], kind, array=array)
    report = fairkit.audit(proto, _data(people, features=NUMBERS))
    proba = model.predict_proba(_matrix(people))[:, 0]
    _same(report, people, Expected(model.predict(_matrix(people)) == "approved", proba))


@pytest.mark.long
@pytest.mark.parametrize("approved", [0, 1])
def test_numbered_classes_for_text_labels(approved: int, people: pd.DataFrame) -> None:
    """The label was encoded by hand, one way or the other: the ranking of the rows tells which."""
    target = np.where(people["decision"] == "approved", approved, 1 - approved)
    model, proto = _matrix_model(people, target, array=True)
    report = fairkit.audit(proto, _data(people, features=NUMBERS))
    proba = model.predict_proba(_matrix(people))[:, approved]
    _same(report, people, Expected(model.predict(_matrix(people)) == approved, proba))
    told = [note for note in report.model.notes if "(`favorable_class` overrides)" in note]
    assert len(told) == 1
    assert f"class {approved}" in told[0]


def test_the_favorable_column_can_be_said(people: pd.DataFrame) -> None:
    target = (people["decision"] == "approved").astype(int)
    model, proto = _matrix_model(people, target, array=True)
    data = _data(people, features=NUMBERS)
    options = fairkit.ModelOptions(favorable_class=0)
    report = fairkit.audit(proto, data, options=options)
    proba = model.predict_proba(_matrix(people))[:, 0]
    _same(report, people, Expected(model.predict(_matrix(people)) == 0, proba))
    with pytest.raises(fairkit.ModelError, match="favorable_class=2"):
        fairkit.audit(proto, data, options=fairkit.ModelOptions(favorable_class=2))


def test_the_favorable_label_may_be_0(people: pd.DataFrame) -> None:
    frame = people.assign(denied=(people["decision"] == "denied").astype(int))
    model, proto = _matrix_model(people, frame["denied"], array=True)
    roles = {"label": "denied", "favorable": 0, "features": NUMBERS}
    report = fairkit.audit(proto, _data(frame, **roles))
    expected = Expected(model.predict(_matrix(people)) == 0, model.predict_proba(_matrix(people))[:, 0])
    _same(report, frame, expected, **roles)


def test_a_threshold_of_the_users(people: pd.DataFrame) -> None:
    model, proto = _matrix_model(people, people["decision"])
    proba = model.predict_proba(_matrix(people))[:, 0]
    options = fairkit.ModelOptions(threshold=0.7)
    report = fairkit.audit(proto, _data(people, features=NUMBERS), options=options)
    _same(report, people, Expected(proba >= 0.7, proba))


def test_a_regression_of_sklearn_audits_as_its_library_decides(people: pd.DataFrame) -> None:
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.ensemble import RandomForestRegressor

    columns = ["age", "debt_ratio", "amount"]
    model = RandomForestRegressor(n_estimators=10, max_depth=6, random_state=0)
    model.fit(_matrix(people, columns), people["income"])
    proto = _to_onnx(model, [("X", FloatTensorType([None, 3]))])
    roles = {"label": "income", "favorable": None, "features": columns}
    report = fairkit.audit(proto, _data(people, **roles))
    assert report.model.task == "regression"
    table = people.assign(own=model.predict(_matrix(people, columns)))
    own = fairkit.audit(fairkit.PredictedColumns(score="own"), _data(table, **roles))
    for finding in own.findings:
        assert report.find(finding.metric, finding.sensitive).value == pytest.approx(finding.value, rel=1e-5, abs=1e-5)
    names = {finding.metric for finding in report.findings}
    assert {"r2_score", "mean_absolute_error_difference", "worst_group_loss"} <= names
    assert not {"roc_auc", "accuracy", "log_loss"} & names


@pytest.mark.long
def test_three_classes_of_sklearn_audit_as_their_library_decides(people: pd.DataFrame) -> None:
    import pandas as pd

    frame = people.assign(
        risk=np.where(people["debt_ratio"] > 0.5, "high", np.where(people["income"] > 35, "low", "medium"))
    )
    model, proto = _matrix_model(people, frame["risk"], "forest", array=True)
    roles = {"label": "risk", "favorable": None, "features": NUMBERS}
    report = fairkit.audit(proto, _data(frame, **roles))
    assert report.model.task == "multiclass"
    predicted = model.predict(_matrix(people))
    proba = model.predict_proba(_matrix(people))
    assert report.find("accuracy").value == pytest.approx((predicted == frame["risk"]).mean(), abs=1e-12)
    for place, value in enumerate(model.classes_):
        rates = pd.Series(predicted == value).groupby(people["ethnicity"].to_numpy()).mean()
        finding = report.find("demographic_parity_difference", "ethnicity", parameters={"class": value})
        assert finding.value == pytest.approx(rates.max() - rates.min(), abs=1e-12)
        brier = report.find("brier_score", parameters={"class": value}).value
        assert brier == pytest.approx(((proba[:, place] - (frame["risk"] == value)) ** 2).mean(), abs=1e-6)


def test_three_classes_with_a_favorable_one(people: pd.DataFrame) -> None:
    import pandas as pd

    frame = people.assign(
        risk=np.where(people["debt_ratio"] > 0.5, "high", np.where(people["income"] > 35, "low", "medium"))
    )
    model, proto = _matrix_model(people, frame["risk"], "forest")
    roles = {"label": "risk", "favorable": "low", "features": NUMBERS}
    report = fairkit.audit(proto, _data(frame, **roles))
    predicted = model.predict(_matrix(people)) == "low"
    rates = pd.Series(predicted).groupby(people["sex"].to_numpy()).mean()
    found = report.find("demographic_parity_difference", "sex", parameters={"class": "low"})
    assert found.value == pytest.approx(rates.max() - rates.min(), abs=1e-12)
    assert not [f for f in report.findings if f.parameters.get("class") == "high"]


def test_lightgbm_audits_as_its_library_decides(people: pd.DataFrame) -> None:
    import lightgbm
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    matrix = _matrix(people)
    target = (people["decision"] == "approved").astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=15, num_leaves=8, verbose=-1, n_jobs=1).fit(matrix, target)
    proto = convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, 4]))], target_opset=15)
    report = fairkit.audit(proto, _data(people, features=NUMBERS))
    proba = model.booster_.predict(matrix)
    _same(report, people, Expected(proba > 0.5, proba))


def test_xgboost_audits_as_its_library_decides(people: pd.DataFrame) -> None:
    import xgboost
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    matrix = _matrix(people)
    target = (people["decision"] == "approved").astype(int)
    model = xgboost.XGBClassifier(n_estimators=15, max_depth=3, n_jobs=1).fit(matrix, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto = convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 4]))], target_opset=15)
    report = fairkit.audit(proto, _data(people, features=NUMBERS))
    proba = model.predict_proba(matrix)[:, 1]
    _same(report, people, Expected(proba > 0.5, proba))


@pytest.fixture(scope="module")
def network(people: pd.DataFrame) -> tuple[Any, np.ndarray]:
    """A torch network for approval: module and standardised inputs."""
    import torch

    torch.manual_seed(0)
    raw = _matrix(people)
    matrix = torch.from_numpy((raw - raw.mean(axis=0)) / raw.std(axis=0))
    target = torch.from_numpy((people["decision"] == "approved").to_numpy(np.float32))
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimiser = torch.optim.Adam(module.parameters(), lr=0.03)
    for _ in range(60):
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(module(matrix)[:, 0], target)
        loss.backward()
        optimiser.step()
    return module.eval().requires_grad_(False), matrix.numpy()


def _export(module: Any, path: Path, batch: int | None, width: int = 4) -> None:
    import torch

    example = torch.zeros((batch or 2, width))
    axes = None if batch else {"x": {0: "n"}, "y": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            str(path),
            input_names=["x"],
            output_names=["y"],
            dynamic_axes=axes,
            dynamo=False,
            opset_version=17,
        )


def _standardised(people: pd.DataFrame, matrix: np.ndarray) -> pd.DataFrame:
    return people.assign(**{name: matrix[:, i] for i, name in enumerate(NUMBERS)})


@pytest.mark.long
@pytest.mark.parametrize("batch", [None, 1], ids=["dynamic", "fixed batch of 1"])
def test_torch_network_with_a_logit(
    batch: int | None, network: tuple[Any, np.ndarray], people: pd.DataFrame, tmp_path: Path
) -> None:
    import torch

    module, matrix = network
    rows = slice(0, 300 if batch else ROWS)
    frame = _standardised(people, matrix).iloc[rows].reset_index(drop=True)
    _export(module, tmp_path / "net.onnx", batch)
    with torch.no_grad():
        logit = module(torch.from_numpy(matrix[rows])).numpy()[:, 0].astype(float)
    report = fairkit.audit(tmp_path / "net.onnx", _data(frame, features=NUMBERS))
    _same(report, frame, Expected(logit >= 0, 1 / (1 + np.exp(-logit))))
    assert any("read as logits" in note for note in report.model.notes)


@pytest.mark.long
def test_torch_network_with_two_logits(network: tuple[Any, np.ndarray], people: pd.DataFrame, tmp_path: Path) -> None:
    import torch

    module, matrix = network

    class Two(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            z = module(x)
            return torch.cat([z, -z], dim=1)  # the first column is approval

    _export(Two(), tmp_path / "two.onnx", None)
    frame = _standardised(people, matrix)
    with torch.no_grad():
        logit = module(torch.from_numpy(matrix)).numpy()[:, 0].astype(float)
    report = fairkit.audit(tmp_path / "two.onnx", _data(frame, features=NUMBERS))
    _same(report, frame, Expected(logit >= 0, 1 / (1 + np.exp(-2 * logit))))


@pytest.mark.long
def test_a_bare_score_of_the_unfavorable_class_is_turned(
    network: tuple[Any, np.ndarray], people: pd.DataFrame, tmp_path: Path
) -> None:
    """A network trained for the class 1, which is bad for the person (COMPAS, say)."""
    import torch

    module, matrix = network

    class Refusal(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.sigmoid(-module(x))

    _export(Refusal(), tmp_path / "refusal.onnx", None)
    frame = _standardised(people, matrix).assign(denied=(people["decision"] == "denied").astype(int))
    with torch.no_grad():
        logit = module(torch.from_numpy(matrix)).numpy()[:, 0].astype(float)
    roles = {"label": "denied", "favorable": 0, "features": NUMBERS}
    report = fairkit.audit(tmp_path / "refusal.onnx", _data(frame, **roles))
    _same(report, frame, Expected(logit >= 0, 1 / (1 + np.exp(-logit))), **roles)
    assert any("turned to the favorable label" in note for note in report.model.notes)
    left = fairkit.audit(
        tmp_path / "refusal.onnx", _data(frame, **roles), options=fairkit.ModelOptions(favorable_class=1)
    )
    _same(left, frame, Expected(logit < 0, 1 / (1 + np.exp(logit))), **roles)


def _labels_only(proto: onnx.ModelProto) -> onnx.ModelProto:
    from skl2onnx.helpers.onnx_helper import select_model_inputs_outputs

    result: onnx.ModelProto = select_model_inputs_outputs(proto, outputs=[proto.graph.output[0].name])
    return result


@pytest.mark.long
@pytest.mark.parametrize("approved", ["approved", 0, 1])
def test_a_model_of_labels_has_no_metric_of_scores(approved: Any, people: pd.DataFrame) -> None:
    other = "denied" if approved == "approved" else 1 - approved
    target = np.where(people["decision"] == "approved", approved, other)
    model, proto = _matrix_model(people, target)
    report = fairkit.audit(_labels_only(proto), _data(people, features=NUMBERS))
    _same(report, people, Expected(model.predict(_matrix(people)) == approved))
    assert not [f for f in report.findings if f.metric == "roc_auc"]


def test_labels_only_when_the_first_rows_all_get_the_other_label(people: pd.DataFrame) -> None:
    model, proto = _matrix_model(people, people["decision"])
    predicted = model.predict(_matrix(people))
    refused, approved = np.flatnonzero(predicted == "denied"), np.flatnonzero(predicted == "approved")
    order = np.concatenate([np.tile(refused, 6), approved])  # more than a first batch
    frame = people.iloc[order].reset_index(drop=True)
    report = fairkit.audit(_labels_only(proto), _data(frame, features=NUMBERS))
    _same(report, frame, Expected(predicted[order] == "approved"))


def _linear_graph(inputs: Mapping[str, int], weights: Mapping[str, float], bias: float) -> onnx.ModelProto:
    """sigmoid(Σ w x + bias) of columns of the given types, computed in doubles."""
    nodes, terms = [], []
    constants = [numpy_helper.from_array(np.array([[bias]], np.float64), "bias")]
    for name in inputs:
        constants.append(numpy_helper.from_array(np.array([[weights[name]]], np.float64), f"w_{name}"))
        nodes.append(helper.make_node("Cast", [name], [f"c_{name}"], to=TensorProto.DOUBLE))
        nodes.append(helper.make_node("Mul", [f"c_{name}", f"w_{name}"], [f"t_{name}"]))
        terms.append(f"t_{name}")
    nodes.append(helper.make_node("Sum", [*terms, "bias"], ["logit"]))
    nodes.append(helper.make_node("Sigmoid", ["logit"], ["probability"]))
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info(name, kind, [None, 1]) for name, kind in inputs.items()],
        [helper.make_tensor_value_info("probability", TensorProto.DOUBLE, [None, 1])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_float64_and_int64_inputs(people: pd.DataFrame) -> None:
    inputs = {
        "age": TensorProto.INT64,
        "income": TensorProto.DOUBLE,
        "debt_ratio": TensorProto.FLOAT,
        "amount": TensorProto.INT32,
    }
    weights = {"age": 0.01, "income": 0.05, "debt_ratio": -2.0, "amount": -0.04}
    frame = people.assign(amount=people["amount"].round().astype(int))
    proto = _linear_graph(inputs, weights, -0.6)
    logit = sum(weights[name] * frame[name].to_numpy(float) for name in weights) - 0.6
    report = fairkit.audit(proto, _data(frame))
    _same(report, frame, Expected(logit >= 0, 1 / (1 + np.exp(-logit))))


def test_sklearn_with_int64_columns(people: pd.DataFrame) -> None:
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    columns = ["age", "income"]
    frame = people.astype({"income": np.float32})
    model = make_pipeline(ColumnTransformer([("all", StandardScaler(), columns)]), _classifier("logistic"))
    model.fit(frame[columns], people["decision"])
    types = [("age", Int64TensorType([None, 1])), ("income", FloatTensorType([None, 1]))]
    report = fairkit.audit(_to_onnx(model, types), _data(frame))
    expected = Expected(model.predict(frame[columns]) == "approved", model.predict_proba(frame[columns])[:, 0])
    _same(report, frame, expected)


def test_a_matrix_of_a_fixed_batch_of_1(people: pd.DataFrame) -> None:
    frame = people.head(400)
    model, proto = _matrix_model(people, people["decision"], width=1, array=True)
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    report = fairkit.audit(proto, _data(frame, features=NUMBERS))
    proba = model.predict_proba(_matrix(frame))[:, 0]
    _same(report, frame, Expected(model.predict(_matrix(frame)) == "approved", proba))


def test_tensors_in_a_file_beside_the_model(
    network: tuple[Any, np.ndarray], people: pd.DataFrame, tmp_path: Path
) -> None:
    module, matrix = network
    _export(module, tmp_path / "one.onnx", None)
    proto = onnx.load(tmp_path / "one.onnx")
    (tmp_path / "apart").mkdir()
    path = tmp_path / "apart" / "net.onnx"
    onnx.save_model(
        proto, path, save_as_external_data=True, all_tensors_to_one_file=True, location="net.data", size_threshold=0
    )
    assert (path.parent / "net.data").stat().st_size > 0
    data = _data(_standardised(people, matrix), features=NUMBERS)
    _same_findings(fairkit.audit(path, data), fairkit.audit(tmp_path / "one.onnx", data))
    (path.parent / "net.data").unlink()
    with pytest.raises(fairkit.ModelError, match=r"'net\.data', which is not in its folder"):
        fairkit.audit(path, data)


def test_the_digest_is_the_files(people: pd.DataFrame, tmp_path: Path) -> None:
    import hashlib

    _, proto = _matrix_model(people, people["decision"])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    report = fairkit.audit(path, _data(people, features=NUMBERS))
    assert report.model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert report.model.name == "m.onnx"


@pytest.mark.long
@pytest.mark.parametrize("rows", [7, 100, 100_000])
def test_batches_do_not_matter(rows: int, people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    _, proto = _matrix_model(people, people["decision"])
    data = _data(people.head(300), features=NUMBERS)
    whole = fairkit.audit(proto, data)
    batches: Callable[..., Any] = fairkit.Dataset.batches
    monkeypatch.setattr(
        fairkit.Dataset, "batches", lambda self, columns=(), rows=rows, **more: batches(self, columns, rows, **more)
    )
    again = fairkit.audit(proto, data)
    for finding in whole.findings:
        other = again.find(finding.metric, finding.sensitive)
        assert other.value == pytest.approx(finding.value, abs=1e-12)
        assert other.interval == pytest.approx(finding.interval, abs=1e-12)
