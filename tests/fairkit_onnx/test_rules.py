"""Group rules in numpy: codes of raw cells, chances, corrected scores."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit_onnx.write.rules as rules_module
from fairkit.data.roles import Sensitive
from fairkit.errors import DataError, ModelError
from fairkit.mitigators import Groups
from fairkit_onnx.write.rules import GroupColumn, GroupKeys, GroupRule, Piece, learn_keys


def groups_of(codes, names, *columns, edges=None):
    split = Sensitive(columns, edges or (None,) * len(columns))
    return Groups(split, names, np.asarray(codes, dtype=np.int64))


def simple(pieces, odds=None):
    column = GroupColumn(name="g", keys=("a", "b"))
    keys = GroupKeys(columns=(column,), names=("a", "b"), cells=((1,), (2,)))
    return GroupRule(keys=keys, pieces=pieces, odds=odds)


def test_chances_by_hand():
    rule = simple(((Piece(0.2, 0.4),), (Piece(0.5, 0.0, 0.7), Piece(0.0, 0.0, 0.1)), ()))
    scores = np.array([0.1, 0.3, 0.9, 0.49, 0.5, 0.8])
    codes = np.array([0, 0, 0, 1, 1, 2])
    np.testing.assert_allclose(rule.probability(scores, codes), [0, 0.25, 1, 0.1, 0.8, 0], atol=1e-15)


def test_chances_stay_in_bounds_and_nan_stays_nan():
    rule = simple(((Piece(0.0, 0.0, 0.7), Piece(0.0, 0.0, 0.7)), (Piece(0.5, 0.0, -1.0),), ()))
    np.testing.assert_array_equal(
        rule.probability(np.array([0.5, 0.9, np.nan]), np.array([0, 1, 0])), [1.0, 0.0, np.nan]
    )


def test_corrected_scores_multiply_the_odds():
    rule = simple(((Piece(0.5),),) * 3, odds=(2.0, 0.25, 1.0))
    scores = np.array([0.5, 0.8, 0.3, 0.0, 1.0])
    adjusted = rule.adjust(scores, np.array([0, 1, 2, 0, 1]))
    np.testing.assert_allclose(adjusted, [2 / 3, 0.5, 0.3, 0.0, 1.0])


def test_keys_of_numbers_text_and_bins():
    columns = {
        "sex": np.array(["F", "M", "F", "M"], dtype=object),
        "code": np.array([2, 1, 1, 2]),
        "age": np.array([20.0, 30.0, 70.0, 25.0]),
    }
    groups = groups_of([0, 1, 2, 3], tuple("abcd"), "sex", "code", "age", edges=(None, None, (25.0, 60.0)))
    keys = learn_keys(columns, groups)
    assert keys.columns[0].keys == ("F", "M")
    assert keys.columns[1].keys == (1.0, 2.0)
    assert keys.cells == ((1, 2, 1), (2, 1, 2), (1, 1, 3), (2, 2, 2))
    np.testing.assert_array_equal(keys.codes(columns), [0, 1, 2, 3])


def test_groups_that_are_left_out_become_values_without_a_group():
    columns = {"g": np.array(["a", "b", "c"], dtype=object)}
    keys = learn_keys(columns, groups_of([0, 1, 2], ("a", "b", "c"), "g")).keep([True, False, True])
    assert keys.names == ("a", "c")
    np.testing.assert_array_equal(keys.codes(columns), [0, 2, 1])


def test_bins_that_were_chosen_elsewhere_are_asked_for():
    columns = {"age": np.array([20.0, 30.0, 70.0])}
    with pytest.raises(DataError, match="spelled out"):
        learn_keys(columns, groups_of([0, 0, 1], ("young", "old"), "age", edges=((25.0,),)))


def test_groups_without_columns():
    with pytest.raises(DataError, match="without the columns"):
        learn_keys({}, Groups(None, ("a", "b"), np.array([0, 1])))


def test_an_absent_column():
    keys = learn_keys({"g": np.array(["a", "b"], dtype=object)}, groups_of([0, 1], ("a", "b"), "g"))
    with pytest.raises(DataError, match="needs the sensitive column 'g'"):
        keys.codes({"h": np.zeros(2)})


def test_too_many_combinations(monkeypatch):
    monkeypatch.setattr(rules_module, "MAX_CELLS", 8)
    columns = {"a": np.arange(4), "b": np.arange(4)}
    with pytest.raises(ModelError, match="25 combinations"):
        learn_keys(columns, groups_of(range(4), tuple("abcd"), "a", "b"))


def test_a_rule_has_a_row_for_every_group_and_the_pooled_one():
    with pytest.raises(ModelError, match="3 rows"):
        simple(((Piece(0.5),), (Piece(0.5),)))


def test_the_rule_as_json():
    rule = simple(((Piece(0.2, 0.1),), (Piece(float("inf")),), (Piece(0.5),)), odds=(1.0, 2.0, 1.0))
    described = json.loads(json.dumps(rule.to_dict(), allow_nan=False))
    assert described["columns"] == ["g"]
    assert described["groups"][0] == {
        "group": "a",
        "odds": 1.0,
        "pieces": [{"threshold": 0.2, "weight": 1.0, "width": 0.1}],
    }
    assert described["groups"][2]["group"] == "(any other value)"
    assert "pooled" in described["unseen"]
