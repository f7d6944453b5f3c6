"""Learners of subspace metrics, and the outputs that they compare."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fairkit.data.roles import value_text
from fairkit_similarity.encode import Design, Encoder, distinct
from fairkit_similarity.networks import (
    PENALTIES,
    centred_logits,
    logistic_directions,
    ridge_direction,
    squared_difference,
)


def table(n=600, seed=0, jobs=12):
    """Numbers with gaps, two values, many values; jobs depend on race and sex."""
    rng = np.random.default_rng(seed)
    race = rng.choice(np.array(["a", "b", "c", "d"], dtype=object), n, p=[0.6, 0.25, 0.1, 0.05])
    sex = rng.choice(np.array(["f", "m"], dtype=object), n)
    job = (rng.integers(0, jobs, n) + 2 * (race == "b") + 3 * (sex == "m")) % jobs
    income = rng.normal(size=n) + (sex == "m")
    income[::37] = np.nan
    names = np.array([f"job {number}" for number in range(jobs)] + [None], dtype=object)
    job[::53] = jobs
    return {
        "race": race,
        "sex": sex,
        "job": names[job],
        "income": income,
        "age": rng.integers(18, 80, n).astype(float) + 3.0 * (race == "c"),
    }


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def dense(columns, without):
    encoder = Encoder.learn(columns)
    matrix = encoder.encode(columns)
    return encoder, np.delete(matrix, encoder.places([without]), axis=1)


@pytest.mark.parametrize("strength", [0.1, 60.0])
@pytest.mark.parametrize("name", ["race", "sex", "job"])
def test_directions_are_those_of_scikit_learn(name, strength):
    linear = pytest.importorskip("sklearn.linear_model")
    columns = table()
    encoder, features = dense(columns, name)
    design = Design(encoder, columns, name)
    texts, code = distinct(columns[name])
    targets = np.array([code == place for place in range(len(texts))])
    found = logistic_directions(design, targets, strength)
    for target, direction in zip(targets, found, strict=True):
        model = linear.LogisticRegression(C=1 / strength, solver="newton-cholesky", tol=1e-12, max_iter=500)
        expected = model.fit(features, target).coef_[0]
        assert cosine(direction, expected[: len(direction)]) > 1 - 1e-10
        np.testing.assert_allclose(direction, expected, atol=1e-6 * np.abs(expected).max())


def test_the_gradient_vanishes_where_one_value_tells_the_class():
    """Separable classes: the penalty alone holds the optimum; no step overflows."""
    from scipy.optimize import brentq
    from scipy.special import expit

    columns = table(300)
    columns["copy"] = columns["sex"].copy()
    columns["sharp"] = np.where(columns["sex"] == "m", 400.0, -400.0) + np.arange(300.0)
    encoder, features = dense(columns, "sex")
    target = columns["sex"] == "m"
    direction = logistic_directions(Design(encoder, columns, "sex"), target[None, :], 1e-4)[0]
    sign, score = np.where(target, 1.0, -1.0), features @ direction

    def wrong(intercept):
        return expit(-sign * (score + intercept))

    intercept = brentq(lambda b: sign @ wrong(b), -1e4, 1e4, xtol=1e-13)
    slope = 1e-4 * direction - features.T @ (sign * wrong(intercept))
    assert np.abs(slope).max() < 1e-7


@pytest.mark.parametrize("n", [40, 600])
def test_ridge_is_that_of_scikit_learn(n):
    linear = pytest.importorskip("sklearn.linear_model")
    columns = table(n)
    encoder, features = dense(columns, "age")
    found = ridge_direction(Design(encoder, columns, "age"), columns["age"])
    expected = linear.RidgeCV(alphas=PENALTIES).fit(features, columns["age"]).coef_
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_a_design_is_the_encoded_matrix():
    columns = table(200, jobs=30)
    encoder, features = dense(columns, "sex")
    design = Design(encoder, columns, "sex")
    whole = np.column_stack([features, np.ones(200)])
    rng = np.random.default_rng(1)
    weights, beta = rng.random((3, 200)), rng.normal(size=design.width)
    np.testing.assert_array_equal(design.dense(), features)
    np.testing.assert_allclose(design.times(beta), whole @ beta)
    np.testing.assert_allclose(design.transposed(weights[0]), whole.T @ weights[0])
    for gram, each in zip(design.grams(weights), weights, strict=True):
        np.testing.assert_allclose(gram, (whole * each[:, None]).T @ whole, atol=1e-12)


def test_distinct_texts_keep_their_spelling():
    for values in (["b", None, "a", "b"], [1, True, 1.0, None, float("nan")], ["x", 2]):
        cells = np.array(values, dtype=object)
        texts, code = distinct(cells)
        assert [texts[place] for place in code] == [value_text(value) for value in values]


def test_learning_loads_no_scikit_learn():
    code = (
        "import sys, numpy as np\n"
        "from fairkit_similarity.learn import subspace\n"
        "rng = np.random.default_rng(0)\n"
        "subspace({'a': rng.normal(size=50), 'c': rng.normal(size=50), 'b': rng.integers(0, 2, 50) * 1.0}, ['b'])\n"
        "heavy = {'sklearn', 'scipy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# d_Y: one definition for networks with one logit, two or more, for numbers, and for files that show probabilities.
def logits(n=40, classes=3, seed=0):
    return np.random.default_rng(seed).normal(size=(2, n, classes)) * 3


def audited(here, there):
    """What the auditor's solver makes of the columns that it is given."""
    return ((centred_logits(there) - centred_logits(here)) ** 2).mean(axis=1)


