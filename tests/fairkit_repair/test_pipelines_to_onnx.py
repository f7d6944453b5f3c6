"""`fairkit.to_onnx(pipeline, X)`: one file over the raw columns, run by plain onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import fairkit
from fairkit_onnx.sandbox.confine import Limits, using


@pytest.fixture(scope="module")
def people():
    import pandas as pd

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
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    return make_column_transformer(
        (StandardScaler(), ["income", "children"]), (OneHotEncoder(handle_unknown="ignore"), ["region", "sex"])
    )


def run_file(content, frame):
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


@pytest.mark.long
@pytest.mark.parametrize("last", ["logistic", "lightgbm", "xgboost", "catboost", "fairgbm", "reweigh"])
def test_a_pipeline_is_one_file_over_raw_columns(people, last, tmp_path):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    X, y, _ = people
    if last == "logistic":
        estimator = LogisticRegression()
    elif last in ("fairgbm", "reweigh"):
        estimator = fairkit.mitigator(last)(random_state=0)
    else:
        library = pytest.importorskip(last)
        name = {"lightgbm": "LGBMClassifier", "xgboost": "XGBClassifier", "catboost": "CatBoostClassifier"}[last]
        quiet = {"lightgbm": {"verbose": -1}, "catboost": {"verbose": False, "allow_writing_files": False}}
        estimator = getattr(library, name)(n_estimators=10, max_depth=3, **quiet.get(last, {}))
    pipeline = make_pipeline(_encoder(), estimator).fit(X, y)
    file = tmp_path / "model.onnx"
    content = fairkit.to_onnx(pipeline, X, file)
    assert file.read_bytes() == content
    found = run_file(content, X)
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
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    X, _, score = people
    three = np.digitize(score, [2, 3])
    pipeline = make_pipeline(_encoder(), LogisticRegression()).fit(X, three)
    found = run_file(fairkit.to_onnx(pipeline, X), X)["probabilities"]
    np.testing.assert_allclose(found, pipeline.predict_proba(X), atol=1e-5)
    pipeline = make_pipeline(_encoder(), GradientBoostingRegressor(n_estimators=10)).fit(X, score)
    found = run_file(fairkit.to_onnx(pipeline, X), X)["score"].ravel()
    np.testing.assert_allclose(found, pipeline.predict(X), atol=1e-4)


def test_a_method_alone_keeps_its_columns(people):
    X, y, _ = people
    method = fairkit.mitigator("reweigh")(learner="logistic").fit(X, y, sensitive_features=X["sex"])
    found = run_file(fairkit.to_onnx(method, X), X)
    np.testing.assert_allclose(found["score"].ravel(), method.predict_proba(X)[:, 1], atol=1e-5)


def test_what_cannot_be_exported_is_said(people, tmp_path):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    X, y, _ = people
    opaque = make_pipeline(FunctionTransformer(lambda rows: rows[["income"]]), LogisticRegression()).fit(X, y)
    with pytest.raises(fairkit.ModelError, match="no form in ONNX"):
        fairkit.to_onnx(opaque, X, tmp_path / "model.onnx")
    numbers = LogisticRegression().fit(X[["income"]], y)
    with pytest.raises(fairkit.ModelError, match="'region' is text; put an encoder before it"):
        fairkit.to_onnx(numbers, X, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_favorable_class_can_be_named():
    from sklearn.linear_model import LogisticRegression

    import fairkit
    from fairkit_onnx.file import OnnxModel

    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = np.where(x[:, 0] + rng.normal(size=200) > 0, "denied", "approved")
    model = LogisticRegression().fit(x, y)
    settings = {
        said: OnnxModel.load(fairkit.to_onnx(model, x, favorable=said)) for said in (None, "approved", "denied")
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


def test_names_that_the_converter_changes(people):
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    X, y, _ = people
    names = {"income": "education-num", "children": "hours per week"}
    odd = X.rename(columns=names).assign(**{"1st": np.arange(len(X)) % 7})
    encoder = make_column_transformer(
        (StandardScaler(), list(names.values())), (OneHotEncoder(handle_unknown="ignore"), ["region"])
    )
    pipeline = make_pipeline(encoder, LogisticRegression()).fit(odd, y)
    content = fairkit.to_onnx(pipeline, odd)
    found = run_file(content, odd)["score"].ravel()
    np.testing.assert_allclose(found, pipeline.predict_proba(odd)[:, 1], atol=1e-5)


@pytest.mark.long
def test_words_are_cut_as_in_memory(tmp_path):
    import pandas as pd
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(1)
    words = ["alpha", "Beta", "x", "Épsilon", "e5", "under_score", "don't"]
    texts = pd.Series([" ".join(rng.choice(words, 6)) for _ in range(300)], name="letter")
    y = texts.str.contains("Beta x|alpha alpha").astype(int)
    for step in (TfidfVectorizer(), CountVectorizer(ngram_range=(1, 2))):
        pipeline = make_pipeline(step, LogisticRegression()).fit(texts, y)
        content = fairkit.to_onnx(pipeline, texts, tmp_path / "model.onnx")
        found = run_file(content, texts.to_frame())["score"].ravel()
        np.testing.assert_allclose(found, pipeline.predict_proba(texts)[:, 1], atol=1e-5)
    data = fairkit.load_data({"letter": texts, "y": y, "sex": y % 2}, label="y", favorable=1, sensitive="sex")
    with pytest.raises(fairkit.ModelError, match=r"domains=com\.microsoft"):
        fairkit.audit(tmp_path / "model.onnx", data)
    with using(Limits(domains=("com.microsoft",))):
        report = fairkit.audit(tmp_path / "model.onnx", data)
    assert report.find("accuracy").value == pytest.approx((pipeline.predict(texts) == y).mean())
    opaque = make_pipeline(HashingVectorizer(n_features=8), LogisticRegression()).fit(texts, y)
    with pytest.raises(fairkit.ModelError, match=r"step HashingVectorizer[\s\S]*Apply such a step to the table"):
        fairkit.to_onnx(opaque, texts)


def test_messages_have_five_lines_at_most(people):
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.semi_supervised import LabelPropagation

    X, y, _ = people
    numbers = X[["income", "children"]]
    for last in (
        LabelPropagation(),
        RadiusNeighborsClassifier(radius=50),
        KNeighborsClassifier(metric=lambda a, b: float(np.abs(a - b).sum())),
        GaussianProcessClassifier(max_iter_predict=1),
    ):
        pipeline = make_pipeline(StandardScaler(), last).fit(numbers[:60], y[:60])
        try:
            fairkit.to_onnx(pipeline, numbers[:60])
        except fairkit.FairkitError as error:
            message = str(error)
            assert len(message.splitlines()) <= 5
            assert len(message) < 1_200
