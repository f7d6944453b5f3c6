"""`fairkit.audit(estimator, X, y, sensitive_features=...)`: what scikit-learn's users hold, as it is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fairkit


@pytest.fixture(scope="module")
def people():
    """600 people: an income, a region as text, a sex that is no feature, an outcome."""
    import pandas as pd

    rng = np.random.default_rng(3)
    rows = 600
    sex = rng.choice(["female", "male"], rows)
    region = rng.choice(["north", "south", "west"], rows)
    income = rng.normal(2 + (sex == "male"), 1, rows)
    y = (income + (region == "west") + rng.normal(0, 1, rows) > 2.5).astype(int)
    return pd.DataFrame({"income": income, "region": region}), y, sex


def _pipeline():
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    encoder = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(make_column_transformer((encoder, ["region"]), remainder="passthrough"), LogisticRegression())


def _same(one, other):
    mine, theirs = ([(f.metric, f.sensitive, f.value, f.interval) for f in r.findings] for r in (one, other))
    assert mine == theirs
    assert len(mine) > 20


@pytest.mark.long
def test_the_form_of_scikit_learn_gives_the_numbers_of_a_dataset(people):
    import pandas as pd

    X, y, sex = people
    model = _pipeline().fit(X, y)
    table = X.assign(bought=y, sex=sex)
    data = fairkit.load_data(table, label="bought", favorable=1, sensitive="sex", features=["income", "region"])
    expected = fairkit.audit(model, data)
    _same(fairkit.audit(model, X, y, sensitive_features=pd.Series(sex, name="sex")), expected)
    _same(fairkit.audit(model, X, y, sensitive_features={"sex": sex}), expected)
    _same(fairkit.audit(model, X, list(y), sensitive_features=pd.DataFrame({"sex": sex})), expected)
    selected = model.predict(X)
    gap = abs(selected[sex == "male"].mean() - selected[sex == "female"].mean())
    assert expected.find("demographic_parity_difference", "sex").value == pytest.approx(gap, abs=1e-12)


def test_weights_and_the_favorable_value_stand_beside_the_matrix(people):
    X, y, sex = people
    model = _pipeline().fit(X, y)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    report = fairkit.audit(model, X, y, sensitive_features=sex, sample_weight=weights, favorable=0)
    rejected = model.predict(X) == 0
    rates = [np.average(rejected[sex == one], weights=weights[sex == one]) for one in ("female", "male")]
    found = report.find("demographic_parity_difference", "sensitive").value
    assert found == pytest.approx(abs(rates[0] - rates[1]), abs=1e-12)
    assert report.data.weights == "sample_weight"


def test_a_matrix_without_names(people):
    from sklearn.linear_model import LogisticRegression

    X, y, sex = people
    matrix = X[["income"]].to_numpy()
    model = LogisticRegression().fit(matrix, y)
    report = fairkit.audit(model, matrix, y, sensitive_features=sex)
    selected = model.predict(matrix)
    gap = abs(selected[sex == "male"].mean() - selected[sex == "female"].mean())
    assert report.find("demographic_parity_difference", "sensitive").value == pytest.approx(gap, abs=1e-12)


def test_a_feature_may_be_sensitive_too(people):
    X, y, sex = people
    model = _pipeline().fit(X, y)
    by_name = fairkit.audit(model, X, y, sensitive_features="region")
    _same(fairkit.audit(model, X, y, sensitive_features=X["region"]), by_name)
    with pytest.raises(fairkit.DataError, match="both have a column 'region', with other values"):
        fairkit.audit(model, X, y, sensitive_features={"region": sex})


def test_a_model_in_memory_gets_the_types_that_it_was_fitted_on(people):
    """LightGBM refuses text where it was fitted on categories."""
    lightgbm = pytest.importorskip("lightgbm")
    X, y, sex = people
    typed = X.astype({"region": "category", "income": "float32"})
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(typed, y)
    report = fairkit.audit(model, typed, y, sensitive_features=sex)
    selected = model.predict(typed)
    gap = abs(selected[sex == "male"].mean() - selected[sex == "female"].mean())
    assert report.find("demographic_parity_difference", "sensitive").value == pytest.approx(gap, abs=1e-12)
    table = typed.assign(y=y, sex=sex)
    data = fairkit.load_data(table, label="y", favorable=1, sensitive="sex", features=["income", "region"])
    assert fairkit.audit(model, data).find("demographic_parity_difference", "sex").value == pytest.approx(gap)


class _Own:
    """A model of somebody's own, which calls methods of the frame that it gets."""

    classes_ = np.array([0, 1])

    def __init__(self, predict):
        self.predict = predict


def test_polars_and_pyarrow_come_as_they_were(people):
    X, y, sex = people
    wanted = (X["income"] > 3).to_numpy()
    gap = abs(wanted[sex == "male"].mean() - wanted[sex == "female"].mean())
    own = _Own(lambda frame: np.asarray(frame.column("income")) > 3)
    arrow = pa.Table.from_pandas(X)
    report = fairkit.audit(own, arrow, pa.array(y), sensitive_features=pa.table({"sex": sex}))
    assert report.find("demographic_parity_difference", "sex").value == pytest.approx(gap, abs=1e-12)
    polars = pytest.importorskip("polars")
    own = _Own(lambda frame: (frame.get_column("income") > 3).to_numpy())
    frame = polars.from_pandas(X)
    report = fairkit.audit(own, frame, polars.Series("y", y), sensitive_features=polars.Series("sex", sex))
    assert report.find("demographic_parity_difference", "sex").value == pytest.approx(gap, abs=1e-12)


