"""A server of the Open Inference Protocol, version 2, for tests: onnxruntime behind http.server."""

from __future__ import annotations

import argparse
import json
import socket
import struct
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

MISBEHAVIOURS = (
    "well",
    "fewer-rows",
    "busy-twice",
    "always-busy",
    "error",
    "no-json",
    "other-metadata",
    "other-version",
    "redirect",
    "slow",
    "trickle",
    "hang-up",
    "hang-up-once",
    "flips",
    "drifts",
    "endless",
    "echo-token",
    "no-inputs",
    "wrong-type",
    "binary-cut",
    "needs-token",
    "nan",
)

KINDS = {
    "tensor(float)": ("FP32", np.float32),
    "tensor(double)": ("FP64", np.float64),
    "tensor(int64)": ("INT64", np.int64),
    "tensor(int32)": ("INT32", np.int32),
    "tensor(bool)": ("BOOL", np.bool_),
    "tensor(string)": ("BYTES", object),
}


def shape(dims):
    return [dim if isinstance(dim, int) else -1 for dim in dims]


class Model:
    def __init__(self, path, name, behave, *, binary):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.name, self.behave, self.binary, self.asked, self.described = name, behave, binary, 0, 0
        self.log = []

    def metadata(self):
        self.described += 1
        tensors = lambda found: [  # noqa: E731
            {"name": t.name, "datatype": KINDS[t.type][0], "shape": shape(t.shape)} for t in found if t.type in KINDS
        ]
        record = {
            "name": self.name,
            "versions": ["1"],
            "platform": "onnxruntime_onnx",
            "inputs": tensors(self.session.get_inputs()),
            "outputs": tensors(self.session.get_outputs()),
        }
        if self.behave == "other-metadata" and self.described > 2:
            record["versions"] = ["1", "2"]
        if self.behave == "no-inputs":
            record["inputs"] = []
        return record

    def infer(self, record, tail):
        self.asked += 1
        feeds, types = {}, {i.name: KINDS[i.type] for i in self.session.get_inputs()}
        for entry in record["inputs"]:
            name, size = entry["name"], entry.get("parameters", {}).get("binary_data_size")
            datatype, dtype = types[name]
            if entry["datatype"] != datatype:
                raise ValueError(f"input {name} takes {datatype}, not {entry['datatype']}")
            if size is None:
                values = np.array(entry["data"], dtype=dtype)
            else:
                raw, tail = tail[:size], tail[size:]
                values = texts(raw) if datatype == "BYTES" else np.frombuffer(raw, dtype=dtype)
            feeds[name] = values.reshape(entry["shape"])
        names = [entry["name"] for entry in record["outputs"]]
        found = dict(zip(names, self.session.run(names, feeds), strict=True))
        return self.changed(found), any(e.get("parameters", {}).get("binary_data") for e in record["outputs"])

    def changed(self, found):
        rows = len(next(iter(found.values())))
        if self.behave == "fewer-rows":
            return {name: values[: max(rows - 1, 0)] for name, values in found.items()}
        if self.behave == "flips":  # one row in fifty, by its content only
            for name, values in found.items():
                if values.dtype.kind == "f" and values.ndim == 2:
                    swapped = (values[:, 0] * 1e4).astype(int) % 50 == 7
                    values[swapped] = values[swapped][:, ::-1]
                    found[name] = values
        if self.behave == "drifts" and self.asked > 40:
            found = {n: 1 - v if v.dtype.kind == "f" else v for n, v in found.items()}
        if self.behave == "nan":
            found = {n: v * np.nan if v.dtype.kind == "f" else v for n, v in found.items()}
        return found


def texts(raw):
    found, place = [], 0
    while place < len(raw):
        (size,) = struct.unpack_from("<I", raw, place)
        found.append(raw[place + 4 : place + 4 + size].decode())
        place += 4 + size
    return np.array(found, dtype=object)


