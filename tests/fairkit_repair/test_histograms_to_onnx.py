"""HistGradientBoosting with missing values and categories as a file: the same branches as in memory."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fairkit_repair.test_pipelines_to_onnx import run_file

import fairkit

ROWS = 1_500


@pytest.fixture(scope="module")
def people():
    import pandas as pd

    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "education-num": rng.integers(1, 17, ROWS).astype(float),
            "region": rng.choice(["north", "south", "west", "Ünna"], ROWS),
            "branch": rng.choice([-3, 10, 70], ROWS).astype(float),
            "income": rng.normal(2, 1, ROWS),
        }
    )
    score = frame["income"] + (frame["region"] == "west") + (frame["branch"] == 10) + rng.normal(0, 1, ROWS)
    frame.loc[::7, "income"] = np.nan
    frame.loc[::5, "region"] = None
    frame.loc[::11, "branch"] = np.nan
    return frame, (score > 2.5).astype(int).to_numpy(), score.to_numpy()


def _rows_that_training_did_not_see(frame):
    """Other categories, missing values everywhere, and numbers between those of training."""
    rows = frame.head(400).copy()
    rows.loc[::3, "region"] = "elsewhere"
    rows.loc[::4, "branch"] = 11.0
    rows.loc[1::5, "branch"] = np.nan
    rows["income"] = np.nextafter(rows["income"], np.inf)
    return rows


CATEGORICAL = [False, True, True, False]


def test_categories_missing_values_and_doubles(people):
    from sklearn.ensemble import HistGradientBoostingClassifier

    frame, y, score = people
    model = HistGradientBoostingClassifier(max_iter=30, categorical_features=CATEGORICAL).fit(frame, y)
    content = fairkit.to_onnx(model, frame)
    for rows in (frame, _rows_that_training_did_not_see(frame)):
        np.testing.assert_allclose(run_file(content, rows)["score"].ravel(), model.predict_proba(rows)[:, 1], atol=1e-6)
    three = HistGradientBoostingClassifier(max_iter=10, categorical_features=CATEGORICAL)
    three.fit(frame, np.digitize(score, [2, 3]))
    found = run_file(fairkit.to_onnx(three, frame), _rows_that_training_did_not_see(frame))["probabilities"]
    np.testing.assert_allclose(found, three.predict_proba(_rows_that_training_did_not_see(frame)), atol=1e-6)


def test_a_number_beside_a_threshold_is_on_its_side():
    """Doubles that are one number of single precision stay apart."""
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingClassifier

    x = np.repeat([0.3, 0.3 + 1e-9], 40)[:, None]
    y = np.repeat([0, 1], 40)
    model = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5).fit(x, y)
    assert (model.predict(x) == y).all()
    found = run_file(fairkit.to_onnx(model, x), pd.DataFrame(x, columns=["x0"]))
    np.testing.assert_array_equal(found["decision"].ravel(), y)


@pytest.mark.parametrize("loss", ["squared_error", "poisson", "gamma"])
def test_numbers_and_their_link(people, loss):
    from sklearn.ensemble import HistGradientBoostingRegressor

    frame, _, score = people
    target = np.abs(score) + 0.1
    model = HistGradientBoostingRegressor(loss=loss, max_iter=10, categorical_features=CATEGORICAL)
    model.fit(frame, target)
    np.testing.assert_allclose(
        run_file(fairkit.to_onnx(model, frame), frame)["score"].ravel(), model.predict(frame), rtol=1e-5
    )


def test_codes_from_an_encoder(people):
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    frame, y, _ = people
    encoder = make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan), ["region"]), remainder="passthrough"
    )
    last = HistGradientBoostingClassifier(max_iter=20, categorical_features=[0])
    known = frame.fillna({"region": "nowhere"})
    model = make_pipeline(encoder, last).fit(known, y)
    content = fairkit.to_onnx(model, known)
    assert fairkit.to_onnx(model, known) == content
    np.testing.assert_allclose(run_file(content, known)["score"].ravel(), model.predict_proba(known)[:, 1], atol=1e-6)


def test_a_category_that_single_precision_does_not_tell_is_refused(people):
    from sklearn.ensemble import HistGradientBoostingClassifier

    frame, y, _ = people
    wide = frame.assign(branch=np.where(frame["branch"] == 10, 2.0**24 + 1, 0.0))
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features=CATEGORICAL).fit(wide, y)
    with pytest.raises(fairkit.ModelError, match="is no number of single precision"):
        fairkit.to_onnx(model, wide)


@pytest.mark.long
def test_every_input_is_searched(people, tmp_path):
    """What reads trees reads these as well."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    frame, y, _ = people
    table = frame.assign(sex=np.where(np.arange(ROWS) % 2, "f", "m"))
    flags = [*CATEGORICAL, True]
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features=flags).fit(table, y)
    fairkit.to_onnx(model, table, tmp_path / "model.onnx")
    data = fairkit.load_data(table.assign(y=y), label="y", favorable=1, sensitive="sex")
    report = fairkit.audit(
        tmp_path / "model.onnx", data, auditors=["group", "all-inputs"], parameters={"all-inputs": {"people": 20}}
    )
    assert report.find("accuracy").value == pytest.approx((model.predict(table) == y).mean())
    assert report.find("all_inputs_flip").value is not None
