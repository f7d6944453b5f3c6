"""Opening tables: files, addresses, data frames and what else has the Arrow C stream interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairkit.data.common import common_types
from fairkit.data.files import open_path
from fairkit.data.frames import frame_parts
from fairkit.data.lists import with_lists
from fairkit.data.parts import TablePart
from fairkit.data.remote import open_with
from fairkit.data.source import Source, check_names
from fairkit.errors import DataError
from fairkit.sources.finders import source_at
from fairkit.support.faces import imported

__all__ = ["open_source"]


def open_source(data: Any, name: str | None = None) -> Source:
    """Open a CSV or Parquet file, a folder or glob of such files, an address, a data frame or an Arrow table."""
    if isinstance(data, Source):
        return data
    if hasattr(data, "to_delayed") and hasattr(data, "_meta"):
        name = name or "Dask data frame"
        parts = with_lists(frame_parts(data), name)
        return Source(name, common_types(parts[:1], name), parts)
    if isinstance(data, str) and (source_type := source_at(data)) is not None:
        source = open_with(source_type, data)
    elif isinstance(data, str | Path):
        source = open_path(Path(data))
    elif type(data).__module__.partition(".")[0] == "ibis":
        source = imported("fairkit_sql.relation:source_of")(data, name or "ibis table")
    else:
        source = _open_memory(data, name or "data frame")
    if not source.types:
        raise DataError(f"{source.name} has no columns")
    return source


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
    check_names(name, table.schema)
    parts = with_lists([TablePart(name, table)], name)
    return Source(name, common_types(parts, name), parts)
