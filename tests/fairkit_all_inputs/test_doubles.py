"""Pipelines in double precision: columns that float32 would make one number, and the models' own sums."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest

import fairkit

from .test_all_inputs import CHANCE, FLIP, SCORE, trusted

BASE = 1e9
"""Beside it, float32 tells only numbers apart that differ by 64."""


def table():
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"x": BASE + rng.uniform(0, 8, 600), "z": rng.normal(size=600), "male": rng.integers(0, 2, 600)}
    )
    chance = 1 / (1 + np.exp(-(rows["x"] - BASE - 4) - rows["male"] + 0.5 * rows["z"]))
    return rows.astype(float).assign(y=np.where(rng.random(600) < chance, "yes", "no"))


def written(model, path, target):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipe = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe.fit(table()[["x", "z", "male"]].to_numpy(), target)
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    proto = convert_sklearn(
        pipe,
        initial_types=[("x", DoubleTensorType([None, 3]))],
        target_opset={"": 15, "ai.onnx.ml": 3},
        options=options,
    )
    path.write_bytes(proto.SerializeToString())
    return path


def models():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression

    return {
        "logistic": LogisticRegression(),
        "forest": RandomForestClassifier(5, max_depth=4, random_state=0),
        "linear": LinearRegression(),
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", models())
def test_intervals_of_double_pipelines_hold_what_their_files_do(tmp_path, kind):
    model, rows = models()[kind], table()
    number = not hasattr(model, "predict_proba")
    target = rows["x"] - BASE + rows["male"] if number else rows["y"]
    path = written(model, tmp_path / "m.onnx", target)
    if number:
        told, rows = {"label": "target"}, rows.drop(columns="y").assign(target=target)
    else:
        told = {"label": "y", "favorable": "yes"}
    data = fairkit.load_data(rows, sensitive=["male"], features=["x", "z", "male"], **told)
    report = fairkit.audit(
        trusted(path), data, auditors=["all-inputs"], parameters={"all-inputs": {"columns": "male", "boxes": 500}}
    )
    found = {finding.metric: finding.interval for finding in report.findings}
    rng, size = np.random.default_rng(1), 4_000
    inputs = np.stack([rng.uniform(rows[c].min(), rows[c].max(), size) for c in ("x", "z", "male")], axis=1)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    said = []
    for value in (0.0, 1.0):
        inputs[:, 2] = value
        said.append(session.run(None, {"x": inputs}))
    if number:
        apart = np.abs(said[0][0] - said[1][0]).max()
        assert found[SCORE][0] <= found[SCORE][1]
        assert 0.9 * apart <= found[SCORE][1] <= 3.0 * apart + 1e-3
        assert apart <= found[SCORE][1]
        return
    assert (said[0][0] != said[1][0]).any()
    assert found[FLIP] == (1.0, 1.0)
    if CHANCE in found:
        assert np.abs(said[0][1] - said[1][1]).max() <= found[CHANCE][1] + 1e-9
