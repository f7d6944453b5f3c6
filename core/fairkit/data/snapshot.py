"""Rows that may look otherwise when they are read again, kept in a temporary file for as long as they are used."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.data.parts import ParquetPart
from fairkit.errors import DataError
from fairkit.sources.address import said

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.parts import Types
    from fairkit.sources.interface import Records

FOLDER = "FAIRKIT_SNAPSHOTS"
"""The environment variable that names the folder for snapshots; a cluster's workers must see it, too."""

_GROUP_ROWS, _GROUP_BYTES = 1 << 18, 64 << 20
_NUMERIC = ("numeric", "decimal")


class SnapshotFile:
    """A temporary file, deleted when nobody in the process that wrote it holds it any longer, or when that ends."""

    def __init__(self, path: Path, *, kept: bool = False) -> None:
        self.path = path
        self.remove = (lambda: None) if kept else weakref.finalize(self, _delete, path, os.getpid())

    def __reduce__(self) -> Any:
        return _elsewhere, (self.path,)


def _elsewhere(path: Path) -> SnapshotFile:
    return SnapshotFile(path, kept=True)


def _delete(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        path.unlink(missing_ok=True)


class SnapshotPart:
    """A snapshot as a part of a table, or some of its row groups."""

    def __init__(self, file: SnapshotFile, name: str, part: ParquetPart | None = None) -> None:
        self.file, self.name = file, name
        self._part = ParquetPart(file.path) if part is None else part

    def schema(self) -> pa.Schema:
        """Return the rows' schema."""
        return self._part.schema()

    def rows(self) -> int | None:
        """Return the number of rows."""
        return self._part.rows()

    def split(self, most: int) -> list[SnapshotPart]:
        """Cut at row groups into parts of about `most` rows."""
        return [SnapshotPart(self.file, self.name, part) for part in self._part.split(most)]

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches."""
        if not self.file.path.exists():
            raise DataError(
                f"the snapshot of {self.name} is not on this machine; set {FOLDER} to a folder that all workers see, "
                "where the audit is started"
            )
        yield from self._part.read(columns, rows, types)


class LatePart:
    """Rows that can be counted where they lie: a snapshot is taken when the first of them is asked for."""

    def __init__(self, records: Records) -> None:
        self.name, self.counting, self.received = records.name, records.counting, records.schema
        self._close = weakref.finalize(self, records.close)
        self._taken: SnapshotPart | None = None
        try:
            self._records, self._schema = records, _readable(records.schema, records.name)
        except DataError:
            self._close()
            raise

    def __reduce__(self) -> Any:
        return _same, (self.taken,)

    @property
    def taken(self) -> SnapshotPart:
        """The rows, once they were read."""
        if self._taken is None:
            if self._close.detach() is None:
                raise DataError(f"the connection to {self.name} was closed; open the table again")
            self._taken = take_snapshot(self._records)
        return self._taken

    def close(self) -> None:
        """Close the connection; rows that were read stay."""
        self._close()

    def schema(self) -> pa.Schema:
        """Return the rows' schema."""
        return self._schema

    def rows(self) -> int | None:
        """Return the number of rows."""
        return self.taken.rows()

    def split(self, most: int) -> list[SnapshotPart]:
        """Cut the snapshot."""
        return self.taken.split(most)

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches of the snapshot."""
        yield from self.taken.read(columns, rows, types)


def _same(part: SnapshotPart) -> SnapshotPart:
    return part


def plain_rows(table: pa.Table, name: str) -> pa.Table:
    """Return a database's answer with the types that a snapshot would have."""
    import pyarrow as pa

    schema = _readable(table.schema, name)
    batches = table.combine_chunks().to_batches()
    return pa.Table.from_batches([_stored(_numbers(b, name), schema, name) for b in batches], schema)


def take_snapshot(records: Records) -> SnapshotPart:
    """Read the rows once, batch by batch, to a temporary file."""
    try:
        folder = os.environ.get(FOLDER) or None
        handle, text = tempfile.mkstemp(prefix="fairkit-snapshot-", suffix=".parquet", dir=folder)
        os.close(handle)
    except OSError as error:
        records.close()
        raise DataError(f"no snapshot can be written ({error.strerror}); set {FOLDER} to a folder") from None
    file = SnapshotFile(Path(text))
    try:
        with os.fdopen(os.open(text, os.O_WRONLY), "wb") as sink:
            _write(records, sink)
    except BaseException as error:
        file.remove()
        if not isinstance(error, OSError):
            raise
        raise DataError(
            f"the snapshot of {records.name} cannot be written ({error.strerror}); set {FOLDER} to a folder with room"
        ) from None
    finally:
        records.close()
    return SnapshotPart(file, records.name)


def _write(records: Records, sink: Any) -> None:
    import pyarrow.parquet as pq

    schema = _readable(records.schema, records.name)
    texts = [field.name for field in schema if field.type == "string"]
    with pq.ParquetWriter(sink, schema, compression="lz4", use_dictionary=texts, write_statistics=False) as writer:
        for group in _groups(_received(records)):
            writer.write_batch(_stored(group, schema, records.name), row_group_size=group.num_rows)


def _stored(group: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """Return plain columns, and columns of lists of numbers."""
    import pyarrow as pa

    from fairkit.data.arrow_types import plain

    cells = [field.name for field in schema if field.type in (pa.string(), pa.int64(), pa.float64(), pa.bool_())]
    read = plain(group.select(cells), name)
    columns = [
        read.column(field.name) if field.name in cells else group.column(field.name).cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _received(records: Records) -> Iterator[pa.RecordBatch]:
    """Yield the batches, numbers in place of what the database calls numeric; what breaks is one message."""
    batches = iter(records.batches)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except DataError:
            raise
        except Exception as error:  # whatever the library of the source raises
            raise DataError(
                f"the rows of {records.name} stopped coming: {said(error)}. Nothing was audited; try again"
            ) from None
        yield _numbers(batch, records.name)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together, so that a row group is worth reading."""
    import pyarrow as pa

    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(b.num_rows for b in pending) >= _GROUP_ROWS or sum(b.nbytes for b in pending) >= _GROUP_BYTES:
            yield from pa.Table.from_batches(pending).combine_chunks().to_batches()
            pending = []
    if pending:
        yield from pa.Table.from_batches(pending).combine_chunks().to_batches()


def _readable(schema: pa.Schema, name: str) -> pa.Schema:
    """Return the plain types that the columns become, of those that are read."""
    import pyarrow as pa

    from fairkit.data.arrow_types import is_list, is_readable, plain_type

    if len(set(schema.names)) != len(schema.names):
        twice = next(column for column in schema.names if schema.names.count(column) > 1)
        raise DataError(f"{name}: two columns have the name {twice!r}; give one another name: {twice} AS ...")
    fields = []
    for field in schema:
        if is_list(field.type) or _is_decimal_list(field.type):
            fields.append(pa.field(field.name, field.type if is_list(field.type) else pa.list_(pa.float64())))
            continue
        kind = _behind(field.type)
        exact = pa.types.is_uint64(kind) or (pa.types.is_decimal(kind) and kind.scale <= 0)  # ids, perhaps
        target = pa.float64() if _is_numeric(field.type) else kind if exact else plain_type(kind) or kind
        foreign = _is_bytes(kind) or isinstance(kind, pa.BaseExtensionType)
        if _is_numeric(field.type) or (is_readable(kind) and not foreign):
            fields.append(pa.field(field.name, target))
    return pa.schema(fields)


def _is_decimal_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_decimal(kind.value_type))


def _behind(kind: pa.DataType) -> pa.DataType:
    """Return the type of the cells: that of a dictionary's values; an extension's storage, if it is text."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if isinstance(kind, pa.BaseExtensionType) and pa.types.is_string(kind.storage_type):
        return kind.storage_type
    return kind


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def type_name(kind: pa.DataType) -> str:
    """Name a type as the database does, where that is known."""
    return str(getattr(kind, "type_name", None) or kind)


def _is_numeric(kind: pa.DataType) -> bool:
    """Tell a number that came as text, because Arrow has no number that is as exact."""
    return str(getattr(kind, "type_name", "")).lower() in _NUMERIC


def _numbers(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, fields = [], []
    for column, field in zip(batch.columns, batch.schema, strict=True):
        cells = column.storage if isinstance(column, pa.ExtensionArray) else column
        if _is_numeric(field.type):
            try:
                cells = cells.cast(pa.float64())
            except pa.ArrowInvalid:
                cells = None
            if cells is None or _beyond(pc.sum(pc.is_inf(cells)).as_py(), column.storage):
                raise DataError(
                    f"{name}: column {field.name!r} holds numbers too large for a double; scale it in the query"
                )
            whole = not pc.any(pc.match_substring(column.storage, ".")).as_py()
            if whole and (pc.max(pc.abs(cells)).as_py() or 0) >= 2**53:
                raise DataError(
                    f"{name}: column {field.name!r} holds whole numbers that no double holds; cast it in the query: "
                    f"CAST({field.name} AS text)"
                )
        columns.append(cells)
        fields.append(replace_type(field, cells.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def replace_type(field: pa.Field, kind: pa.DataType) -> pa.Field:
    """Return a field of another type, without the metadata that belong to the former."""
    import pyarrow as pa

    return pa.field(field.name, kind, field.nullable)


def _beyond(infinite: int | None, texts: pa.Array) -> bool:
    """Tell whether more numbers became infinite than were written so."""
    import pyarrow.compute as pc

    return bool(infinite) and infinite != pc.sum(pc.match_substring(texts, "nfinity")).as_py()
