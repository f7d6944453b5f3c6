"""A file decides as `predict` does, or is refused with the step that differs and a way out."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn import calibration, discriminant_analysis, ensemble, linear_model, multioutput, neighbors, svm, tree
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    StandardScaler,
)
from tests.exports import EXPORTS, Export, people

import fairkit

ROWS = 240
RNG = np.random.default_rng(6)
X = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, ROWS),
        "income": RNG.lognormal(10, 0.5, ROWS).round(2),
        "job": RNG.choice(["clerk", "nurse", "driver"], ROWS),
    }
)
SCORE = (X.age - 40) / 20 + (X.job == "nurse") + RNG.normal(size=ROWS)
Y = (SCORE > 1.3).astype(int).to_numpy()
TEXTS, THREE = np.where(Y == 1, "yes", "no"), np.digitize(SCORE, [0, 1.3])
WHOLE = X[["age", "income"]]
FLOATS = WHOLE.astype(float)
GONE = X.assign(job=X.job.where(RNG.random(ROWS) > 0.1, None), income=X.income.where(RNG.random(ROWS) > 0.1))
TWICE = np.column_stack([Y, 1 - Y])


def logistic():
    return linear_model.LogisticRegression(max_iter=3000)


def forest():
    return ensemble.RandomForestClassifier(10, random_state=0)


def scaled(last):
    return make_pipeline(StandardScaler(), last)


def encoded(last, text=None):
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore")
    words = words if text is None else make_pipeline(SimpleImputer(**text), words)
    return make_pipeline(make_column_transformer((numbers, ["age", "income"]), (words, ["job"])), last)


def tuned(inner, **how):
    return TunedThresholdClassifierCV(inner, thresholds=20, cv=2, **how)


def searched(inner):
    return GridSearchCV(inner, {"logisticregression__C": [0.1, 1]}, cv=2)


def early(library, X, y):
    model = library.XGBClassifier(n_estimators=60, early_stopping_rounds=3, learning_rate=0.5)
    return model.fit(X[:160], y[:160], eval_set=[(X[160:], y[160:])], verbose=False)


DECIDE = {
    "tuned": lambda: (tuned(scaled(logistic())), WHOLE, Y),
    "tuned, text labels": lambda: (tuned(scaled(logistic())), WHOLE, TEXTS),
    "tuned in a pipeline": lambda: (encoded(tuned(logistic())), X, Y),
    "tuned around a search": lambda: (tuned(searched(encoded(logistic()))), X, Y),
    "a search around tuned": lambda: (GridSearchCV(tuned(scaled(logistic())), {"cv": [2]}, cv=2), WHOLE, Y),
    "tuned by decision_function": lambda: (tuned(scaled(svm.LinearSVC())), WHOLE, Y),
    "fixed": lambda: (FixedThresholdClassifier(scaled(logistic()), threshold=0.3), FLOATS, Y),
    "fixed for the first class": lambda: (
        FixedThresholdClassifier(scaled(logistic()), threshold=0.3, pos_label="no"), FLOATS, TEXTS,
    ),
    "fixed by decision_function": lambda: (
        FixedThresholdClassifier(scaled(logistic()), threshold=0.3, response_method="decision_function"), FLOATS, Y,
    ),
    "fixed at a leaf's score": lambda: (FixedThresholdClassifier(forest(), threshold=0.3), FLOATS, Y),
    "a search around a pipeline": lambda: (searched(encoded(logistic())), X, Y),
    "a random search": lambda: (RandomizedSearchCV(scaled(logistic()), {"logisticregression__C": [0.1, 1]},
                                                   n_iter=2, cv=2), WHOLE, Y),
    "a search as last step": lambda: (encoded(GridSearchCV(logistic(), {"C": [0.1, 1]}, cv=2)), X, Y),
    "SVC with probabilities": lambda: (scaled(svm.SVC(probability=True, class_weight="balanced")), FLOATS, Y),
    "SVC, text labels": lambda: (scaled(svm.SVC(probability=True)), FLOATS, TEXTS),
    "SVC without probabilities": lambda: (scaled(svm.SVC()), FLOATS, Y),
    "LinearSVC": lambda: (scaled(svm.LinearSVC()), WHOLE, TEXTS),
    "RidgeClassifier": lambda: (scaled(linear_model.RidgeClassifier()), WHOLE, Y),
    "SGDClassifier": lambda: (scaled(linear_model.SGDClassifier(random_state=0)), WHOLE, Y),
    "ties of a forest": lambda: (forest(), FLOATS, Y),
    "ties of a tree": lambda: (tree.DecisionTreeClassifier(max_depth=3), FLOATS, Y),
    "ties of neighbours": lambda: (neighbors.KNeighborsClassifier(4), FLOATS.astype(np.float32), Y),
    "discriminants": lambda: (discriminant_analysis.LinearDiscriminantAnalysis(), FLOATS, Y),
    "calibrated": lambda: (scaled(calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2)), FLOATS, Y),
    "imputer over whole and fractional": lambda: (encoded(logistic()), X, Y),
    "imputer over text": lambda: (encoded(logistic(), {"strategy": "most_frequent"}), X, Y),
    "imputer over missing text": lambda: (encoded(logistic(), {"strategy": "most_frequent"}), GONE, Y),
    "imputer with a constant": lambda: (
        encoded(logistic(), {"strategy": "constant", "fill_value": "none"}), GONE, Y,
    ),
    "imputer with an indicator": lambda: (
        make_pipeline(SimpleImputer(add_indicator=True), StandardScaler(), logistic()), GONE[["age", "income"]], Y,
    ),
    "one-hot with a missing category": lambda: (encoded(logistic()), GONE, Y),
    "one-hot over categories": lambda: (encoded(logistic()), X.assign(job=X.job.astype("category")), Y),
    "codes beside numbers": lambda: (
        make_pipeline(make_column_transformer(
            (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["job"]), remainder="passthrough"
        ), forest()), X, Y,
    ),
    "a scaler before a forest": lambda: (scaled(forest()), WHOLE, Y),
    "a range scaler before a forest": lambda: (make_pipeline(MinMaxScaler(), forest()), WHOLE, Y),
    "a scaler before boosting": lambda: (scaled(ensemble.GradientBoostingClassifier(n_estimators=9)), WHOLE, Y),
    "bins": lambda: (make_pipeline(KBinsDiscretizer(4), logistic()), WHOLE, Y),
    "powers": lambda: (make_pipeline(PowerTransformer(), logistic()), WHOLE, Y),
    "a soft vote": lambda: (scaled(ensemble.VotingClassifier([("a", logistic()), ("b", forest())], voting="soft")),
                            WHOLE, Y),
    "a weighted vote of pipelines": lambda: (
        ensemble.VotingClassifier([("a", encoded(logistic())), ("b", encoded(forest()))], voting="soft",
                                  weights=[2, 1]), X, Y,
    ),
    "three classes": lambda: (encoded(logistic()), X, THREE),
}  # fmt: skip
OF_LIBRARIES = {
    "softmax of two classes": lambda xgb, *_: (
        xgb.XGBClassifier(n_estimators=5, objective="multi:softmax", num_class=2), FLOATS, Y,
    ),
    "early stopping": lambda xgb, *_: (early(xgb, FLOATS, Y), FLOATS, None),
    "missing=": lambda xgb, *_: (xgb.XGBClassifier(n_estimators=5, missing=-1),
                                 WHOLE.assign(age=WHOLE.age.where(WHOLE.age > 40, -1)), Y),
    "a sparse matrix's zeros": lambda xgb, *_: (
        make_pipeline(make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["job"]),
                                              sparse_threshold=1), xgb.XGBClassifier(n_estimators=5)), X, Y,
    ),
    "a scaler before XGBoost": lambda xgb, *_: (scaled(xgb.XGBClassifier(n_estimators=9)), WHOLE, Y),
    "a scaler before LightGBM": lambda _, lgb, __: (scaled(lgb.LGBMClassifier(n_estimators=9, verbose=-1)), WHOLE, Y),
    "CatBoost": lambda *libraries: (libraries[2].CatBoostClassifier(9, verbose=False, allow_writing_files=False),
                                    FLOATS, Y),
    "a scaler before CatBoost": lambda *libraries: (
        scaled(libraries[2].CatBoostClassifier(9, verbose=False, allow_writing_files=False)), WHOLE, Y,
    ),
}  # fmt: skip


def by_plain_runtime(content, X):
    """Run the file as its users do: texts as they are, a missing one empty."""
    session = onnxruntime.InferenceSession(content)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(double)": np.float64}
    feeds = {}
    for entry in session.get_inputs():
        cells = X[entry.name]
        if entry.type == "tensor(string)":
            values = np.array(["" if pd.isna(cell) else str(cell) for cell in cells], dtype=object)
        else:
            values = cells.to_numpy().astype(kinds[entry.type])
        feeds[entry.name] = values.reshape(-1, 1)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def differing(model, X):
    """Return how many rows the model's file decides otherwise than its `predict`."""
    found, said = by_plain_runtime(fairkit.to_onnx(model, X), X), model.predict(X)
    if "decision" not in found:
        return int((model.classes_[found["probabilities"].argmax(axis=1)] != said).sum())
    assert 0 < found["decision"].mean() < 1
    return int(((said == model.classes_[1]) != (found["decision"].ravel() == 1)).sum())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", DECIDE)
