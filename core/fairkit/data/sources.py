"""From an address to a table: files, a store, a database, what is in memory; and the types that suit all its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.data.arrow_types import as_arrow, as_numpy, is_list, is_readable, unread_type
from fairkit.data.parts import ParquetPart, Part, PartOf, TablePart, frame_parts, memory_table
from fairkit.data.snapshot import LatePart, take_snapshot, type_name
from fairkit.data.source import Source, unreadable
from fairkit.data.text_files import CsvPart
from fairkit.errors import DataError, FairkitError
from fairkit.sources.address import Address, masked, said
from fairkit.sources.interface import Files, StoredFile, source_at
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.lazy_package import imported

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.parts import Part, Types
    from fairkit.sources.interface import DataSource, Records


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
            spelled = {getattr(part_type, "flags", ()) for part_type in (parts[0], part)}
            if field.type == types[field.name] == pa.bool_() and len(spelled) > 1:
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


def check_names(name: str, schema: pa.Schema) -> None:
    """Refuse a table with two columns of one name."""
    if len(set(schema.names)) != len(schema.names):
        twice = next(column for column in schema.names if schema.names.count(column) > 1)
        raise DataError(f"{name}: two columns have the name {twice!r}; rename one")


def with_lists(parts: Sequence[Part], table: str) -> tuple[tuple[Part, ...], dict[str, str]]:
    """Return parts whose columns of lists of numbers are columns of numbers, as many as the first list has.

    Beside them: by column of lists that have no such length, why.
    """
    lengths: dict[str, int] = {}
    torn: dict[str, str] = {}
    names = [field.name for field in parts[0].schema() if is_list(field.type)]
    for part in parts:
        for name in names:
            if name not in lengths and name not in torn:
                try:
                    lengths |= _lengths(part, [name])
                except DataError as error:
                    torn[name] = str(error)
    if not lengths:
        return tuple(parts), torn
    wide = tuple(ListPart(part, lengths) for part in parts)
    check_names(table, wide[0].schema())
    return wide, torn


@dataclass(frozen=True, slots=True)
class ListPart(PartOf):
    """A part with columns of lists, each read as a column for each place."""

    lengths: Mapping[str, int]  # the length of the lists, by column

    def schema(self) -> pa.Schema:
        """Return the schema with a column of numbers for each place of a list."""
        import pyarrow as pa

        fields = []
        for column in self.part.schema():
            if column.name not in self.lengths:
                fields.append(column)
                continue
            kind = column.type.value_type if is_list(column.type) else column.type  # as it is: text in one part
            fields += [pa.field(f"{column.name}[{index}]", kind) for index in range(self.lengths[column.name])]
        return pa.schema(fields)

    def split(self, most: int) -> list[ListPart]:
        """Cut as the other part is cut."""
        pieces = self.part.split(most) if hasattr(self.part, "split") else [self.part]
        return [ListPart(piece, self.lengths) for piece in pieces]

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches."""
        import pyarrow as pa

        of = {f"{name}[{index}]": name for name, length in self.lengths.items() for index in range(length)}
        stored = list(dict.fromkeys(of.get(column, column) for column in columns))
        start = 0
        for batch in self.part.read(stored, rows, types):
            known = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in stored:
                if name in self.lengths:
                    known |= self._places(known[name], name, start)
            start += batch.num_rows
            yield pa.RecordBatch.from_arrays([known[column] for column in columns], names=list(columns))

    def _places(self, lists: Any, name: str, start: int) -> dict[str, Any]:
        """Return the columns of one list column, whose first row is number `start`."""
        import numpy as np
        import pyarrow as pa

        length = self.lengths[name]
        _check(lists, length, f"{self.name}: column {name!r}", start)
        cells = lists.flatten()
        if pa.types.is_float16(cells.type):
            cells = cells.cast(pa.float32())
        matrix = np.ascontiguousarray(as_numpy(cells).reshape(-1, length).T)
        return {f"{name}[{index}]": as_arrow(row) for index, row in enumerate(matrix)}


def _check(lists: Any, length: int, where: str, start: int) -> None:
    """Refuse lists that are missing, of another length, or that lack a number, and name the first one."""
    import numpy as np
    import pyarrow.compute as pc

    if lists.null_count:
        row = int(np.flatnonzero(as_numpy(lists.is_null()))[0])
        raise DataError(
            f"{where} has no list in row {start + row} (from 0); fill it in, or leave the row out of the file"
        )
    sizes = as_numpy(pc.list_value_length(lists))
    if (sizes != length).any():
        row = int(np.flatnonzero(sizes != length)[0])
        raise DataError(
            f"{where} has lists of different lengths: {length} numbers in the table's first list, {sizes[row]} in row "
            f"{start + row} (from 0); give all lists one length, or leave the column out of the file"
        )
    cells = lists.flatten()
    if cells.null_count:
        index = int(np.flatnonzero(as_numpy(cells.is_null()))[0])
        raise DataError(
            f"{where} has an empty cell at place {index % length} of the list in row {start + index // length} "
            "(both from 0); fill it in, or leave the row out of the file"
        )


