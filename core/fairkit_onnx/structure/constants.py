"""Constant tensors of a graph, and tensors whose numbers all come from one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.structure.ensemble import attributes_of
from fairkit_onnx.structure.operators import ARRANGES

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_ARRANGED = ARRANGES | {"Gather", "Cast", "Expand"}


def constant_of(graph: onnx.GraphProto, name: str) -> NDArray[Any] | None:
    """Return a constant tensor; None for what is none."""
    from onnx import numpy_helper

    for tensor in graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and name in node.output:
            told = attributes_of(node)
            if "value" in told:
                return numpy_helper.to_array(told["value"])
            return np.asarray(next(iter(told.values())))
    return None


def values_of(graph: onnx.GraphProto, name: str) -> NDArray[Any] | None:
    """Return a constant that has all numbers which a tensor may have, such as the table that rows are taken from.

    None where they do not come from one.
    """
    makers = {output: node for node in graph.node for output in node.output}
    for _ in range(len(graph.node) + 1):
        constant = constant_of(graph, name)
        maker = makers.get(name)
        if constant is not None or maker is None or maker.op_type not in _ARRANGED:
            return constant
        name = maker.input[0]
    return None
