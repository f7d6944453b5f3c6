"""Between numpy and Arrow: what Arrow's own conversions do, without importing pandas for numbers.

`pyarrow.array`, `pyarrow.scalar` and `Array.to_numpy` import pandas where that is installed, which takes longer
than most audits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass, field, fields

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Places = NDArray[np.intp]


NULL_SPELLINGS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "#N/A")
"""What a CSV cell may hold to be read as missing, and text of a group, label or stratum in any table."""


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
    flags, numbers = {"true": 1.0, "false": 0.0}, {}
    for cell in set(values.tolist()):
        text = "nan" if cell is None else str(cell).strip()
        number = flags.get(text.lower(), float(text) if cell is None or _NUMBER.fullmatch(text) else None)
        if number is None:
            return None
        numbers[cell] = number
    return np.array([numbers[cell] for cell in values.tolist()], dtype=np.float64)


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


def texts_as_arrow(values: NDArray[Any]) -> pa.Array:
    """Return texts, of which some may be None, shape [n], as an Arrow array: `pa.array` would import pandas first."""
    import pyarrow as pa

    is_present = np.array([value is not None for value in values], bool)
    cells = [b"" if value is None else value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, cells)], dtype=np.int32)
    buffers = [pa.py_buffer(part) for part in (np.packbits(is_present, bitorder="little"), offsets, b"".join(cells))]
    return pa.StringArray.from_buffers(len(cells), buffers[1], buffers[2], buffers[0], int((~is_present).sum()))


def empty_text() -> pa.Scalar:
    """Return the text without characters."""
    import pyarrow as pa

    offsets = pa.py_buffer(np.zeros(2, np.int32))
    return pa.StringArray.from_buffers(1, offsets, pa.py_buffer(b""))[0]


def _shared(column: pa.Array) -> NDArray[Any]:
    return np.from_dlpack(column) if len(column) else np.empty(0, column.type.to_pandas_dtype())


# The few types that the rest of fairkit sees: text, numbers and booleans.


def plain(
    batch: pa.RecordBatch, table: str, *, coded: bool = False, types: Mapping[str, pa.DataType] | None = None
) -> pa.RecordBatch:
    """Cast every column to string, int64, float64 or bool; with `coded` text of few values to a dictionary.

    `types` are those of the whole table: a column that is narrower in this batch becomes as wide.
    """
    import pyarrow as pa

    wanted = types or {}
    arrays = [
        _plain_column(column, field, wanted.get(field.name, field.type), table, coded=coded)
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain_column(column: pa.Array, field: pa.Field, wanted: pa.DataType, table: str, *, coded: bool) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, field.type
    if types.is_dictionary(kind):
        if coded and kind.value_type == pa.string() and is_short(column):
            return column
        column = _decoded(column, table, field.name)
        kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = _stored(column)
        kind = column.type
    if coded and kind == pa.string():
        texts = few_texts(column)
        return column if texts is None else texts
    if types.is_string(wanted) and (types.is_integer(kind) or types.is_decimal(kind) or types.is_null(kind)):
        return column.cast(wanted)  # whole numbers that no 64 bits hold, somewhere in the table
    if types.is_floating(wanted) and types.is_integer(kind):
        return column.cast(pa.float64())
    if kind in (pa.string(), pa.int64(), pa.float64(), pa.bool_()):
        return column
    target = plain_type(kind)
    if target is None:
        raise DataError(unread_type(table, field.name, field.type))
    try:
        cells = column.cast(target)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise DataError(
                f"{table}: column {field.name!r} holds bytes that are no UTF-8 text; save the file as UTF-8"
            ) from error
        raise DataError(f"{table}: column {field.name!r} cannot be read as {target}: {error}") from error
    if types.is_decimal(kind) and kind.scale <= 0 and (pc.max(pc.abs(cells)).as_py() or 0) >= 2**53:
        raise DataError(f"{table}: column {field.name!r} cannot be read as {target}: numbers of more than 53 bits")
    return cells


def _decoded(column: pa.DictionaryArray, table: str, name: str) -> pa.Array:
    """Return the cells of a column with a dictionary, whose values may be of a type that Arrow does not take from."""
    import pyarrow as pa

    values = column.dictionary
    field = pa.field(name, values.type)
    if values.type not in (pa.string(), pa.large_string(), pa.int64(), pa.float64(), pa.bool_()):
        values = _plain_column(values, field, values.type, table, coded=False)
    return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()


def _stored(column: pa.ExtensionArray) -> pa.Array:
    """Return what an extension's cells are stored as; pandas' intervals and periods as pandas writes them."""
    import pyarrow as pa

    if not column.type.extension_name.startswith("pandas."):
        return column.storage
    cells = column.to_pandas()
    return pa.array(cells.astype(str).where(cells.notna(), None), pa.string())


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the plain type of a column's cells, text or numbers; None where they have neither."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return pa.float64()
    if types.is_integer(kind):
        return pa.int64()
    if types.is_large_string(kind) or types.is_temporal(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.string()
    return None


def is_readable(kind: pa.DataType) -> bool:
    """Return whether cells of a type can become plain: text, numbers or booleans."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name.startswith("pandas.") or is_readable(kind.storage_type)
    if kind in (pa.string(), pa.bool_()):
        return True
    target = plain_type(kind)
    try:
        return target is not None and pa.nulls(0, kind).cast(target).type == target
    except pa.ArrowNotImplementedError:
        return False


