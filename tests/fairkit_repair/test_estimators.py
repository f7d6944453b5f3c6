"""Methods as scikit-learn estimators: before, in and after training."""

from __future__ import annotations

import pickle

import numpy as np
import onnxruntime as ort
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import fairkit
from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Mitigator
from fairkit_fairgbm.plugin import FairGBM
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import run_columns
from fairkit_reject_option import RejectOption
from fairkit_repair.sklearn.estimators import mitigator
from fairkit_repair.sklearn.post import post_estimator
from fairkit_rto.mitigator import RandomizedThresholds
from fairkit_shift_inference import ShiftInference
from fairkit_threshold_optimizer import ThresholdOptimizer

Fair = mitigator(FairGBM)


def people(n=600, seed=0):
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "job": rng.choice(["a", "b", None], n),
            "sex": rng.choice(["f", "m"], n),
            "level": pd.Categorical(rng.choice(["low", "high"], n)),
        }
    )
    y = np.where(frame["x"] - (frame["sex"] == "f") + rng.logistic(size=n) > 0, "yes", "no")
    return frame, y


def small(**values):
    return Fair(n_estimators=10, n_jobs=1, **values)


@pytest.mark.long
@parametrize_with_checks([Fair(n_estimators=5, n_jobs=1)])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Estimator's parameters changed:FutureWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_frames_with_text_and_groups():
    X, y = people()
    fitted = small().fit(X, y, sensitive_features=X["sex"])
    proba = fitted.predict_proba(X)
    assert proba.shape == (600, 2)
    np.testing.assert_allclose(proba.sum(1), 1)
    assert set(fitted.predict(X)) == {"no", "yes"}
    assert (fitted.predict(X) == y).mean() > 0.6
    assert fitted.model_.details["groups"] == ["f", "m"]
    crossed = small().fit(X, y, sensitive_features=X[["sex", "level"]])
    assert len(crossed.model_.details["groups"]) == 4


def test_the_file_gives_the_same(tmp_path):
    X, y = people()
    fitted = small().fit(X, y, sensitive_features=X["sex"].to_numpy())
    content = fitted.to_onnx(tmp_path / "fair.onnx")
    assert (tmp_path / "fair.onnx").read_bytes() == content
    columns = {name: X[name].astype(object).where(X[name].notna(), None).to_numpy() for name in X}
    columns["x"] = X["x"].to_numpy()
    found = run_columns(open_session(content, threads=1), columns)
    np.testing.assert_allclose(found["score"].ravel(), fitted.predict_proba(X)[:, 1], atol=1e-5)


def test_clone_pipeline_grid_search_and_pickle():
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = people()
    matrix = X[["x"]].assign(sex=X["sex"] == "f").to_numpy(dtype=float)
    estimator = small(constraint=("predictive_equality",))
    assert clone(estimator).get_params() == estimator.get_params()
    pipeline = make_pipeline(StandardScaler(), small())
    name = type(pipeline[-1]).__name__.lower()
    pipeline.fit(matrix, y, **{f"{name}__sensitive_features": X["sex"]})
    search = GridSearchCV(small(min_group=5), {"num_leaves": [3, 7]}, cv=2).fit(matrix, y, sensitive_features=X["sex"])
    assert search.best_params_["num_leaves"] in (3, 7)
    restored = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(restored.predict(matrix), pipeline.predict(matrix))


def test_without_groups_it_is_plain_boosting():
    X, y = people()
    one = small(constraint=()).fit(X, y)
    two = small(constraint=()).fit(X, y, sensitive_features=X["sex"])
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_randomized_models_tell_their_chance():
    X, y = people()
    fitted = small(iterate="all", follow="train").fit(X, y, sensitive_features=X["sex"])
    chance = fitted.decision_probability(X)
    assert ((chance > 0) & (chance < 1)).any()
    np.testing.assert_array_equal(fitted.predict(X) == "yes", chance >= 0.5)


def test_bad_input_is_refused():
    X, y = people()
    with pytest.raises(DataError, match="sensitive_features has 3 rows, X has 600"):
        small().fit(X, y, sensitive_features=["f", "m", "f"])
    with pytest.raises(ParameterError, match="n_estimators must be at least 1"):
        Fair(n_estimators=0).fit(X, y)
    with pytest.raises(TypeError, match="no parameter 'trees'"):
        Fair(trees=3)


