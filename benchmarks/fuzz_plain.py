"""Mutate plain files of several exporters: none of those that are still shown answers a row otherwise in company.

    python benchmarks/fuzz_plain.py [FILES] [SEED]

One to three changes each, of bytes, fields, attributes, constants, wires and operators. What is still plain with its rows
shown to stay apart runs in onnxruntime, in a process of its own: rows alone, in batches, in another order. Numbers may
differ by rounding. It ends with 1 where a row was answered otherwise.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fairkit_onnx import exported

from fairkit_onnx.plain import show
from fairkit_onnx.rowwise import RULES

ROWS, TOLERANCE = 23, 1e-3
WORDS = ("the same in company", "OTHERWISE", "refused by onnxruntime")
KINDS = [name for domain, name in RULES if not domain]


def messages(message: Any) -> list[Any]:
    """Return a message and those in it."""
    inner = [value for entry, value in message.ListFields() if entry.message_type is not None]
    parts = [one for value in inner for one in ((value,) if hasattr(value, "DESCRIPTOR") else value)]
    return [message, *(deeper for one in parts for deeper in messages(one))]


def change_field(pick: Any, proto: onnx.ModelProto) -> None:
    """Change, repeat or remove what one field holds."""
    one = pick(messages(proto))
    entry = pick([entry for entry in one.DESCRIPTOR.fields if entry.message_type is None])
    value = pick([0, 1, 2, 3, -1, 7, 9, 11, 2**31 - 1])
    value = float(value) if entry.cpp_type in (entry.CPPTYPE_FLOAT, entry.CPPTYPE_DOUBLE) else value
    if entry.cpp_type == entry.CPPTYPE_STRING:
        value = pick([b"", b"a", b"x", b"ai.onnx", b"axis"])
        value = value if entry.type == entry.TYPE_BYTES else value.decode()
    if entry.is_repeated:
        getattr(one, entry.name).append(value)
    elif pick([True, True, False]):
        setattr(one, entry.name, value)
    else:
        one.ClearField(entry.name)


def change_attribute(pick: Any, proto: onnx.ModelProto) -> None:
    """Change a number of an attribute, or add one."""
    node = pick(proto.graph.node)
    numbers = [one for one in node.attribute if one.type == 2 or one.ints]
    if numbers and pick([True, False]):
        one = pick(numbers)
        one.i, value = (pick([0, 1, 2, -1, one.i + 1]), None) if one.type == 2 else (0, pick([0, 1, 2, -1, 100]))
        if value is not None:
            one.ClearField("i")
            one.ints[pick(range(len(one.ints)))] = value
    else:
        name, value = pick(["axis", "keepdims", "axes", "perm", "transA", "zeros", "n_targets"]), pick(range(-2, 3))
        node.attribute.append(helper.make_attribute(name, [value] if name in ("axes", "perm") else value))


def change_wire(pick: Any, proto: onnx.ModelProto) -> None:
    """Feed an operator with another tensor, make it another operator, or put one more before it."""
    at = pick([place for place, node in enumerate(proto.graph.node) if node.input])
    node = proto.graph.node[at]
    names = [name for one in list(proto.graph.node)[:at] for name in one.output]
    names += [one.name for one in (*proto.graph.initializer, *proto.graph.input)]
    place, how = pick(range(len(node.input))), pick(range(4))
    if how == 0:
        node.input[place] = pick(names)
    elif how == 1:
        node.op_type = pick(KINDS)
    else:
        more = helper.make_node(
            pick(KINDS), [node.input[place], pick(names)][: pick([1, 2])], [f"more{pick(range(99))}"]
        )
        if pick([True, False]):
            name = pick(["axis", "keepdims", "axes"])
            more.attribute.append(helper.make_attribute(name, [1] if name == "axes" else pick(range(-1, 3))))
        node.input[place] = more.output[0]
        proto.graph.node.insert(at, more)


def change_constant(pick: Any, proto: onnx.ModelProto) -> None:
    """Change the lengths and a number of a constant."""
    one = pick(proto.graph.initializer)
    array = np.array(numpy_helper.to_array(one))
    array.reshape(-1)[pick(range(array.size))] = pick([0, 1, -1, 2, 3, ROWS])
    one.CopyFrom(numpy_helper.from_array(array.reshape(pick([array.shape, (-1,), (1, -1), (-1, 1)])), one.name))


def tried(content: bytes, rng: np.random.Generator) -> int:
    """Run rows together, in parts, alone and in another order; return a place in `WORDS`."""
    import onnxruntime

    options, feeds = onnxruntime.SessionOptions(), {}
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    order = rng.permutation(ROWS)
    ways = [[range(ROWS)], [range(12), range(12, ROWS)], [[row] for row in range(ROWS)], [order]]
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        for one in session.get_inputs():
            drawn = np.abs(
                rng.normal(1, 0.6, (ROWS, *(size if isinstance(size, int) else 5 for size in one.shape[1:])))
            )
            kind = {"tensor(int64)": np.int64, "tensor(double)": np.float64}.get(one.type, np.float32)
            text = one.type == "tensor(string)"
            feeds[one.name] = rng.choice(["a", "b", "c"], drawn.shape).astype(object) if text else drawn.astype(kind)
        said = [[session.run(None, {k: v[list(part)] for k, v in feeds.items()}) for part in parts] for parts in ways]
    except Exception:  # the file, or one of the rows: nobody is answered
        return 2
    for place in range(len(said[0][0])):
        found = [np.concatenate([values(one[place]) for one in parts]) for parts in said]
        found[3] = found[3][np.argsort(order)]
        if any(one.shape != found[0].shape or differ(found[0], one) for one in found[1:]):
            return 1
    return 0


def values(said: Any) -> np.ndarray[Any, Any]:
    """Return an output as an array: of maps, their numbers."""
    return np.array([list(one.values()) for one in said]) if isinstance(said, list) else said


def differ(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Tell whether numbers differ by more than rounding; one label of all rows may lie on a limit."""
    if one.dtype.kind != "f":
        return bool((one != other).sum() > 1)
    finite = np.where(np.isfinite(one), one, 0)
    size = np.maximum(np.abs(finite), 1e-3 + np.abs(finite).mean())
    with np.errstate(invalid="ignore"):
        return not (
            (np.abs(one - other) <= TOLERANCE * size) | (one == other) | (np.isnan(one) & np.isnan(other))
        ).all()


