"""The fair metric: encoder, learners, file, digest, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fairkit.errors import DataError, ParameterError
from fairkit_similarity.encode import Encoder
from fairkit_similarity.learn import euclidean, explore, face, given, subspace
from fairkit_similarity.metric import FairMetric


def people(n=400, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(np.array(["f", "m"], dtype=object), n)
    region = rng.choice(np.array(["n", "s", "w"], dtype=object), n)
    height = rng.normal(size=n) + 2.0 * (sex == "m")
    income = rng.normal(50, 10, n)
    income[::50] = np.nan
    return {"sex": sex, "region": region, "height": height, "income": income}


def squared(metric, columns):
    z = metric.transform(columns)
    return float(((z[0] - z[1]) ** 2).sum())


def two(columns, **changes):
    """The first row twice, the second time with changes."""
    return {
        name: np.array([values[1], changes.get(name, values[1])], dtype=values.dtype)
        for name, values in columns.items()
    }


def test_the_encoder_standardises_marks_missing_and_spells_categories():
    columns = people()
    encoder = Encoder.learn(columns)
    assert encoder.features == (
        "sex=m", "region=n", "region=s", "region=w", "height", "income", "income=(missing)",
    )  # fmt: skip
    matrix = encoder.encode(columns)
    known = ~np.isnan(columns["income"])
    assert matrix[known, 5].mean() == pytest.approx(0.0, abs=1e-12)
    assert matrix[known, 5].std() == pytest.approx(1.0, abs=1e-12)
    assert (matrix[~known, 5] == 0.0).all()
    np.testing.assert_array_equal(matrix[:, 6], ~known)
    np.testing.assert_array_equal(matrix[:, 1:4].sum(axis=1), 1.0)
    unseen = encoder.encode(two(columns, region="elsewhere"))
    np.testing.assert_array_equal(unseen[1, 1:4], 0.0)
    assert Encoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder


def test_subspace_ignores_the_sensitive_column_and_its_direction():
    columns = people()
    metric = subspace(columns, ["sex"])
    assert squared(metric, two(columns, sex="f")) == squared(metric, two(columns, sex="m")) == 0.0
    plain = ((metric.encoder.encode(two(columns, height=9.0)) @ np.eye(7))[0][4] - 9.0) ** 2
    assert squared(metric, two(columns, height=9.0)) < 0.2 * plain  # sex predicts height
    assert squared(metric, two(columns, region="w" if columns["region"][1] != "w" else "n")) > 1.5
    assert metric.matrix.shape == (7, 5)  # two directions are gone


def test_subspace_of_two_columns_takes_four_directions():
    columns = people() | {"white": (np.arange(400) % 3 == 0).astype(float)}
    assert subspace(columns, ["sex", "white"]).matrix.shape == (8, 4)


def test_only_the_named_columns_get_a_predictor():
    """BuDRO's appendix C: the columns themselves, and the predictor of one of them."""
    rng = np.random.default_rng(2)
    columns = people() | {"white": rng.choice(np.array(["n", "y"], dtype=object), 400)}
    every = subspace(columns, ["sex", "white"])
    assert subspace(columns, ["sex", "white"], directions=["white", "sex"]).sha256 == every.sha256
    one = subspace(columns, ["sex", "white"], directions=["sex"])
    none = subspace(columns, ["sex", "white"], directions=[])
    widths = [metric.matrix.shape[1] for metric in (every, one, none)]
    assert widths == [widths[0], widths[0] + 1, widths[0] + 2]
    assert one.description["directions"] == ["sex"]
    changed = two(columns, sex="f", white="n")
    assert squared(none, changed) == squared(one, changed) == 0.0
    # the direction of sex is gone from the one and there in the other: height tells the sexes apart
    taller = two(columns, height=columns["height"][1] + 1.0)
    assert squared(one, taller) < 0.9 * squared(none, taller)
    with pytest.raises(ParameterError, match="'height' is not one of the sensitive columns"):
        subspace(columns, ["sex"], directions=["height"])


def test_subspace_of_a_number_is_the_ridge_direction():
    columns = {name: values for name, values in people().items() if name != "income"}
    metric = subspace(columns, ["height"])
    assert squared(metric, two(columns, height=5.0)) == 0.0
    assert metric.matrix.shape == (5, 3)