def packed(values):
    if values.dtype.kind not in "OU":
        return values.tobytes()
    return b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in values.reshape(-1).tolist())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, *_):
        pass

    def reply(self, status, body, headers=None):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self):
        model = self.model
        if model.behave == "needs-token" and self.headers.get("Authorization") != "Bearer s3cret-token":
            return self.reply(401, {"error": "who are you?"})
        if model.behave == "redirect":
            return self.reply(302, b"", {"Location": "http://198.51.100.7/v2"})
        if self.path == "/v2":
            extensions = ["binary_tensor_data"] if model.binary else []
            return self.reply(200, {"name": "tests", "version": "1", "extensions": extensions})
        if self.path == "/asked":
            return self.reply(200, {"asked": model.asked, "log": model.log})
        if self.path.startswith(f"/v2/models/{model.name}"):
            return self.reply(200, model.metadata())
        return self.reply(404, {"error": f"no model at {self.path}"})

    def do_POST(self):
        model = self.model
        body = self.rfile.read(int(self.headers["Content-Length"]))
        model.log.append(len(body))
        first = len(model.log) == 1
        if model.behave == "slow":
            time.sleep(30)
        if model.behave in ("trickle", "endless"):
            self.pour()
        elif model.behave == "hang-up" or (model.behave == "hang-up-once" and first):
            self.hang_up()
        elif model.behave == "always-busy" or (model.behave == "busy-twice" and len(model.log) <= 2):
            self.reply(503, {"error": "busy"}, {"Retry-After": "0"})
        elif model.behave == "error":
            self.reply(500, {"error": "the model \x1b[31mfell over"})
        elif model.behave == "echo-token":
            self.reply(400, {"error": f"you sent {self.headers.get('Authorization')}"})
        elif model.behave == "no-json":
            self.reply(200, b"<html>a portal</html>")
        else:
            self.score(body)

    def hang_up(self):
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        self.wfile.write(b'{"outputs": [')
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def pour(self):
        """Send spaces without end."""
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        slowly = self.model.behave == "trickle"
        try:
            while True:
                self.wfile.write(b" " * (1 if slowly else 1 << 20))
                self.wfile.flush()
                time.sleep(0.2 if slowly else 0)
        except OSError:
            return

    def score(self, body):
        model, head = self.model, self.headers.get("Inference-Header-Content-Length")
        split = len(body) if head is None else int(head)
        try:
            found, binary = model.infer(json.loads(body[:split]), body[split:])
        except Exception as error:
            self.reply(400, {"error": str(error)})
        else:
            self.answer(found, binary=binary and (model.binary or model.behave == "binary-cut"))

    def answer(self, found, *, binary):
        model = self.model
        version = "2" if model.behave == "other-version" and model.asked > 3 else "1"
        outputs, tail = [], []
        for name, values in found.items():
            datatype = "BYTES" if values.dtype.kind in "OU" else KINDS_BY_DTYPE[values.dtype.name]
            if model.behave == "wrong-type":
                datatype = "BYTES"
            entry = {"name": name, "datatype": datatype, "shape": list(values.shape)}
            if binary:
                raw = packed(values)
                entry["parameters"] = {"binary_data_size": len(raw)}
                tail.append(raw[:-3] if model.behave == "binary-cut" else raw)
            else:
                entry["data"] = values.reshape(-1).tolist()
            outputs.append(entry)
        head = json.dumps({"model_name": model.name, "model_version": version, "outputs": outputs}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))} if binary else {}
        return self.reply(200, b"".join([head, *tail]), headers)


KINDS_BY_DTYPE = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}


def bound(model, *told):
    """Return a server of a model file that listens at a free port; `told` may be --name, --behave and --binary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="credit")
    parser.add_argument("--behave", default="well", choices=MISBEHAVIOURS)
    parser.add_argument("--binary", action="store_true")
    asked = parser.parse_args(told)
    served = Model(str(model), asked.name, asked.behave, binary=asked.binary)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"model": served}))
    server.daemon_threads = True
    return server
