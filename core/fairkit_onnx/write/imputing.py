"""scikit-learn's SimpleImputer for skl2onnx: numbers of any precision together, texts, and indicators."""

from __future__ import annotations

from typing import Any

import numpy as np


def kept(model: Any) -> list[int]:
    """Return the columns that an imputer keeps: those with a value, unless it keeps empty ones."""
    if model.keep_empty_features or model.statistics_.dtype.kind not in "fiu":
        return list(range(len(model.statistics_)))
    return np.flatnonzero(~np.isnan(model.statistics_)).tolist()


def declare(operator: Any) -> None:
    """Declare the output: texts, or numbers of double precision unless all inputs are single."""
    from skl2onnx.common import data_types

    model, kinds = operator.raw_operator, {type(one.type) for one in operator.inputs}
    text, single = data_types.StringTensorType, data_types.FloatTensorType
    if text in kinds and len(kinds) > 1:
        raise RuntimeError("a SimpleImputer over texts and numbers together; give each kind one of its own")
    more = len(model.indicator_.features_) if model.add_indicator else 0
    if text in kinds and more:
        raise RuntimeError("add_indicator=True beside texts")
    form = next(iter(kinds)) if kinds in ({text}, {single}) else data_types.DoubleTensorType
    operator.outputs[0].type = form([None, len(kept(model)) + more])


def convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes: a missing value becomes its column's statistic; a file's missing text is empty."""
    from onnx import TensorProto, numpy_helper
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    model, output = operator.raw_operator, operator.outputs[0]
    text = isinstance(output.type, StringTensorType)
    dtype: Any = object if text else np.float32 if isinstance(output.type, FloatTensorType) else np.float64
    kind = TensorProto.FLOAT if dtype is np.float32 else TensorProto.DOUBLE

    def node(op: str, inputs: list[str], **how: Any) -> str:
        name = scope.get_unique_variable_name("imputed")
        container.add_node(op, inputs, [name], name=scope.get_unique_operator_name(op), **how)
        return str(name)

    def constant(values: Any) -> str:
        name = scope.get_unique_variable_name("constant")
        array = np.asarray(values)
        if array.dtype.kind == "O":
            texts = [str(value).encode() for value in array.ravel()]
            container.add_initializer(name, TensorProto.STRING, array.shape, texts)
        else:
            container.add_initializer(name, None, None, numpy_helper.from_array(array, name))
        return str(name)

    cells = [one.full_name if text else node("Cast", [one.full_name], to=kind) for one in operator.inputs]
    matrix = cells[0] if len(cells) == 1 else node("Concat", cells, axis=1)
    sentinel = model.missing_values
    if text:
        keys = {"keys_strings": [sentinel if isinstance(sentinel, str) else ""], "values_int64s": [1]}
        found = node("LabelEncoder", [matrix], op_domain="ai.onnx.ml", op_version=2, default_int64=0, **keys)
        missing = node("Cast", [found], to=TensorProto.BOOL)
    elif sentinel is None or sentinel != sentinel:  # noqa: PLR0124 -- NaN
        missing = node("IsNaN", [matrix])
    else:
        missing = node("Equal", [matrix, constant(np.array([[sentinel]], dtype))])
    values = np.array([model.statistics_], dtype)
    filled = node("Gather", [node("Where", [missing, constant(values), matrix]), constant(kept(model))], axis=1)
    if model.add_indicator:
        told = node("Gather", [missing, constant(model.indicator_.features_)], axis=1)
        filled = node("Concat", [filled, node("Cast", [told], to=kind)], axis=1)
    container.add_node("Identity", [filled], [output.full_name], name=scope.get_unique_operator_name("Identity"))
