"""The few types that the rest of fairkit sees: text, numbers and booleans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.data.arrow import few_texts, is_short
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


def plain(batch: pa.RecordBatch, table: str, *, coded: bool = False) -> pa.RecordBatch:
    """Cast every column to string, int64, float64 or bool; with `coded` text of few values to a dictionary."""
    import pyarrow as pa

    arrays = [_plain_column(batch.column(i), field, table, coded=coded) for i, field in enumerate(batch.schema)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain_column(column: pa.Array, field: pa.Field, table: str, *, coded: bool) -> pa.Array:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_dictionary(kind):
        if coded and kind.value_type == pa.string() and is_short(column):
            return column
        column, kind = column.dictionary_decode(), kind.value_type
    if coded and kind == pa.string():
        texts = few_texts(column)
        return column if texts is None else texts
    if kind in (pa.string(), pa.int64(), pa.float64(), pa.bool_()):
        return column
    target = plain_type(kind)
    if target is None:
        raise DataError(
            f"{table}: column {field.name!r} has the type {field.type}; "
            "fairkit reads text, numbers, booleans and lists of numbers: leave the column out of the file"
        )
    try:
        return column.cast(target)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise DataError(
                f"{table}: column {field.name!r} holds bytes that are no UTF-8 text; save the file as UTF-8"
            ) from error
        raise DataError(f"{table}: column {field.name!r} cannot be read as {target}: {error}") from error


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
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.string()
    return None
