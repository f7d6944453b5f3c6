"""The differentiable end of an ONNX graph, as a function in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import MissingExtraError, ModelError
from fairkit_individual.operators import FLOATS, operators
from fairkit_onnx.session import open_session
from fairkit_onnx.structure.operators import TREES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

Tensor = Any

PARITY = 1e-3
"""The largest difference between the graph and the function in torch, relative to the largest output."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Head:
    """What a graph computes from its features."""

    features: str  # the tensor from which on every operator has a gradient, as far back as there is a single one
    output: str  # the output that it is for
    nodes: Sequence[Any]  # the nodes between, in order
    constants: Mapping[str, Any]  # their constant inputs

    def __call__(self, features: Tensor) -> Tensor:
        """Compute the output in torch, in double precision; gradients flow."""
        values: dict[str, Tensor] = {self.features: features, "": None}
        table = operators()
        for node in self.nodes:
            inputs = [values[name] if name in values else self.constants[name] for name in node.input]
            values[node.output[0]] = table[node.domain or "", node.op_type](inputs, _attributes(node))
        return values[self.output]


def find_head(proto: onnx.ModelProto, output: str, name: str) -> Head:
    """Walk back from an output while every operator has a gradient."""
    try:
        import torch  # noqa: F401 -- asked for here, used by the operators
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    graph = proto.graph
    producers = {made: place for place, node in enumerate(graph.node) for made in node.output if made}
    constants = _constants(graph)
    output = _through_map(graph, producers, output)
    open_tensors = {output}
    passed: list[int] = []
    cut, behind = output, 0
    stopped = "a graph input"
    while True:
        if len(open_tensors) == 1:
            cut, behind = next(iter(open_tensors)), len(passed)
        latest = max(open_tensors, key=lambda tensor: producers.get(tensor, -1))
        if latest not in producers:
            break
        node = graph.node[producers[latest]]
        if not _differentiable(node, latest, constants):
            stopped = node.op_type
            break
        passed.append(producers[latest])
        open_tensors.remove(latest)
        open_tensors |= {tensor for tensor in node.input if tensor and tensor not in constants}
        if not open_tensors:
            break
    trees = [node.op_type for node in graph.node if node.op_type in TREES]
    if trees or not behind:
        why = "an ensemble of trees, which has no gradient" if trees else f"made by {stopped}, without a gradient"
        raise ModelError(
            f"dif: method=gradient climbs a gradient, but the output {output!r} of {name} is {why}; "
            "use method=sample, which is exact on the rows of the data for any model"
        )
    nodes = [graph.node[place] for place in sorted(passed[:behind])]
    needed = {tensor for node in nodes for tensor in node.input if tensor in constants}
    return Head(
        features=cut, output=output, nodes=nodes, constants={tensor: _as_tensor(constants[tensor]) for tensor in needed}
    )


def run_features(
    proto: onnx.ModelProto, head: Head, feeds: Mapping[str, NDArray[Any]], name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the features with onnxruntime, and check that torch gives the same output from them."""
    import onnx
    import torch

    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    del whole.graph.output[:]
    inputs = {entry.name for entry in proto.graph.input}
    asked = [tensor for tensor in dict.fromkeys((head.features, head.output)) if tensor not in inputs]
    whole.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in asked)
    found = dict(zip(asked, open_session(whole).run(asked, dict(feeds)), strict=True)) | {
        tensor: feeds[tensor] for tensor in (head.features,) if tensor in inputs
    }
    features = np.asarray(found[head.features], dtype=np.float64)
    outputs = np.asarray(found[head.output], dtype=np.float64)
    if features.ndim != 2 or not np.isfinite(features).all():
        raise ModelError(
            f"dif: the differentiable part of {name} begins at {head.features!r} of shape {features.shape}, not at a "
            "finite matrix with one row for each person; use method=sample"
        )
    with torch.no_grad():
        again = head(torch.from_numpy(features)).numpy()
    gap = float(np.abs(again - outputs).max(initial=0.0)) if again.shape == outputs.shape else np.inf
    if not gap <= PARITY * max(1.0, float(np.abs(outputs).max(initial=0.0))):
        raise ModelError(
            f"dif: {name} as read into torch differs from the file by up to {gap:.2g}; use method=sample, and please "
            "report this with the model's operators"
        )
    return features, outputs


def _through_map(graph: Any, producers: Mapping[str, int], output: str) -> str:
    """A map of class probabilities (ZipMap) only names the columns of its input."""
    node = graph.node[producers[output]] if output in producers else None
    return str(node.input[0]) if node is not None and node.op_type == "ZipMap" else output


def _differentiable(node: Any, output: str, constants: Mapping[str, Any]) -> bool:
    if (node.domain or "", node.op_type) not in operators() or output != node.output[0]:
        return False
    if node.op_type == "Cast":
        return _attributes(node)["to"] in FLOATS
    shapes = {"Reshape": 1, "Squeeze": 1, "Unsqueeze": 1, "Gather": 1}
    place = shapes.get(node.op_type)
    return place is None or len(node.input) <= place or node.input[place] in constants


def _constants(graph: Any) -> dict[str, Any]:
    from onnx import numpy_helper

    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            value = next(iter(_attributes(node).values()))
            constants[node.output[0]] = (
                numpy_helper.to_array(value) if hasattr(value, "raw_data") else np.asarray(value)
            )
        elif node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    return constants


def _as_tensor(value: NDArray[Any]) -> Tensor:
    import torch

    array = np.array(value)
    return torch.as_tensor(array.astype(np.float64) if array.dtype.kind == "f" else array)


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
