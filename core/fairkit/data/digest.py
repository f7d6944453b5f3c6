"""A digest of a table's content: the same for a CSV and a Parquet file of the same table, however it is cut."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.arrow_types import as_arrow, as_numpy, empty_text, places_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

CHUNK = 8_192
"""Rows that are hashed together. Row 0 begins the first chunk, whatever the batches, files or machines."""

_EXACT = 2**53
"""Whole numbers up to here are doubles without loss."""


class TableDigest:
    """SHA-256 over columns, kinds and values in order, fed batch by batch; parts of a table add up.

    The digest does not depend on the batches, on the file format, or on whether whole numbers are
    stored as integers or doubles. Missing cells, NaN and empty text are the same; 0.0 and -0.0 too.
    Each column has the kind ``number``, ``text``, ``boolean`` or ``empty`` and a digest of its own: that of the
    digests of its chunks of `CHUNK` rows. The table's digest is that of the list of (name, kind, digest) and the
    number of rows, as JSON.
    """

    def __init__(self, columns: Sequence[str], start: int = 0) -> None:
        self._columns = {name: _ColumnDigest(crossed=start % CHUNK == 0) for name in columns}
        self.start = start
        self.rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the next rows; the batch holds every column, with plain types."""
        at = (self.start + self.rows) % CHUNK
        stops = list(range(CHUNK - at, batch.num_rows, CHUNK))
        cuts = [0, *stops, batch.num_rows] if batch.num_rows else [0]
        full = (at + batch.num_rows) % CHUNK == 0
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._columns[name].update(column, cuts, full=full)
        self.rows += batch.num_rows

    def __add__(self, right: TableDigest) -> TableDigest:
        """Join with the part that comes right after this one."""
        if right.start != self.start + self.rows:
            raise ValueError(f"rows {right.start}... do not follow {self.rows} rows from {self.start}")
        joined = TableDigest((), self.start)
        joined.rows = self.rows + right.rows
        joined._columns = {name: column + right._columns[name] for name, column in self._columns.items()}
        return joined

    def hexdigest(self) -> str:
        """Return the table's digest, 64 hexadecimal digits."""
        listing = [[name, *column.result()] for name, column in self._columns.items()]
        text = json.dumps({"rows": self.rows, "columns": listing}, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class _Piece:
    """Some rows of one chunk: the bytes of the values, and of the text lengths or lost integer digits."""

    rows: int
    values: bytes | memoryview
    second: bytes | memoryview

    def held(self) -> _Piece:
        """Return the piece with bytes of its own, which outlive the batch."""
        return _Piece(self.rows, bytes(self.values), bytes(self.second))


@dataclass(slots=True)
class _ColumnDigest:
    """One column of a part of a table."""

    crossed: bool  # whether the part holds the beginning of a chunk, or begins with one
    head: list[_Piece] = field(default_factory=list)
    done: bytearray = field(default_factory=bytearray)  # the digests of whole chunks
    tail: list[_Piece] = field(default_factory=list)  # pieces of the last, unfinished chunk
    kind: str = "empty"  # what the column holds, as far as is known

    def update(self, column: pa.Array, cuts: Sequence[int], *, full: bool) -> None:
        """Add rows; `cuts` are the chunks' bounds in them, `full` tells whether the last one is a chunk's end."""
        kind, cells = _cells(column)
        self.kind = kind or self.kind
        last = len(cuts) - 2
        for index, (low, high) in enumerate(itertools.pairwise(cuts)):
            piece = _Piece(high - low, *cells.bytes(low, high))
            ends = index < last or full
            if ends and self.crossed and not self.tail:
                self.done += _chunk([piece])
                continue
            self._piece(piece.held())
            if ends:
                self._close()

    def __add__(self, right: _ColumnDigest) -> _ColumnDigest:
        joined = _ColumnDigest(self.crossed, list(self.head), bytearray(self.done), list(self.tail))
        joined.kind = self.kind if right.kind == "empty" else right.kind
        for piece in right.head:
            joined._piece(piece)
        if right.crossed:
            joined._close()
            joined.done += right.done
            joined.tail = list(right.tail)
        return joined

    def result(self) -> tuple[str, str]:
        """Return kind and digest of a whole table's column."""
        if self.kind == "empty":
            return self.kind, ""
        chunks = bytes(self.done) + (_chunk(self.tail) if self.tail else b"")
        return self.kind, hashlib.sha256(chunks).hexdigest()

    def _piece(self, piece: _Piece) -> None:
        (self.tail if self.crossed else self.head).append(piece)

    def _close(self) -> None:
        """A chunk ends here."""
        if self.crossed and self.tail:
            self.done += _chunk(self.tail)
            self.tail = []
        self.crossed = True


def _chunk(pieces: Sequence[_Piece]) -> bytes:
    """Hash the second bytes, where there are any, after the values: the number of rows tells them apart."""
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece.values)
    if any(piece.second for piece in pieces):
        for piece in pieces:
            hasher.update(piece.second or bytes(8 * piece.rows))
    return hasher.digest()


