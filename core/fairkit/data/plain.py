"""The few types that the rest of fairkit sees: text, numbers and booleans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairkit.data.arrow import few_texts, is_short
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


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


def unread_type(table: str, name: str, kind: object) -> str:
    """Say that a column has a type that is not read."""
    return (
        f"{table}: column {name!r} has the type {kind}; "
        "fairkit reads text, numbers, booleans and lists of numbers: write it as one of these"
    )
