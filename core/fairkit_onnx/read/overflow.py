"""Numbers that are too large for a model's type: named before they become infinite, or when the scores are NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ModelError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

LARGEST = 65_504.0
"""The largest number that float16 has."""
_FLOAT16 = 10


def check_range(values: NDArray[Any], column: str, name: str, dtype: Any) -> None:
    """Refuse numbers that the input's type cannot hold."""
    most = float(np.finfo(dtype).max)
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(values) & (np.abs(values) > most)
    if beyond.any():
        raise DataError(
            f"the model's input {name!r} is {np.dtype(dtype).name}, whose largest number is {most:,.6g}, and column "
            f"{column!r} goes beyond it in {int(beyond.sum()):,} of {len(values):,} rows of a batch (up to "
            f"{float(np.abs(values[beyond]).max()):,.6g}): the model would see infinity. Export it with float32 "
            "inputs, or scale the column as the model was trained"
        )


def explained(error: ModelError, proto: onnx.ModelProto, columns: Mapping[str, NDArray[Any]]) -> ModelError:
    """Return the error about scores that are no numbers, with what in the columns is the likely cause."""
    numbers = {name: values for name, values in columns.items() if values.dtype.kind in "if"}
    large = [name for name, values in numbers.items() if _largest(values) > LARGEST]
    gaps = [name for name, values in numbers.items() if values.dtype.kind == "f" and np.isnan(values).any()]
    if large and _computes_in_float16(proto):
        shown = ", ".join(f"{name!r} (up to {_largest(numbers[name]):,.6g})" for name in large[:6])
        return ModelError(
            f"{error}. The graph computes in float16, whose largest number is 65,504, and these columns go beyond: "
            f"{shown}. They overflow: export the model in float32"
        )
    if gaps:
        return ModelError(f"{error}. Columns with missing values: {', '.join(map(repr, gaps[:6]))}")
    return error


def _largest(values: NDArray[Any]) -> float:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return float(np.abs(finite.astype(np.float64)).max()) if len(finite) else 0.0


def _computes_in_float16(proto: onnx.ModelProto) -> bool:
    if any(tensor.data_type == _FLOAT16 for tensor in proto.graph.initializer):
        return True
    return any(
        node.op_type == "Cast" and any(a.name == "to" and a.i == _FLOAT16 for a in node.attribute)
        for node in proto.graph.node
    )
