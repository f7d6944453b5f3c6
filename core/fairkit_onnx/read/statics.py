"""What a graph's nodes tell before it is run: draws inside it, scores that could see the other rows of a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fairkit_onnx.read.nodes import ancestors, read_by, subgraphs, walk
from fairkit_onnx.read.scans import maps_rows, over_constants

if TYPE_CHECKING:
    import onnx

RANDOM = frozenset(
    {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"}
)
_SIZES = frozenset({"Shape", "Size"})
_SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1}
"""Operators that a batch's size may steer without its reaching a value, and the input that is only a shape."""
_ALONG = frozenset({"CumSum", "ArgMax", "ArgMin", "TopK", "Softmax", "LogSoftmax", "Hardmax", "LpNormalization",
                    "Gather", "Concat", "Compress", "Unique"})  # fmt: skip
"""Operators that mix the rows where their axis is the first."""
_MIXING = frozenset({"Loop", "Scan", "NonZero", "LSTM", "GRU", "RNN", "SequenceAt", "SplitToSequence", "EyeLike",
                     "DynamicQuantizeLinear", "NonMaxSuppression"})  # fmt: skip
"""Operators that see all rows at once."""
_LAST_AXIS = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "LpNormalization": -1, "TopK": -1}
"""Where an operator that has no axis attribute works; others: on the first."""


def draws(proto: onnx.ModelProto, outputs: Collection[str]) -> list[str]:
    """Return the nodes behind the outputs that draw random numbers, as ``operator 'name'``."""
    return [
        _named(node)
        for node in _everything(proto, outputs)
        if node.op_type in RANDOM or (node.op_type == "Dropout" and _trains(node, proto.graph))
    ]


def batch_readers(proto: onnx.ModelProto, outputs: Collection[str]) -> list[str]:
    """Return the nodes behind the outputs that could make a row's score depend on its batch, each named once.

    These are the sizes of a batch that reach a value, reductions over the first axis, loops that could carry something
    from one row to another, and layers in training mode. It is a suspicion and no proof: which axis holds the rows is
    not always in the file.
    """
    found: dict[str, None] = {}
    sized: set[str] = set()
    _scan(ancestors(proto.graph, outputs), _constants(proto.graph), sized, _functions(proto), found)
    reached = sorted(sized & set(outputs))
    return [*found, *(f"the size of the batch in {name!r}" for name in reached)]


def _scan(
    nodes: Collection[onnx.NodeProto],
    constants: dict[str, Any],
    sized: set[str],
    functions: Mapping[tuple[str, str], onnx.FunctionProto],
    found: dict[str, None],
) -> None:
    """Go through nodes in order; `sized` collects the values that hold the size of the batch."""
    fixed = set(constants)
    for node in nodes:
        reads = read_by(node)
        if node.op_type == "Constant" or (reads and reads <= fixed):
            fixed |= set(node.output)
            continue
        by_row = maps_rows(node, fixed)
        function = functions.get((node.domain, node.op_type))
        if function is not None:
            _scan(function.node, {}, set(), functions, found)
        for graph in () if by_row else subgraphs(node):
            _scan(graph.node, constants | _constants(graph), set(sized), functions, found)
        if node.op_type in _SIZES:
            sized |= set(node.output)
        elif not by_row and _mixes(node, constants, fixed) and not over_constants(node, fixed, nodes):
            found[_named(node)] = None
        elif sized & reads and not _only_shape(node, sized):
            if _reaches_values(node):
                found[_named(node)] = None
            sized |= set(node.output)


def _only_shape(node: onnx.NodeProto, sized: set[str]) -> bool:
    """Whether the batch's size only steers the shape of what comes out."""
    place = _SHAPE_INPUT.get(node.op_type)
    return place is not None and all(name not in sized for i, name in enumerate(node.input) if i != place)


def _reaches_values(node: onnx.NodeProto) -> bool:
    """Whether a size that comes in is compared or computed with, and not only taken apart to make a shape."""
    return node.op_type not in {"Gather", "Slice", "Unsqueeze", "Squeeze", "Cast", "Concat", "Identity", "Reshape",
                                "Mul", "Add", "Sub", "Div", "Range"}  # fmt: skip


def _mixes(node: onnx.NodeProto, constants: Mapping[str, Any], fixed: set[str]) -> bool:
    if node.op_type in _MIXING or (node.op_type == "BatchNormalization" and _number(node, "training_mode")):
        return True
    if node.op_type.startswith("Reduce"):
        axes = _axes(node, constants)
        return axes is None or any(axis in (0, -2) for axis in axes)
    if node.op_type not in _ALONG or (node.op_type == "Gather" and node.input[0] in fixed):
        return False
    if node.op_type == "CumSum":
        told = constants.get(node.input[1])
        return told is None or 0 in told
    axis = _number(node, "axis")
    if axis is None:
        axis = _LAST_AXIS.get(node.op_type, 0)
    return axis == 0


def _axes(node: onnx.NodeProto, constants: Mapping[str, Any]) -> list[int] | None:
    """Return the axes of a reduction; None for all."""
    for attribute in node.attribute:
        if attribute.name == "axes":
            return list(attribute.ints)
    if len(node.input) > 1 and node.input[1]:
        return constants.get(node.input[1])
    return None


def _number(node: onnx.NodeProto, name: str) -> int | None:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), None)


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


def _constants(graph: onnx.GraphProto) -> dict[str, Any]:
    """Return the graph's constants: small ones of whole numbers with their values, others with None."""
    from onnx import TensorProto, numpy_helper

    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            tensors += [
                (node.output[0], attribute.t) for attribute in node.attribute if attribute.name == "value"
            ]
    found: dict[str, Any] = {}
    for name, tensor in tensors:
        small = tensor.data_type in (TensorProto.INT32, TensorProto.INT64) and sum(tensor.dims) <= 8
        found[name] = numpy_helper.to_array(tensor).reshape(-1).tolist() if small else None
    return found


def _functions(proto: onnx.ModelProto) -> dict[tuple[str, str], onnx.FunctionProto]:
    return {(function.domain, function.name): function for function in proto.functions}


def _everything(proto: onnx.ModelProto, outputs: Collection[str]) -> Iterator[onnx.NodeProto]:
    """Return the nodes behind the outputs at every depth, those of the functions that they call included."""
    functions, opened = _functions(proto), set()
    waiting = list(walk(ancestors(proto.graph, outputs)))
    while waiting:
        node = waiting.pop(0)
        yield node
        key = (node.domain, node.op_type)
        if key in functions and key not in opened:
            opened.add(key)
            waiting += walk(functions[key].node)


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or node.output[0]!r}" if node.output else node.op_type
