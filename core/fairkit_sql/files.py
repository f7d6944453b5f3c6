"""Parquet files, on this machine or those of a table in a lake, counted by DuckDB in this process."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.data.parts import ParquetPart
from fairkit.data.sources import FilledPart
from fairkit.errors import MissingExtraError
from fairkit.sources import Counting
from fairkit.sources.stored import StoredFile
from fairkit_sql.relation import without_statistics

if TYPE_CHECKING:
    import pyarrow as pa

_VIEW = "fairkit_files"
_PATTERN = "*?[]{}"
"""DuckDB would look for other files where a name has one of these."""


def counting_of(parts: Sequence[Any]) -> Counting | None:
    """Return where files are counted; None where a part is something else, or the files' columns differ."""
    first = _columns(parts[0].schema())
    if any(_columns(part.schema()) != first for part in parts[1:]):
        return None
    stored = [_inner(part) for part in parts]
    paths = [part.path for part in stored if part is not None and part.groups is None]
    names = [str(path.resolve()) for path in paths if isinstance(path, Path)]
    files = [path for path in paths if isinstance(path, StoredFile)]
    if any(len(found) == len(parts) for found in (names, files)):
        return None if any(sign in name for name in names for sign in _PATTERN) else _counting(parts, names, files)
    return None


def _counting(parts: Sequence[Any], names: list[str], files: list[StoredFile]) -> Counting:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("duckdb", "duckdb") from error
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")  # what a time with a zone is cast to
    if names:
        connection.read_parquet(names, hive_partitioning=False).create_view(_VIEW)
    else:
        connection.register(_VIEW, _dataset(parts, files))

    def run(text: str) -> pa.Table:
        with without_statistics(connection):
            rows = connection.sql(text)
            found = (getattr(rows, "to_arrow_table", None) or rows.fetch_arrow_table)()
        for file in files:
            file.check()
        return found

    return Counting("duckdb", "SELECT * FROM fairkit_files", run)


def _inner(part: Any) -> ParquetPart | None:
    """Return the file of a part, which may lack columns of its table."""
    inner = part.inner if isinstance(part, FilledPart) else part
    return inner if isinstance(inner, ParquetPart) else None


def _dataset(parts: Sequence[Any], files: Sequence[StoredFile]) -> Any:
    """Return files of a table as a dataset of Arrow: what a file lacks has one value in all its rows, or is missing."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    schema, form = parts[0].schema(), ds.ParquetFileFormat()
    fragments = []
    for part, file in zip(parts, files, strict=True):
        constants = dict(part.constants) if isinstance(part, FilledPart) else {}
        held = [pc.field(name) == pc.scalar(value) for name, value in constants.items() if value is not None]
        same = functools.reduce(operator.and_, held) if held else None
        fragments.append(form.make_fragment(file.path, file.filesystem, partition_expression=same))
    return ds.FileSystemDataset(fragments, schema, form, files[0].filesystem)


def read_alike(schema: pa.Schema) -> pa.Schema:
    """Return the columns that DuckDB reads as fairkit does: text, whole numbers, doubles and floats, flags and days."""
    import pyarrow as pa

    def alike(kind: pa.DataType) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
        known = any(test(kind) for test in tests) or pa.types.is_date32(kind)
        return known or pa.types.is_float32(kind) or pa.types.is_float64(kind)

    return pa.schema([f for f in schema if alike(f.type)])


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]
