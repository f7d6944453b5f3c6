"""Mutate plain files of several exporters: none of those that are still shown answers a row otherwise in company.

python benchmarks/fuzz_plain.py [FILES] [SEED]: changes of bytes, fields, constants, wires and operators. What
is still shown runs in onnxruntime, in a process of its own: rows together, in parts, alone, and in another order.
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

ROWS, WORDS = 23, ("the same in company", "OTHERWISE", "refused by onnxruntime")
KINDS = [name for domain, name in RULES if not domain]


def messages(message: Any) -> list[Any]:
    """Return a message and those in it."""
    inner = [value for entry, value in message.ListFields() if entry.message_type is not None]
    return [message] + [
        m for some in inner for one in ([some] if hasattr(some, "DESCRIPTOR") else some) for m in messages(one)
    ]


def change(pick: Any, proto: onnx.ModelProto) -> None:
    """Change a field (of an attribute, too), a wire or an operator, or a constant."""
    how = pick(range(5))
    if how in (3, 4):  # a field of any message
        one = pick(messages(proto))
        entry = pick([entry for entry in one.DESCRIPTOR.fields if entry.message_type is None])
        value = pick(
            ["", "a", "ai.onnx"] if entry.cpp_type == entry.CPPTYPE_STRING else [0, 1, 2, 3, -1, 7, 9, 11, 100]
        )
        value = value.encode() if entry.type == entry.TYPE_BYTES else value
        if entry.is_repeated:
            some = getattr(one, entry.name)
            some.append(value) if not some or pick([True, False]) else some.__setitem__(pick(range(len(some))), value)
        else:
            setattr(one, entry.name, value) if pick([True, True, False]) else one.ClearField(entry.name)
    elif how in (1, 2):  # another input, another operator, or one more operator before it
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
            told = pick([{}, {"axis": pick(range(-1, 3))}, {"keepdims": pick(range(3))}, {"axes": [1]}])
            inputs = [node.input[place], pick(names)][: pick([1, 2])]
            node.input[place] = f"more{pick(range(99))}"
            more = helper.make_node(pick(KINDS), inputs, [node.input[place]], **told)
            proto.graph.node.insert(at, more)
    else:
        one = pick(proto.graph.initializer)
        array = np.array(numpy_helper.to_array(one))
        array.reshape(-1)[pick(range(array.size))] = pick([0, 1, -1, 2, 3, ROWS])
        one.CopyFrom(numpy_helper.from_array(array.reshape(pick([array.shape, (-1,), (1, -1), (-1, 1)])), one.name))


def tried(content: bytes, rng: np.random.Generator) -> int:
    """Run rows together, in parts, alone and in another order; return a place in `WORDS`."""
    import onnxruntime

    options, feeds, order = onnxruntime.SessionOptions(), {}, rng.permutation(ROWS)
    options.log_severity_level, options.intra_op_num_threads = 4, 1
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
    for place in range(len(said[0][0])):  # of maps, their numbers
        every = [
            [[[*row.values()] for row in o] if isinstance(o := one[place], list) else o for one in s] for s in said
        ]
        together, *others = (np.concatenate(parts) for parts in every)
        others[2] = others[2][np.argsort(order)]
        for other in others:  # numbers may differ by rounding, and one label of all may lie on a limit
            if other.shape != together.shape:
                return 1
            number = together.dtype.kind == "f"
            if not (
                np.allclose(other, together, 1e-3, 1e-3, equal_nan=True) if number else (other != together).sum() < 2
            ):
                return 1
    return 0


def main(files: int = 2_000, seed: int = 0) -> int:
    """Mutate, and print what came of it."""
    rng, counts = np.random.default_rng(seed), Counter[str]()
    exports = (exported.pipelines, exported.boosters, exported.networks)
    sources = [proto.SerializeToString() for some in exports for _, proto in some()]
    sources = [one for one in sources if len(one) < 60_000 and show(one, {}).to_dict()["rows_apart"]]
    pick = lambda some: some[int(rng.integers(len(some)))]  # noqa: E731 -- short
    for number in range(files):
        content = pick(sources)
        for _ in range(pick([1, 2, 3])):
            try:
                proto = onnx.ModelProto.FromString(content)
                change(pick, proto)
                content = proto.SerializeToString()
            except (AttributeError, IndexError, TypeError, UnicodeError, ValueError):
                pass  # a change that protobuf does not take is none
        if pick(range(10)) == 0:
            place = pick(range(len(content)))
            content = content[:place] + bytes([pick(range(256))]) + content[place + pick([0, 1]) :]
        found = show(content, {})
        if found.broken or found.meet:
            counts["not plain" if found.broken else "rows not shown to stay apart"] += 1
            continue
        child = os.fork()  # what a hostile file does to the runtime ends one process alone
        if child == 0:
            os._exit(tried(content, np.random.default_rng(number)))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        counts[f"shown: {WORDS[code] if 0 <= code < len(WORDS) else f'ended with {code}'}"] += 1
    sys.stdout.write("".join(f"{count:6,} {word}\n" for word, count in sorted(counts.items())))
    return int(counts["shown: OTHERWISE"] > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
