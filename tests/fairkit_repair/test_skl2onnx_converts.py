"""Plain `skl2onnx.to_onnx(pipeline, X)` on pipelines that end in a method of fairkit."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import fairkit


@pytest.fixture(scope="module")
def people():
    import pandas as pd

    rng = np.random.default_rng(5)
    rows = 400
    frame = pd.DataFrame(
        {
            "income": rng.normal(2, 1, rows).astype(np.float32),
            "region": rng.choice(["north", "south", "west"], rows),
            "children": rng.integers(0, 5, rows),
        }
    )
    score = frame["income"] + (frame["region"] == "west") + rng.normal(0, 1, rows)
    return frame, score.to_numpy(), rng.choice(["female", "male"], rows)


def _encoder():
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    return make_column_transformer(
        (StandardScaler(), ["income", "children"]), (OneHotEncoder(handle_unknown="ignore"), ["region"])
    )


def _run(proto, X):
    import pandas as pd

    session = onnxruntime.InferenceSession(proto.SerializeToString())
    kinds = {"tensor(float)": np.float32, "tensor(string)": object, "tensor(int64)": np.int64}
    feeds = {
        one.name: (X[[one.name]] if isinstance(X, pd.DataFrame) else X).to_numpy().astype(kinds[one.type])
        if isinstance(X, pd.DataFrame)
        else X.astype(kinds[one.type])
        for one in session.get_inputs()
    }
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))


def _versions(proto):
    return {entry.domain: entry.version for entry in proto.opset_import}


@pytest.mark.long
@pytest.mark.parametrize("opset", [None, 15, 18])
@pytest.mark.parametrize("method", ["fairgbm", "reweigh"])
def test_a_pipeline_that_ends_in_a_classifier(people, method, opset):
    from sklearn import config_context
    from sklearn.pipeline import make_pipeline

    skl2onnx = pytest.importorskip("skl2onnx")

    X, score, sex = people
    y = np.where(score > 2.5, "yes", "no") if method == "reweigh" else (score > 2.5)
    with config_context(enable_metadata_routing=True):
        last = fairkit.mitigator(method)(learner=None, n_jobs=1).set_fit_request(sensitive_features=True)
        pipeline = make_pipeline(_encoder(), last).fit(X, y, sensitive_features=sex)
    asked = {} if opset is None else {"target_opset": {"": opset, "ai.onnx.ml": 3}}
    proto = skl2onnx.to_onnx(pipeline, X[:1], **asked)
    onnx.checker.check_model(proto, full_check=True)
    found = _run(proto, X)
    np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(X), atol=1e-5)
    clear = np.abs(found["probabilities"][:, 1] - 0.5) > 1e-4
    labels = found["label"].astype(bool) if method == "fairgbm" else found["label"]
    np.testing.assert_array_equal(labels[clear], pipeline.predict(X)[clear])
    assert opset in (None, _versions(proto)[""])


@pytest.mark.long
def test_several_classes_and_numbers(people):
    from sklearn.pipeline import make_pipeline

    skl2onnx = pytest.importorskip("skl2onnx")

    X, score, sex = people
    matrix = X[["income", "children"]].to_numpy(np.float32)
    three = np.digitize(score, [2, 3])
    equal = fairkit.mitigator("linear-post")(read_group=False, tolerance=0.1, n_jobs=1)
    equal.fit(matrix, three, sensitive_features=sex)
    found = _run(skl2onnx.to_onnx(equal, matrix[:1]), matrix)
    np.testing.assert_allclose(found["probabilities"], equal.predict_proba(matrix), atol=1e-5)
    assert (found["label"] == equal.predict(matrix)).mean() > 0.99
    fair = fairkit.mitigator("fair-regression")(iterations=2, n_jobs=1).fit(matrix, score, sensitive_features=sex)
    found = _run(skl2onnx.to_onnx(make_pipeline(fair), matrix[:1]), matrix)
    np.testing.assert_allclose(found["variable"].ravel(), fair.predict(matrix), atol=1e-4)


def test_the_file_is_audited_as_the_pipeline_is(people, tmp_path):
    from sklearn.pipeline import make_pipeline

    skl2onnx = pytest.importorskip("skl2onnx")

    X, score, sex = people
    y = (score > 2.5).astype(int)
    pipeline = make_pipeline(_encoder(), fairkit.mitigator("reweigh")(learner="logistic")).fit(X, y)
    (tmp_path / "model.onnx").write_bytes(skl2onnx.to_onnx(pipeline, X[:1]).SerializeToString())
    data = fairkit.load_data(X.assign(y=y, sex=sex), label="y", favorable=1, sensitive="sex")
    gap = fairkit.audit(tmp_path / "model.onnx", data).find("demographic_parity_difference", "sex")
    expected = fairkit.audit(pipeline, X, y, sensitive_features={"sex": sex})
    assert gap.value == expected.find("demographic_parity_difference", "sex").value


def test_what_cannot_be_in_a_pipelines_file_is_said(people):
    from sklearn.pipeline import make_pipeline

    skl2onnx = pytest.importorskip("skl2onnx")

    X, score, sex = people
    y = (score > 2.5).astype(int)
    pipeline = make_pipeline(_encoder(), fairkit.mitigator("reweigh")(learner="logistic")).fit(X, y)
    rule = fairkit.mitigator("threshold-optimizer")(model=pipeline).fit(X, y, sensitive_features=sex)
    with pytest.raises(fairkit.FairkitError, match="export it by itself"):
        skl2onnx.to_onnx(rule, X[:1])
    texts = fairkit.mitigator("reweigh")(learner="lightgbm").fit(X, y)
    with pytest.raises(fairkit.FairkitError, match=r"'region' was string .* gives int64"):
        skl2onnx.to_onnx(texts, X[["income", "children", "children"]].set_axis(list("abc"), axis=1)[:1])
