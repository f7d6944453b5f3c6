"""Post-processing in scikit-learn's form: around a classifier in memory and around a file."""

from __future__ import annotations

import pickle

import numpy as np
import onnxruntime as ort
import pytest

from fairkit.errors import DataError, ParameterError
from fairkit_reject_option import RejectOption
from fairkit_repair.sklearn.post import post_estimator
from fairkit_rto.mitigator import RandomizedThresholds
from fairkit_shift_inference import ShiftInference
from fairkit_threshold_optimizer import ThresholdOptimizer

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


def test_what_is_refused(rows):
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
