"""The count of looks at test rows: no name of the output, no damage, no missing folder sets it back."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from onnx import TensorProto, helper

from fairkit_onnx.write.export import embed_settings
from fairkit_repair.repairing.run import identity_of, journal_of, record_look

TEST, OTHER = (hashlib.sha256(text).hexdigest() for text in (b"rows", b"others"))


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _file(path, **search):
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 15)])
    embed_settings(proto, {"schema": "fairkit.model/1", "mitigation": {"search": search}})
    path.write_bytes(proto.SerializeToString())
    return path


def test_every_other_search_is_a_look_whatever_the_file_is_called():
    assert record_look(TEST, "a", "one.onnx") == (1, None)
    assert record_look(TEST, "b", "two.onnx") == (2, None)
    assert record_look(TEST, "c", None) == (3, None)
    assert record_look(OTHER, "c", None) == (1, None)
    assert record_look(TEST, "b", None) == (2, None)  # the same search again


def test_damage_does_not_fail_open(own_state):
    for one in "abc":
        record_look(TEST, one, None)
    journal = journal_of(TEST)
    journal.write_bytes(b"\xff\xfe\x00garbage\n" + journal.read_bytes()[2:] + b"torn")
    assert record_look(TEST, "d", None).number >= 4
    journal.unlink()
    journal.mkdir()
    found = record_look(TEST, "e", None)
    assert "cannot be read or written" in found.doubt
    broken = own_state / "fair.onnx"
    broken.write_bytes(b"no model")
    assert "cannot be read, so that looks it tells of" in record_look(OTHER, "a", broken).doubt


def test_the_file_tells_of_looks_elsewhere(own_state):
    path = _file(own_state / "fair.onnx", looks=4, test_sha256=TEST, look="a")
    assert record_look(TEST, "b", path) == (5, None)
    assert record_look(TEST, "a", path) == (4, None)
    assert record_look(OTHER, "b", path) == (1, None)
    damaged = _file(own_state / "odd.onnx", looks="many", test_sha256=TEST)
    assert record_look(TEST, "c", damaged).doubt is not None


def test_what_tells_searches_apart():
    search = {"policy": [{"max": 0.1}], "looks": 3, "look": "x", "looks_doubt": None}
    one = identity_of(search, {"method": "m"}, 0, "d")
    assert one == identity_of(search | {"looks": 9, "look": "y"}, {"method": "m"}, 0, "d")
    others = [
        identity_of(search | {"sure": 0.5}, {"method": "m"}, 0, "d"),
        identity_of(search, {"method": "n"}, 0, "d"),
        identity_of(search, {"method": "m"}, 1, "d"),
        identity_of(search, {"method": "m"}, 0, "e"),
        identity_of({"policy": np.float64(1)}, {"method": "m"}, 0, "d"),
    ]
    assert len({one, *others}) == 6