@dataclass(slots=True)
class _Cells:
    """A column's cells as bytes."""

    values: NDArray[np.uint8]
    bounds: NDArray[np.int64] | None
    width: int
    second: NDArray[np.uint8] | None
    second_width: int

    def bytes(self, low: int, high: int) -> tuple[memoryview, bytes | memoryview]:
        """Return the bytes of the rows from `low` to before `high`, and their second bytes, in the column's memory."""
        start, stop = low * self.width, high * self.width
        if self.bounds is not None:
            start, stop = int(self.bounds[low]), int(self.bounds[high])
        second: bytes | memoryview = b""
        if self.second is not None:
            part = self.second[low * self.second_width : high * self.second_width]
            second = part.data if self.bounds is not None or part.any() else b""
        return self.values[start:stop].data, second


def _cells(column: pa.Array) -> tuple[str, _Cells]:
    """Return a column's kind ("" where all is missing) and its cells."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return _equally_long(column) or _text(column.dictionary_decode())
    if pa.types.is_string(column.type):
        return _text(column)
    if pa.types.is_boolean(column.type):
        return _boolean(column)
    return _number(column)


def _text(column: pa.Array) -> tuple[str, _Cells]:
    import pyarrow.compute as pc

    filled = pc.fill_null(column, empty_text()) if column.null_count else column
    _, offsets, data = filled.buffers()
    if data is None or len(filled) == 0:
        values, bounds = np.empty(0, np.uint8), np.zeros(len(filled) + 1, np.int64)
    else:
        values = np.frombuffer(data, np.uint8)
        bounds = np.frombuffer(offsets, "<i4")[filled.offset : filled.offset + len(filled) + 1]
    lengths = np.diff(bounds).astype("<i4")
    return "text" if lengths.any() else "", _Cells(values, bounds, 0, lengths.view(np.uint8), 4)


def _equally_long(column: pa.DictionaryArray) -> tuple[str, _Cells] | None:
    """Return text of which each value is equally long, put together by places, which is fast; None for other text."""
    import pyarrow.compute as pc

    _, offsets, data = column.dictionary.buffers()
    first, count = column.dictionary.offset, len(column.dictionary)
    lengths = as_numpy(pc.binary_length(column.dictionary))
    if column.null_count or not count or not lengths[0] or (lengths != lengths[0]).any():
        return None
    width = int(lengths[0])
    start = int(np.frombuffer(offsets, "<i4")[first])
    texts = np.frombuffer(data, f"V{width}", count, start)
    second = np.full(len(column), width, "<i4").view(np.uint8)
    return "text", _Cells(texts.take(places_in(column)).view(np.uint8), None, width, second, 4)


def _boolean(column: pa.Array) -> tuple[str, _Cells]:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pc.fill_null(pc.cast(column, pa.uint8()), as_arrow(np.array([2], np.uint8))[0])
    values: NDArray[np.uint8] = as_numpy(codes)
    return "boolean" if (values != 2).any() else "", _Cells(values, None, 1, None, 0)


def _number(column: pa.Array) -> tuple[str, _Cells]:
    whole = _large_integers(column)
    values = plain_doubles(column)
    second = None
    if whole is not None:
        second = _lost_digits(whole).view(np.uint8)
        second = second if second.any() else None
    empty = np.isnan(values[:1]).any() and np.isnan(values).all()
    return "" if empty or not len(values) else "number", _Cells(values.view(np.uint8), None, 8, second, 8)


def plain_doubles(column: pa.Array) -> NDArray[np.float64]:
    """Return numbers as doubles of which equal ones have equal bits: -0 is 0, and there is one NaN."""
    numbers = as_numpy(column)
    if numbers.dtype.kind != "f":
        return numbers.astype("<f8")
    values: NDArray[np.float64] = numbers.astype("<f8", copy=False) + 0.0
    missing = np.isnan(values)
    if missing.any():
        values[missing] = np.nan
    return values


def _large_integers(column: pa.Array) -> NDArray[np.int64] | None:
    """Return the exact integers where a double would lose digits; None where it loses none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(column.type) or column.null_count == len(column):
        return None
    if column.null_count:
        low, high = (extreme.as_py() for extreme in pc.min_max(column).values())
    else:
        cells = as_numpy(column)
        low, high = int(cells.min()), int(cells.max())
    if max(abs(low), abs(high)) <= _EXACT:
        return None
    return as_numpy(pc.fill_null(column, as_arrow(np.zeros(1, np.int64))[0]))


def _lost_digits(whole: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each integer minus its nearest double; the doubles stop short of 2**63, which is no int64."""
    nearest = np.clip(whole.astype("<f8"), -(2.0**63), 2.0**63 - 1024)
    return np.asarray(whole - nearest.astype("<i8"), dtype="<i8")