@pytest.mark.parametrize("classes", [1, 2, 3, 7])
def test_training_and_audit_mean_the_same(classes):
    here, there = logits(classes=classes)
    assert squared_difference(there - here, logits=True)[0] == pytest.approx(audited(here, there))


def test_antisymmetric_logits_have_the_papers_value_a_quarter_of_the_log_odds():
    log_odds = np.array([[-4.0], [3.2595]])
    both = np.hstack([-log_odds / 2, log_odds / 2])
    papers = ((both[1] - both[0]) ** 2).mean()
    assert (log_odds[1, 0] - log_odds[0, 0]) ** 2 == pytest.approx(52.7, abs=0.01)
    assert papers == pytest.approx(13.175, abs=0.01)
    for shown in (both, log_odds):
        assert audited(shown[:1], shown[1:])[0] == pytest.approx(papers)


def test_logits_of_mean_0_have_the_papers_value_and_a_shift_changes_nothing():
    here, there = (one - one.mean(axis=1, keepdims=True) for one in logits())
    papers = ((there - here) ** 2).mean(axis=1)
    shift = np.random.default_rng(1).normal(size=(40, 1)) * 10
    assert audited(here + shift, there) == pytest.approx(papers)
    assert squared_difference(there - here - shift, logits=True)[0] == pytest.approx(papers)


def test_numbers_are_compared_as_they_are():
    gap = np.array([[3.0], [-1.0]])
    value, slope = squared_difference(gap, logits=False)
    assert value.tolist() == [9.0, 1.0]
    assert slope.tolist() == [[6.0], [-2.0]]


@pytest.mark.parametrize(("classes", "of_logits"), [(1, True), (2, True), (3, True), (3, False), (1, False)])
def test_slopes_are_those_of_finite_differences(classes, of_logits):
    gap, up = logits(n=5, classes=classes)
    step = 1e-6
    ends = [squared_difference(gap + sign * step * up, logits=of_logits)[0] for sign in (1, -1)]
    slope = squared_difference(gap, logits=of_logits)[1]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx((slope * up).sum(axis=1), rel=1e-5, abs=1e-7)


def test_tensors_and_arrays_agree():
    torch = pytest.importorskip("torch")
    for classes in (1, 2, 3):
        here, there = logits(classes=classes)
        assert centred_logits(torch.from_numpy(here)).numpy() == pytest.approx(centred_logits(here))
        for one, other in zip(
            squared_difference(torch.from_numpy(there - here), logits=True),
            squared_difference(there - here, logits=True),
            strict=True,
        ):
            assert one.numpy() == pytest.approx(other)