def is_list(kind: pa.DataType) -> bool:
    """Tell whether cells are lists of numbers."""
    import pyarrow as pa

    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    return bool(types.is_integer(kind.value_type) or types.is_floating(kind.value_type))


def unread_type(table: str, name: str, kind: object) -> str:
    """Say that a column has a type that is not read."""
    return (
        f"{table}: column {name!r} has the type {kind}; "
        "fairkit reads text, numbers, booleans and lists of numbers: write it as one of these"
    )


# Columns as small whole numbers: each cell's place in a list of values.


_CODES_HEAD = 1_024
_SPAN = 1_024
"""Whole numbers that span no more than this are coded by their distance to the smallest."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A column's cells by their places in a list of values."""

    values: pa.Array  # the values; none is missing, and some may be nowhere in the column
    places: Places  # shape [n]; `len(values)` where a cell is missing

    @property
    def cells(self) -> list[Any]:
        """The values as Python's objects, and None for missing cells."""
        return [*self.values.to_pylist(), None]

    def counted(self, times: NDArray[np.int64] | None = None) -> tuple[list[int], list[int]]:
        """Return the places that cells have, in the order in which they first do, and how many cells have each."""
        size, rows = len(self.values) + 1, len(self.places)
        counts = np.bincount(self.places, times, size).astype(np.int64, copy=False)
        first = np.full(size, rows)
        for part in (self.places[:_CODES_HEAD], self.places):
            first[part[::-1]] = np.arange(len(part))[::-1]
            if ((first < rows) == (counts > 0)).all():
                break
        used = np.flatnonzero(counts)
        order = used[np.argsort(first[used])]
        return order.tolist(), counts[order].tolist()

    def mapped(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return what a table of ``len(values) + 1`` entries has for each cell, shape [n]."""
        return table.take(self.places)


def codes_of(column: pa.Array) -> Codes:
    """Return a column's values and places: those that it has, those of close whole numbers, or those that are found."""
    ready = ready_codes(column)
    if ready is not None:
        return ready
    coded = column.dictionary_encode()
    return Codes(coded.dictionary, places_in(coded))


def ready_codes(column: pa.Array) -> Codes | None:
    """Return a column's values and places where they need no search: of dictionaries, and of close whole numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return Codes(column.dictionary, places_in(column))
    if pa.types.is_integer(column.type) and len(column) and not column.null_count:
        cells = as_numpy(column)
        low, high = int(cells.min()), int(cells.max())
        if high - low < _SPAN:
            return Codes(as_arrow(np.arange(low, high + 1)), cells - low)
    return None


def equal_cells(column: pa.Array, value: Any) -> NDArray[np.bool_]:
    """Return which cells are a value, shape [n]."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return np.asarray(as_numpy(column) == value)
    codes = codes_of(column)
    return codes.mapped(np.array([cell == value for cell in codes.cells]))


# Some rows of a dataset, with their groups, label and weights.


def present_rows(arrow: pa.RecordBatch, columns: Sequence[str | None]) -> NDArray[np.bool_]:
    """Return which rows have a value in every column, shape [n]; None is no column."""
    keep = np.ones(arrow.num_rows, dtype=bool)
    for column in dict.fromkeys(name for name in columns if name is not None):
        keep &= ~missing_cells(arrow.column(arrow.schema.names.index(column)))
    return keep


def cells(arrow: pa.RecordBatch, column: str) -> NDArray[Any]:
    """Return one column as numpy."""
    return as_numpy(arrow.column(arrow.schema.names.index(column)))


def missing_cells(column: pa.Array) -> NDArray[np.bool_]:
    """Return which cells have no value, or text that says so, shape [n]."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        codes = codes_of(column)
        return codes.mapped(np.array([cell is None or cell in NULL_SPELLINGS for cell in codes.cells]))
    nan_is_null = pa.types.is_floating(column.type)
    if not column.null_count and not nan_is_null:
        return np.zeros(len(column), dtype=bool)
    return as_numpy(pc.is_null(column, nan_is_null=nan_is_null))


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a dataset, in order: plain arrays, roles resolved."""

    rows: NDArray[np.int64]  # row numbers in the table, from 0, shape [n], int64
    groups: Mapping[str, NDArray[np.int64]]
    label: NDArray[Any] | None  # the label as it stands in the table, shape [n]; None without a label
    favorable: NDArray[np.bool_] | None
    weights: NDArray[np.float64] | None  # sample weights, shape [n], nonnegative; None where all count the same
    _arrow: pa.RecordBatch
    _cache: dict[str, NDArray[Any]] = field(default_factory=dict)
    strata: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    clusters: NDArray[np.int64] | None = None
    probabilities: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    queries: NDArray[np.uint64] | None = None
    labelled: NDArray[np.bool_] | None = None  # which rows have a label, shape [n]; None: all, or there is no label
    drawn: NDArray[np.bool_] | None = None  # which rows a drawn list asks for, shape [n]; None without a list
    chance: NDArray[np.float64] | None = None  # of a label, shape [n]; None where it is one number, or not known

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, shape [n]: text as objects (None where missing), whole numbers as int64, else float64."""
        if name not in self._cache:
            self._cache[name] = as_numpy(self._stored(name))
        return self._cache[name]

    def arrow(self, name: str) -> pa.Array:
        """Return a column as Arrow holds it: text, numbers or booleans, null where missing."""
        return decoded(self._stored(name))

    def _stored(self, name: str) -> pa.Array:
        names = self._arrow.schema.names
        if name not in names:
            hint = did_you_mean(name, names, what="columns")
            raise DataError(f"there is no column {name!r} in the data. {hint}")
        return self._arrow.column(names.index(name))

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return several columns by name."""
        return {name: self.column(name) for name in names}

    def take(self, keep: NDArray[np.bool_]) -> Batch:
        """Return the rows where `keep`, shape [n], is true."""
        parts = {each.name: getattr(self, each.name) for each in fields(self) if not each.name.startswith("_")}
        return Batch(
            _arrow=self._arrow.filter(as_arrow(keep)), **{name: _some(part, keep) for name, part in parts.items()}
        )


def _some(part: Any, keep: NDArray[np.bool_]) -> Any:
    """Return some rows of what a batch has by row, or by name and row."""
    if isinstance(part, Mapping):
        return {name: values[keep] for name, values in part.items()}
    return None if part is None else part[keep]
