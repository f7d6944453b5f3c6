"""What a graph's nodes tell before it is run: draws inside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from fairkit_onnx.read.nodes import ancestors, walk

if TYPE_CHECKING:
    import onnx

RANDOM = frozenset(
    {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"}
)


def draws(proto: onnx.ModelProto, outputs: Collection[str]) -> list[str]:
    """Return the nodes behind the outputs that draw random numbers, as ``operator 'name'``."""
    return [
        _named(node)
        for node in _everything(proto, outputs)
        if node.op_type in RANDOM or (node.op_type == "Dropout" and _trains(node, proto.graph))
    ]


def _trains(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    """Whether a Dropout drops: its third input is there and is not the constant False."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    from onnx import numpy_helper

    for tensor in graph.initializer:
        if tensor.name == node.input[2]:
            return bool(numpy_helper.to_array(tensor).any())
    for maker in graph.node:
        if node.input[2] in maker.output and maker.op_type == "Constant":
            return any(bool(numpy_helper.to_array(attribute.t).any()) for attribute in maker.attribute)
    return True


def _functions(proto: onnx.ModelProto) -> dict[tuple[str, str], onnx.FunctionProto]:
    return {(function.domain, function.name): function for function in proto.functions}


def _everything(proto: onnx.ModelProto, outputs: Collection[str]) -> Iterator[onnx.NodeProto]:
    """Return the nodes behind the outputs at every depth, those of the functions that they call included."""
    functions, visited = _functions(proto), set()
    waiting = list(walk(ancestors(proto.graph, outputs)))
    while waiting:
        node = waiting.pop(0)
        yield node
        key = (node.domain, node.op_type)
        if key in functions and key not in visited:
            visited.add(key)
            waiting += walk(functions[key].node)


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or node.output[0]!r}" if node.output else node.op_type
