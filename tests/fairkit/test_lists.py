"""Columns of lists: read as columns of numbers, fed to a matrix, refused where they are not whole."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.data.roles import list_columns, shortened, spread
from fairkit.data.sources import open_source
from fairkit.errors import DataError

ROWS, WIDTH = 300, 6
X = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
Y = np.where(X[:, 0] + np.random.default_rng(1).normal(size=ROWS) > 0, "yes", "no")
SEX = np.where(np.random.default_rng(2).random(ROWS) < 0.5, "f", "m")
ROLES = {"label": "y", "favorable": "yes", "sensitive": ["sex"]}


def fixed(matrix=X):
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def variable(rows):
    return pa.array(rows, pa.list_(pa.float32()))


def table(lists, rows=ROWS):
    return pa.table({"emb": lists, "y": Y[:rows], "sex": SEX[:rows]})


FLAT = pa.table({**{f"emb[{k}]": X[:, k] for k in range(WIDTH)}, "y": Y, "sex": SEX})


def model(path, width=WIDTH, name="emb"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.zeros((width, 1), np.float32)
    weights[:2, 0] = 2, 1
    graph = helper.make_graph(
        [helper.make_node("MatMul", [name, "w"], ["z"]), helper.make_node("Sigmoid", ["z"], ["p"])],
        "linear",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 1])],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize(
    "lists",
    [
        fixed(),
        variable(X.tolist()),
        pa.array(X.tolist(), pa.large_list(pa.float64())),
        fixed(np.concatenate([X, X]))[ROWS:],
    ],
    ids=["fixed", "variable", "large", "sliced"],
)
def test_lists_are_the_same_table_as_columns(lists, tmp_path):
    pq.write_table(table(lists), tmp_path / "t.parquet", row_group_size=70)
    wanted = fairkit.load_data(FLAT, **ROLES)
    wanted.learn()
    for data in (tmp_path / "t.parquet", table(lists)):
        found = fairkit.load_data(data, **ROLES, features=["emb"])
        assert found.features == tuple(f"emb[{k}]" for k in range(WIDTH))
        found.learn()
        assert found.sha256 == wanted.sha256
        batch = found.read(["emb[4]", "emb[1]"])
        assert np.array_equal(batch.column("emb[1]"), X[:, 1].astype(float))
        assert np.array_equal(batch.column("emb[4]"), X[:, 4].astype(float))


def test_half_precision_and_whole_numbers():
    halves, whole = X.astype(np.float16), np.arange(12).reshape(4, 3)
    source = open_source({"h": fixed(halves[:4]), "w": fixed(whole)})
    batch = pa.Table.from_batches(list(source.batches(source.columns, 3)))
    assert np.array_equal(batch["h[5]"].to_numpy(), halves[:4, 5].astype(float))
    assert batch["w[2]"].to_pylist() == [2, 5, 8, 11]


def test_a_changed_number_of_a_list_changes_the_digest():
    other = X.copy()
    other[123, 4] += 1e-3
    digests = []
    for matrix in (X, other):
        data = fairkit.load_data(table(fixed(matrix)), **ROLES)
        data.learn()
        digests.append(data.sha256)
    assert digests[0] != digests[1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["emb", "input"])
def test_a_matrix_gets_the_lists(name, tmp_path):
    """Also where sex is a feature by default, so that the features do not fit; and as separate columns do."""
    path = model(tmp_path / "m.onnx", name=name)
    found = fairkit.audit(path, fairkit.load_data(table(fixed()), **ROLES))
    right = np.where(2 * X[:, 0] + X[:, 1] >= 0, "yes", "no") == Y
    assert found.find("accuracy").value == pytest.approx(right.mean())
    columns = fairkit.audit(path, fairkit.load_data(FLAT, **ROLES))
    assert columns.find("log_loss").value == found.find("log_loss").value


@pytest.mark.long
def test_engines_agree(tmp_path):
    pytest.importorskip("distributed", reason="needs the extra fairkit[dask]")
    from distributed import Client, LocalCluster

    from fairkit.engines import DaskEngine

    path = model(tmp_path / "m.onnx")
    folder = tmp_path / "parts"
    folder.mkdir()
    for place, start in enumerate(range(0, ROWS, 100)):
        lists = variable(X[start : start + 100].tolist()) if place else fixed(X[:100])
        part = pa.table({"emb": lists, "y": Y[start : start + 100], "sex": SEX[start : start + 100]})
        pq.write_table(part, folder / f"{place}.parquet")
    with (
        LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        spread_out = fairkit.audit(path, fairkit.load_data(folder, **ROLES), engine=DaskEngine(client))
    here = fairkit.audit(path, fairkit.load_data(FLAT, **ROLES))
    assert spread_out.data.sha256 == here.data.sha256
    assert spread_out.find("accuracy_difference").value == here.find("accuracy_difference").value


def broken(change):
    rows = X.tolist()
    change(rows)
    return rows


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (variable(broken(lambda x: x[17].pop())), r"6 numbers in the table's first list, 5 in row 17 \(from 0\)"),
        (variable(broken(lambda x: x.__setitem__(17, None))), r"has no list in row 17 \(from 0\)"),
        (pa.array(broken(lambda x: x.__setitem__(17, None)), pa.list_(pa.float32(), WIDTH)), "has no list in row 17"),
        (variable(broken(lambda x: x[17].__setitem__(3, None))), "place 3 of the list in row 17"),
        (variable(broken(lambda x: x.__setitem__(0, None))), "has no list in row 0"),
        (variable([[]] * ROWS), "are empty"),
        (pa.array([["a"]] * ROWS), "lists of numbers: write it as one"),
    ],
    ids=["short", "null", "fixed null", "inner null", "first null", "empty", "text"],
)
def test_lists_that_are_not_whole_are_refused_where_they_are_used(lists, message, tmp_path):
    pq.write_table(table(lists), tmp_path / "t.parquet", row_group_size=10)
    data = fairkit.load_data(tmp_path / "t.parquet", **ROLES)
    data.learn()
    assert data.features == ("sex",)
    assert re.search(message, data.info().notes[0])
    with pytest.raises(DataError, match=message):
        fairkit.audit(model(tmp_path / "m.onnx"), fairkit.load_data(tmp_path / "t.parquet", **ROLES))


def test_parts_of_different_lengths_and_names_that_are_taken(tmp_path):
    pq.write_table(table(fixed()), tmp_path / "a.parquet")
    pq.write_table(table(fixed(X[:, :4].copy())), tmp_path / "b.parquet")
    source = open_source(tmp_path)
    with pytest.raises(DataError, match=r"b\.parquet: column 'emb' .* 6 numbers in the table's first list, 4 in row 0"):
        list(source.batches(["emb[0]"], 50))
    with pytest.raises(DataError, match=r"two columns have the name 'emb\[0\]'"):
        open_source(table(fixed()).append_column("emb[0]", pa.array(SEX)))


@pytest.mark.parametrize("features", [None, ["emb"]])
def test_a_matrix_of_another_width_is_refused(features, tmp_path):
    path = model(tmp_path / "m.onnx", width=5)
    with pytest.raises(DataError, match=r"takes 5 .* 6.*emb\[0\] to emb\[5\]"):
        fairkit.audit(path, fairkit.load_data(table(fixed()), **ROLES, features=features))


def test_files_of_a_table_with_a_schema_of_its_own(tmp_path):
    """As Delta tables are: a file may lack a column that is filled in, and its lists are columns all the same."""
    from fairkit.data.parts import ParquetPart
    from fairkit.data.sources import FilledPart, table_of

    pq.write_table(pa.table({"emb": fixed()}), tmp_path / "a.parquet")
    types = {"emb": pa.list_(pa.float32()), "site": pa.string()}
    source = table_of([FilledPart(ParquetPart(tmp_path / "a.parquet"), types, (("site", "Rome"),))], "t")
    assert source.columns == [*(f"emb[{k}]" for k in range(WIDTH)), "site"]
    batch = next(source.batches(["site", "emb[3]"], 50))
    assert batch["site"][0].as_py() == "Rome"
    assert np.array_equal(batch["emb[3]"].to_numpy(), X[:50, 3].astype(float))


def test_names_of_list_columns_are_read_and_shortened():
    columns = ["id", "emb[0]", "emb[1]", "emb[2]", "gap[0]", "gap[2]", "x", "x[0]", "z[00]"]
    assert list_columns(columns) == {"emb": ["emb[0]", "emb[1]", "emb[2]"]}
    assert spread(["x", "emb"], columns) == ["x", "emb[0]", "emb[1]", "emb[2]"]
    assert shortened(columns, most=2) == "id, emb[0] to emb[2], ... (9 in all)"
