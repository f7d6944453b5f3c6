"""`fairkit.to_onnx(pipeline, X)`: one file over the raw columns, run by plain onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import fairkit


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(5)
    rows = 500
    frame = pd.DataFrame(
        {
            "income": rng.normal(2, 1, rows),
            "region": rng.choice(["north", "south", "west"], rows),
            "children": rng.integers(0, 5, rows),
            "sex": rng.choice(["female", "male"], rows),
        }
    )
    score = frame["income"] + (frame["region"] == "west") + rng.normal(0, 1, rows)
    return frame, (score > 2.5).astype(int).to_numpy(), score.to_numpy()


def _encoder():
    return make_column_transformer(
        (StandardScaler(), ["income", "children"]),
        (OneHotEncoder(handle_unknown="ignore"), ["region", "sex"]),
    )


def _run(content, frame):
    session = onnxruntime.InferenceSession(content)
    kinds = {
        "tensor(float)": np.float32,
        "tensor(string)": object,
        "tensor(int64)": np.int64,
        "tensor(double)": np.float64,
    }
    feeds = {
        entry.name: frame[entry.name].to_numpy().astype(kinds[entry.type]).reshape(-1, 1)
        for entry in session.get_inputs()
    }
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize("last", ["logistic", "lightgbm", "xgboost", "catboost", "fairgbm", "reweigh"])
def test_a_pipeline_is_one_file_over_raw_columns(people, last, tmp_path):
    X, y, _ = people
    if last == "logistic":
        estimator = LogisticRegression()
    elif last in ("fairgbm", "reweigh"):
        estimator = fairkit.mitigator(last)(random_state=0)
    else:
        library = pytest.importorskip(last)
        name = {"lightgbm": "LGBMClassifier", "xgboost": "XGBClassifier", "catboost": "CatBoostClassifier"}[
            last
        ]
        quiet = {"lightgbm": {"verbose": -1}, "catboost": {"verbose": False, "allow_writing_files": False}}
        estimator = getattr(library, name)(n_estimators=10, max_depth=3, **quiet.get(last, {}))
    pipeline = make_pipeline(_encoder(), estimator).fit(X, y)
    file = tmp_path / "model.onnx"
    content = fairkit.to_onnx(pipeline, X, file)
    assert file.read_bytes() == content
    found = _run(content, X)
    matrix = _encoder().fit(X).transform(X)
    expected = estimator.predict_proba(matrix)[:, 1]
    np.testing.assert_allclose(found["score"].ravel(), expected, atol=1e-5)
    clear = np.abs(expected - 0.5) > 1e-4
    np.testing.assert_array_equal(found["decision"].ravel()[clear], estimator.predict(matrix)[clear])
    data = fairkit.load_data(X.assign(y=y), label="y", favorable=1, sensitive="sex")
    report = fairkit.audit(file, data)
    gap = fairkit.audit(pipeline, X, y, sensitive_features="sex").find("demographic_parity_difference", "sex")
    assert report.find("demographic_parity_difference", "sex").value == pytest.approx(gap.value, abs=1e-12)
    assert report.model.sha256 is not None


def test_three_classes_and_numbers(people):
    X, _, score = people
    three = np.digitize(score, [2, 3])
    pipeline = make_pipeline(_encoder(), LogisticRegression()).fit(X, three)
    found = _run(fairkit.to_onnx(pipeline, X), X)["probabilities"]
    np.testing.assert_allclose(found, pipeline.predict_proba(X), atol=1e-5)
    pipeline = make_pipeline(_encoder(), GradientBoostingRegressor(n_estimators=10)).fit(X, score)
    found = _run(fairkit.to_onnx(pipeline, X), X)["score"].ravel()
    np.testing.assert_allclose(found, pipeline.predict(X), atol=1e-4)


def test_a_method_alone_keeps_its_columns(people):
    X, y, _ = people
    method = fairkit.mitigator("reweigh")(learner="logistic").fit(X, y, sensitive_features=X["sex"])
    found = _run(fairkit.to_onnx(method, X), X)
    np.testing.assert_allclose(found["score"].ravel(), method.predict_proba(X)[:, 1], atol=1e-5)


def test_what_cannot_be_exported_is_said(people, tmp_path):
    X, y, _ = people
    opaque = make_pipeline(FunctionTransformer(lambda rows: rows[["income"]]), LogisticRegression()).fit(X, y)
    with pytest.raises(fairkit.ModelError, match="no form in ONNX"):
        fairkit.to_onnx(opaque, X, tmp_path / "model.onnx")
    numbers = LogisticRegression().fit(X[["income"]], y)
    with pytest.raises(fairkit.ModelError, match="'region' is text; put an encoder before it"):
        fairkit.to_onnx(numbers, X, tmp_path / "model.onnx")
    xgboost = pytest.importorskip("xgboost")
    sparse = _encoder().set_params(sparse_threshold=1)
    missing = make_pipeline(sparse, xgboost.XGBClassifier(n_estimators=5)).fit(X, y)
    with pytest.raises(fairkit.ModelError, match="zeros of sparse matrices for missing values"):
        fairkit.to_onnx(missing, X, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_favorable_class_can_be_named():
    from sklearn.linear_model import LogisticRegression

    import fairkit
    from fairkit_onnx.model import OnnxModel

    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = np.where(x[:, 0] + rng.normal(size=200) > 0, "denied", "approved")
    model = LogisticRegression().fit(x, y)
    settings = {
        said: OnnxModel.load(fairkit.to_onnx(model, x, favorable=said))
        for said in (None, "approved", "denied")
    }
    assert [one.settings["favorable"] for one in settings.values()] == ["denied", "approved", "denied"]
    feeds = {i.name: x[:, [place]].astype(i.dtype) for place, i in enumerate(settings[None].inputs)}
    for said, one in settings.items():
        found = one.run(feeds)
        place = 0 if said == "approved" else 1
        np.testing.assert_allclose(found["score"][:, 0], model.predict_proba(x)[:, place], atol=1e-5)
        np.testing.assert_array_equal(found["decision"][:, 0] == 1, model.predict(x) == model.classes_[place])
    with pytest.raises(fairkit.ParameterError, match="its classes are approved and denied"):
        fairkit.to_onnx(model, x, favorable="yes")
