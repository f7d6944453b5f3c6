"""Opening tables: files, addresses, data frames and what else has the Arrow C stream interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairkit.data.common import common_types, table_of
from fairkit.data.files import open_path
from fairkit.data.frames import frame_parts, memory_table
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
        name, parts = name or "Dask data frame", frame_parts(data)
        return table_of(parts, name, common_types(with_lists(parts, name)[0][:1], name))
    if isinstance(data, str) and (source_type := source_at(data)) is not None:
        source = open_with(source_type, data)
    elif isinstance(data, str | Path):
        source = open_path(Path(data))
    elif type(data).__module__.partition(".")[0] == "ibis":
        source = imported("fairkit_sql.relation:source_of")(data, name or "ibis table")
    else:
        name = name or "data frame"
        table = memory_table(data)
        check_names(name, table.schema)
        source = table_of([TablePart(name, table)], name)
    if not source.types:
        raise DataError(f"{source.name} has no columns")
    return source
