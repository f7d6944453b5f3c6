"""Walking a graph without running it: every node at every depth, and the nodes that an output is made from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Return the bodies of a branch or a loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def walk(nodes: Collection[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Return nodes and, at every depth, those of their subgraphs; functions are not opened."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from walk(graph.node)


def name_of(node: onnx.NodeProto) -> str:
    """Return a node as messages call it: ``operator 'name'``, or the name of what it makes."""
    return f"{node.op_type} {node.name or node.output[0]!r}" if node.output else node.op_type


def read_by(node: onnx.NodeProto) -> set[str]:
    """Return the names of the values that a node reads, those that its subgraphs take from outside included."""
    names = set(node.input)
    for graph in subgraphs(node):
        own = {entry.name for entry in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            names |= read_by(inner) - own
            own |= set(inner.output)
        names |= {output.name for output in graph.output} - own
    return names - {""}


def ancestors(graph: onnx.GraphProto, outputs: Collection[str]) -> list[onnx.NodeProto]:
    """Return the nodes that values are made from, in the graph's order."""
    wanted = set(outputs)
    kept = []
    for node in reversed(graph.node):  # the standard asks for topological order, and onnxruntime checks it
        if wanted & set(node.output):
            kept.append(node)
            wanted |= read_by(node)
    return kept[::-1]


RUNTIME = ("ai.onnx", "com.microsoft", "com.ms", "org.pytorch")
"""Domains of operators that onnxruntime brings with it, and what they begin with."""


def replaces_operator(function: onnx.FunctionProto) -> bool:
    """Whether a function has a domain of onnxruntime's: its own operator of that name would run in its place."""
    domain = function.domain
    return not domain or any(domain == one or domain.startswith(f"{one}.") for one in RUNTIME)


def function_key(entry: onnx.FunctionProto | onnx.NodeProto) -> tuple[str, str, str]:
    """Return what a function is called by: domain, name and, from version 10 of the format on, overload."""
    name = getattr(entry, "op_type", None) or entry.name
    return entry.domain, name, getattr(entry, "overload", "")
