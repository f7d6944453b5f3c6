"""Tables that are files: on this machine, or in a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairkit.data.common import common_types
from fairkit.data.lists import with_lists
from fairkit.data.parts import CsvPart, ParquetPart, Part
from fairkit.data.source import Source, check_names, unreadable
from fairkit.errors import DataError
from fairkit.sources.secrets import masked
from fairkit.sources.stored import StoredFile


def open_path(path: Path) -> Source:
    """Open the files at a path on this machine."""
    parts = with_lists(file_parts(_files(path), path.name), path.name)
    return Source(path.name, common_types(parts, path.name), parts)


def file_parts(files: Sequence[Path | StoredFile], table: str) -> tuple[Part, ...]:
    """Return the parts of a table that is files, each Parquet or CSV."""
    import pyarrow as pa

    if len(files) == 1 and _size(files[0]) == 0:
        raise DataError(f"{files[0].name} is empty (0 bytes)")
    parts: list[Part] = []
    for file in files:
        parquet = _looks_like_parquet(file)
        parts.append(ParquetPart(file) if parquet else CsvPart(file))
        try:
            schema = parts[-1].schema()
            check_names(file.name, schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeError) as error:
            where = file.name if len(files) == 1 else f"{table}, part {file.name}"
            raise unreadable(where, error, " as Parquet" if parquet else " as CSV") from error
        if len(files) == 1 and not parquet and all(pa.types.is_null(kind) for kind in schema.types):
            raise DataError(f"{file.name} has a header but no rows")  # before a message lists its columns
    return tuple(parts)


def _size(file: Path | StoredFile) -> int:
    return file.size if isinstance(file, StoredFile) else file.stat().st_size


def _files(path: Path) -> list[Path]:
    """Return the files of a table, by name: the file, a folder's Parquet (else CSV) files, or a glob's."""
    if path.is_dir():
        if (path / "_delta_log").is_dir():
            raise DataError(
                f"the folder {str(path)!r} is a Delta table, whose folder holds removed rows, too; "
                f"name it as delta:{path}"
            )
        if any((path / "metadata").glob("*.metadata.json")):
            raise DataError(
                f"the folder {str(path)!r} is an Iceberg table, whose folder holds removed rows, too; "
                f"name it as iceberg:{path}"
            )
        try:
            files = sorted(path.rglob("*.parquet")) or sorted(path.rglob("*.csv"))
        except OSError as error:
            raise DataError(
                f"the folder {str(path)!r} changed while its files were listed, or cannot be read ({error.strerror}): "
                "name the folder that holds the table's files only"
            ) from error
        if not files:
            raise DataError(f"the folder {str(path)!r} holds no .parquet file and no .csv file")
        return files
    if path.exists():
        return [path]
    if any(sign in str(path) for sign in "*?["):
        import glob

        matches = glob.glob(str(path), recursive=True)  # noqa: PTH207 -- Path.glob takes no absolute pattern
        files = sorted(Path(file) for file in matches if Path(file).is_file())
        if files:
            return files
        raise DataError(f"no data file matches {masked(path)!r}")
    near = sorted(p.name for p in path.parent.glob("*") if p.suffix in {".csv", ".parquet"})
    hint = f" In that folder there are: {', '.join(near[:8])}." if near else ""
    raise DataError(f"there is no data file {masked(path)!r}.{hint}")


def _looks_like_parquet(path: Path | StoredFile) -> bool:
    with path.open() if isinstance(path, StoredFile) else path.open("rb") as file:
        return file.read(4) == b"PAR1" or path.suffix in {".parquet", ".pq"}
