"""The pre-processing methods as scikit-learn estimators: sensitive values come beside the features."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(600, 3)), rng.integers(0, 2, 600)
    X[:, 2] = s + 0.1 * X[:, 2]
    return X, (X[:, 0] + s + 0.5 * rng.normal(size=600) > 0.5).astype(int), s


@pytest.mark.parametrize("name", ["reweigh", "massaging", "project"])
def test_methods_that_need_no_group_at_prediction_bring_rates_together(name, people):
    X, y, s = people
    Fair = fairkit.mitigator(name)

    def gap(fitted):
        rate = fitted.predict(X)
        return abs(rate[s == 1].mean() - rate[s == 0].mean())

    fair = Fair(learner="logistic").fit(X, y, sensitive_features=s)
    plain = Fair(learner="logistic").fit(X, y)
    assert gap(fair) < 0.75 * gap(plain)


@pytest.mark.parametrize("name", ["correlation-remover", "disparate-impact-remover"])
def test_methods_that_read_the_group_at_prediction_say_so(name, people):
    X, y, s = people
    with pytest.raises(fairkit.DataError, match=r"name (the sensitive )?columns of the table"):
        fairkit.mitigator(name)(learner="logistic").fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("name", ["reweigh", "correlation-remover"])
def test_a_method_amid_a_pipeline_says_what_to_write(name, people):
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import FeatureUnion, Pipeline

    X, y, _ = people
    Fair = fairkit.mitigator(name)
    advice = rf"'{name}' trains a model of its own.* Make it the last step.*model__sensitive_features"
    with pytest.raises(TypeError, match=advice):
        Pipeline([("repair", Fair()), ("model", LogisticRegression())]).fit(X, y)
    with pytest.raises(TypeError, match=advice):
        FeatureUnion([("repair", Fair())]).fit(X, y)
    with pytest.raises(TypeError, match=advice):
        ColumnTransformer([("repair", Fair(), [0, 1])]).fit(X, y)
    assert not hasattr(Fair(), "transform")  # nothing else takes it for a transformer


def test_what_the_advice_says_works(people):
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    X, y, s = people
    model = fairkit.mitigator("reweigh")(learner="logistic")
    whole = Pipeline([("scale", StandardScaler()), ("model", model)])
    assert not hasattr(whole, "transform")
    decided = whole.fit(X, y, model__sensitive_features=s).predict(X)
    plain = Pipeline([("scale", StandardScaler()), ("model", model)]).fit(X, y).predict(X)
    gaps = [abs(found[s == 1].mean() - found[s == 0].mean()) for found in (decided, plain)]
    assert gaps[0] < 0.75 * gaps[1]
