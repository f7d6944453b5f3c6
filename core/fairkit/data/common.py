"""The types that suit all parts of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.data.lists import with_lists
from fairkit.data.plain import is_readable, unread_type
from fairkit.data.source import Source
from fairkit.data.text_files import CsvPart
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.parts import Part


def table_of(parts: Sequence[Part], name: str, types: Mapping[str, pa.DataType] | None = None, **facts: Any) -> Source:
    """Return parts as a table: lists are columns of numbers, and columns of types that are not read are left out."""
    wide, torn = with_lists(parts, name)
    source = Source(name, dict(common_types(wide, name) if types is None else types), wide, **facts)
    for column, kind in list(source.types.items()):
        if column in torn or not is_readable(kind):
            source.leave_out(column, torn.get(column) or unread_type(name, column, kind))
    return source


def common_types(parts: Sequence[Part], table: str) -> dict[str, pa.DataType]:
    """Return for every column the type that suits all parts.

    Whole numbers and fractions are numbers together; a part whose column is empty throughout suits any type.
    """
    import pyarrow as pa

    first = parts[0].schema()
    types = {field.name: field.type for field in first}
    for part in parts[1:]:
        schema = part.schema()
        _same_columns(list(types), schema.names, parts[0].name, part.name, table)
        for field in schema:
            types[field.name] = _common(types[field.name], field, parts[0].name, part, table)
            if field.type == types[field.name] == pa.bool_() and getattr(part, "flags", ()) != getattr(
                parts[0], "flags", ()
            ):
                types[field.name] = pa.string()  # true in one file and True in another are two values
    return types


def _same_columns(known: Sequence[str], found: Sequence[str], reference: str, part: str, table: str) -> None:
    absent = [name for name in known if name not in found]
    extra = [name for name in found if name not in known]
    if absent or extra:
        what = f"has no column {absent[0]!r}" if absent else f"has a column {extra[0]!r} besides"
        raise DataError(
            f"{table}: the part {part} {what}, unlike {reference}; all parts of a table have the same columns"
        )


def _common(common: pa.DataType, field: pa.Field, reference: str, part: Part, table: str) -> pa.DataType:
    import pyarrow as pa

    dtype, types = field.type, pa.types
    if dtype == common or types.is_null(dtype):
        return common
    if types.is_null(common):
        return dtype
    kinds = [_kind(common), _kind(dtype)]
    if kinds[0] == kinds[1] and kinds[0] is not None:
        if kinds[0] == "text":
            return pa.string()
        if types.is_integer(common) and types.is_integer(dtype):
            return pa.int64()
        return pa.float64()
    if isinstance(part, CsvPart) and None not in kinds:
        return pa.string()  # as within one file: what begins with numbers and goes on with text is text
    raise DataError(
        f"{table}: column {field.name!r} is {common} in {reference} and {dtype} in {part.name}; "
        "write all parts with the same types"
    )


def _kind(kind: pa.DataType) -> str | None:
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    return "boolean" if types.is_boolean(kind) else None
