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
        FramePart(f"partition {number}", delayed, frame._meta)
        for number, delayed in enumerate(frame.to_delayed())
    )
