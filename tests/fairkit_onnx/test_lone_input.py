"""A model of one column: its input is that column, also where the data name more features."""

from __future__ import annotations

import numpy as np

import fairkit
from fairkit_onnx.write.graph import GraphBuilder


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