def test_a_file_decides_as_predict(case):
    model, rows, y = DECIDE[case]()
    assert differing(model.fit(rows, y), rows) == 0


@pytest.mark.long
@pytest.mark.parametrize("case", OF_LIBRARIES)
def test_a_file_of_boosted_trees_decides_as_predict(case):
    libraries = [pytest.importorskip(name) for name in ("xgboost", "lightgbm", "catboost")]
    model, rows, y = OF_LIBRARIES[case](*libraries)
    assert differing(model if y is None else model.fit(rows, y), rows) == 0


@pytest.mark.long
def test_the_threshold_of_catboost_is_in_the_file():
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(9, verbose=False, allow_writing_files=False).fit(FLOATS, Y)
    usual = model.predict(FLOATS)
    model.set_probability_threshold(0.3)
    assert (model.predict(FLOATS) != usual).sum() > 5
    assert differing(model, FLOATS) == 0


def test_the_tuned_threshold_is_in_the_file_for_either_class():
    model = tuned(scaled(logistic())).fit(FLOATS, np.where(SCORE > 2, "yes", "no"))
    assert abs(model.best_threshold_ - 0.5) > 0.05
    for favorable in ("yes", "no"):
        found = by_plain_runtime(fairkit.to_onnx(model, FLOATS, favorable=favorable), FLOATS)
        np.testing.assert_array_equal(found["decision"].ravel() == 1, model.predict(FLOATS) == favorable)


