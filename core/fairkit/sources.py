"""Reading tables: CSV, Parquet and data frames as streams of Arrow batches with plain types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Reader = Callable[[list[str], int], Iterable["pa.RecordBatch"]]
"""Gives the named columns in batches of about so many rows."""

NULL_SPELLINGS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "#N/A")
"""What a CSV cell may hold to be read as missing."""

_BLOCK = 1 << 22

_RAGGED = re.compile(r"CSV parse error: (.*)")
_TWICE = re.compile(r"CSV file contained multiple columns named (.*)")
_CONVERSION = re.compile(r"In CSV column #(\d+)(?: \('(.*?)'\))?: .*conversion error", re.DOTALL)


@dataclass(slots=True)
class Source:
    """A table that can be read again and again, in batches, without holding it in memory.

    `types` may widen while a CSV file is read for the first time: a column that began with whole
    numbers and goes on with text is text.
    """

    name: str
    types: dict[str, pa.DataType]
    _read: Reader
    _csv: Path | None = None

    @property
    def columns(self) -> list[str]:
        """The columns' names, in the table's order."""
        return list(self.types)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read the columns in batches of at most `rows` rows, in order, as plain types.

        Plain types are string, int64, float64 and bool.

        Raises
        ------
        DataError
            The file is damaged, or a CSV row has the wrong number of cells.
        """
        import pyarrow as pa

        try:
            for batch in self._read(list(dict.fromkeys(columns)), rows):
                for start in range(0, batch.num_rows, rows):
                    yield plain(batch.slice(start, rows), self.name)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise self._explain(error) from error

    def widen(self, message: str) -> bool:
        """Make the column that a CSV conversion error names one type wider; False if it names none."""
        found = _CONVERSION.search(message)
        if found is None or self._csv is None:
            return False
        import pyarrow as pa

        column = found.group(2) or self.columns[int(found.group(1))]
        steps = {pa.null(): pa.int64(), pa.int64(): pa.float64()}
        wider = steps.get(self.types[column], pa.string())
        if self.types.get(column) == wider:
            return False
        self.types[column] = wider  # the reader looks here
        return True

    def _explain(self, error: Exception) -> DataError:
        return _unreadable(self.name, error, "")


def open_source(data: Any, name: str | None = None) -> Source:
    """Open a CSV or Parquet file, a folder of Parquet files, a data frame or an Arrow table.

    Raises
    ------
    DataError
        There is no such file, it is empty or damaged, or two columns have one name.
    """
    if isinstance(data, Source):
        return data
    source = (
        _open_path(Path(data)) if isinstance(data, str | Path) else _open_memory(data, name or "data frame")
    )
    if not source.types:
        raise DataError(f"{source.name} has no columns")
    return source


def _open_path(path: Path) -> Source:
    import pyarrow as pa

    if not path.exists():
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix in {".csv", ".parquet"})
        hint = f" In that folder there are: {', '.join(near[:8])}." if near else ""
        raise DataError(f"there is no data file {str(path)!r}.{hint}")
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"the folder {str(path)!r} holds no .parquet file")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path.name} is empty (0 bytes)")
    parquet = _looks_like_parquet(files[0])
    try:
        if len(files) > 1:
            return _open_folder(path.name, files)
        return _open_parquet(path.name, files[0]) if parquet else _open_csv(path)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path.name, error, " as Parquet" if parquet else " as CSV") from error


def _open_parquet(name: str, path: Path) -> Source:
    """One file, read page by page, whatever the size of its row groups."""
    import pyarrow.parquet as pq

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            for batch in file.iter_batches(rows, columns=columns):
                yield batch.select(columns)

    return _source(name, pq.read_schema(path), read)


