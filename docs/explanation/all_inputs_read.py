"""Read an ONNX file, a proof and a report or certificate for the checkers beside this file, with Python alone.

It knows nothing of fairkit, of the package onnx, or of protobuf beyond its wire format.
"""

import base64
import hashlib
import json
import math
import pathlib
import struct

KINDS = {1: "float", 6: "int32", 7: "int64", 8: "string", 9: "bool", 10: "float16", 11: "double"}


class RefusedError(Exception):
    """The proof is not what it says, or not about this model or report."""


def refuse(wrong, why):
    """Raise `RefusedError` where something is wrong."""
    if wrong:
        raise RefusedError(why)


def varint(data, at):
    """A number and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return number, at


def fields(data):
    """The fields of a protobuf message: by number, what stands there."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def integers(values):
    """Signed numbers, packed or not."""
    found = []
    for value in values:
        some, at = ([value], 0) if isinstance(value, int) else ([], 0)
        while not isinstance(value, int) and at < len(value):
            number, at = varint(value, at)
            some.append(number)
        found += [n - (1 << 64) if n >> 63 else n for n in some]
    return found


def floats(values, kind="f"):
    """Numbers, packed or not; Python's floats hold those of 32 bits exactly."""
    data = b"".join(values)
    return list(struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))


def tensor(data):
    """The shape and the numbers of a tensor of float32, float64, int64 or uint8."""
    told = fields(data)
    kind = told.get(2, [0])[0]
    number, where = {1: ("f", 4), 11: ("d", 10), 7: ("q", 7), 2: ("B", 5)}.get(kind, (None, None))
    refuse(number is None, f"a constant has the type {kind}; float32, float64, int64 and uint8 are read")
    refuse(14 in told and told[14][0] == 1, "a constant lies outside the model file")
    if told.get(9):
        values = floats(told[9], number)
    else:
        values = integers(told.get(where, [])) if number in "qB" else floats(told.get(where, []), number)
    return integers(told.get(1, [])), values


def attributes(node):
    """The attributes of a node: number, text, list of them, or a tensor's (shape, numbers)."""
    found = {}
    for told in map(fields, node.get(5, [])):
        name, kind = told[1][0].decode(), told.get(20, [0])[0]
        if kind == 1:
            value = floats(told[2])[0]
        elif kind == 2:
            value = integers(told.get(3, [0]))[0]
        elif kind == 3:
            value = told.get(4, [b""])[0].decode()
        elif kind == 4:
            value = tensor(told[5][0])
        elif kind == 8:
            value = [text.decode() for text in told.get(9, [])]
        else:
            value = floats(told.get(7, [])) if kind == 6 else integers(told.get(8, []))
        found[name] = value
    return found


class Graph:
    """The nodes and constants of an ONNX file."""

    def __init__(self, data):
        self.data = data
        self.sha256 = hashlib.sha256(data).hexdigest()
        refuse(fields(data).get(25), "the file has functions, whose names say nothing of what they do")
        told = fields(fields(data)[7][0])
        self.nodes = []
        for node in map(fields, told.get(1, [])):
            names = [[name.decode() for name in node.get(number, [])] for number in (1, 2)]
            self.nodes.append((node[4][0].decode(), *names, attributes(node)))
        self.constants = {fields(one)[8][0].decode(): tensor(one) for one in told.get(5, [])
                          if fields(one).get(2, [0])[0] in (1, 2, 7, 11)}  # fmt: skip
        for kind, _, outputs, own in self.nodes:
            if kind == "Constant" and isinstance(own.get("value"), tuple):
                self.constants[outputs[0]] = own["value"]
        self.inputs = [fields(one)[1][0].decode() for one in told.get(11, [])]
        types = [fields(fields(fields(one)[2][0])[1][0])[1][0] for one in told.get(11, [])]
        self.kinds = {name: f"tensor({KINDS.get(kind, kind)})" for name, kind in zip(self.inputs, types, strict=True)}

    def showing(self, name):
        """The file with one more output."""
        told = lambda number, data: _key(number) + _size(len(data)) + data  # noqa: E731
        graph = fields(self.data)[7][0] + told(12, told(1, name.encode()))
        kept = self.data[: self.data.index(fields(self.data)[7][0])]
        kept = kept[: len(kept) - len(_size(len(fields(self.data)[7][0]))) - 1]
        after = self.data[len(kept) + 1 + len(_size(len(fields(self.data)[7][0]))) + len(fields(self.data)[7][0]) :]
        return kept + told(7, graph) + after


def _key(number):
    return _size(number << 3 | 2)


def _size(number):
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _pairs(pairs):
    found = dict(pairs)
    refuse(len(found) < len(pairs), "a name stands twice in the file")
    return found


def _no_number(text):
    raise RefusedError(f"{text} is no finite number")


def _finite(text):
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def strict(text):
    """JSON without NaN, infinite numbers or names that stand twice."""
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"a file is no JSON: {error}") from error


def number(text):
    """A finite number written in hexadecimal digits."""
    value = float.fromhex(text)
    refuse(not math.isfinite(value), f"{text} is no finite number")
    return value


def claims_of(path):
    """The model's digest, and the findings about all inputs of a report (JSON) or certificate (DSSE), by metric."""
    told = strict(pathlib.Path(path).read_text())
    if "payload" in told:
        told = strict(base64.b64decode(told["payload"]))
    digest = told["subject"][0]["digest"]["sha256"] if "predicate" in told else told["model"]["sha256"]
    told = told.get("predicate", told)
    found = {}
    for finding in told["findings"]:
        if finding["auditor"] == "all-inputs" and "class" not in finding["parameters"]:
            refuse(finding["metric"] in found, f"the report has two findings {finding['metric']}")
            found[finding["metric"]] = finding
    refuse(not found, "the report has no finding of all-inputs")
    return digest, found
