"""Encoders and group rules: the graph gives what numpy gives."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairkit
import fairkit_onnx.write.rules as rules_module
from fairkit.data.roles import Sensitive
from fairkit.errors import DataError, ModelError
from fairkit.mitigators import Groups, Table
from fairkit_onnx.file import open_session
from fairkit_onnx.write.encode import MAX_ONE_HOT, LinearEncoding, fit_encoder, text_codes
from fairkit_onnx.write.export import run_columns
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.rules import GroupCodes, GroupColumn, GroupKeys, GroupRule, Piece, learn_keys


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


def test_groups_without_columns_are_refused():
    with pytest.raises(DataError, match="without the columns"):
        learn_keys({}, Groups(None, ("a", "b"), np.array([0, 1])))


def test_an_absent_column_is_refused():
    keys = learn_keys({"g": np.array(["a", "b"], dtype=object)}, groups_of([0, 1], ("a", "b"), "g"))
    with pytest.raises(DataError, match="needs the sensitive column 'g'"):
        keys.codes({"h": np.zeros(2)})


def test_too_many_combinations_are_refused(monkeypatch):
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


# Encoders.
def texts(*values):
    return np.array(values, dtype=object)


def table():
    return {
        "job": texts("b", "a", None, "b", "c"),
        "age": np.array([30, 40, 50, 60, 70]),
        "pay": np.array([1.5, np.nan, -2.0, 0.0, 7.25]),
        "old": np.array([True, False, True, True, False]),
    }


def in_graph(encoder, columns):
    graph = GraphBuilder()
    graph.output("matrix", encoder.add_to(graph), width=len(encoder.names))
    return run_columns(open_session(graph.build(), threads=1), columns)["matrix"]


@pytest.mark.parametrize("text", ["ordinal", "onehot"])
@pytest.mark.parametrize("smooth", [False, True])
def test_graph_and_numpy_agree_bit_for_bit_with_unseen_and_missing_values(text, smooth):
    train = table()
    encoder = fit_encoder(train, list(train), text=text, standardise=smooth, fill=smooth)
    new = {
        "job": texts("c", "never seen", "", None),
        "age": np.array([np.nan, 1e9, -3.5, 0.1]),
        "pay": np.array([np.nan, 3.0, 1e-30, -7.0]),
        "old": np.array([False, True, True, False]),
    }
    for columns in (train, new):
        np.testing.assert_array_equal(in_graph(encoder, columns), encoder.transform(columns))


def test_ordinal_codes_are_sorted_places_and_unseen_is_minus_one():
    encoder = fit_encoder(table(), ["job"], text="ordinal")
    assert encoder.transform({"job": texts(None, "a", "b", "c", "d")})[:, 0].tolist() == [0, 1, 2, 3, -1]
    assert encoder.categorical == [0]


def test_one_hot_of_an_unseen_value_is_all_zeros():
    encoder = fit_encoder({"job": texts("a", "b")}, ["job"], text="onehot")
    assert encoder.names == ["job=a", "job=b"]
    assert encoder.transform({"job": texts("b", "z", None)}).tolist() == [[0, 1], [0, 0], [0, 0]]


def test_rare_values_share_the_zeros():
    values = texts(*[f"v{i:04d}" for i in range(MAX_ONE_HOT + 5)], "v0000")
    encoder = fit_encoder({"id": values}, ["id"], text="onehot")
    assert len(encoder.names) == MAX_ONE_HOT
    assert "id=v0000" in encoder.names
    assert encoder.transform({"id": texts(f"v{MAX_ONE_HOT + 4:04d}")}).sum() == 0


def test_standardised_numbers_have_mean_zero_deviation_one_and_missing_is_told():
    values = {"x": np.array([1.0, 2.0, 3.0, 4.0, np.nan])}
    encoder = fit_encoder(values, ["x"], text="onehot", standardise=True, fill=True)
    matrix = encoder.transform(values)
    assert encoder.names == ["x", "x is missing"]
    assert matrix[:4, 0].mean() == pytest.approx(0, abs=1e-6)
    assert matrix[:4, 0].std() == pytest.approx(1, abs=1e-6)
    assert matrix[4].tolist() == [0, 1]


def test_weights_move_the_mean():
    values = {"x": np.array([0.0, 10.0])}
    encoder = fit_encoder(values, ["x"], text="onehot", standardise=True, weights=np.array([3.0, 1.0]))
    assert encoder.columns[0].shift == pytest.approx(2.5)


def test_a_constant_column_is_not_divided_by_zero():
    encoder = fit_encoder({"x": np.full(3, 7.0)}, ["x"], text="onehot", standardise=True)
    assert encoder.transform({"x": np.array([7.0, 8.0])}).ravel().tolist() == [0, 1]


@pytest.mark.long
@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=30))
@settings(max_examples=30)
def test_codes_point_to_their_category(values):
    categories = sorted({value or "" for value in values[: len(values) // 2 + 1]})
    codes = text_codes(texts(*values), categories)
    for value, code in zip(values, codes, strict=True):
        assert (categories[code] == (value or "")) if code >= 0 else ((value or "") not in categories)


@pytest.mark.parametrize(
    ("columns", "message"),
    [({"x": np.array([1.0, np.inf])}, "'x' holds 1 infinite"), ({"x": np.array([1e300])}, "beyond 3.4e38")],
)
def test_infinite_numbers_are_refused(columns, message):
    with np.errstate(over="ignore"), pytest.raises(DataError, match=message):
        fit_encoder(columns, ["x"], text="ordinal")


def test_no_features_is_an_error():
    with pytest.raises(DataError, match="no feature columns"):
        fit_encoder({}, [], text="ordinal")


def test_text_where_training_had_numbers_is_an_error():
    encoder = fit_encoder({"x": np.array([1.0, 2.0])}, ["x"], text="ordinal")
    with pytest.raises(DataError, match="'x' holds text"):
        encoder.transform({"x": texts("a")})


def test_a_column_called_like_an_output_is_refused():
    encoder = fit_encoder({"score": np.array([1.0, 2.0])}, ["score"], text="ordinal")
    with pytest.raises(ModelError, match="cannot be called 'score'"):
        encoder.add_to(GraphBuilder())


# Groups as numbers and matrices behind encoders: the graph gives the bits that numpy gives.
ROWS = 400


def _table(sensitive: str, missing: str) -> Table:
    rng = np.random.default_rng(0)
    race = rng.choice(np.array(["a", "b", "c", None], dtype=object), ROWS)
    age = rng.integers(18, 80, ROWS).astype(float)
    age[::31] = np.nan
    columns = {"sex": rng.integers(1, 3, ROWS), "race": race, "age": age, "good": rng.choice(["yes", "no"], ROWS)}
    data = fairkit.load_data(columns, label="good", favorable="yes", sensitive=sensitive, missing=missing)
    return Table.from_dataset(data)


@pytest.mark.parametrize("missing", ["drop", "group"])
@pytest.mark.parametrize("sensitive", ["sex", "race", "age:25:60", "sex+race", "race+age:40"])
def test_the_graph_numbers_groups_as_numpy_does(sensitive, missing):
    table = _table(sensitive, missing)
    codes = GroupCodes.learn(table.columns, table.groups[sensitive.split(":")[0]])
    graph = GraphBuilder()
    graph.output("codes", codes.add_to(graph), "int64")
    session = open_session(graph.build())
    seen = run_columns(session, table.columns)["codes"].ravel()
    assert np.array_equal(seen, codes.transform(table.columns))
    assert np.array_equal(seen, table.groups[sensitive.split(":")[0]].codes)
    new = {
        "sex": np.array([1.0, 2.0, 3.0, np.nan]),
        "race": np.array(["a", "z", None, "c"], dtype=object),
        "age": np.array([25.0, 24.999999, np.nan, 60.0]),
    }
    got = run_columns(session, new)["codes"].ravel()
    assert np.array_equal(got, codes.transform(new))
    assert got.max() <= len(codes.names)


def test_a_matrix_behind_an_encoder_gives_the_same_bits_in_any_batch():
    rng = np.random.default_rng(1)
    columns = {name: rng.normal(size=ROWS) * 10**k for k, name in enumerate("abcde")}
    columns["t"] = rng.choice(np.array(["x", "y", "z"], dtype=object), ROWS)
    encoder = fit_encoder(columns, list(columns), text="onehot", standardise=True, fill=True)
    width = len(encoder.names)
    encoding = LinearEncoding(
        encoder=encoder, matrix=rng.normal(size=(width, 3)), center=rng.normal(size=width), names=["p", "q", "r"]
    )
    graph = GraphBuilder()
    graph.output("z", encoding.add_to(graph), width=3)
    session = open_session(graph.build())
    expected = encoding.transform(columns)
    assert np.array_equal(run_columns(session, columns)["z"], expected)
    for rows in (1, 7, 64):
        part = {name: values[:rows] for name, values in columns.items()}
        assert np.array_equal(run_columns(session, part)["z"], expected[:rows])
    x = encoder.transform(columns).astype(float)
    assert np.abs((x - encoding.center) @ encoding.matrix - expected).max() < 1e-5
