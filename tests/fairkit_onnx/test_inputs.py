"""What a model is asked for: columns and their order, lists, one column alone, and rows in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest
from tests.exports import NUMBERS, network, people

import fairkit
from fairkit.fitted import FittedModel
from fairkit.mitigators import Run, Table
from fairkit_onnx import file as batches
from fairkit_onnx.file import BUDGET, FIRST, MOST, Batches, open_session
from fairkit_onnx.write.encode import fit_encoder
from fairkit_onnx.write.export import export, run_columns
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_repair.learners import fit_learner


def audited(columns: list[str], **roles: Any) -> fairkit.Report:
    table = {name: people()[name] for name in [*columns, "sex", "default"]}
    return fairkit.audit(network(), fairkit.load_data(table, label="default", favorable=0, sensitive=["sex"], **roles))


def test_all_columns_are_told_before_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fairkit.DataError, match="takes 4 columns but gets 5"):
        audited([*NUMBERS])  # sex is a column too
    report = audited([*NUMBERS], drop=["sex"])
    (told,) = [text for text in report.warnings if "matrix without names" in text]
    assert "these 4 columns in this order: x0, x1, x2, x3. In another order" in told
    assert "looks like another order" not in told
    assert not any("matrix" in text for text in audited([*NUMBERS], features=list(NUMBERS)).warnings)


def test_an_order_that_cannot_be_right_is_called_so() -> None:
    report = audited(["x2", "x3", "x1", "x0"], drop=["sex"])
    (told,) = [text for text in report.warnings if "matrix without names" in text]
    area = report.find("roc_auc").value
    assert f"the model's ROC-AUC on the first rows is {area:.3f}, and the column 'x0' alone has 0." in told


# A model of one column: its input is that column, also where the data name more features.
def _model(column: str) -> bytes:
    graph = GraphBuilder()
    graph.output("score", graph.node("Sigmoid", [graph.input(column, "float")]))
    return graph.build().SerializeToString()


def _audit(model: bytes, **roles):
    columns = {
        "a": np.array([-3.0, -1.0, 1.0, 3.0] * 5),
        "b": np.zeros(20),
        "sex": ["f", "m"] * 10,
        "good": ["no", "no", "yes", "yes"] * 5,
    }
    data = fairkit.load_data(columns, label="good", favorable="yes", sensitive="sex", **roles)
    return fairkit.audit(model, data).find("accuracy").value


def test_a_lone_input_is_the_column_of_its_name_among_named_features():
    assert _audit(_model("a"), features=["b", "a"]) == 1.0


def test_a_lone_input_of_another_name_is_the_one_feature_that_was_named():
    assert _audit(_model("X"), features=["a"]) == 1.0
    assert _audit(_model("b"), features=["a"]) == 1.0


# A model of a list column has one input for the list, and says what its columns would.
def listed(n=400, missing=False):
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
    table, emb = listed()
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
    _, emb = listed()
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


# Batches for scoring: the same outputs whatever their size, and a size that follows what a model costs.
def scored(rows, cost, monkeypatch, times=1):
    """Score numbered rows with a model that costs so many MiB a row; return the sizes asked."""
    peak = [100.0]
    sizes = []

    def run(feeds):
        sizes.append(len(feeds["x"]))
        peak[0] = max(peak[0], 100.0 + cost * len(feeds["x"]))
        return [feeds["x"] * 2]

    monkeypatch.setattr(batches, "peak_memory", lambda: peak[0])
    pace = Batches()
    for _ in range(times):
        x = np.arange(rows)
        parts = pace.each({"x": x}, run)
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), x * 2)
    return sizes, peak[0] - 100.0, pace


def test_a_cheap_model_soon_gets_large_batches(monkeypatch):
    sizes, _, pace = scored(400_000, 0.0, monkeypatch)
    assert sizes[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert max(sizes[:-1]) == pace.rows == MOST
    assert len(sizes) < 16


@pytest.mark.parametrize("cost", [0.01, 0.05, 0.2])
def test_a_costly_model_stays_below_twice_the_budget(cost, monkeypatch):
    sizes, grown, pace = scored(200_000, cost, monkeypatch)
    assert grown < 2 * BUDGET
    assert sizes[-2] == pace.rows
    assert BUDGET / 4 < pace.rows * cost < 2 * BUDGET


def test_the_size_is_kept_for_the_next_rows(monkeypatch):
    sizes, _, pace = scored(100_000, 0.05, monkeypatch, times=2)
    assert set(sizes[-10:-1]) == {pace.rows}
    assert sizes.count(FIRST) == 1


def test_no_batch_of_a_few_rows_at_the_end(monkeypatch):
    sizes, _, _ = scored(FIRST + 3, 0.0, monkeypatch)
    assert sizes == [FIRST + 3]


@pytest.mark.long
def test_nearest_neighbours_score_in_little_memory():
    """As much as the model holds for 50,000 rows at once would be 400 MB; it is scored in a fraction."""
    import resource

    from skl2onnx import to_onnx
    from sklearn.neighbors import KNeighborsClassifier

    from fairkit_onnx.file import OnnxModel

    rng = np.random.default_rng(0)
    inside = rng.normal(size=(2_000, 4)).astype(np.float32)
    fitted = KNeighborsClassifier(3).fit(inside, inside[:, 0] > 0)
    model = OnnxModel.load(to_onnx(fitted, inside[:1], options={"zipmap": False}))
    rows = rng.normal(size=(30_000, 4)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scores = model.run({model.inputs[0].name: rows})["probabilities"]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 3 * BUDGET
    np.testing.assert_allclose(scores[-50:], fitted.predict_proba(rows[-50:]), atol=1e-6)
