"""What scikit-learn's users hold, X, y and sensitive features, as one table with roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.frames import column_of, memory_table
from fairkit.data.lists import is_list
from fairkit.data.outcomes import good_value
from fairkit.data.plain import is_readable
from fairkit.data.roles import value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


_PLAIN = (("0", "1"), ("-1", "1"), ("false", "true"), ("no", "yes"))
"""Pairs of values of which the second is the good one."""


@dataclass(frozen=True, slots=True)
class NamedMatrix:
    """A matrix and what stood beside it, as one table: the arguments of `fairkit.load_data`."""

    table: pa.Table
    features: tuple[str, ...]
    label: str | None
    favorable: Any
    sensitive: tuple[str, ...]
    weights: str | None


def beside(X: Any, y: Any, sensitive_features: Any, sample_weight: Any, favorable: Any) -> NamedMatrix:
    """Put a matrix and what stands beside it into one table."""
    table = _table(X)
    features = tuple(one.name for one in table.schema if is_list(one.type) or is_readable(one.type))
    label = weights = None
    if y is not None:
        labels = _array(y, "y", table.num_rows)
        label = _new_name(str(getattr(y, "name", None) or "y"), features, "label")
        table = table.append_column(label, [labels])
        favorable = _favorable(labels, label) if favorable is None else favorable
    table, sensitive = _with_sensitive(table, sensitive_features)
    if sample_weight is not None:
        weights = _new_name("sample_weight", table.column_names, "weight")
        table = table.append_column(weights, [_array(sample_weight, "sample_weight", table.num_rows)])
    return NamedMatrix(table, features, label, favorable, tuple(sensitive), weights)


def _table(X: Any) -> pa.Table:
    import pyarrow as pa

    if hasattr(X, "toarray"):  # a sparse matrix
        X = X.toarray()
    if is_one_column(X):
        return pa.table({str(getattr(X, "name", None) or "text"): _array(X, "X", len(X))})
    if isinstance(X, np.ndarray | list):
        matrix = np.asarray(X)
        if matrix.ndim != 2:
            raise DataError(f"X has {matrix.ndim} dimensions; it is a matrix or a table: rows and columns")
        return pa.table({f"x{place}": _values(matrix[:, place]) for place in range(matrix.shape[1])})
    return memory_table(X)


def is_one_column(X: Any) -> bool:
    """Tell whether a matrix is a series or list: texts, one for each row."""
    return not hasattr(X, "columns") and not hasattr(X, "column_names") and np.ndim(X) == 1


def _with_sensitive(table: pa.Table, sensitive: Any) -> tuple[pa.Table, list[str]]:
    if sensitive is None:
        return table, []
    if isinstance(sensitive, str):
        return table, [sensitive]
    texts = isinstance(sensitive, list | tuple) and all(isinstance(one, str) for one in sensitive)
    if texts and 0 < len(sensitive) != table.num_rows:  # n texts are a column, fewer are names of columns
        return table, list(sensitive)
    columns = _columns(sensitive)
    for name, values in columns.items():
        cells = _array(values, f"sensitive_features[{name!r}]", table.num_rows)
        if name not in table.column_names:
            table = table.append_column(name, [cells])
        elif table.column(name).to_pylist() != cells.to_pylist():
            raise DataError(
                f"`sensitive_features` and X both have a column {name!r}, with other values; rename one of them"
            )
    return table, list(columns)


def _columns(features: Any) -> dict[str, Any]:
    """Return sensitive features as columns: a frame's, a series' by its name, or ``sensitive``, numbered."""
    if isinstance(features, Mapping):
        return {str(name): values for name, values in features.items()}
    if hasattr(features, "column_names"):
        return {name: features.column(name) for name in features.column_names}
    if hasattr(features, "columns"):
        return {str(name): features[name] for name in features.columns}
    values = np.asarray(features)
    if values.ndim > 1 and values.shape[1] > 1:
        return {f"sensitive_{place}": values[:, place] for place in range(values.shape[1])}
    single = values.reshape(-1) if values.ndim > 1 else features
    return {str(getattr(features, "name", None) or "sensitive"): single}


def _array(values: Any, what: str, rows: int) -> pa.Array:
    """Return a column of any library as an Arrow array of `rows` values."""
    import pyarrow as pa

    if hasattr(values, "columns") and len(values.columns) == 1:
        return _array(values[values.columns[0]], what, rows)
    cells = column_of(values)
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    if len(cells) != rows:
        raise DataError(f"`{what}` has {len(cells)} rows, X has {rows}")
    return cells


def _values(column: NDArray[Any]) -> Any:
    """Return a matrix' column as Arrow takes it; a column of Python objects by what its cells are."""
    return column.tolist() if column.dtype.kind in "OUS" else column


def _new_name(name: str, taken: Sequence[str], otherwise: str) -> str:
    found = name
    while found in taken:
        found = otherwise if found == name and otherwise != name else f"{found}_"
    return found


def _favorable(labels: pa.Array, name: str) -> Any:
    """Return which of two values is good for a person where they leave no doubt; None where there are more of them.

    No doubt: 1 of 0 and 1 (or -1 and 1), True, yes, and words such as approved, unless the name says that it is bad.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    values = [value for value in pc.unique(cells).to_pylist() if value is not None and value == value]  # noqa: PLR0124 -- NaN
    if len(values) != 2:
        return None
    texts = sorted(map(value_text, values))
    by_words = good_value(name, values)
    usual = {text.lower(): text for text in texts}
    good = next((usual[yes] for no, yes in _PLAIN if usual.keys() == {no, yes}), by_words)
    if good is None or by_words not in (None, good):
        raise DataError(
            f"`{name}` has the values {texts[0]!r} and {texts[1]!r}; say which is good for the person with `favorable`"
        )
    return next(value for value in values if value_text(value) == good)
