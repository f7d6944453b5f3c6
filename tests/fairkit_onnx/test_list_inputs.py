"""A model of a list column has one input for the list, and says what its columns would."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest

import fairkit
from fairkit.fitted import FittedModel
from fairkit.mitigators import Run, Table
from fairkit_onnx.file import open_session
from fairkit_onnx.write.encode import fit_encoder
from fairkit_onnx.write.export import export, run_columns
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_repair.learners import fit_learner


def people(n=400, missing=False):
    rng = np.random.default_rng(0)
    emb = rng.normal(2, 3, size=(n, 5)).astype(np.float32)
    age = rng.normal(40, 9, n)
    outcome = np.where(emb[:, 1] + 0.05 * age + rng.normal(size=n) > 4, "yes", "no")
    if missing:
        emb[::7, 2] = np.nan
    lists = pa.FixedSizeListArray.from_arrays(pa.array(emb.ravel()), 5)
    return pa.table({"age": age, "emb": lists, "sex": rng.choice(["f", "m"], n), "y": outcome}), emb


def inputs(proto):
    return {one.name: [d.dim_value or d.dim_param for d in one.type.tensor_type.shape.dim] for one in proto.graph.input}


@pytest.mark.long
@pytest.mark.parametrize("learner", ["lightgbm", "logistic", "mlp"])
def test_the_file_takes_the_matrix(learner, tmp_path):
    table, emb = people()
    data = fairkit.load_data(table, label="y", favorable="yes", sensitive="sex", drop=["sex"])
    rows = Table.from_dataset(data)
    model = fit_learner(learner, rows, Run(seed=0, threads=1))
    assert isinstance(model, FittedModel)
    proto = export(model, rows)
    assert inputs(proto) == {"age": ["rows", 1], "emb": ["rows", 5]}
    onnx.save(proto, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    fed = {"age": table["age"].to_numpy().astype(np.float32).reshape(-1, 1), "emb": emb}
    score = session.run(["score"], fed)[0].ravel()
    assert np.allclose(score, model.predict(rows.columns).score, atol=1e-5)
    report = fairkit.audit(tmp_path / "m.onnx", data)
    decided = (score >= 0.5) == (rows.target == 1)
    assert report.find("accuracy").value == pytest.approx(decided.mean())


@pytest.mark.parametrize("standardise", [False, True])
def test_the_matrix_is_encoded_as_its_columns(standardise):
    _, emb = people()
    columns = {f"emb[{place}]": emb[:, place] for place in range(5)}
    encoder = fit_encoder(columns, list(columns), text="onehot", standardise=standardise, fill=True)
    emb[3, 1] = np.nan  # unseen in training: filled
    graph = GraphBuilder()
    graph.output("matrix", encoder.add_to(graph), width=5)
    got = run_columns(open_session(graph.build()), columns)["matrix"]
    assert np.array_equal(got, encoder.transform(columns))


@pytest.mark.parametrize(
    ("names", "missing", "expected"),
    [
        (["a", "e[0]", "e[1]", "b"], False, {"a": 1, "e": 2, "b": 1}),
        (["e[1]", "e[0]"], False, {"e[1]": 1, "e[0]": 1}),
        (["e[0]", "b", "e[1]"], False, {"e[0]": 1, "b": 1, "e[1]": 1}),
        (["e[0]", "e[1]"], True, {"e[0]": 1, "e[1]": 1}),
        (["e[0]", "b"], False, {"e[0]": 1, "b": 1}),
        (["u[0]", "u[1]"], False, {"u[0]": 1, "u[1]": 1}),  # the input of a draw
        (["score[0]", "score[1]"], False, {"score[0]": 1, "score[1]": 1}),
        (["e", "e[0]", "e[1]"], False, {"e": 1, "e[0]": 1, "e[1]": 1}),
    ],
)
def test_only_whole_lists_in_their_order_are_one_input(names, missing, expected):
    rng = np.random.default_rng(1)
    columns = {name: rng.normal(size=20) for name in names}
    if missing:
        columns[names[0]][3] = np.nan
    encoder = fit_encoder(columns, names, text="onehot", fill=True)
    graph = GraphBuilder()
    graph.output("matrix", encoder.add_to(graph), width=None)
    proto = graph.build()
    assert {name: shape[1] for name, shape in inputs(proto).items()} == expected
    got = run_columns(open_session(proto), columns)["matrix"]
    assert np.array_equal(got, encoder.transform(columns))
