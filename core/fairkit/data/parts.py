"""The parts of a table: a Parquet file, a table in memory. Each can be read on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fairkit.data.roles import value_text
from fairkit.errors import DataError
from fairkit.sources.interface import StoredFile
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


Types = Mapping[str, "pa.DataType"]

_FEW = 8
"""Of so many columns one thread reads."""
_GROUPS = 4
_MANY, _LARGE = 64, 1 << 28
"""So many columns are read at a time where there are more; the bytes of a row group that is held for it."""
"""So many row groups are looked at for the size of columns."""


class Part(Protocol):
    """Consecutive rows of a table. It is small when pickled, unless its rows are in memory."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def schema(self) -> pa.Schema:
        """Tell the columns and their types, as far as the part's beginning shows them."""
        ...

    def rows(self) -> int | None:
        """Tell the number of rows where that is known without reading them."""
        ...

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read some columns in batches of about so many rows; `types` are the whole table's."""
        ...


@contextmanager
def opened(path: Path | StoredFile) -> Iterator[Any]:
    """Yield a source for Arrow: a path, or an open file of a store."""
    if isinstance(path, StoredFile):
        with path.open() as file:
            yield file
    else:
        yield path


@contextmanager
def unchanged(path: Path | StoredFile) -> Iterator[None]:
    """Refuse a file in a store that was replaced meanwhile, also where that is why it could not be read."""
    try:
        yield
    except (ValueError, OSError):  # Arrow's errors are of these kinds, too
        if isinstance(path, StoredFile):
            path.check()
        raise
    if isinstance(path, StoredFile):
        path.check()


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """A Parquet file, or a run of its row groups, read page by page, whatever the size of the groups."""

    path: Path | StoredFile  # the file
    groups: tuple[int, int] | None = None  # the first row group and the one after the last; None for all

    @property
    def name(self) -> str:
        """The file's name."""
        if self.groups is None:
            return self.path.name
        return f"{self.path.name}, row groups {self.groups[0]} to {self.groups[1] - 1}"

    def schema(self) -> pa.Schema:
        """Read the file's schema."""
        import pyarrow.parquet as pq

        with opened(self.path) as file:
            return pq.read_schema(file)

    def rows(self) -> int | None:
        """Read the number of rows from the file's end."""
        return sum(self._sizes())

    def split(self, most: int) -> list[ParquetPart]:
        """Cut at row groups into parts of about `most` rows; a file of one row group stays whole."""
        sizes = self._sizes()
        if sum(sizes) <= most or len(sizes) < 2:
            return [self]
        first = 0 if self.groups is None else self.groups[0]
        parts, begin, rows = [], 0, 0
        for index, size in enumerate(sizes):
            if rows and rows + size > most:
                parts.append(ParquetPart(self.path, (first + begin, first + index)))
                begin, rows = index, 0
            rows += size
        return [*parts, ParquetPart(self.path, (first + begin, first + len(sizes)))]

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches."""
        import pyarrow.parquet as pq

        if isinstance(self.path, StoredFile):
            yield from self._fetched(self.path, columns, rows)
            return
        groups = None if self.groups is None else range(*self.groups)
        with pq.ParquetFile(self.path) as file:
            texts = _short_texts(file, columns, groups)
        with pq.ParquetFile(
            self.path, read_dictionary=texts, pre_buffer=False, buffer_size=1 << 20, metadata=file.metadata
        ) as file:
            # threads of its own cost a few columns more than they save: reading is a thread beside measuring already
            threads, wide = len(columns) > _FEW, len(columns) > _MANY
            if wide:
                batches = _by_columns(file, list(columns), groups, rows)
            else:
                batches = file.iter_batches(rows, row_groups=groups, columns=list(columns), use_threads=threads)
            for batch in _glued(batches, rows) if texts or wide else batches:
                yield batch.select(list(columns))

    def _fetched(self, stored: StoredFile, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read from a store: the columns of a row group at once, in few requests; one group is held, not the file."""
        import pyarrow.parquet as pq

        with unchanged(stored), stored.open() as handle, pq.ParquetFile(handle, pre_buffer=True) as file:
            for group in range(file.num_row_groups) if self.groups is None else range(*self.groups):
                for batch in file.iter_batches(rows, row_groups=[group], columns=list(columns)):
                    yield batch.select(list(columns))

    def _sizes(self) -> list[int]:
        """The rows of each row group."""
        import pyarrow.parquet as pq

        with opened(self.path) as file:
            metadata = pq.read_metadata(file)
        groups = range(metadata.num_row_groups) if self.groups is None else range(*self.groups)
        return [int(metadata.row_group(group).num_rows) for group in groups]


