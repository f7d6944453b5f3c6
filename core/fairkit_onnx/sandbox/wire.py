"""The bytes between a model's process and ours: headers are JSON, arrays are plain; nothing that could run code."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_FRAME = struct.Struct("=QQ")
MAX_HEADER = 1 << 30
ALIGNMENT = 64
DTYPES = frozenset(["?", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
"""The element types that cross; text goes as codes of distinct values."""


class BrokenPipe(Exception):  # noqa: N818 -- the other side is gone, which is no error of this one
    """The other side closed its end, or sent what is no message."""


def frame(header: Mapping[str, Any], payload: int = 0) -> bytes:
    """Return a message's beginning: the lengths and the header; `payload` bytes follow it."""
    text = json.dumps(header).encode()
    return _FRAME.pack(len(text), payload) + text


def read_frame(read: Callable[[int], bytes | bytearray], most: int) -> tuple[dict[str, Any], bytes | bytearray]:
    """Read a message with a function that returns exactly as many bytes as asked."""
    header, payload = _FRAME.unpack(read(_FRAME.size))
    if header > MAX_HEADER or payload > most:
        raise BrokenPipe(f"a message of {header + payload} bytes")
    try:
        message = json.loads(bytes(read(header)))
    except ValueError as error:
        raise BrokenPipe("a message that is no JSON") from error
    if not isinstance(message, dict):
        raise BrokenPipe("a message that is no object")
    return message, read(payload) if payload else b""


