"""A Dask DataFrame as a table: each partition is a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.data.roles import value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


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
        gone = [one is None or one != one for one in objects]  # noqa: PLR0124 -- NaN
        if all(
            isinstance(one, str | bool | int | float) for one, absent in zip(objects, gone, strict=True) if not absent
        ):
            texts = [None if absent else value_text(one) for one, absent in zip(objects, gone, strict=True)]
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
