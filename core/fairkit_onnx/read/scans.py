"""Loops that cannot mix the rows of a batch, such as the distances of scikit-learn's nearest neighbours."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from fairkit_onnx.read.nodes import read_by

if TYPE_CHECKING:
    import onnx

_TURNED = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")


def maps_rows(node: onnx.NodeProto, fixed: Collection[str]) -> bool:
    """Prove that a Scan answers each row from that row and constants alone.

    So it is where its states begin as constants and leave every turn as they came, where its body takes nothing but
    constants from outside, and where all it goes through and gives lies along the first axis, in one direction.

    Parameters
    ----------
    node
        Any node.
    fixed
        The names of the graph's constants.

    Returns
    -------
    bool
        False where it is not proven.
    """
    told = _told(node)
    if told is None:
        return False
    body = told["body"].g
    states = len(body.input) - int(told["num_scan_inputs"].i)
    if states < 0 or len(node.input) != len(body.input) or len(node.output) != len(body.output):
        return False
    if not set(node.input[:states]) <= set(fixed):
        return False
    return _unchanged(body, states) and _closed(body, fixed)


def over_constants(node: onnx.NodeProto, fixed: Collection[str], nodes: Collection[onnx.NodeProto]) -> bool:
    """Prove that a Scan goes through constants: its turns are the same for every batch, as if they were written out.

    Whether it mixes rows is then the question whether a node of its body does. What it stacks has the rows along the
    second axis: all that reads it must be a Transpose, which brings them back to the first.

    Parameters
    ----------
    node, fixed
        As for `maps_rows`.
    nodes
        The nodes of the graph.
    """
    told = _told(node)
    if told is None:
        return False
    body = told["body"].g
    states = len(body.input) - int(told["num_scan_inputs"].i)
    if not 0 <= states < len(node.input) == len(body.input) or not set(node.input[states:]) <= set(fixed):
        return False
    stacked = set(node.output[states:])
    readers = [other for other in nodes if stacked & read_by(other)]
    return bool(readers) and all(_transposes(other) for other in readers)


def _transposes(node: onnx.NodeProto) -> bool:
    orders = [list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"]
    return node.op_type == "Transpose" and node.domain in ("", "ai.onnx") and orders in ([], [[1, 0]])


def _told(node: onnx.NodeProto) -> dict[str, onnx.AttributeProto] | None:
    """Return the attributes of a Scan along first axes in one direction; None for any other node."""
    if node.op_type != "Scan" or node.domain not in ("", "ai.onnx"):
        return None
    told = {attribute.name: attribute for attribute in node.attribute}
    turned = any(name in told and any(told[name].ints) for name in _TURNED)
    return None if turned else told


def _unchanged(body: onnx.GraphProto, states: int) -> bool:
    """Whether the body's first outputs are its first inputs."""
    source = {
        inner.output[0]: inner.input[0]
        for inner in body.node
        if inner.op_type == "Identity" and inner.domain in ("", "ai.onnx")
    }
    for given, left in zip(body.input[:states], body.output[:states], strict=False):
        name = left.name
        while name in source:
            name = source[name]
        if name != given.name:
            return False
    return True


def _closed(body: onnx.GraphProto, fixed: Collection[str]) -> bool:
    """Whether the body reads nothing from outside but constants."""
    own = {entry.name for entry in body.input} | {tensor.name for tensor in body.initializer} | set(fixed)
    for inner in body.node:
        if not read_by(inner) <= own:
            return False
        own |= set(inner.output)
    return True
