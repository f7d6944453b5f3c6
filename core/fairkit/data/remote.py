"""Tables that an address names: the source of its scheme opens them, and they become parts like all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.data.common import table_of
from fairkit.data.files import file_parts
from fairkit.data.plain import unread_type
from fairkit.data.snapshot import LatePart, take_snapshot, type_name
from fairkit.errors import DataError, FairkitError
from fairkit.sources.address import Address
from fairkit.sources.interface import Files
from fairkit.sources.secrets import said

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.parts import Part, Types
    from fairkit.data.source import Source
    from fairkit.sources.interface import DataSource, Records


def open_with(source_type: type[DataSource], text: str) -> Source:
    """Open the table at an address with a source."""
    address = Address.parse(text)
    address.check_options(source_type.options)
    try:
        opened = source_type().open(address)
    except FairkitError:
        raise
    except Exception as error:  # whatever the library of the source raises
        raise DataError(f"{address.text} cannot be read: {said(error)}") from None
    return _of_files(opened) if isinstance(opened, Files) else records_source(opened)


def records_source(records: Records) -> Source:
    """Return a table that is read once: to a snapshot, at once or when rows are asked for."""
    part = take_snapshot(records) if records.counting is None else LatePart(records)
    source = table_of([part], records.name, origin=records.origin, notes=records.notes)
    for field in records.schema:
        if field.name not in part.schema().names:
            source.leave_out(field.name, unread_type(records.name, field.name, type_name(field.type)))
    return source


def _of_files(files: Files) -> Source:
    if not files.files:
        raise DataError(f"{files.name} has no rows: there is no data file in it")
    parts = file_parts(files.files, files.name)
    if files.schema is not None:
        types = {field.name: field.type for field in files.schema}
        constants = files.constants or [{}] * len(parts)
        parts = tuple(FilledPart(part, types, tuple(own.items())) for part, own in zip(parts, constants, strict=True))
    return table_of(parts, files.name, origin=files.origin, notes=files.notes)


@dataclass(frozen=True, slots=True)
class FilledPart:
    """A file that lacks columns of its table: those have one value in all its rows, or are missing."""

    inner: Part  # the file
    types: Mapping[str, pa.DataType]  # the table's columns
    constants: tuple[tuple[str, Any], ...]  # the values of columns that do not stand in the file

    @property
    def name(self) -> str:
        """The file's name."""
        return self.inner.name

    def schema(self) -> pa.Schema:
        """Return the table's schema."""
        import pyarrow as pa

        return pa.schema(list(self.types.items()))

    def rows(self) -> int | None:
        """Return the file's rows."""
        return self.inner.rows()

    def split(self, most: int) -> list[FilledPart]:
        """Cut the file."""
        pieces: Sequence[Part] = self.inner.split(most) if hasattr(self.inner, "split") else [self.inner]
        return [FilledPart(piece, self.types, self.constants) for piece in pieces]

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read what the file has, and fill in the rest."""
        import pyarrow as pa

        held = self.inner.schema().names
        stored = [name for name in columns if name in held]
        values = dict(self.constants)
        for batch in self.inner.read(stored or held[:1], rows, types):
            filled = []
            for name in columns:
                kind = self.types[name]
                if name in stored:
                    column = batch.column(batch.schema.names.index(name))
                    filled.append(column if column.type == kind else column.cast(kind))
                else:
                    filled.append(pa.repeat(pa.scalar(values.get(name), kind), batch.num_rows))
            yield pa.RecordBatch.from_arrays(filled, names=list(columns))
