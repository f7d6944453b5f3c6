"""Rows that large trees are run on: each distinct one once, in an order, and every row gets its own result."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from fairkit_onnx import arrange
from fairkit_onnx.arrange import FEWEST, LARGE, Arranged, has_large_trees
from fairkit_onnx.file import OnnxFile

ROWS = 4_000


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def feeds_of(rng, rows=ROWS):
    """Return columns of every kind, with cells that are hard to tell apart."""
    numbers = np.array([0.0, -0.0, np.nan, np.inf, -1.0, 1e-45], dtype=np.float32)
    return {
        "text": rng.choice(np.array(["a", "b", "", "ä"], dtype=object), rows).reshape(-1, 1),
        "odd": rng.choice(numbers, rows).reshape(-1, 1),
        "matrix": rng.integers(0, 3, (rows, 2)).astype(np.float64),
        "vector": rng.integers(0, 5, rows),
        "flag": rng.random((rows, 1)) < 0.5,
    }


def bits(feeds):
    """Return each row as one text that tells all its bits."""
    columns = [column for array in feeds.values() for column in np.reshape(array, (len(array), -1)).T]
    cells = [[cell if isinstance(cell, str) else cell.tobytes() for cell in column] for column in columns]
    return [repr(row) for row in zip(*cells, strict=True)]


def test_each_distinct_row_stands_once_and_every_row_finds_it(rng):
    feeds = feeds_of(rng)
    arranged = Arranged.of(feeds)
    taken = arranged.take(feeds)
    rows = bits(taken)
    assert len(rows) == len(set(rows)) == len(set(bits(feeds)))
    assert [rows[place] for place in arranged.back] == bits(feeds)


def test_the_order_is_by_the_columns_with_few_values_first(rng):
    feeds = {"many": rng.integers(0, 1_000, ROWS), "two": rng.integers(0, 2, ROWS), "ten": rng.integers(0, 10, ROWS)}
    arranged = Arranged.of(feeds)
    taken = arranged.take(feeds)
    order = np.lexsort((taken["many"], taken["ten"], taken["two"]))
    np.testing.assert_array_equal(order, np.arange(len(order)))


def test_columns_of_distinct_numbers_are_still_told_apart(rng):
    """Thirty columns with thousands of values each: more combinations than a number has bits for."""
    matrix = rng.random((ROWS, 30)).astype(np.float32)
    matrix[ROWS // 2 :] = matrix[: ROWS // 2]
    matrix[-1, 29] += 1
    arranged = Arranged.of({"x": matrix})
    assert len(arranged.places) == ROWS // 2 + 1
    np.testing.assert_array_equal(matrix[arranged.places][arranged.back], matrix)


@pytest.mark.parametrize(
    "feeds",
    [
        {"x": np.zeros((FEWEST - 1, 1))},
        {"x": np.zeros((FEWEST, arrange.WIDEST + 1))},
        {"x": np.zeros((FEWEST, 2, 2))},
        {"x": np.zeros(FEWEST), "y": np.zeros(FEWEST + 1)},
    ],
    ids=["few rows", "wide", "images", "lengths that differ"],
)
def test_rows_that_are_run_as_they_come(feeds):
    assert Arranged.of(feeds) is None


@pytest.fixture(scope="module")
def forest():
    """Make a forest on text and numbers with more nodes than `LARGE`, and a table with rows that repeat."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "job": rng.choice(["a", "b", "c"], ROWS),
            "age": rng.integers(18, 60, ROWS).astype(np.float32),
            "hours": rng.integers(10, 20, ROWS).astype(np.float32),
        }
    )
    encode = make_column_transformer((OneHotEncoder(), ["job"]), ("passthrough", ["age", "hours"]))
    fitted = make_pipeline(encode, RandomForestClassifier(20, random_state=0))
    fitted.fit(frame, np.where(rng.random(ROWS) < 0.5, "yes", "no"))
    types = [("job", StringTensorType([None, 1]))]
    types += [(name, FloatTensorType([None, 1])) for name in ("age", "hours")]
    files = {
        zipmap: to_onnx(fitted, initial_types=types, options={id(fitted): {"zipmap": zipmap}})
        for zipmap in (True, False)
    }
    feeds = {name: frame[name].to_numpy().reshape(-1, 1) for name in frame}
    return files, feeds | {"job": feeds["job"].astype(object)}


@pytest.mark.long
@pytest.mark.parametrize("zipmap", [False, True])
@pytest.mark.parametrize("sandbox", [False, True])
def test_a_forest_gives_every_row_what_it_gives_it_otherwise(forest, zipmap, sandbox, monkeypatch):
    files, feeds = forest
    asked = []
    model = OnnxFile.load(files[zipmap], sandbox=sandbox)
    whole = model._run
    monkeypatch.setattr(
        model, "_run", lambda names, some, *size: asked.append(len(some["age"])) or whole(names, some, *size)
    )
    found = model.run(feeds)
    assert sum(asked) == len(set(bits(feeds))) < ROWS
    monkeypatch.setattr(model, "_large_trees", False)
    plain = model.run(feeds)
    assert list(found) == list(plain)
    for name in found:
        if isinstance(plain[name], np.ndarray):
            np.testing.assert_array_equal(found[name], plain[name])
        else:
            assert [dict(row) for row in found[name]] == [dict(row) for row in plain[name]]


def test_only_large_trees_are_worth_it(forest):
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    files, _ = forest
    assert has_large_trees(files[False])
    x = np.arange(20, dtype=np.float32).reshape(-1, 1)
    assert not has_large_trees(to_onnx(LogisticRegression().fit(x, x[:, 0] > 9), x))


def test_trees_of_the_newer_operator_count_too():
    modes = onnx.helper.make_tensor("nodes_modes", onnx.TensorProto.UINT8, [LARGE], np.zeros(LARGE, np.uint8))
    node = onnx.helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", nodes_modes=modes)
    graph = onnx.helper.make_graph([node], "g", [], [])
    assert has_large_trees(onnx.helper.make_model(graph))


def test_an_output_that_is_no_row_each_comes_as_the_graph_gives_it(monkeypatch):
    model = OnnxFile.load(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 13]> g (float[N,1] x) => (float[N,1] y, float[1] most)'
            "{ y = Identity(x) most = ReduceMax<keepdims = 0, axes = [0]>(x) }"
        ).SerializeToString()
    )
    monkeypatch.setattr(model, "_large_trees", True)
    x = np.arange(2 * FEWEST, dtype=np.float32).reshape(-1, 1) % 7
    found = model.run({"x": x})
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(found["most"], [6.0])
