"""What scikit-learn's users have, as raw columns: frames, matrices, and sensitive features beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.dataset import BATCH_ROWS
from fairkit.data.roles import value_text
from fairkit.data.sources import open_source
from fairkit.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.source import Source


def frame_columns(X: Any) -> dict[str, NDArray[Any]]:
    """Return the raw columns of a data frame, ``x0``, ``x1``, ... of a matrix, ``text`` of texts, each of shape [n]."""
    if _library(X) in ("polars", "pyarrow"):
        source = open_source(X, "X")
        return {name: _whole(source, name) for name in source.columns}
    if hasattr(X, "columns"):
        return {str(name): raw_column(X[name]) for name in X.columns}
    matrix = np.asarray(X) if np.ndim(X) else np.empty((0, 0))
    if matrix.ndim == 1:  # a series or a list of texts
        return {str(getattr(X, "name", None) or "text"): raw_column(X if hasattr(X, "dtype") else matrix)}
    return {f"x{place}": matrix[:, place] for place in range(matrix.shape[1])}


def raw_column(values: Any) -> NDArray[Any]:
    """Return text as objects with None where missing, and numbers as they are; from a series or an array."""
    if values.dtype.kind in "iufb":
        return np.asarray(values)
    cells = np.array(values, dtype=object)
    missing = np.asarray(values.isna()) if hasattr(values, "isna") else _missing(cells)
    known = cells[~missing]
    if len(known) and all(isinstance(value, (int, float, np.number)) for value in known):
        return np.array([np.nan if gone else float(value) for gone, value in zip(missing, cells, strict=True)])
    return np.array([None if gone else str(value) for gone, value in zip(missing, cells, strict=True)], dtype=object)


def sensitive_names(sensitive: Any) -> tuple[str, ...]:
    """Return the names of sensitive features: a frame's columns, a series' name, or ``sensitive``, numbered."""
    if hasattr(sensitive, "column_names"):
        return tuple(sensitive.column_names)
    if hasattr(sensitive, "columns"):
        return tuple(str(name) for name in sensitive.columns)
    values = np.asarray(sensitive)
    if values.ndim > 1 and values.shape[1] > 1:
        return tuple(f"sensitive_{place}" for place in range(values.shape[1]))
    return (str(getattr(sensitive, "name", None) or "sensitive"),)


def sensitive_matrix(sensitive: Any, rows: int) -> NDArray[Any]:
    """Return sensitive features as objects, shape [rows, k]."""
    values = np.asarray(sensitive, dtype=object)
    if len(values) != rows:
        raise DataError(f"sensitive_features has {len(values)} rows, X has {rows}")
    return values.reshape(rows, -1)


def group_codes(values: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the groups' names, sorted, and each row's group, shape [n]."""
    texts = np.array([value_text(value) for value in values.tolist()])
    found, codes = np.unique(texts, return_inverse=True)
    return tuple(found.tolist()), codes.astype(np.int64)


def _library(values: Any) -> str:
    return type(values).__module__.partition(".")[0]


def _whole(source: Source, name: str) -> NDArray[Any]:
    """Return one column as a CSV or Parquet file's would be read."""
    cells = [as_numpy(batch.column(0)) for batch in source.batches([name], BATCH_ROWS)]
    return np.concatenate(cells) if cells else np.empty(0)


def _missing(cells: NDArray[Any]) -> NDArray[np.bool_]:
    return np.array([value is None or value != value for value in cells.tolist()], dtype=bool)  # noqa: PLR0124 -- only NaN differs from itself
