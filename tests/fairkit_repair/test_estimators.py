from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Mitigator
from fairkit_fairgbm.plugin import FairGBM
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import run_columns
from fairkit_repair.sklearn.estimators import mitigator

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


def test_bad_input():
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