def test_post_processing_has_no_estimator():
    class Post(Mitigator):
        """Repairs."""

        name = "post"
        stage = "post"

        def fit(self, table, run, *, validation=None, model=None):
            raise NotImplementedError

    with pytest.raises(ParameterError, match=r"repairs a model; use fairkit.mitigate"):
        mitigator(Post)


# The pre-processing methods as scikit-learn estimators: sensitive values come beside the features.
@pytest.fixture(scope="module")
def applicants():
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(600, 3)), rng.integers(0, 2, 600)
    X[:, 2] = s + 0.1 * X[:, 2]
    return X, (X[:, 0] + s + 0.5 * rng.normal(size=600) > 0.5).astype(int), s


@pytest.mark.parametrize("name", ["reweigh", "massaging", "project"])
def test_methods_that_need_no_group_at_prediction_bring_rates_together(name, applicants):
    X, y, s = applicants
    Fair = fairkit.mitigator(name)

    def gap(fitted):
        rate = fitted.predict(X)
        return abs(rate[s == 1].mean() - rate[s == 0].mean())

    fair = Fair(learner="logistic").fit(X, y, sensitive_features=s)
    plain = Fair(learner="logistic").fit(X, y)
    assert gap(fair) < 0.75 * gap(plain)


@pytest.mark.parametrize("name", ["correlation-remover", "disparate-impact-remover"])
def test_methods_that_read_the_group_at_prediction_say_so(name, applicants):
    X, y, s = applicants
    with pytest.raises(fairkit.DataError, match=r"name (the sensitive )?columns of the table"):
        fairkit.mitigator(name)(learner="logistic").fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("name", ["reweigh", "correlation-remover"])
def test_a_method_amid_a_pipeline_says_what_to_write(name, applicants):
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import FeatureUnion, Pipeline

    X, y, _ = applicants
    Fair = fairkit.mitigator(name)
    advice = rf"'{name}' trains a model of its own.* Make it the last step.*model__sensitive_features"
    with pytest.raises(TypeError, match=advice):
        Pipeline([("repair", Fair()), ("model", LogisticRegression())]).fit(X, y)
    with pytest.raises(TypeError, match=advice):
        FeatureUnion([("repair", Fair())]).fit(X, y)
    with pytest.raises(TypeError, match=advice):
        ColumnTransformer([("repair", Fair(), [0, 1])]).fit(X, y)
    assert not hasattr(Fair(), "transform")  # nothing else takes it for a transformer


def test_what_the_advice_says_works(applicants):
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    X, y, s = applicants
    model = fairkit.mitigator("reweigh")(learner="logistic")
    whole = Pipeline([("scale", StandardScaler()), ("model", model)])
    assert not hasattr(whole, "transform")
    decided = whole.fit(X, y, model__sensitive_features=s).predict(X)
    plain = Pipeline([("scale", StandardScaler()), ("model", model)]).fit(X, y).predict(X)
    gaps = [abs(found[s == 1].mean() - found[s == 0].mean()) for found in (decided, plain)]
    assert gaps[0] < 0.75 * gaps[1]


# Post-processing in scikit-learn's form: around a classifier in memory and around a file.
METHODS = (RandomizedThresholds, ThresholdOptimizer, RejectOption, ShiftInference)


@pytest.fixture(scope="module")
def rows():
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 2)).astype(np.float32)
    X[:, 0] += 0.7 * sex
    y = (X[:, 0] + rng.normal(size=600) > 0.3).astype(int)
    return X, y, pd.Series(np.array(["F", "M"])[sex], name="sex"), LogisticRegression().fit(X, y)