def test_numbers_behind_a_logarithm():
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, objective="poisson").fit(FLOATS, np.exp(SCORE))
    found = by_plain_runtime(fairkit.to_onnx(model, FLOATS), FLOATS)["score"].ravel()
    np.testing.assert_allclose(found, model.predict(FLOATS), rtol=1e-5)


def test_names_come_from_the_frame_where_the_fit_had_none():
    model = scaled(logistic()).fit(WHOLE.to_numpy(), Y)
    found = by_plain_runtime(fairkit.to_onnx(model, WHOLE), WHOLE)
    np.testing.assert_array_equal(found["decision"].ravel(), model.predict(WHOLE.to_numpy()))


REFUSED = {
    "votes without scores": (
        lambda: scaled(ensemble.VotingClassifier([("a", logistic()), ("b", forest())])), FLOATS, Y, "voting='soft'",
    ),
    "margins of three classes": (
        lambda: scaled(linear_model.SGDClassifier()), FLOATS, THREE, "SGDClassifier gives no probabilities",
    ),
    "probabilities that do not decide": (
        lambda: scaled(svm.SVC(probability=True, random_state=0)), FLOATS, THREE, "rows otherwise than predict",
    ),
    "several targets": (
        lambda: multioutput.MultiOutputClassifier(logistic()), FLOATS, TWICE, "MultiOutputClassifier that predicts 2",
    ),
    "a forest of several targets": (forest, FLOATS, TWICE, "RandomForestClassifier that predicts 2 targets"),
    "numbers of several targets": (linear_model.LinearRegression, FLOATS, TWICE, "LinearRegression that predicts 2"),
    "a function": (
        lambda: make_pipeline(StandardScaler(), FunctionTransformer(np.abs), logistic()), FLOATS, Y,
        r"the step FunctionTransformer has no form[\s\S]*Apply such a step to the table first",
    ),
    "a step inside a column transformer": (
        lambda: make_pipeline(make_column_transformer(
            (make_pipeline(SimpleImputer(), FunctionTransformer(np.log1p)), ["income"]), (OneHotEncoder(), ["job"])
        ), logistic()), X, Y, "the step FunctionTransformer over income has no form",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED)
def test_what_would_decide_otherwise_is_refused_by_name(case, tmp_path):
    make, rows, y, match = REFUSED[case]
    with pytest.raises(fairkit.ModelError, match=match):
        fairkit.to_onnx(make().fit(rows, y), rows, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


# Every foreign file of the shared list can be repaired: the rule is put on the scores as the audit reads them.
@pytest.fixture
def seen(monkeypatch):
    """Let the rows that a rule was learned from be the rows that it is measured on."""
    monkeypatch.setattr("fairkit_repair.mitigation.learned.check_leak", lambda *_: None)


@pytest.mark.long
@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.name)
def test_a_rule_on_the_scores_of_the_model_in_memory(export: Export) -> None:
    proto = export.build()
    result = fairkit.mitigate(
        "threshold-optimizer",
        export.data(),
        test=export.data(),
        model=proto.SerializeToString(),
        options=fairkit.ModelOptions(**export.options),
        constraint="demographic_parity",
        tolerance=0.0,
        threads=1,
    )
    before = result.before.find("accuracy").value
    assert before == pytest.approx((export.decision() == export.truth).mean(), abs=1e-6)
    assert result.after.find("demographic_parity_difference", "sex").value == pytest.approx(0.0, abs=2e-3)
    after = result.after.find("accuracy").value
    assert after is not None
    assert after > max(export.truth.mean(), 1 - export.truth.mean()) - 0.02  # the scores still tell something
    score = export.score()
    if score is not None:  # the rule's score is the model's own, of the favorable label
        from fairkit_onnx.file import OnnxModel

        written = OnnxModel.load(result.onnx)
        columns = {name: people()[name] for name in people() if name in {i.name for i in written.inputs}}
        assert set(columns) | {"x", "features", "X", "gender", "u"} >= {i.name for i in written.inputs}
        area = result.after.find("roc_auc").value
        from sklearn.metrics import roc_auc_score

        assert area == pytest.approx(roc_auc_score(export.truth, score), abs=1e-6)
    assert np.isfinite(result.before.find("accuracy").value)