def _short_texts(file: Any, columns: Sequence[str], groups: range | None) -> list[str]:
    """Return the columns of text that are stored as short dictionaries: fewer than two bytes a row.

    A file whose Arrow schema has dictionaries is read with those.
    """
    import pyarrow as pa

    schema, metadata = file.schema_arrow, file.metadata
    if any(pa.types.is_dictionary(field.type) for field in schema):
        return []
    texts = [name for name in columns if name in schema.names and schema.field(name).type == pa.string()]
    sizes = {name: [0, 0] for name in texts}
    for group in list(range(metadata.num_row_groups) if groups is None else groups)[:_GROUPS] if texts else ():
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            chunk = row_group.column(number)
            if chunk.path_in_schema in sizes:
                size = sizes[chunk.path_in_schema]
                size[0] += chunk.total_uncompressed_size
                size[1] += chunk.num_values
    return [name for name, (stored, rows) in sizes.items() if stored < 2 * rows]


def _by_columns(file: Any, columns: list[str], groups: range | None, rows: int) -> Iterator[pa.RecordBatch]:
    """Read each row group some columns at a time: reading a column needs several times the memory of its cells.

    Where a row group is too large to be held it is read page by page.
    """
    import pyarrow as pa

    for group in groups or range(file.num_row_groups):
        if file.metadata.row_group(group).total_byte_size > _LARGE:
            yield from file.iter_batches(rows, row_groups=[group], columns=columns)
            continue
        found: dict[str, pa.ChunkedArray] = {}
        for start in range(0, len(columns), _MANY):
            part = file.read_row_group(group, columns=columns[start : start + _MANY], use_threads=False)
            found |= dict(zip(part.column_names, part.columns, strict=True))
        yield from pa.table(found).select(columns).to_batches(rows)


def _glued(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Join batches that end with a row group, as dictionaries do, until they have `rows` rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) < rows:
            continue
        yield _one(waiting)
        waiting = []
    if waiting:
        yield _one(waiting)


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]


@dataclass(frozen=True, slots=True)
class TablePart:
    """A table in memory."""

    name: str
    table: pa.Table

    def schema(self) -> pa.Schema:
        """Return the table's schema."""
        return self.table.schema

    def rows(self) -> int | None:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Cut batches."""
        yield from self.table.select(list(columns)).to_batches(rows)


@dataclass(frozen=True, slots=True)
class PartOf:
    """What is read by reading another part: it has its name, and as many rows."""

    part: Part

    @property
    def name(self) -> str:
        """The other part's name."""
        return self.part.name

    def rows(self) -> int | None:
        """Return the other part's number of rows."""
        return self.part.rows()


@dataclass(frozen=True, slots=True)
class ChosenPart(PartOf):
    """Some rows of another part."""

    mask: NDArray[np.bool_]  # which rows, shape [rows of the part], bool

    def schema(self) -> pa.Schema:
        """Return the other part's schema."""
        return self.part.schema()

    def rows(self) -> int | None:
        """Return the number of chosen rows."""
        return int(self.mask.sum())

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches and keep the chosen rows."""
        from fairkit.data.arrow_types import as_arrow

        start = 0
        for batch in self.part.read(columns, rows, types):
            yield batch.filter(as_arrow(self.mask[start : start + batch.num_rows]))
            start += batch.num_rows


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stands for the whole table where only a part of it is."""

    name: str

    def schema(self) -> pa.Schema:
        """Refuse."""
        raise self._error()

    def rows(self) -> int | None:
        """Return None: unknown."""
        return None

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Refuse."""
        raise self._error()

    def _error(self) -> DataError:
        return DataError(
            f"{self.name}: an auditor read the whole table while it measured a part of it on a cluster; "
            "what it must know beforehand belongs in its method `begin`"
        )


# A Dask DataFrame as a table: each partition is a part.


@dataclass(frozen=True, slots=True)
class FramePart:
    """One partition: what makes it, and the schema that the frame promises."""

    name: str
    delayed: Any
    promised: Any

    def schema(self) -> pa.Schema:
        """Return the frame's schema; a column of Python objects is text."""
        import pyarrow as pa

        schema = pa.Schema.from_pandas(self.promised, preserve_index=False)
        return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in schema])

    def rows(self) -> int | None:
        """Unknown until the partition was made."""
        return None

    def read(self, columns: Sequence[str], rows: int, types: Any) -> Iterator[pa.RecordBatch]:
        """Make the partition in this process."""
        import pyarrow as pa

        frame = self.delayed.compute(scheduler="synchronous")
        yield from pa.Table.from_pandas(frame, preserve_index=False).select(list(columns)).to_batches(rows)


