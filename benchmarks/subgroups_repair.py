"""`multicalibrate` beside the package mcgrad: log loss and the bound for all groups, on rows that neither saw.

    pip install mcgrad
    python benchmarks/subgroups_repair.py MODEL.onnx DATA.parquet --label COL --favorable V --sensitive A,B

Half of the rows are for learning, half for measuring. mcgrad gets the same rows, columns and base scores.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.settings import ModelOptions
from fairkit_onnx.model import OnnxModel


def measured(what, table, scores, label, favorable, sensitive, columns, seconds):
    outcome = np.array([one == favorable for one in table[label].to_pylist()])
    p = np.clip(scores, 1e-6, 1 - 1e-6)
    loss = -np.mean(np.where(outcome, np.log(p), np.log1p(-p)))
    scored = table.append_column("the score", pa.array(scores))
    data = fairkit.load_data(scored, label=label, favorable=favorable, sensitive=sensitive, name=what)
    settings = {"columns": columns, "metrics": ["calibration_residual"]}
    report = fairkit.audit(
        PredictedColumns(score="the score"), data, auditors=["subgroups"], parameters={"subgroups": settings}
    )
    found = report.find("calibration_residual_subgroup_difference")
    curve = found.evidence["share_curve"]
    bounds = ", ".join(f"{share:g}: {bound:.3f}" for share, bound in zip(curve[::2], curve[1::2], strict=True))
    listed = sum(one.metric == "subgroup_gap" for one in report.findings)
    print(
        f"{what:15} log loss {loss:.5f}; surely off {found.interval[0]:.3f}, {listed} listed; at most {bounds}; "
        f"{seconds:.1f} CPU s"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--label", required=True)
    parser.add_argument("--favorable", required=True)
    parser.add_argument("--sensitive", required=True)
    chosen = parser.parse_args()
    table = pq.read_table(chosen.data)
    favorable = type(table[chosen.label][0].as_py())(chosen.favorable)
    order = np.random.default_rng(0).permutation(table.num_rows)
    half = table.num_rows // 2
    learn, test = table.take(np.sort(order[:half])), table.take(np.sort(order[half:]))
    sensitive = chosen.sensitive.split(",")
    columns = [name for name in table.column_names if name != chosen.label]
    roles = {"label": chosen.label, "favorable": favorable, "sensitive": sensitive}

    def scores_of(model, rows):
        data = fairkit.load_data(rows, **roles, missing="group", name="rows")
        data.learn()
        scorer = OnnxModel.load(model).bind(data, ModelOptions(task="binary"))
        return np.concatenate(
            [scorer.predict(b.columns(scorer.columns)).score for b in data.batches(scorer.columns, partial=True)]
        )

    base = scores_of(chosen.model, learn), scores_of(chosen.model, test)
    about = (chosen.label, favorable, sensitive, columns)
    measured("base", test, base[1], *about, 0.0)
    started = time.process_time()
    data = fairkit.load_data(learn, **roles, missing="group", name="rows")
    result = fairkit.mitigate("multicalibrate", data, model=chosen.model)
    seconds = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fair.onnx"
        result.save(file)
        measured("multicalibrate", test, scores_of(str(file), test), *about, seconds)
    if importlib.util.find_spec("mcgrad"):
        from mcgrad import methods

        frames = [rows.to_pandas() for rows in (learn, test)]
        for frame, scores in zip(frames, base, strict=True):
            frame["base score"] = scores
            frame["outcome"] = (frame[chosen.label] == favorable).astype(int)
        text = [name for name in columns if frames[0][name].dtype.kind not in "biuf"]
        told = {
            "categorical_feature_column_names": text,
            "numerical_feature_column_names": [name for name in columns if name not in text],
        }
        started = time.process_time()
        method = methods.MCGrad()
        method.fit(df_train=frames[0], prediction_column_name="base score", label_column_name="outcome", **told)
        predicted = method.predict(df=frames[1], prediction_column_name="base score", **told)
        measured("mcgrad", test, np.asarray(predicted, dtype=float), *about, time.process_time() - started)


if __name__ == "__main__":
    main()
