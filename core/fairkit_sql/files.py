"""Parquet files on this machine, counted by DuckDB in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.data.parts import ParquetPart
from fairkit.errors import MissingExtraError
from fairkit.sources import Counting
from fairkit_sql.relation import without_statistics

if TYPE_CHECKING:
    import pyarrow as pa

_VIEW = "fairkit_files"
_PATTERN = "*?[]{}"
"""DuckDB would look for other files where a name has one of these."""


def counting_of(parts: Sequence[Any]) -> Counting | None:
    """Return where files are counted; None where a part is something else, or the files' columns differ.

    Raises
    ------
    MissingExtraError
        DuckDB is not installed.
    """
    paths = [part.path for part in parts if isinstance(part, ParquetPart) and part.groups is None]
    names = [str(path.resolve()) for path in paths if isinstance(path, Path)]
    if len(names) < len(parts) or any(sign in name for name in names for sign in _PATTERN):
        return None
    first = _columns(parts[0].schema())
    if any(_columns(part.schema()) != first for part in parts[1:]):
        return None
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("duckdb", "duckdb") from error
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")  # what a time with a zone is cast to
    connection.read_parquet(names, hive_partitioning=False).create_view(_VIEW)

    def run(text: str) -> pa.Table:
        with without_statistics(connection):
            rows = connection.sql(text)
            return (getattr(rows, "to_arrow_table", None) or rows.fetch_arrow_table)()

    return Counting("duckdb", "SELECT * FROM fairkit_files", run)


def read_alike(schema: pa.Schema, day: str | None = None) -> pa.Schema:
    """Return the columns that DuckDB reads as fairkit does: text, whole numbers, doubles and floats, flags and days.

    Of the column `day` only the days count: it may have times, too.
    """
    import pyarrow as pa

    def alike(kind: pa.DataType) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
        known = any(test(kind) for test in tests) or pa.types.is_date32(kind)
        return known or pa.types.is_float32(kind) or pa.types.is_float64(kind)

    def times(kind: pa.DataType) -> bool:
        return pa.types.is_timestamp(kind) and (kind.tz is None or kind.unit != "ns")

    return pa.schema([f for f in schema if alike(f.type) or (f.name == day and times(f.type))])


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]
