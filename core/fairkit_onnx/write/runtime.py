"""Running a graph of raw columns under plain onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.lists import list_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def run_columns(
    session: Any, columns: Mapping[str, NDArray[Any]], *, u: NDArray[Any] | None = None
) -> dict[str, NDArray[Any]]:
    """Run a graph whose inputs are raw columns of shape [rows, 1], or list columns of shape [rows, k]."""
    rows = len(next(iter(columns.values())))
    feeds: dict[str, NDArray[Any]] = {}
    lists = list_columns(list(columns))
    for entry in session.get_inputs():
        if entry.name == "u" and "u" not in columns:
            feeds["u"] = np.zeros((rows, 1), np.float32) if u is None else as_input(u, entry.type)
        elif entry.name in lists and entry.name not in columns:
            cells = [as_input(columns[place], entry.type) for place in lists[entry.name]]
            feeds[entry.name] = np.concatenate(cells, axis=1)
        else:
            feeds[entry.name] = as_input(columns[entry.name], entry.type)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def as_input(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return a raw column as the tensor that an input of this type takes, shape [n, 1]."""
    from fairkit_onnx.write.cells import as_float32

    if kind == "tensor(string)":
        texts = ["" if value is None or value != value else str(value) for value in values.tolist()]  # noqa: PLR0124
        return np.array(texts, dtype=object).reshape(-1, 1)
    if kind == "tensor(double)":
        return values.astype(np.float64).reshape(-1, 1)
    if kind == "tensor(int64)":
        return values.astype(np.int64).reshape(-1, 1)
    return as_float32(values, "input").reshape(-1, 1)