def test_a_comparison_in_the_form_of_scikit_learn(people):
    X, y, sex = people
    one, other = _pipeline().fit(X, y), _pipeline().set_params(logisticregression__C=1e-3).fit(X, y)
    found = fairkit.compare([one, other], X, y, sensitive_features={"sex": sex})
    table = X.assign(y=y, sex=sex)
    data = fairkit.load_data(table, label="y", favorable=1, sensitive="sex", features=list(X))
    expected = fairkit.compare([one, other], data).to_dict()
    assert found.to_dict()["models"] == expected["models"]


@pytest.mark.long
def test_everything_else_takes_the_dataset_that_is_made_of_it(people):
    X, y, sex = people
    data = fairkit.load_data(X, y, sensitive_features={"sex": sex}, within="region")
    assert data.roles.label == "y"
    assert data.features == ("income", "region")
    assert [split.name for split in data.roles.sensitive] == ["sex"]
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=0.3)
    result = fairkit.mitigate("reweigh", data, policy=[rule], learner="logistic")
    assert result.after.verdict in ("pass", "fail", "inconclusive")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give `y`"),
        ({"y": [0, 1]}, "`y` has 2 rows, X has 600"),
        ({"y": np.tile(["low", "high"], 300)}, "say which is good for the person with `favorable`"),
        ({"y": np.tile([0, 1], 300), "sensitive_features": ["a"] * 7}, "no sensitive column 'a'"),
        ({"y": np.tile([0, 1], 300), "sensitive_features": np.arange(7)}, "`sensitive_features.*has 7 rows"),
        ({"y": np.tile([0, 1], 300), "sample_weight": [1.0]}, "`sample_weight` has 1 rows"),
    ],
)
def test_what_does_not_fit_is_said(people, given, message):
    X, y, _ = people
    with pytest.raises(fairkit.FairkitError, match=message):
        fairkit.audit(_pipeline().fit(X, y), X, **given)


def test_a_role_is_told_once(people):
    X, y, sex = people
    data = fairkit.load_data(X, y, sensitive_features={"sex": sex})
    with pytest.raises(fairkit.DataError, match="`y` goes with a matrix X only"):
        fairkit.audit(_pipeline().fit(X, y), data, y)
    with pytest.raises(fairkit.DataError, match="`label` names a column and `y` gives one"):
        fairkit.load_data(X, y, label="region")


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_methods_fit_frames_of_other_libraries(people, library):
    import pandas as pd

    X, y, sex = people
    pytest.importorskip(library)
    method = fairkit.mitigator("reweigh")(learner="logistic")
    expected = method.fit(X, y, sensitive_features=pd.Series(sex, name="sex")).predict_proba(X)
    if library == "polars":
        import polars

        frame, groups = polars.from_pandas(X), polars.DataFrame({"sex": sex})
    else:
        frame, groups = pa.Table.from_pandas(X), pa.table({"sex": sex})
    found = method.fit(frame, y, sensitive_features=groups)
    assert list(found.feature_names_in_) == ["income", "region"]
    np.testing.assert_array_equal(found.predict_proba(frame), expected)
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame.select(["region", "income"]))


@pytest.mark.long
def test_sensitive_features_travel_through_a_pipeline(people):
    """scikit-learn's metadata routing hands them to the step, and to the scorer, that asked for them."""
    from sklearn import config_context
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    X, y, sex = people
    plain = {"n_estimators": 20, "constraint": ("demographic_parity",), "n_jobs": 1}
    with config_context(enable_metadata_routing=True):
        method = fairkit.mitigator("fairgbm")(**plain).set_fit_request(sensitive_features=True)
        pipeline = make_pipeline("passthrough", method).fit(X, y, sensitive_features=sex)
        direct = fairkit.mitigator("fairgbm")(**plain).fit(X, y, sensitive_features=sex)
        np.testing.assert_array_equal(pipeline.predict_proba(X), direct.predict_proba(X))
        without = fairkit.mitigator("fairgbm")(**plain).fit(X, y)
        assert (pipeline.predict_proba(X) != without.predict_proba(X)).any()
        gap = fairkit.scorer("demographic_parity_difference").set_score_request(sensitive_features=True)
        name = pipeline.steps[-1][0]
        grid = {f"{name}__tolerance": [(0.01,), (0.5,)]}
        search = GridSearchCV(pipeline, grid, scoring=gap, cv=2, error_score="raise")
        search.fit(X, y, sensitive_features=sex)
    assert search.best_params_[f"{name}__tolerance"] == (0.01,)
    assert (search.cv_results_["mean_test_score"] < 0).all()


@pytest.mark.long
def test_a_scorer_is_the_finding_with_the_sign_of_better(people):
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    X, y, sex = people
    named = X.assign(sex=sex)
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["region"]), ("passthrough", ["income"])), LogisticRegression()
    ).fit(named, y)
    report = fairkit.audit(model, named, y, sensitive_features="sex")
    for metric, sign in (("demographic_parity_difference", -1), ("demographic_parity_ratio", 1)):
        found = fairkit.scorer(metric, sensitive="sex")(model, named, y)
        assert found == sign * report.find(metric, "sex").value
    assert fairkit.scorer("accuracy", sensitive="sex")(model, named, y) == report.find("accuracy").value
    scoring = {"accuracy": "accuracy", "gap": fairkit.scorer("demographic_parity_difference", sensitive="sex")}
    assert (cross_validate(model, named, y, scoring=scoring, cv=3)["test_gap"] <= 0).all()
    with pytest.raises(fairkit.FairkitError, match="no finding 'demografic_parity"):
        fairkit.scorer("demografic_parity_difference", sensitive="sex")(model, named, y)
