"""Between numpy and Arrow: what Arrow's own conversions do, without importing pandas for numbers.

`pyarrow.array`, `pyarrow.scalar` and `Array.to_numpy` import pandas where that is installed, which takes longer
than most audits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def as_numpy(column: pa.Array) -> NDArray[Any]:
    """Return a column as numpy: whole numbers as they are, with gaps as float64 with NaN; text as objects."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        if column.null_count:
            column = pc.fill_null(pc.cast(column, pa.float64(), safe=False), as_arrow(np.array([np.nan]))[0])
        return _shared(column)
    if pa.types.is_boolean(column.type) and not column.null_count:
        return _shared(pc.cast(column, pa.uint8())).view(np.bool_)
    if pa.types.is_dictionary(column.type):
        return _texts_of(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = few_texts(column)
        if coded is not None:
            return _texts_of(coded)
        if len(column) <= _SHORT:
            return _objects(column)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def as_numbers(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return cells that are used as numbers, shape [n], NaN where missing: 06037 is 6037 here; None: some are none."""
    if values.dtype.kind != "O":
        return values
    flags, known = {"true": 1.0, "false": 0.0}, {}
    for cell in set(values.tolist()):
        text = "nan" if cell is None else str(cell).strip()
        number = flags.get(text.lower(), float(text) if cell is None or _NUMBER.fullmatch(text) else None)
        if number is None:
            return None
        known[cell] = number
    return np.array([known[cell] for cell in values.tolist()], dtype=np.float64)


_HEAD, _FEW = 512, 64
_SHORT = 8_192
"""Text of so many rows is read cell by cell: that is faster than importing pandas, as `to_numpy` does."""


def few_texts(column: pa.Array) -> pa.DictionaryArray | None:
    """Return text as a dictionary and the rows' places in it where few values are distinct; else None."""
    if len(column) < _HEAD or len(column.slice(0, _HEAD).dictionary_encode().dictionary) > _FEW:
        return None
    encoded = column.dictionary_encode()
    return encoded if is_short(encoded) else None


def is_short(column: pa.DictionaryArray) -> bool:
    """Return whether a column has many more rows than its dictionary has values, none of which is missing."""
    return len(column.dictionary) <= len(column) // 8 and not column.dictionary.null_count


def decoded(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary: the text itself."""
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def places_in(column: pa.DictionaryArray) -> NDArray[np.intp]:
    """Return each row's place in a column's dictionary, shape [n]; of missing cells the dictionary's length.

    They are of numpy's own type of indices: `take` converts others very slowly.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    places = column.indices
    if places.null_count:
        absent = as_arrow(np.array([len(column.dictionary)], dtype=np.int32))[0]
        places = pc.fill_null(places.cast(pa.int32()), absent)
    return _shared(places).astype(np.intp, copy=False)


def _texts_of(column: pa.DictionaryArray) -> NDArray[Any]:
    """Return text as the same few objects again and again, which is fast, shape [n]."""
    texts = np.empty(len(column.dictionary) + 1, dtype=object)
    texts[:-1] = _objects(column.dictionary)
    return texts.take(places_in(column))


def _objects(column: pa.Array) -> NDArray[Any]:
    """Return cells as Python's objects, shape [n]; None where one is missing."""
    cells = np.empty(len(column), dtype=object)
    cells[:] = column.to_pylist()
    return cells


def as_arrow(values: NDArray[Any]) -> pa.Array:
    """Return numbers or flags, shape [n], as an Arrow array that shares their memory; NaN stays NaN."""
    import pyarrow as pa

    if values.dtype.kind == "b":
        return as_arrow(values.view(np.uint8)).cast(pa.bool_())
    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)])


def empty_text() -> pa.Scalar:
    """Return the text without characters."""
    import pyarrow as pa

    offsets = pa.py_buffer(np.zeros(2, np.int32))
    return pa.StringArray.from_buffers(1, offsets, pa.py_buffer(b""))[0]


def _shared(column: pa.Array) -> NDArray[Any]:
    return np.from_dlpack(column) if len(column) else np.empty(0, column.type.to_pandas_dtype())