def _first(part: Part, name: str) -> pa.RecordBatch | None:
    """Read the first row."""
    import pyarrow as pa

    try:
        return next(iter(part.read([name], 1, {})), None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise unreadable(part.name, error, "") from error


def _lengths(part: Part, names: Sequence[str]) -> dict[str, int]:
    """Return the length of the lists by column: as the schema says, else that of the first list, if there is one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths, schema = {}, part.schema()
    for name in names:
        kind = schema.field(name).type if name in schema.names else pa.null()
        if pa.types.is_fixed_size_list(kind):
            length = kind.list_size
        else:
            first = _first(part, name) if is_list(kind) else None
            if first is None or not first.num_rows:
                continue
            length = pc.list_value_length(first.column(0))[0].as_py()
        if length is None:
            raise DataError(
                f"{part.name}: column {name!r} has no list in row 0 (from 0); fill it in, or leave the row out of the "
                "file"
            )
        if not length:
            raise DataError(f"{part.name}: the lists of column {name!r} are empty; leave the column out of the file")
        lengths[name] = length
    return lengths


def open_path(path: Path) -> Source:
    """Open the files at a path on this machine."""
    return table_of(file_parts(_files(path), path.name), path.name)


def file_parts(files: Sequence[Path | StoredFile], table: str) -> tuple[Part, ...]:
    """Return the parts of a table that is files, each Parquet or CSV."""
    import pyarrow as pa

    if len(files) == 1 and (files[0].size if isinstance(files[0], StoredFile) else files[0].stat().st_size) == 0:
        raise DataError(f"{files[0].name} is empty (0 bytes)")
    parts: list[Part] = []
    for file in files:
        parquet = _looks_like_parquet(file)
        try:
            parts.append(ParquetPart(file) if parquet else CsvPart.of(file))
            schema = parts[-1].schema()
            check_names(file.name, schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeError) as error:
            where = file.name if len(files) == 1 else f"{table}, part {file.name}"
            raise unreadable(where, error, " as Parquet" if parquet else " as CSV") from error
        if len(files) == 1 and not parquet and all(pa.types.is_null(kind) for kind in schema.types):
            raise DataError(f"{file.name} has a header but no rows")  # before a message lists its columns
    return tuple(parts)


def _files(path: Path) -> list[Path]:
    """Return the files of a table, by name: the file, a folder's Parquet (else CSV) files, or a glob's."""
    if path.is_dir():
        if (path / "_delta_log").is_dir():
            raise DataError(
                f"the folder {str(path)!r} is a Delta table, whose folder holds removed rows, too; "
                f"name it as delta:{path}"
            )
        if any((path / "metadata").glob("*.metadata.json")):
            raise DataError(
                f"the folder {str(path)!r} is an Iceberg table, whose folder holds removed rows, too; "
                f"name it as iceberg:{path}"
            )
        try:
            files = sorted(path.rglob("*.parquet")) or sorted(path.rglob("*.csv"))
        except OSError as error:
            raise DataError(
                f"the folder {str(path)!r} changed while its files were listed, or cannot be read ({error.strerror}): "
                "name the folder that holds the table's files only"
            ) from error
        if not files:
            raise DataError(f"the folder {str(path)!r} holds no .parquet file and no .csv file")
        return files
    if path.exists():
        return [path]
    if any(sign in str(path) for sign in "*?["):
        import glob

        matches = glob.glob(str(path), recursive=True)  # noqa: PTH207 -- Path.glob takes no absolute pattern
        files = sorted(Path(file) for file in matches if Path(file).is_file())
        if files:
            return files
        raise DataError(f"no data file matches {masked(path)!r}")
    near = sorted(p.name for p in path.parent.glob("*") if p.suffix in {".csv", ".parquet"})
    hint = f" In that folder there are: {', '.join(near[:8])}." if near else ""
    raise DataError(f"there is no data file {masked(path)!r}.{hint}")


def _looks_like_parquet(path: Path | StoredFile) -> bool:
    with path.open() if isinstance(path, StoredFile) else path.open("rb") as file:
        return file.read(4) == b"PAR1" or path.suffix in {".parquet", ".pq"}


def open_with(source_type: type[DataSource], text: str) -> Source:
    """Open the table at an address with a source."""
    address = Address.parse(text)
    address.check_options(source_type.options)
    try:
        opened_source = source_type().open(address)
    except FairkitError:
        raise
    except Exception as error:  # whatever the library of the source raises
        raise DataError(f"{address.text} cannot be read: {said(error)}") from None
    return _of_files(opened_source) if isinstance(opened_source, Files) else records_source(opened_source)


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
        parts = tuple(
            FilledPart(part, types, tuple(constant.items())) for part, constant in zip(parts, constants, strict=True)
        )
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

        names = self.inner.schema().names
        stored = [name for name in columns if name in names]
        values = dict(self.constants)
        for batch in self.inner.read(stored or names[:1], rows, types):
            filled = []
            for name in columns:
                kind = self.types[name]
                if name in stored:
                    column = batch.column(batch.schema.names.index(name))
                    filled.append(column if column.type == kind else column.cast(kind))
                else:
                    filled.append(pa.repeat(pa.scalar(values.get(name), kind), batch.num_rows))
            yield pa.RecordBatch.from_arrays(filled, names=list(columns))


__all__ = ["open_source"]


def open_source(data: Any, name: str | None = None) -> Source:
    """Open a CSV or Parquet file, a folder or glob of such files, an address, a data frame or an Arrow table."""
    if isinstance(data, Source):
        return data
    if hasattr(data, "to_delayed") and hasattr(data, "_meta"):
        name, parts = name or "Dask data frame", frame_parts(data)
        return table_of(parts, name, common_types(with_lists(parts, name)[0][:1], name))
    if isinstance(data, str) and (source_type := source_at(data)) is not None:
        source = open_with(source_type, data)
    elif isinstance(data, str | Path):
        source = open_path(Path(data))
    elif type(data).__module__.partition(".")[0] == "ibis":
        source = imported("fairkit_sql.cells:source_of")(data, name or "ibis table")
    else:
        name = name or "data frame"
        table = memory_table(data)
        check_names(name, table.schema)
        source = table_of([TablePart(name, table)], name)
    if not source.types:
        raise DataError(next(iter(source.unread.values()), f"{source.name} has no columns"))
    return source