def pack(values: Sequence[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Describe arrays and give their buffers, each aligned in one area: records with `offset`, and the buffers."""
    records: list[dict[str, Any]] = []
    buffers: list[Any] = []
    at = 0
    for value in values:
        record, array = _describe(value)
        if array is not None:
            record |= {"dtype": array.dtype.str[1:], "shape": list(array.shape), "offset": at}
            buffers.append((at, array))
            at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        records.append(record)
    return records, buffers


def size(buffers: Sequence[tuple[int, Any]]) -> int:
    """Return how many bytes the buffers need."""
    return max((at + array.nbytes for at, array in buffers), default=0)


def write(buffers: Sequence[tuple[int, Any]], area: memoryview) -> None:
    """Copy the buffers to their places."""
    for at, array in buffers:
        area[at : at + array.nbytes] = memoryview(array).cast("B") if array.nbytes else b""


def unpack(record: Mapping[str, Any], area: Any) -> Any:
    """Read one value back; None for what does not cross."""
    kind = record.get("kind")
    if kind == "opaque":
        return None
    try:
        array = _array(record, area)
        if kind == "array":
            return array
        if kind == "text":
            texts = [str(text) for text in record["texts"]]
            return np.array([*texts, None], dtype=object)[:-1][array]
        if kind == "maps":
            return Maps([_key(key) for key in record["keys"]], array)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BrokenPipe(f"a value that cannot be read: {error}") from error
    raise BrokenPipe(f"a value of an unknown kind: {kind}")


class Maps(Sequence[Mapping[Any, float]]):
    """The rows of a ZipMap: one mapping for each row, kept as a matrix [n, K] whose columns are the keys."""

    def __init__(self, keys: Sequence[Any], matrix: np.ndarray[Any, Any]) -> None:
        if matrix.ndim != 2 or matrix.shape[1] != len(keys):
            raise ValueError(f"{len(keys)} keys for a matrix of the shape {matrix.shape}")
        self.keys, self.matrix = list(keys), matrix

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Maps(self.keys, self.matrix[place])
        return dict(zip(self.keys, self.matrix[place].tolist(), strict=True))


def as_maps(rows: Sequence[Mapping[Any, float]]) -> Maps:
    """Turn a list of mappings with the same keys into `Maps`."""
    keys = list(rows[0]) if rows else []
    matrix = np.array([[row[key] for key in keys] for row in rows], dtype=np.float32)
    return Maps(keys, matrix.reshape(len(rows), len(keys)))


def in_parts(run: Callable[[dict[str, Any]], list[Any]], feeds: Mapping[str, Any], sizes: Sequence[int]) -> list[Any]:
    """Run on batches of these sizes and put the outputs together."""
    ends = [int(end) for end in np.cumsum(sizes)]
    parts = [
        run({name: array[end - size : end] for name, array in feeds.items()})
        for size, end in zip(sizes, ends, strict=True)
    ]
    return [_joined(values) for values in zip(*parts, strict=True)]


def _joined(values: Sequence[Any]) -> Any:
    if isinstance(values[0], np.ndarray):
        if len({value.shape[1:] for value in values}) > 1:
            raise ValueError(
                "an output has other columns in other batches: a decision about a person must not depend on who else "
                "is in the batch"
            )
        return np.concatenate([np.atleast_1d(value) for value in values])
    return [row for part in values for row in part]


def _key(key: Any) -> Any:
    if not isinstance(key, int | str) or isinstance(key, bool):
        raise TypeError("a key is a number or text")
    return key


def _array(record: Mapping[str, Any], area: Any) -> np.ndarray[Any, Any]:
    shape = [int(length) for length in record["shape"]]
    if record["dtype"] not in DTYPES or min(shape, default=0) < 0:
        raise ValueError("no such array")
    dtype = np.dtype(record["dtype"])
    count = int(np.prod(shape, dtype=object))
    return np.frombuffer(area, dtype, count, int(record["offset"])).reshape(shape)


def _describe(value: Any) -> tuple[dict[str, Any], Any]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = as_maps(value)
    if isinstance(value, Maps):
        return {"kind": "maps", "keys": value.keys}, np.ascontiguousarray(value.matrix)
    if not isinstance(value, np.ndarray):
        return {"kind": "opaque"}, None
    if value.dtype.kind in "OU":
        texts, codes = factorize(value)
        return {"kind": "text", "texts": texts}, codes
    if value.dtype.str[1:] not in DTYPES:
        return {"kind": "opaque"}, None
    # ascontiguousarray makes a scalar a vector
    return {"kind": "array"}, np.ascontiguousarray(value).reshape(value.shape)


def factorize(values: np.ndarray[Any, Any]) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return the distinct texts and each cell's number among them, int32, of the same shape."""
    result = _by_address(values) if values.dtype.kind == "O" else None
    if result is not None:
        return result
    places: dict[Any, int] = {}
    codes = [places.setdefault(text, len(places)) for text in values.reshape(-1).tolist()]
    texts = [text if isinstance(text, str) else str(text) for text in places]
    return texts, np.array(codes, dtype=np.int32).reshape(values.shape)


def _by_address(values: np.ndarray[Any, Any]) -> tuple[list[str], np.ndarray[Any, Any]] | None:
    """Do the same for cells that are few objects, met again and again, as text from Arrow is; None for others.

    Comparing addresses is some twenty times as fast as comparing text.
    """
    import ctypes

    if values.size < _WORTHWHILE or not values.flags.c_contiguous or "pyarrow" not in sys.modules:
        return None
    import pyarrow as pa

    cells_of = (ctypes.c_int64 * values.size).from_address(values.ctypes.data)
    addresses = np.frombuffer(memoryview(cells_of).cast("B"), dtype=np.int64)
    plain = pa.Array.from_buffers(pa.int64(), values.size, [None, pa.py_buffer(addresses)])
    encoded = plain.dictionary_encode()
    distinct = len(encoded.dictionary)
    if distinct > values.size // 8:
        return None
    codes = np.from_dlpack(encoded.indices)
    first = np.empty(distinct, dtype=np.int64)
    first[codes[::-1]] = np.arange(values.size - 1, -1, -1)
    cells = values.reshape(-1)[first].tolist()
    if not all(type(cell) is str for cell in cells):
        return None
    return cells, codes.astype(np.int32).reshape(values.shape)


_WORTHWHILE = 512
