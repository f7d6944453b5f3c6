"""A look at an ONNX file that never runs it and never follows a path in it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import RegistryError

if TYPE_CHECKING:
    from pathlib import Path

    import onnx


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """What stands in a graph: how often each operator, numbers in its weights, inputs, outputs."""

    operators: dict[str, int]
    weights: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: dict[str, int]


def check_file(path: Path, *, shown: Path | None = None) -> None:
    """Refuse a file that is not an ONNX model or whose weights lie in other files.

    A digest of the file says nothing about weights outside of it, so a certificate could not name them.
    """
    model = _load(path, shown or path)
    if any(tensor.external_data or tensor.data_location == 1 for tensor in _walk(model)[1]):
        raise RegistryError(
            f"{shown or path} keeps weights in other files, which its digest does not cover; save it as one file: "
            "onnx.save_model(onnx.load(path), out, save_as_external_data=False)"
        )


def _load(path: Path, name: Path) -> onnx.ModelProto:
    """Parse a file without following a path in it; a protobuf message of another kind is refused."""
    import onnx
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except OSError as error:
        raise RegistryError(f"cannot read the model {name}: {error.strerror or error}") from None
    except DecodeError:
        raise RegistryError(f"{name} is not an ONNX file (or is damaged)") from None
    if not model.HasField("graph") or len(UnknownFieldSet(model)):
        raise RegistryError(f"{name} is not an ONNX file: it holds no graph")
    return model


def _walk(model: Any) -> tuple[list[Any], list[Any]]:
    """Return all nodes and all tensors, those of subgraphs and functions included."""
    nodes: list[Any] = []
    tensors: list[Any] = []
    graphs = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        nodes.extend(graph.node)
        tensors.extend(getattr(graph, "initializer", ()))
        for sparse in getattr(graph, "sparse_initializer", ()):
            tensors.extend((sparse.values, sparse.indices))
        defaults = getattr(graph, "attribute_proto", ())
        for attribute in (*defaults, *(one for node in graph.node for one in node.attribute)):
            tensors.extend([*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])])
            graphs.extend([*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])])
    return nodes, tensors


def summarise(path: Path) -> GraphSummary:
    """Count the operators and weights of an ONNX file, subgraphs and functions included."""
    model = _load(path, path)
    nodes, tensors = _walk(model)
    operators = Counter(_operator(node) for node in nodes)
    attributes = [one for node in nodes for one in node.attribute]
    weights = sum(math.prod(tensor.dims) for tensor in tensors)
    weights += sum(len(one.floats) + len(one.ints) for one in attributes)
    return GraphSummary(
        operators=dict(sorted(operators.items())),
        weights=weights,
        inputs=tuple(_typed(value) for value in model.graph.input),
        outputs=tuple(_typed(value) for value in model.graph.output),
        opsets={_text(entry.domain) or "ai.onnx": entry.version for entry in model.opset_import},
    )


def _text(value: str | bytes) -> str:
    """Read a string field; protobuf gives bytes where it is not UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _operator(node: Any) -> str:
    domain, kind = _text(node.domain), _text(node.op_type)
    return f"{domain}.{kind}" if domain else kind


def _typed(value: Any) -> str:
    from onnx import TensorProto

    name = _text(value.name)
    if not value.type.HasField("tensor_type"):
        return f"{name}: {value.type.WhichOneof('value') or 'untyped'}"
    kind = value.type.tensor_type
    known = TensorProto.DataType.values()
    element = TensorProto.DataType.Name(kind.elem_type).lower() if kind.elem_type in known else "unknown"
    shape = [str(d.dim_value) if d.HasField("dim_value") else (_text(d.dim_param) or "?") for d in kind.shape.dim]
    return f"{name}: {element}[{', '.join(shape)}]"
