"""Groups as numbers and matrices behind encoders: the graph gives the bits that numpy gives."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.mitigators import Table
from fairkit_onnx.file import open_session
from fairkit_onnx.write.encode import LinearEncoding, fit_encoder
from fairkit_onnx.write.export import run_columns
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.rules import GroupCodes

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
