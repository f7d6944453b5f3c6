"""What skl2onnx asks an estimator of ours: its outputs, their shapes, its graph.

It finds them as methods (``onnx_parser``, ``onnx_shape_calculator``, ``onnx_converter``) of the estimator, so that
``skl2onnx.to_onnx(pipeline, X)`` works without a registration. The outputs are those of scikit-learn's own
classifiers and regressors there: ``label`` and ``probabilities``, or ``variable``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.write.graph import ML_OPSET, OPSET, GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    from fairkit_onnx.write.graph import ElementType

_TENSORS: dict[str, ElementType] = {
    "FloatTensorType": "float",
    "DoubleTensorType": "double",
    "Int64TensorType": "int64",
    "StringTensorType": "string",
}
_WANTED = {1: "float", 7: "int64", 8: "string", 11: "double"}


class _Column(NamedTuple):
    """Where a column of the estimator comes from: a tensor of the pipeline and the place in it."""

    tensor: str
    place: int
    kind: ElementType


class Converted:
    """An estimator that skl2onnx converts wherever it stands in a pipeline."""

    def onnx_parser(self) -> Callable[..., list[Any]]:
        """Return the function that declares the outputs."""
        return lambda scope, inputs: _declared(self, scope)

    def onnx_shape_calculator(self) -> Callable[[Any], None]:
        """Return the function that sets the outputs' shapes."""
        return lambda operator: _shaped(self, operator)

    def onnx_converter(self) -> Callable[[Any, Any, Any], None]:
        """Return the function that adds the nodes."""
        return lambda scope, operator, container: _convert(self, operator, container)


def _declared(estimator: Any, scope: Any) -> list[Any]:
    from skl2onnx.common.data_types import FloatTensorType

    if not hasattr(estimator, "classes_"):
        return [scope.declare_local_variable("variable", FloatTensorType())]
    return [
        scope.declare_local_variable("label", _label_type(estimator)()),
        scope.declare_local_variable("probabilities", FloatTensorType()),
    ]


def _label_type(estimator: Any) -> Any:
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    return Int64TensorType if estimator.classes_.dtype.kind in "biu" else StringTensorType


def _shaped(estimator: Any, operator: Any) -> None:
    from skl2onnx.common.data_types import FloatTensorType

    rows = operator.inputs[0].get_first_dimension()
    if not hasattr(estimator, "classes_"):
        operator.outputs[0].type = FloatTensorType([rows, 1])
        return
    operator.outputs[0].type = _label_type(estimator)([rows])
    operator.outputs[1].type = FloatTensorType([rows, len(estimator.classes_)])


def _convert(estimator: Any, operator: Any, container: Any) -> None:
    """Put the estimator's own graph into the pipeline's, column by column."""
    from onnx import compose, version_converter

    columns = [one for variable in operator.inputs for one in _columns(variable)]
    if len(columns) != estimator.n_features_in_:
        raise ModelError(
            f"{type(estimator).__name__} was fitted on {estimator.n_features_in_} columns and gets {len(columns)}"
        )
    inner = _graph(estimator, columns)
    opset = max(int(container.target_opset), OPSET)
    inner = version_converter.convert_version(inner, opset) if opset != OPSET else inner
    prefix = f"{operator.full_name}/"
    inner = compose.add_prefix(inner, prefix)
    for place, column in enumerate(columns):
        index = f"{prefix}place{place}"
        container.add_initializer(index, 7, [1], [column.place])
        container.add_node(
            "Gather", [column.tensor, index], f"{prefix}column{place}", name=f"{prefix}take{place}", axis=1
        )
    container.initializers.extend(inner.graph.initializer)
    container.nodes.extend(inner.graph.node)
    # what the nodes are written for; skl2onnx takes the highest version of each domain
    container.node_domain_version_pair_sets.update({("", opset), ("ai.onnx.ml", ML_OPSET)})
    for variable, output in zip(operator.outputs, inner.graph.output, strict=True):
        container.add_node("Identity", output.name, variable.full_name, name=f"{output.name}/out")


def _columns(variable: Any) -> list[_Column]:
    kind = _TENSORS.get(type(variable.type).__name__)
    width = variable.type.shape[1] if len(variable.type.shape) > 1 else None
    if kind is None or not isinstance(width, int):
        raise ModelError(
            f"the step before gives {variable.type}: fairkit's estimators take numbers, integers and text, in a "
            "known number of columns"
        )
    return [_Column(variable.full_name, place, kind) for place in range(width)]


def _graph(estimator: Any, columns: Sequence[_Column]) -> onnx.ModelProto:
    """Return a graph from ``column0``, ``column1``, ... to the outputs that skl2onnx knows."""
    import onnx

    proto = onnx.load_from_string(estimator.to_onnx())
    graph = GraphBuilder()
    inputs = [graph.input(f"column{place}", column.kind) for place, column in enumerate(columns)]
    outputs = graph.inline(proto, {one.name: _fed(graph, estimator, one, inputs, columns) for one in proto.graph.input})
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        graph.output("variable", outputs["score"], "float", 1)
        return graph.build()
    if len(classes) > 2:
        probabilities = outputs["probabilities"]
        places = graph.node("ArgMax", [probabilities], axis=1, keepdims=0)
    else:
        score = outputs["score"]
        rest = graph.node("Sub", [1.0, score])
        probabilities = graph.node("Concat", [rest, score], axis=1)
        chance = graph.reshape(outputs["decision_probability"], (-1,))
        unlikely = graph.node("Less", [chance, graph.constant([0.5])])
        places = graph.cast(graph.node("Not", [unlikely]), np.int64)
    texts = classes.dtype.kind not in "biu"
    known = graph.constant([str(one) for one in classes] if texts else classes, object if texts else np.int64)
    graph.output("label", graph.node("Gather", [known, places]), "string" if texts else "int64", None)
    graph.output("probabilities", probabilities, "float", len(classes))
    return graph.build()


def _fed(graph: GraphBuilder, estimator: Any, entry: Any, inputs: Sequence[str], columns: Sequence[_Column]) -> str:
    """Return the column that an input of the estimator's file takes, in its type."""
    names = [str(one) for one in getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(len(inputs))])]
    if entry.name not in names:  # a randomized model's draws, which neither labels nor probabilities follow from
        return graph.constant([[0.5]])
    index, wanted = names.index(entry.name), entry.type.tensor_type.elem_type
    if (columns[index].kind == "string") != (_WANTED[wanted] == "string"):
        raise ModelError(
            f"the column {entry.name!r} was {_WANTED[wanted]} when {type(estimator).__name__} was fitted, and the step "
            f"before gives {columns[index].kind}"
        )
    return graph.node("Cast", [inputs[index]], to=wanted)
