"""A digest of a table's content: the same for a CSV and a Parquet file of the same table."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from fairkit.arrays import as_arrow, as_numpy, empty_text

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_EXACT = 2**53
"""Whole numbers up to here are doubles without loss."""


class TableDigest:
    """SHA-256 over columns, kinds and values in order, fed batch by batch.

    The digest does not depend on the batches, on the file format, or on whether whole numbers are
    stored as integers or doubles. Missing cells, NaN and empty text are the same; 0.0 and -0.0 too.
    Each column has the kind ``number``, ``text``, ``boolean`` or ``empty`` and a digest of its own;
    the table's digest is that of the list of (name, kind, digest) and the number of rows, as JSON.
    """

    def __init__(self, columns: list[str]) -> None:
        self._columns = {name: _ColumnDigest() for name in columns}
        self.rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the next rows; the batch holds every column, with plain types."""
        self.rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._columns[name].update(column)

    def hexdigest(self) -> str:
        """Give the table's digest, 64 hexadecimal digits."""
        listing = [[name, *column.result()] for name, column in self._columns.items()]
        text = json.dumps({"rows": self.rows, "columns": listing}, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class _ColumnDigest:
    """One column: values in one hash, text lengths or lost integer digits in a second."""

    def __init__(self) -> None:
        self._values = hashlib.sha256()
        self._second = hashlib.sha256()
        self._second_used = False
        self._kind = "empty"

    def update(self, column: pa.Array) -> None:
        import pyarrow as pa

        if pa.types.is_string(column.type):
            self._text(column)
        elif pa.types.is_boolean(column.type):
            self._boolean(column)
        else:
            self._number(column)

    def result(self) -> tuple[str, str]:
        if self._kind == "empty":
            return self._kind, ""
        digest = self._values.hexdigest()
        if self._second_used:
            digest += self._second.hexdigest()
        return self._kind, digest

    def _see(self, kind: str, *, any_value: bool) -> None:
        if any_value:
            self._kind = kind

    def _text(self, column: pa.Array) -> None:
        import pyarrow.compute as pc

        filled = pc.fill_null(column, empty_text())
        lengths = as_numpy(pc.binary_length(filled)).astype("<i4")
        self._second.update(lengths.tobytes())
        self._second_used = True
        self._values.update(_text_bytes(filled))
        self._see("text", any_value=bool(lengths.any()))

    def _boolean(self, column: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = pc.fill_null(pc.cast(column, pa.uint8()), as_arrow(np.array([2], np.uint8))[0])
        values = as_numpy(codes)
        self._values.update(values.tobytes())
        self._see("boolean", any_value=bool((values != 2).any()))

    def _number(self, column: pa.Array) -> None:
        whole = _large_integers(column)
        values = as_numpy(column).astype("<f8") + 0.0
        missing = np.isnan(values)
        values[missing] = np.nan
        self._values.update(values.tobytes())
        residual = np.zeros(len(values), "<i8") if whole is None else _lost_digits(whole)
        self._second.update(residual.tobytes())
        self._second_used = self._second_used or bool(residual.any())
        self._see("number", any_value=not missing.all())


def _large_integers(column: pa.Array) -> NDArray[np.int64] | None:
    """Give the exact integers where a double would lose digits; None where it loses none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(column.type) or column.null_count == len(column):
        return None
    extremes = pc.min_max(column)
    if max(abs(extremes["min"].as_py()), abs(extremes["max"].as_py())) <= _EXACT:
        return None
    exact: NDArray[np.int64] = as_numpy(pc.fill_null(column, as_arrow(np.zeros(1, np.int64))[0]))
    return exact


def _lost_digits(whole: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give each integer minus its nearest double; the doubles stop short of 2**63, which is no int64."""
    nearest = np.clip(whole.astype("<f8"), -(2.0**63), 2.0**63 - 1024)
    return np.asarray(whole - nearest.astype("<i8"), dtype="<i8")


def _text_bytes(column: pa.Array) -> memoryview | bytes:
    """Give the UTF-8 bytes of all cells one after the other, as Arrow keeps them."""
    _, offsets, data = column.buffers()
    if data is None or len(column) == 0:
        return b""
    bounds = np.frombuffer(offsets, dtype="<i4")
    first, last = bounds[column.offset], bounds[column.offset + len(column)]
    return memoryview(data)[first:last]
