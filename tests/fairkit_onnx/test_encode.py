from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairkit.errors import DataError, ModelError
from fairkit_onnx.file import open_session
from fairkit_onnx.write.encode import MAX_ONE_HOT, fit_encoder, text_codes
from fairkit_onnx.write.export import run_columns
from fairkit_onnx.write.graph import GraphBuilder


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
