"""What a graph's nodes tell before it is run: draws inside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from fairkit_onnx.read.nodes import ancestors, function_key, name_of, subgraphs, walk

if TYPE_CHECKING:
    import onnx

RANDOM = frozenset(
    {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"}
)
"""Operators that draw random numbers."""


def draws(proto: onnx.ModelProto, outputs: Collection[str]) -> list[str]:
    """Return the nodes behind the outputs that draw random numbers, as ``operator 'name'``."""
    return [
        name_of(node)
        for node, around in _everything(proto, outputs)
        if node.op_type in RANDOM or (node.op_type == "Dropout" and _trains(node, around))
    ]


def _trains(node: onnx.NodeProto, around: onnx.GraphProto | onnx.FunctionProto) -> bool:
    """Whether a Dropout drops: its third input is there, and is not False wherever its name is given a value."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    from onnx import numpy_helper

    name, values = node.input[2], []
    graphs = [around, *(graph for inner in walk(around.node) for graph in subgraphs(inner))]
    for graph in graphs:
        values += [tensor for tensor in getattr(graph, "initializer", ()) if tensor.name == name]
    for maker in walk(around.node):
        if name in maker.output:
            if maker.op_type != "Constant":
                return True
            values += [attribute.t for attribute in maker.attribute]
    return not values or any(bool(numpy_helper.to_array(tensor).any()) for tensor in values)


def _everything(
    proto: onnx.ModelProto, outputs: Collection[str]
) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto | onnx.FunctionProto]]:
    """Return the nodes behind the outputs at every depth, each with the graph or the function around it."""
    functions = {function_key(function): function for function in proto.functions}
    visited = set()
    waiting: list[tuple[onnx.NodeProto, onnx.GraphProto | onnx.FunctionProto]]
    waiting = [(node, proto.graph) for node in walk(ancestors(proto.graph, outputs))]
    while waiting:
        node, around = waiting.pop(0)
        yield node, around
        key = function_key(node)
        if key in functions and key not in visited:
            visited.add(key)
            waiting += [(inner, functions[key]) for inner in walk(functions[key].node)]