def memory_table(data: Any) -> pa.Table:
    """Return what is in memory as an Arrow table; a column that Arrow does not know has no values and no plain type."""
    import pyarrow as pa

    try:
        if isinstance(data, pa.Table):
            return data
        if type(data).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(data, preserve_index=False)
        if isinstance(data, dict) or hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except Exception as error:  # whatever the library of the frame raises
        polars, named = hasattr(data, "iter_columns"), []
        if polars or hasattr(data, "items"):
            named = [(cells.name, cells) for cells in data.iter_columns()] if polars else list(data.items())
        columns = {str(name): column_of(cells) for name, cells in named}
        if not named or len(columns) < len(named) or len({len(cells) for cells in columns.values()}) > 1:
            raise DataError(f"the data frame cannot be read: {str(error).strip().splitlines()[0]}") from error
        return pa.table(columns)
    raise DataError(
        f"data of type {type(data).__name__} is not understood; give a path, a pandas or polars data frame, a "
        "DuckDB relation, a pyarrow Table, anything else with the Arrow C stream interface, or a dict of arrays"
    )


def column_of(cells: Any) -> Any:
    """Return a column of any library as Arrow's: numbers and text in one column are text, as they are spelled."""
    import numpy as np
    import pyarrow as pa

    try:
        if isinstance(cells, pa.ChunkedArray | pa.Array):
            return cells
        if hasattr(cells, "to_arrow"):  # polars
            return cells.to_arrow()
        if hasattr(cells, "array"):  # pandas
            return pa.Array.from_pandas(cells.sparse.to_dense() if hasattr(cells, "sparse") else cells)
        array = np.asarray(cells).reshape(-1)
        return pa.array(array.tolist() if array.dtype.kind in "OUS" else array, from_pandas=True)
    except Exception:  # whatever the library raises
        objects = cells.to_list() if hasattr(cells, "to_list") else list(cells)
        gone = [item is None or item != item for item in objects]  # noqa: PLR0124 -- NaN
        if all(
            isinstance(item, str | bool | int | float) for item, absent in zip(objects, gone, strict=True) if not absent
        ):
            texts = [None if absent else value_text(item) for item, absent in zip(objects, gone, strict=True)]
            return pa.array(texts, pa.string())
        return pa.nulls(len(objects), pa.struct([(type(objects[0]).__name__, pa.null())]))


def frame_parts(frame: Any) -> tuple[FramePart, ...]:
    """Return the partitions of a Dask DataFrame."""
    return tuple(
        FramePart(f"partition {number}", delayed, frame._meta) for number, delayed in enumerate(frame.to_delayed())
    )


def empty_like(data: Any) -> Any:
    """Return a data frame without its rows, which tells its library and its columns' types; None for other things."""
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and hasattr(data, "iloc"):
        return data.iloc[:0].copy()
    if library == "polars" and hasattr(data, "schema") and hasattr(data, "head"):
        return data.head(0)
    return data.slice(0, 0) if library == "pyarrow" and hasattr(data, "slice") else None


def frame_like(like: Any, columns: dict[str, Any]) -> Any:
    """Return columns as a frame of the library, and with the types, of an empty one.

    A column whose values its type cannot hold keeps the type of the values.
    """
    library = type(like).__module__.partition(".")[0]
    if library == "pandas":
        import pandas as pd

        types = dict(zip(map(str, like.columns), like.dtypes, strict=True))
        return pd.DataFrame({name: _typed(pd.Series(cells), types.get(name)) for name, cells in columns.items()})
    if library == "polars":
        import polars as pl

        frame = pl.DataFrame({name: _listed(cells) for name, cells in columns.items()})
        return frame.cast({name: kind for name, kind in like.schema.items() if name in columns}, strict=False)
    import pyarrow as pa

    return pa.table({name: _cast(pa.array(_listed(cells)), like, name) for name, cells in columns.items()})


def _typed(series: Any, kind: Any) -> Any:
    try:
        return series if kind is None or series.dtype == kind else series.astype(kind)
    except (TypeError, ValueError):
        return series


def _listed(cells: Any) -> Any:
    return cells.tolist() if cells.dtype.kind == "O" else cells


def _cast(cells: pa.Array, like: pa.Table, name: str) -> pa.Array:
    import pyarrow as pa

    if name not in like.column_names:
        return cells
    try:
        return cells.cast(like.schema.field(name).type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return cells
