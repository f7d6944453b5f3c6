"""Reading tables: CSV, Parquet and data frames as streams of Arrow batches with plain types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.data.frames import frame_parts
from fairkit.data.parts import ChosenPart, CsvPart, ParquetPart, Part, TablePart, common_types
from fairkit.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_RAGGED = re.compile(r"CSV parse error: (.*)")
_TWICE = re.compile(r"CSV file contained multiple columns named (.*)")
_CONVERSION = re.compile(r"In CSV column #(\d+)(?: \('(.*?)'\))?: .*conversion error", re.DOTALL)


@dataclass(slots=True)
class Source:
    """A table that can be read again and again, in batches, without holding it in memory.

    `types` may widen while CSV files are read for the first time: a column that began with whole
    numbers and goes on with text is text.

    Attributes
    ----------
    name
        What reports call the table.
    types
        Every column's type, in the table's order.
    parts
        Its parts, in order.
    counts
        The rows of every part, once they are known.
    """

    name: str
    types: dict[str, pa.DataType]
    parts: tuple[Part, ...]
    counts: tuple[int, ...] | None = None

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
        for part in self.parts:
            yield from self._part_batches(part, list(dict.fromkeys(columns)), rows)

    def _part_batches(self, part: Part, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            for batch in part.read(columns, rows, self.types):
                for start in range(0, batch.num_rows, rows):
                    yield plain(self._widened(batch.slice(start, rows)), self.name)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise _unreadable(self._where(part), error, "") from error

    def of(self, part: Part) -> Source:
        """Return one part as a table of its own, with the whole table's types."""
        return Source(self._where(part), self.types, (part,))

    def split(self, most: int) -> Source:
        """Cut large Parquet files at their row groups into parts of about `most` rows."""
        parts = [
            piece for part in self.parts for piece in (part.split(most) if hasattr(part, "split") else [part])
        ]
        return self if len(parts) == len(self.parts) else Source(self.name, self.types, tuple(parts))

    def chosen(self, masks: Sequence[NDArray[np.bool_]], name: str) -> Source:
        """Return the table of some rows: a mask for each part."""
        chosen = tuple(ChosenPart(part, mask) for part, mask in zip(self.parts, masks, strict=True))
        return Source(name, self.types, chosen)

    def widen(self, message: str) -> bool:
        """Make the column that a CSV conversion error names one type wider; False if it names none."""
        found = _CONVERSION.search(message)
        if found is None or not any(isinstance(getattr(part, "part", part), CsvPart) for part in self.parts):
            return False
        import pyarrow as pa

        column = found.group(2) or self.columns[int(found.group(1))]
        steps = {pa.null(): pa.int64(), pa.int64(): pa.float64()}
        wider = steps.get(self.types[column], pa.string())
        if self.types.get(column) == wider:
            return False
        self.types[column] = wider  # the reader looks here
        return True

    def _where(self, part: Part) -> str:
        return self.name if len(self.parts) == 1 else f"{self.name}, part {part.name}"

    def _widened(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Cast columns that are narrower in this part to the whole table's type."""
        import pyarrow as pa

        if all(field.type == self.types[field.name] for field in batch.schema):
            return batch
        arrays = []
        for column, field in zip(batch.columns, batch.schema, strict=True):
            wanted = self.types[field.name]
            wanted = wanted.value_type if pa.types.is_dictionary(wanted) else wanted
            numbers = pa.types.is_floating(wanted) and pa.types.is_integer(field.type)
            arrays.append(column.cast(wanted) if numbers or pa.types.is_null(field.type) else column)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def open_source(data: Any, name: str | None = None) -> Source:
    """Open a CSV or Parquet file, a folder or glob of such files, a data frame or an Arrow table.

    Raises
    ------
    DataError
        There is no such file, it is empty or damaged, or two columns have one name.
    """
    if isinstance(data, Source):
        return data
    if hasattr(data, "to_delayed") and hasattr(data, "_meta"):
        parts, name = frame_parts(data), name or "Dask data frame"
        return Source(name, common_types(parts[:1], name), parts)
    source = (
        _open_path(Path(data)) if isinstance(data, str | Path) else _open_memory(data, name or "data frame")
    )
    if not source.types:
        raise DataError(f"{source.name} has no columns")
    return source


def _open_path(path: Path) -> Source:
    import pyarrow as pa

    files = _files(path)
    if len(files) == 1 and files[0].stat().st_size == 0:
        raise DataError(f"{files[0].name} is empty (0 bytes)")
    parts: list[Part] = []
    for file in files:
        parquet = _looks_like_parquet(file)
        parts.append(ParquetPart(file) if parquet else CsvPart(file))
        try:
            _check_names(file.name, parts[-1].schema())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeError) as error:
            where = file.name if len(files) == 1 else f"{path.name}, part {file.name}"
            raise _unreadable(where, error, " as Parquet" if parquet else " as CSV") from error
    return Source(path.name, common_types(parts, path.name), tuple(parts))


def _files(path: Path) -> list[Path]:
    """Return the files of a table, by name: the file, a folder's Parquet (else CSV) files, or a glob's."""
    if path.is_dir():
        found = sorted(path.rglob("*.parquet")) or sorted(path.rglob("*.csv"))
        if not found:
            raise DataError(f"the folder {str(path)!r} holds no .parquet file and no .csv file")
        return found
    if path.exists():
        return [path]
    if any(sign in str(path) for sign in "*?["):
        import glob

        matches = glob.glob(str(path), recursive=True)  # noqa: PTH207 -- Path.glob takes no absolute pattern
        found = sorted(Path(file) for file in matches if Path(file).is_file())
        if found:
            return found
        raise DataError(f"no data file matches {str(path)!r}")
    near = sorted(p.name for p in path.parent.glob("*") if p.suffix in {".csv", ".parquet"})
    hint = f" In that folder there are: {', '.join(near[:8])}." if near else ""
    raise DataError(f"there is no data file {str(path)!r}.{hint}")


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
        elif type(data).__module__.partition(".")[0] == "pandas":
            table = pa.Table.from_pandas(data, preserve_index=False)
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.table(data)
        else:
            raise DataError(
                f"data of type {type(data).__name__} is not understood; give a path, a pandas or polars data frame, a "
                "DuckDB relation, a pyarrow Table, anything else with the Arrow C stream interface, or a dict of arrays"
            )
    except Exception as error:  # whatever the library of the frame raises
        if isinstance(error, DataError):
            raise
        reason = str(error).strip().splitlines()[0]
        raise DataError(f"the data frame cannot be read: {reason}") from error
    _check_names(name, table.schema)
    part = TablePart(name, table)
    return Source(name, common_types([part], name), (part,))


def _check_names(name: str, schema: pa.Schema) -> None:
    if len(set(schema.names)) != len(schema.names):
        raise DataError(f"{name}: two columns have the name {_repeated(schema.names)!r}; rename one")


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
