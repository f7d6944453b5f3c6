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
