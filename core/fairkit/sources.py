"""Reading tables: CSV, Parquet and data frames as streams of Arrow batches with plain types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as pads

NULL_SPELLINGS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "#N/A")
"""What a CSV cell may hold to be read as missing."""

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
    _arrow: pads.Dataset
    _csv_paths: list[str] | None = None

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
            for batch in self._stream(list(dict.fromkeys(columns)), rows):
                for start in range(0, batch.num_rows, rows):
                    yield plain(batch.slice(start, rows), self.name)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise self._explain(error) from error

    def _stream(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read as Arrow gives it; one Parquet file page by page, whatever the size of its row groups."""
        import pyarrow.dataset as pads
        import pyarrow.parquet as pq

        parquet = self._csv_paths is None and isinstance(self._arrow, pads.FileSystemDataset)
        files = self._arrow.files if parquet else []
        if len(files) == 1:
            with pq.ParquetFile(files[0], pre_buffer=False, buffer_size=1 << 20) as file:
                for batch in file.iter_batches(rows, columns=columns):
                    yield batch.select(columns)
            return
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
        if parquet:
            scan = pads.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
            options["fragment_scan_options"] = scan
        yield from self._arrow.scanner(columns=columns, batch_size=rows, **options).to_batches()

    def widen(self, message: str) -> bool:
        """Make the column that a CSV conversion error names one type wider; False if it names none."""
        found = _CONVERSION.search(message)
        if found is None or self._csv_paths is None:
            return False
        import pyarrow as pa

        column = found.group(2) or self.columns[int(found.group(1))]
        steps = {pa.null(): pa.int64(), pa.int64(): pa.float64()}
        wider = steps.get(self.types[column], pa.string())
        if self.types.get(column) == wider:
            return False
        self._arrow = _open_csv(self._csv_paths, {**self.types, column: wider})
        self.types[column] = wider
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
    import pyarrow.dataset as pads

    if not path.exists():
        near = sorted(p.name for p in path.parent.glob("*") if p.suffix in {".csv", ".parquet"})
        hint = f" In that folder there are: {', '.join(near[:8])}." if near else ""
        raise DataError(f"there is no data file {str(path)!r}.{hint}")
    files = sorted(str(p) for p in path.rglob("*.parquet")) if path.is_dir() else [str(path)]
    if not files:
        raise DataError(f"the folder {str(path)!r} holds no .parquet file")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path.name} is empty (0 bytes)")
    try:
        if _looks_like_parquet(files[0]):
            arrow = pads.dataset(files, format="parquet")
            csv_paths = None
        else:
            arrow = _open_csv(files, {})
            csv_paths = files
        return _source(path.name, arrow, csv_paths)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeDecodeError) as error:
        raise _unreadable(
            path.name, error, " as Parquet" if _looks_like_parquet(files[0]) else " as CSV"
        ) from error


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


def _looks_like_parquet(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(4) == b"PAR1" or path.endswith((".parquet", ".pq"))


def _open_memory(data: Any, name: str) -> Source:
    import pyarrow as pa
    import pyarrow.dataset as pads

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
    names = table.column_names
    if len(set(names)) != len(names):
        raise DataError(f"{name}: two columns have the name {_repeated(names)!r}; rename one")
    return _source(name, pads.dataset(table), None)


def _open_csv(paths: list[str], types: dict[str, pa.DataType]) -> pads.Dataset:
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.dataset as pads

    convert = pacsv.ConvertOptions(
        null_values=list(NULL_SPELLINGS), strings_can_be_null=True, column_types=types or None
    )
    layout = pads.CsvFileFormat(convert_options=convert, read_options=pacsv.ReadOptions(block_size=1 << 22))
    arrow = pads.dataset(paths, format=layout)
    dates = {f.name: pa.string() for f in arrow.schema if pa.types.is_temporal(f.type)}
    return _open_csv(paths, {**types, **dates}) if dates else arrow


def _source(name: str, arrow: pads.Dataset, csv_paths: list[str] | None) -> Source:
    names = arrow.schema.names
    if len(set(names)) != len(names):
        raise DataError(f"{name}: two columns have the name {_repeated(names)!r}; rename one")
    return Source(name, {field.name: field.type for field in arrow.schema}, arrow, csv_paths)


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