def _open_folder(name: str, files: Sequence[Path]) -> Source:
    import pyarrow.dataset as pads  # it imports pandas where that is installed: only here

    arrow = pads.dataset([str(file) for file in files], format="parquet")
    scan = pads.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
    ahead = {"batch_readahead": 1, "fragment_readahead": 1, "fragment_scan_options": scan}

    def read(columns: list[str], rows: int) -> Iterable[pa.RecordBatch]:
        batches: Iterable[pa.RecordBatch] = arrow.scanner(columns, batch_size=rows, **ahead).to_batches()
        return batches

    return _source(name, arrow.schema, read)


def _unreadable(name: str, error: Exception, form: str) -> DataError:
    """Say in one line what Arrow found."""
    text = str(error).strip().splitlines()[0]
    ragged = _RAGGED.search(text)
    if ragged is not None:
        return DataError(
            f"{name} is not a rectangular CSV table: {ragged.group(1)}. "
            "Quote cells that hold commas, and give every row the same number of cells."
        )
    repeated = _TWICE.search(text)
    if repeated is not None:
        return DataError(f"{name}: two columns have the name {repeated.group(1)!r}; rename one")
    return DataError(f"{name} cannot be read{form}: {text.rpartition('input source ')[2]}")


def _looks_like_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1" or path.suffix in {".parquet", ".pq"}


def _open_memory(data: Any, name: str) -> Source:
    import pyarrow as pa

    try:
        if isinstance(data, pa.Table):
            table = data
        elif isinstance(data, dict):
            table = pa.table(data)
        elif hasattr(data, "to_parquet") and hasattr(data, "dtypes"):
            table = pa.Table.from_pandas(data, preserve_index=False)
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.table(data)
        else:
            raise DataError(
                f"data of type {type(data).__name__} is not understood; give a path, a pandas or polars "
                "data frame, a pyarrow Table, or a dict of arrays"
            )
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"the data frame cannot be read: {reason}") from error
    return _source(name, table.schema, lambda columns, rows: table.select(columns).to_batches(rows))


def _open_csv(path: Path) -> Source:
    """A CSV file, read in blocks; the first one tells the columns' types, and later ones may widen them."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    def reader(columns: list[str] | None) -> Any:
        convert = pacsv.ConvertOptions(
            null_values=list(NULL_SPELLINGS),
            strings_can_be_null=True,
            include_columns=columns,
            column_types=None if columns is None else source.types,
        )
        return pacsv.open_csv(
            path, read_options=pacsv.ReadOptions(block_size=_BLOCK), convert_options=convert
        )

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with reader(columns) as stream:
            yield from stream

    with reader(None) as stream:
        source = _source(path.name, stream.schema, read)
    source._csv = path
    for column, kind in source.types.items():
        if pa.types.is_temporal(kind):
            source.types[column] = pa.string()
    return source


def _source(name: str, schema: pa.Schema, read: Reader) -> Source:
    if len(set(schema.names)) != len(schema.names):
        raise DataError(f"{name}: two columns have the name {_repeated(schema.names)!r}; rename one")
    return Source(name, {field.name: field.type for field in schema}, read)


def _repeated(names: Sequence[str]) -> str:
    return next(name for name in names if list(names).count(name) > 1)


def plain(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """Cast every column to string, int64, float64 or bool.

    Raises
    ------
    DataError
        A column holds lists, records or bytes.
    """
    import pyarrow as pa

    arrays = [_plain_column(batch.column(i), field, table) for i, field in enumerate(batch.schema)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain_column(column: pa.Array, field: pa.Field, table: str) -> pa.Array:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if kind in (pa.string(), pa.int64(), pa.float64(), pa.bool_()):
        return column
    target = _plain_type(kind)
    if target is None:
        raise DataError(
            f"{table}: column {field.name!r} has the type {field.type}; "
            "fairkit reads text, numbers and booleans: leave the column out of the file"
        )
    try:
        return column.cast(target)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise DataError(
                f"{table}: column {field.name!r} holds bytes that are no UTF-8 text; save the file as UTF-8"
            ) from error
        raise DataError(f"{table}: column {field.name!r} cannot be read as {target}: {error}") from error


def _plain_type(kind: pa.DataType) -> pa.DataType | None:
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
