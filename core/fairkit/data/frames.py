"""A Dask DataFrame as a table: each partition is a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