def to_file(model, X):
    from skl2onnx import to_onnx

    return to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString()


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_a_classifier_and_its_file_get_the_same_rule(rows, method):
    X, y, sex, model = rows
    Estimator = post_estimator(method)
    own = Estimator(model=model).fit(X, y, sensitive_features=sex)
    file = Estimator(model=to_file(model, X)).fit(X, y, sensitive_features=sex)
    chances = [one.decision_probability(X, sensitive_features=sex) for one in (own, file)]
    # a score next to a step may fall on the other side in float32
    assert (np.abs(chances[0] - chances[1]) > 1e-3).mean() <= 0.005
    again = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(again.decision_probability(X, sensitive_features=sex), chances[0])
    session = ort.InferenceSession(file.to_onnx(), providers=["CPUExecutionProvider"])
    feeds = {"X": X, "sex": sex.to_numpy(object).reshape(-1, 1), "u": np.zeros((600, 1), np.float32)}
    feeds = {entry.name: feeds[entry.name] for entry in session.get_inputs()}  # a rule without chance has no u
    np.testing.assert_allclose(session.run(["decision_probability"], feeds)[0][:, 0], chances[1], atol=1e-6)
    with pytest.raises(ParameterError, match="export the classifier to ONNX"):
        own.to_onnx()


def test_parity_of_the_estimator(rows):
    X, y, sex, model = rows
    fair = post_estimator(RandomizedThresholds)(model=model, gamma=0.1, rho=0.4)
    fair.fit(X, y, sensitive_features=sex)
    h = fair.decision_probability(X, sensitive_features=sex)
    assert [h[sex == value].mean() for value in "FM"] == pytest.approx([0.4, 0.4], abs=1e-9)
    np.testing.assert_allclose(fair.predict_proba(X, sensitive_features=sex), np.column_stack([1 - h, h]))
    u = np.random.default_rng(1).random(600)
    np.testing.assert_array_equal(fair.predict(X, sensitive_features=sex, u=u), (u < h).astype(int))
    np.testing.assert_array_equal(fair.predict(X, sensitive_features=sex), fair.predict(X, sensitive_features=sex))
    other = fair.decision_probability(X[:3], sensitive_features=["X", None, "F"])
    assert np.isfinite(other).all()
    assert fair.details_["violation_on_fit_rows"] <= 1e-9


def test_several_columns_are_crossed_and_parameters_are_scikit_learns(rows):
    import pandas as pd
    from sklearn.base import clone

    X, y, sex, model = rows
    table = pd.DataFrame({"sex": sex, "code": np.arange(600) % 3})
    fair = post_estimator(ThresholdOptimizer)(model=model, constraint="equal_opportunity")
    assert clone(fair).get_params()["constraint"] == "equal_opportunity"
    fair.set_params(min_group=10).fit(X, y, sensitive_features=table)
    assert fair.rule_.keys.names[:2] == ("F & 0", "F & 1")
    h = fair.decision_probability(X, sensitive_features=table)
    rates = [h[(y == 1) & (sex == s) & (table.code == c)].mean() for s in "FM" for c in range(3)]
    assert np.ptp(rates) <= 1e-6


def test_bad_input_of_post_processing_is_refused(rows):
    X, y, sex, model = rows
    Estimator = post_estimator(RandomizedThresholds)
    with pytest.raises(ParameterError, match="give model="):
        Estimator().fit(X, y, sensitive_features=sex)
    with pytest.raises(ParameterError, match="rho must be 0 to 1"):
        Estimator(model=model, rho=2).fit(X, y, sensitive_features=sex)
    with pytest.raises(TypeError, match="no parameter 'gama'"):
        Estimator(gama=1)
    with pytest.raises(DataError, match="599 rows, X has 600"):
        Estimator(model=model).fit(X, y, sensitive_features=sex[:599])
    with pytest.raises(DataError, match="y has 3 values"):
        Estimator(model=model).fit(X, np.arange(600) % 3, sensitive_features=sex)
    fair = Estimator(model=model, gamma=0.1, rho=0.4).fit(X, y, sensitive_features=sex)
    with pytest.raises(DataError, match="has 2 columns, but 1"):
        fair.predict(X, sensitive_features=np.stack([sex, sex], axis=1))


def test_the_name_gives_the_class():
    from fairkit_repair.sklearn.estimators import mitigator

    Estimator = mitigator(RandomizedThresholds)
    assert Estimator(gamma=0.2).get_params()["gamma"] == 0.2
    assert "model" in Estimator().get_params()
