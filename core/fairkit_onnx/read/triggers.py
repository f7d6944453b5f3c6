"""Inputs that are constant in the data although the model looks at them: what it does elsewhere was not seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import FairkitError
from fairkit_onnx.read.alone import ROUNDING, differing

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.alone import Understand
    from fairkit_onnx.read.runner import Runner

ROWS = 256
"""How many rows are scored with other values."""
MOST_TRIED = 24
"""How many other values are tried for one column."""
MOST_COLUMNS = 32
"""How many constant columns are looked at."""


def constant_inputs(
    runner: Runner, columns: Mapping[str, NDArray[Any]], dataset: Dataset, understand: Understand, outputs: list[str]
) -> list[str]:
    """Return a sentence for the columns that never change in the data although the model's answer depends on them.

    Other values are tried: numbers around the constant and those that stand in the graph, texts that stand in it.
    """
    still = [name for name in runner.columns if _is_constant(columns[name])][:MOST_COLUMNS]
    if not still or len(columns[still[0]]) < 2:
        return []
    few = {name: columns[name][:ROWS] for name in runner.columns}
    plain = understand(runner.raw(few, outputs))
    fixed = []
    for name in still:
        values = _tried(few[name], runner.model.proto)
        if any(_changes(runner, few, name, value, plain, understand, outputs) for value in values) and _stays(
            dataset, name, few[name][0]
        ):
            fixed.append(f"{name!r} (always {_shown(few[name][0])})")
    if not fixed:
        return []
    return [
        f"Inputs that never change in this data, although the model's answer depends on them: {', '.join(fixed)}. What "
        "the model does for their other values was not audited."
    ]


def _is_constant(values: NDArray[Any]) -> bool:
    first = values[0]
    if values.dtype.kind == "f" and np.isnan(first):
        return bool(np.isnan(values).all())
    return bool(np.all(values == first))


def _stays(dataset: Dataset, name: str, value: Any) -> bool:
    """Whether the column has this value in every row; only columns that begin so are read for it."""
    for batch in dataset.batches([name]):
        values = batch.column(name)
        if not _is_constant(values) or not _is_constant(np.array([values[0], value], dtype=values.dtype)):
            return False
    return True


def _changes(
    runner: Runner,
    columns: Mapping[str, NDArray[Any]],
    name: str,
    value: Any,
    plain: Predictions,
    understand: Understand,
    outputs: list[str],
) -> bool:
    dtype = columns[name].dtype
    other = np.full(
        len(columns[name]), value, dtype=object if dtype.kind == "O" else np.result_type(dtype, type(value))
    )
    try:
        found = understand(runner.raw({**columns, name: other}, outputs))
    except FairkitError:
        return True  # a value that the model cannot score is one on which its answer depends
    return len(differing(plain, found, ROUNDING)) > 0


def _tried(values: NDArray[Any], proto: onnx.ModelProto) -> list[Any]:
    """Return other values for a column: of its own kind, and those that the graph compares with."""
    if values.dtype.kind == "O":
        return [text for text in dict.fromkeys(_texts(proto)) if text != values[0]][:MOST_TRIED] or ["?"]
    constant = 0.0 if not np.isfinite(float(values[0])) else float(values[0])
    near = [constant + 1, constant - 1, 0.0, 1.0, -1.0, 2 * constant, -constant, constant + 1e3, 1e6, -1e6]
    more = [number + step for number in _numbers(proto) for step in (0.0, 0.5)]
    different = [number for number in dict.fromkeys([*near, *more]) if number != constant]
    if values.dtype.kind in "iub":
        different = [int(number) for number in different if number == int(number)]
    return different[: MOST_TRIED + len(near)]


def _texts(proto: onnx.ModelProto) -> Iterator[str]:
    for tensor in proto.graph.initializer:
        yield from (text.decode("utf-8", "replace") for text in tensor.string_data)
    for node in proto.graph.node:
        for attribute in node.attribute:
            yield from (text.decode("utf-8", "replace") for text in attribute.strings)
            yield from (text.decode("utf-8", "replace") for text in attribute.t.string_data)


def _numbers(proto: onnx.ModelProto) -> Iterator[float]:
    """Return the numbers in small constants."""
    from onnx import numpy_helper

    tensors = [tensor for tensor in proto.graph.initializer if sum(tensor.dims) <= 4]
    tensors += [a.t for node in proto.graph.node for a in node.attribute if a.HasField("t") and sum(a.t.dims) <= 4]
    for tensor in tensors[:64]:
        if tensor.data_type in (1, 6, 7, 11):
            values = numpy_helper.to_array(tensor).astype(float).reshape(-1)
            yield from (float(value) for value in values if abs(value) < 1e12)


def _shown(value: Any) -> str:
    if value is None or value != value:  # noqa: PLR0124 -- NaN
        return "missing"
    return repr(value) if isinstance(value, str) else str(value)
