"""The parts of a table: a Parquet file, a table in memory. Each can be read on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fairkit.errors import DataError
from fairkit.sources.stored import StoredFile

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Types = Mapping[str, "pa.DataType"]

_FEW = 8
"""Of so many columns one thread reads."""
_GROUPS = 4
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
        for place, size in enumerate(sizes):
            if rows and rows + size > most:
                parts.append(ParquetPart(self.path, (first + begin, first + place)))
                begin, rows = place, 0
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
            threads = len(columns) > _FEW
            batches = file.iter_batches(rows, row_groups=groups, columns=list(columns), use_threads=threads)
            for batch in _glued(batches, rows) if texts else batches:
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
            known = pq.read_metadata(file)
        groups = range(known.num_row_groups) if self.groups is None else range(*self.groups)
        return [int(known.row_group(group).num_rows) for group in groups]


def _short_texts(file: Any, columns: Sequence[str], groups: range | None) -> list[str]:
    """Return the columns of text that are stored as short dictionaries: fewer than two bytes a row.

    A file whose Arrow schema has dictionaries is read with those.
    """
    import pyarrow as pa

    schema, known = file.schema_arrow, file.metadata
    if any(pa.types.is_dictionary(field.type) for field in schema):
        return []
    texts = [name for name in columns if name in schema.names and schema.field(name).type == pa.string()]
    sizes = {name: [0, 0] for name in texts}
    for group in list(range(known.num_row_groups) if groups is None else groups)[:_GROUPS] if texts else ():
        row_group = known.row_group(group)
        for number in range(row_group.num_columns):
            chunk = row_group.column(number)
            if chunk.path_in_schema in sizes:
                size = sizes[chunk.path_in_schema]
                size[0] += chunk.total_uncompressed_size
                size[1] += chunk.num_values
    return [name for name, (stored, rows) in sizes.items() if stored < 2 * rows]


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
        from fairkit.data.arrow import as_arrow

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