def main(files: int = 2_000, seed: int = 0) -> int:
    """Mutate, and print what came of it."""
    rng, counts = np.random.default_rng(seed), Counter[str]()
    made = [one for some in (exported.pipelines, exported.boosters, exported.networks) for one in some()]
    sources = [(name, proto.SerializeToString()) for name, proto in made]
    sources = [one for one in sources if len(one[1]) < 60_000 and show(one[1], {}).to_dict()["rows_apart"]]

    def pick(some: Any) -> Any:
        return some[int(rng.integers(len(some)))]

    for number in range(files):
        name, content = pick(sources)
        for _ in range(pick([1, 2, 3])):
            proto, place = onnx.ModelProto.FromString(content), pick(range(len(content)))
            try:
                pick([change_field, change_attribute, change_wire, change_wire, change_constant])(pick, proto)
                content = proto.SerializeToString()
            except (AttributeError, IndexError, TypeError, UnicodeError, ValueError):
                pass  # a change that protobuf does not take is none
        if pick(range(10)) == 0:
            content = content[:place] + bytes([pick(range(256))]) + content[place + pick([0, 1]) :]
        found = show(content, {})
        counts["not plain" if found.broken else "rows not shown to stay apart" if found.meet else "shown"] += 1
        if found.broken is None and found.meet is None:
            child = os.fork()  # what a hostile file does to the runtime ends one process alone
            if child == 0:
                os._exit(tried(content, np.random.default_rng(number)))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            counts[f"shown: {WORDS[code] if 0 <= code < 3 else f'ended with {code}'}"] += 1
            if code == 1:
                Path(f"fuzz_plain_{seed}_{number}.onnx").write_bytes(content)
                sys.stdout.write(f"OTHERWISE: file {number}, from {name}\n")
    sys.stdout.write("".join(f"{count:6,} {word}\n" for word, count in sorted(counts.items())))
    return int(counts["shown: OTHERWISE"] > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