def test_the_digest_follows_the_content_through_a_file(tmp_path):
    columns = people()
    metric = subspace(columns, ["sex"])
    metric.save(tmp_path / "metric.json")
    again = FairMetric.load(tmp_path / "metric.json")
    assert again.sha256 == metric.sha256 == subspace(columns, ["sex"]).sha256
    np.testing.assert_array_equal(again.transform(columns), metric.transform(columns))
    assert again.sha256 != subspace(columns, ["region"]).sha256
    changed = metric.to_dict()
    changed["matrix"][0][0] += 1e-15
    assert FairMetric.from_dict(changed).sha256 != metric.sha256


def test_face_ignores_what_varies_within_groups():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(50), 4)
    columns = {"a": rng.normal(size=50)[group] + 1e-3 * rng.normal(size=200), "b": rng.normal(size=200)}
    metric = face(columns, group, rank=1)
    assert squared(metric, two(columns, b=5.0)) < 1e-3
    assert squared(metric, two(columns, a=5.0)) > 1.0


def test_explore_finds_the_axis_of_the_labels():
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=400), "b": rng.normal(size=400)}
    pairs = rng.integers(0, 400, (1_500, 2))
    gap = (columns["a"][pairs[:, 0]] - columns["a"][pairs[:, 1]]) ** 2
    comparable = rng.random(1_500) < 2.0 / (1.0 + np.exp(gap))
    sigma = explore(columns, pairs, comparable)
    product = sigma.matrix @ sigma.matrix.T
    assert product[0, 0] == pytest.approx(columns["a"].var(), rel=0.25)  # features are standardised
    assert abs(product[1, 1]) < 0.1 * product[0, 0]


def test_given_directions_and_sigma_agree():
    columns = {"a": np.arange(5.0), "b": np.array([3.0, 1.0, 4.0, 1.0, 5.0])}
    ignored = given(columns, directions=[[1.0, 0.0]])
    weighed = given(columns, sigma=np.diag([0.0, 1.0]))
    np.testing.assert_allclose(ignored.matrix @ ignored.matrix.T, weighed.matrix @ weighed.matrix.T, atol=1e-15)
    assert squared(ignored, two(columns, a=100.0)) == 0.0


def test_euclidean_takes_numbers_as_they_are():
    columns = {"a": np.array([1.0, 4.0]), "b": np.array([10, 14])}
    assert squared(euclidean(columns), columns) == 25.0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda c: subspace({"sex": c["sex"]}, ["sex"]), "no direction left"),
        (lambda c: subspace(c | {"sex": np.full(400, "f", dtype=object)}, ["sex"]), "one value only"),
        (lambda c: subspace(c, ["gender"]), "no column 'gender'"),
        (lambda c: subspace(c, []), "at least one sensitive"),
        (lambda c: subspace(c, ["sex"]).transform({"sex": c["sex"]}), "'region', 'height', 'income'"),
        (lambda c: subspace(c, ["sex"]).transform(c | {"height": c["sex"]}), "holds text"),
        (lambda c: subspace(c | {"height": np.full(400, np.inf)}, ["sex"]), "400 infinite"),
        (lambda c: given(c, sigma=-np.eye(7)), "eigenvalue"),
        (lambda c: given(c, sigma=np.zeros((7, 7))), "no direction left"),
        (lambda c: given(c, directions=np.eye(7)), "no direction left"),
        (lambda c: given(c, directions=np.eye(6)), "do not fit"),
        (given, "either"),
        (euclidean, "holds text"),
        (lambda c: euclidean({"income": c["income"]}), "misses 8"),
        (lambda c: face(c, np.arange(400), rank=1), "comparable, not identical"),
        (lambda c: face(c, np.zeros(400), rank=7), "out of range"),
        (lambda c: explore(c, np.array([[0, 1]]), np.array([True])), "both kinds"),
        (lambda c: explore(c, np.array([[0, 999]]), np.array([True])), "row 999"),
    ],
)
def test_bad_input_is_told(make, told):
    with pytest.raises(DataError, match=told):
        make(people())


def test_an_identifier_is_no_category():
    names = np.array([f"person {i}" for i in range(1_001)], dtype=object)
    with pytest.raises(DataError, match="identifier"):
        Encoder.learn({"name": names})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("not json", "not JSON"),
        ('{"schema": "other"}', "schema"),
        ('{"schema": "fairkit.metric/1"}', "KeyError"),
        ('{"schema": "fairkit.metric/1", "encoder": [], "matrix": [[1.0]]}', "does not fit"),
    ],
)
def test_a_damaged_file_is_told(tmp_path, text, told):
    (tmp_path / "metric.json").write_text(text)
    with pytest.raises(DataError, match=told):
        FairMetric.load(tmp_path / "metric.json")
    with pytest.raises(DataError, match="cannot be read"):
        FairMetric.load(tmp_path / "absent.json")
