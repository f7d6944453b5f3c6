"""An audit of a model behind a server equals the audit of its file; a server that misbehaves is told of in a line."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import urllib.request

import numpy as np
import pytest

import fairkit
from fairkit.errors import ModelError, ParameterError
from fairkit_datasets.loans import loans_table
from fairkit_endpoint.client import EndpointSettings
from fairkit_endpoint.model import EndpointModel


def loans(rows: int = 1_500) -> fairkit.Dataset:
    return fairkit.load_data(
        loans_table(rows, 5), name="loans", label="decision", favorable="approved", sensitive=["sex"]
    )


def endpoint(url: str, **told) -> EndpointModel:
    return EndpointModel(EndpointSettings(url=url, model="credit", **told))


def findings(report):
    return [(f.metric, f.sensitive, f.value, f.interval) for f in report.findings]


def renamed(proto, old, new):
    for value in (*proto.graph.input, *proto.graph.output):
        value.name = new if value.name == old else value.name
    for node in proto.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = new if name == old else name


@pytest.mark.long
@pytest.mark.parametrize("binary", [False, True])
def test_the_audit_equals_that_of_the_file(served_file, serve, binary):
    url = serve(served_file, *(["--binary"] if binary else []))
    there = fairkit.audit(endpoint(url), loans())
    here = fairkit.audit(served_file, loans())
    assert len(there.findings) > 20
    for one, other in zip(findings(there), findings(here), strict=True):
        assert one[:2] == other[:2]
        assert one[2] == pytest.approx(other[2], abs=1e-6, nan_ok=True)
    assert there.model.sha256 is None
    assert there.model.endpoint["url"] == url
    assert there.model.endpoint["version"] == "1"
    again = type(there).from_dict(json.loads(json.dumps(there.to_dict())))
    assert again.model.endpoint == there.model.endpoint


@pytest.mark.long
def test_requests_are_of_at_most_sixteen_mebibytes(served_file, serve, monkeypatch):
    url = serve(served_file)
    monkeypatch.setattr("fairkit_endpoint.model.MOST_SENT", 50_000)
    fairkit.audit(endpoint(url), loans(2_000))
    with urllib.request.urlopen(f"{url}/asked") as answer:
        sent = json.load(answer)["log"]
    assert max(sent) <= 50_000
    assert sum(sent) > 100_000


@pytest.mark.long
@pytest.mark.parametrize("what", ["busy-twice", "hang-up-once"])
def test_what_can_be_tried_again_is(served_file, serve, what):
    report = fairkit.audit(endpoint(serve(served_file, "--behave", what)), loans(600))
    assert report.find("demographic_parity_difference", "sex").value >= 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("fewer-rows", "rows where"),
        ("always-busy", "answers with the error 503"),
        ("error", r"the model \\x1b\[31mfell over"),
        ("no-json", "no JSON"),
        ("other-metadata", "changed its metadata during the audit"),
        ("other-version", "was replaced during the audit"),
        ("redirect", "redirects to http://198.51.100.7"),
        ("hang-up", "breaks the connection"),
        ("drifts", "another result"),
        ("no-inputs", "has no inputs in its metadata"),
        ("wrong-type", "its metadata say"),
        ("nan", "NaN or infinite"),
        ("needs-token", "FAIRKIT_ENDPOINT_TOKEN"),
    ],
)
def test_misbehaviour_is_one_message(served_file, serve, what, said, monkeypatch):
    monkeypatch.setattr("fairkit_endpoint.client.TRIES", 3)
    with pytest.raises(ModelError, match=said) as raised:
        fairkit.audit(endpoint(serve(served_file, "--behave", what)), loans(600))
    assert "\n" not in str(raised.value)


@pytest.mark.long
@pytest.mark.parametrize("what", ["slow", "trickle"])
def test_a_slow_endpoint_is_given_up(served_file, serve, what):
    model = endpoint(serve(served_file, "--behave", what), timeout=1.0)
    with pytest.raises(ModelError, match="did not answer within 1 s"):
        fairkit.audit(model, loans(600))


def test_headers_that_trickle_are_given_up():
    """Each byte comes in time, and the answer never."""
    ended = threading.Event()

    def trickle(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not ended.wait(0.05):
                connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=trickle, args=(server,), daemon=True)
        answering.start()
        try:
            with pytest.raises(ModelError, match=r"did not answer within 0\.5 s"):
                endpoint(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=0.5)
        finally:
            ended.set()
            answering.join()


def test_an_answer_without_end_is_cut(served_file, serve):
    with pytest.raises(ModelError, match="more than 64 MiB"):
        fairkit.audit(endpoint(serve(served_file, "--behave", "endless")), loans(600))


def test_a_cut_binary_answer_is_refused(served_file, serve):
    with pytest.raises(ModelError, match=r"announces \d+ bytes|whole number|cut off"):
        fairkit.audit(endpoint(serve(served_file, "--behave", "binary-cut", "--binary")), loans(600))


def test_a_server_that_does_not_listen_is_one_message():
    with pytest.raises(ModelError, match="cannot be reached"):
        endpoint("http://127.0.0.1:9")


@pytest.mark.long
def test_the_token_goes_to_the_server_and_nowhere_else(served_file, serve, monkeypatch):
    monkeypatch.setenv("FAIRKIT_ENDPOINT_TOKEN", "s3cret-token")
    report = fairkit.audit(endpoint(serve(served_file, "--behave", "needs-token")), loans(600))
    assert "s3cret" not in json.dumps(report.to_dict())
    with pytest.raises(ModelError, match=r"you sent Bearer \*\*\*") as raised:
        fairkit.audit(endpoint(serve(served_file, "--behave", "echo-token")), loans(600))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://me:s3cret@host", "http://host?key=s3cret", "http://host#s3cret", "s3cret", "ftp://host"]
)
def test_an_address_that_is_none_is_refused_without_its_secret(url):
    with pytest.raises(ParameterError) as raised:
        EndpointSettings(url=url, model="credit")
    assert "s3cret" not in str(raised.value) or url == "s3cret"


@pytest.mark.long
def test_a_missing_number_goes_as_bytes_where_json_has_none(tmp_path, serve):
    from onnx import TensorProto, helper, save

    node = [helper.make_node("IsNaN", ["x"], ["gap"]), helper.make_node("Where", ["gap", "half", "x"], ["score"])]
    half = helper.make_tensor("half", TensorProto.FLOAT, [1], [0.5])
    graph = helper.make_graph(
        node,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
        [half],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    x = rng.random(400)
    x[::7] = np.nan
    table = {"x": x, "y": (rng.random(400) < 0.5).astype(int), "g": rng.choice(["a", "b"], 400)}
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["g"])
    there = fairkit.audit(endpoint(serve(tmp_path / "m.onnx")), data)
    here = fairkit.audit(tmp_path / "m.onnx", data)
    assert [f.value for f in there.findings] == pytest.approx([f.value for f in here.findings], nan_ok=True)


@pytest.mark.long
def test_a_randomized_model_is_audited_by_its_draws(tmp_path, serve):
    data = loans(800)
    plain = fairkit.mitigate("reweigh", data, seed=0)
    plain.save(tmp_path / "plain.onnx")
    made = fairkit.mitigate(
        "threshold-optimizer", data, model=tmp_path / "plain.onnx", constraint="demographic_parity", seed=0
    )
    made.save(tmp_path / "fair.onnx")
    there = fairkit.audit(endpoint(serve(tmp_path / "fair.onnx")), data)
    here = fairkit.audit(tmp_path / "fair.onnx", data)
    assert any("randomized" in note for note in there.model.notes)
    name = ("demographic_parity_difference", "sex")
    assert there.find(*name).value == pytest.approx(here.find(*name).value, abs=1e-6)


@pytest.mark.long
def test_an_audit_on_workers_finds_the_same(served_file, serve):
    pytest.importorskip("distributed")
    url = serve(served_file)
    there = fairkit.audit(endpoint(url), loans(1_000), engine="dask")
    here = fairkit.audit(endpoint(url), loans(1_000))
    assert findings(there) == findings(here)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(fairkit.PluginError, match=r"pip install 'fairkit\[endpoint\]'"):
        endpoint("http://127.0.0.1:9")
