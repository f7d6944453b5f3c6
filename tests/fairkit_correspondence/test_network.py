"""A real model: a small random network in an ONNX file, with a tokenizer, served as chat completions."""

from __future__ import annotations

import json
import math
import re
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from fairkit_correspondence.asking import Asker
from fairkit_correspondence.auditor import by_name
from fairkit_correspondence.client import Client, Server, Store
from fairkit_correspondence.plan import read_plan
from fairkit_correspondence.requests import requests_of

from .fake_server import unit
from .plans import write_plan

VOCABULARY, WIDTH = 512, 24
TOKENS = ("Yes", "No", "yes", "no", "\n", "Well", "<|end|>", " Yes")


def network(path, seed=0):
    """Write a network: mean of token embeddings, one hidden layer, logits of eight tokens."""
    rng = np.random.default_rng(seed)
    weights = {
        "embedding": rng.normal(0, 1.0, (VOCABULARY, WIDTH)),
        "hidden": rng.normal(0, 1.5, (WIDTH, WIDTH)),
        "logits": rng.normal(0, 0.6, (WIDTH, len(TOKENS))),
        "bias": np.array([3.0, 3.0, 1.0, 1.0, -2.0, -2.0, -3.0, -1.0]),
    }
    nodes = [
        helper.make_node("Gather", ["embedding", "tokens"], ["found"]),
        helper.make_node("ReduceMean", ["found"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("MatMul", ["mean", "hidden"], ["before"]),
        helper.make_node("Tanh", ["before"], ["after"]),
        helper.make_node("MatMul", ["after", "logits"], ["raw"]),
        helper.make_node("Add", ["raw", "bias"], ["scores"]),
        helper.make_node("LogSoftmax", ["scores"], ["logprobs"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "speaker",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("logprobs", TensorProto.FLOAT, [1, len(TOKENS)])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


class Speaker:
    """Runs the network on text: words become numbers by their digest."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def logprobs(self, text):
        words = re.findall(r"\w+|[^\w\s]", text)
        tokens = np.array([int(unit("token", word.lower()) * VOCABULARY) for word in words], dtype=np.int64)
        return self.session.run(None, {"tokens": tokens})[0][0]

    def chance(self, text):
        """Return P(yes): the mass of the tokens that begin it."""
        found = np.exp(self.logprobs(text).astype(float))
        return float(sum(found[i] for i, token in enumerate(TOKENS) if token.strip().lower() == "yes"))


@pytest.fixture
def speaker(tmp_path):
    network(tmp_path / "speaker.onnx")
    model = Speaker(tmp_path / "speaker.onnx")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self):
            self.send_error(404)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = model.logprobs(body["messages"][-1]["content"])
            order = np.argsort(-found)[: body.get("top_logprobs", 0)]
            top = [{"token": TOKENS[i], "logprob": float(found[i])} for i in order]
            choice = {"finish_reason": "length", "message": {"content": top[0]["token"]}}
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
            raw = json.dumps({"model": "speaker", "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield model, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.mark.long
def test_its_answers_are_the_networks_own_and_its_interval_holds_the_truth(speaker, tmp_path):
    model, url = speaker
    plan = read_plan(write_plan(tmp_path, documents=30, names=30, each=1))
    with (
        closing(Client(Server(url=url, model="speaker"))) as client,
        closing(Store(tmp_path / "a.sqlite", plan.digest, "m")) as store,
    ):
        outcome = Asker(plan, client, store, budget=1.0).run()
    requests = requests_of(plan)
    said = outcome.table.column("answer").to_pylist()
    expected = [model.chance(request.messages(plan)[0]["content"]) for request in requests]
    np.testing.assert_allclose(said, expected, atol=1e-6)
    rest = outcome.table.column("unresolved").to_pylist()
    assert max(rest) < 0.2
    # the truth: every name on every document, in both contexts and orders of options
    finding = next(f for f in outcome.report.findings if not f.within)
    pair = by_name(finding.evidence["correspondence_pairs"])["grey - stone, all contexts"]
    from dataclasses import replace

    base = {(r.unit, r.context): r for r in requests}
    means = []
    for request in base.values():
        by_group = {group: [] for group in plan.groups}
        for name in plan.names:
            for backward in (False, True):
                entry = replace(request.entries[0], name=name)
                text = replace(request, entries=(entry,), reversed=backward).messages(plan)[0]["content"]
                by_group[name.group].append(model.chance(text))
        means.append(np.mean(by_group["grey"]) - np.mean(by_group["stone"]))
    truth = float(np.mean(means))
    assert abs(truth) > 1e-4
    assert pair["low"] < truth < pair["high"]
    assert not math.isclose(pair["low"], pair["high"])
