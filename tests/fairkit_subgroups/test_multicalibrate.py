"""Corrections of groups: they remove a planted fault on rows not seen, and leave a model that is right alone."""

from __future__ import annotations

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import TensorProto, helper

import fairkit
from fairkit_onnx.file import OnnxModel


def base_bytes():
    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["score"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model.SerializeToString()


def people(rows, harm, seed=0, weights=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows).astype(np.float32)
    age = rng.integers(18, 80, rows).astype(float)
    age[rng.random(rows) < 0.05] = np.nan
    job = rng.choice(np.array(["a", "b", "rare", None], dtype=object), rows, p=[0.6, 0.34, 0.005, 0.055])
    planted = (age >= 40) & (job == "b")
    chance = np.clip(1 / (1 + np.exp(-x)) + harm * planted, 0, 1)
    columns = {"x": x, "age": age, "job": job, "outcome": (rng.random(rows) < chance).astype(int)}
    if weights:
        columns["w"] = rng.uniform(0.5, 2, rows)
    return fairkit.load_data(
        pa.table({name: pa.array(one, from_pandas=True) for name, one in columns.items()}),
        label="outcome",
        favorable=1,
        sensitive=["job", "age"],
        features=["x"],
        weights="w" if weights else None,
        missing="group",
        name="people",
    )


@pytest.mark.long
@pytest.mark.parametrize("weights", [False, True])
def test_a_planted_fault_is_corrected_on_rows_that_were_not_seen(weights, tmp_path):
    train, test = people(8000, 0.3, 1, weights), people(8000, 0.3, 2, weights)
    result = fairkit.mitigate(
        "multicalibrate", train, test=test, model=base_bytes(), columns=["age", "job"], share=0.02
    )
    before, after = (one.find("subgroup_difference", auditor="subgroups") for one in (result.before, result.after))
    assert before.interval[0] > 0.1
    assert after.interval[0] == 0
    assert after.interval[1] < before.interval[1]
    first = result.details["corrections"][0]
    assert {one["column"] for one in first["conditions"]} <= {"age", "job", "the model's score"}
    assert first["amount"] > 0
    saved = tmp_path / "fair.onnx"
    result.save(saved)
    again = fairkit.audit(OnnxModel.load(str(saved)), test, auditors=["group"])
    assert again.find("accuracy").value == pytest.approx(result.after.find("accuracy").value)
    assert {node.op_type for node in onnx.load(str(saved)).graph.node} >= {"TreeEnsembleRegressor", "Sigmoid"}


@pytest.mark.long
def test_a_model_that_is_right_stays_as_it_is():
    for seed in range(3):
        train, test = people(4000, 0.0, seed), people(1000, 0.0, seed + 10)
        result = fairkit.mitigate("multicalibrate", train, test=test, model=base_bytes(), columns=["age", "job"])
        assert result.details["corrections"] == []
        assert any("stay as they are" in note for note in result.notes)


@pytest.mark.long
def test_values_that_training_never_saw_get_the_corrections_that_do_not_name_them(tmp_path):
    result = fairkit.mitigate(
        "multicalibrate", people(8000, 0.3, 1), test=people(2000, 0.3, 2), model=base_bytes(), columns=["age", "job"]
    )
    saved = tmp_path / "fair.onnx"
    result.save(saved)
    model = OnnxModel.load(str(saved))
    x = np.zeros((3, 1), dtype=np.float32)
    age = np.array([[np.nan], [50.0], [1e30]], dtype=np.float32)
    jobs = np.array([["never seen"], ["b"], [""]], dtype=object)
    score = model.run({"x": x, "age": age, "job": jobs}, ["score"])["score"]
    assert np.isfinite(score).all()
    assert score[1, 0] > 0.6
    assert abs(score[0, 0] - 0.5) < 0.1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"columns": ["nowhere"]}, "no column 'nowhere'"),
        ({"columns": ["outcome2"], "depth": 4}, "depth"),
        ({"rate": 0}, "rate"),
    ],
)
def test_bad_settings_are_one_message(settings, said):
    with pytest.raises(fairkit.FairkitError, match=said):
        fairkit.mitigate("multicalibrate", people(500, 0.0), model=base_bytes(), **settings)


def test_without_a_model_or_with_draws_it_refuses():
    with pytest.raises(fairkit.FairkitError, match="`model`"):
        fairkit.mitigate("multicalibrate", people(500, 0.0))
