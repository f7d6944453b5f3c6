"""Constant models, and models that are worse than the most frequent outcome."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.fitted import FittedModel, Prediction
from fairkit.mitigators import Table
from fairkit_repair.mitigation.learned import below_majority, is_constant, treats_all_alike


@pytest.mark.parametrize(
    ("score", "chance", "constant"),
    [
        ([0.1, 0.4], [0.0, 0.0], True),
        ([0.1, 0.4], [0.3, 0.3], True),  # a coin for everybody
        ([0.1, 0.4], [0.0, 1.0], False),
        ([0.1, 0.4], [0.3, 0.4], False),
        ([1.5, 1.5], None, True),
        ([1.5, 1.6], None, False),
        ([[0.6, 0.4], [0.9, 0.1]], None, True),
        ([[0.6, 0.4], [0.4, 0.6]], None, False),
    ],
)
def test_what_is_constant(score, chance, constant):
    told = None if chance is None else np.array(chance)
    assert is_constant(Prediction(score=np.array(score), decision_probability=told)) is constant


class Rare(FittedModel):
    """Accepts one row in 50,000, which a look at some rows misses."""

    details, notes = {}, ()

    def predict(self, columns):
        return Prediction(score=columns["x"], decision_probability=(columns["x"] == 1).astype(float))

    def to_onnx(self):
        raise NotImplementedError


def report(decided, label):
    columns = {"y": label, "d": decided, "g": np.tile(["a", "b"], len(label) // 2)}
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], predictions={"decision": "d"})
    return fairkit.audit(None, data)


def test_all_rows_are_looked_at_before_a_model_is_called_constant():
    x = np.zeros(50_000)
    table = Table(columns={"x": x}, features=("x",), target=np.tile([0.0, 1.0], 25_000))
    assert treats_all_alike(Rare(), table, None)
    x[30_001] = 1
    assert not treats_all_alike(Rare(), table, None)


def test_worse_than_the_most_frequent_outcome_is_said_where_it_is_significant():
    label = np.tile([0, 0, 0, 1], 250)
    table = Table(columns={}, features=(), target=label.astype(float))
    wrong = np.where(np.arange(1000) % 3 == 0, 1 - label, label)
    assert "below that of deciding alike for all" in below_majority(table, report(wrong, label))[0]
    assert below_majority(table, report(np.zeros(1000, dtype=int), label)) == ()
    assert treats_all_alike(Rare(), table, report(np.zeros(1000, dtype=int), label))
