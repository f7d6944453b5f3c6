"""Data in Iceberg tables: the Parquet files of one snapshot, on this machine or in a store, read where they lie."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import fairkit
from fairkit.errors import MissingExtraError
from fairkit.sources import Address, DataSource, Files, Records, StoredFile
from fairkit_stores import STORES, check_inside, files_inside, folder_in_store, secret_host, server_of, store

FAIRKIT_INTERFACE = 1
_MOST = 256 << 20
_CONFIGURATION = ".pyiceberg.yaml"
_HINT = "version-hint.text"
_METADATA = re.compile(r"(?:v?)(\d+)(?:-[0-9a-f-]+)?(?:\.gz)?\.metadata\.json")
_UNORDERED = (
    "This snapshot of the Iceberg table has deleted rows or columns of an older form: its rows were read once, in an "
    "order that another reading may not repeat. Rewriting its data files writes a snapshot without them."
)


class IcebergTable(DataSource):
    """An Iceberg table at a snapshot: iceberg:warehouse/loans?snapshot=4325, or iceberg:db.loans?catalog=prod."""

    name = "iceberg"
    schemes = ("iceberg",)
    options: ClassVar[Mapping[str, str]] = {
        "snapshot": "The snapshot's id, a whole number; default: the current one. Reports name it.",
        "catalog": "The name of a catalog of the pyiceberg configuration; the address is then the table's name in it.",
        **STORES["s3"],
    }

    def open(self, address: Address) -> Files | Records:
        """Look up the files of the snapshot."""
        try:
            import pyiceberg  # noqa: F401 -- before anything is looked up
        except ImportError as error:
            raise MissingExtraError("pyiceberg", "iceberg") from error
        table = _from_catalog(address) if "catalog" in address.options else _from_folder(address)
        snapshot = _snapshot(table, address)
        origin = {
            "kind": self.name,
            "address": address.text,
            "id": str(table.metadata.table_uuid),
            "snapshot": None if snapshot is None else snapshot.snapshot_id,
        }
        named = address.location.rstrip("/").rpartition("/")[2]
        name = f"{named}, snapshot {origin['snapshot']}"
        home = table.location().rstrip("/")
        if snapshot is not None and "catalog" not in address.options:
            _inside(snapshot.manifest_list, home, address)
            for manifest in snapshot.manifests(table.io):
                _inside(manifest.manifest_path, home, address)
        # an older snapshot has the columns of its time, the current one those of today
        scan = table.scan(snapshot_id=origin["snapshot"] if "snapshot" in address.options else None)
        tasks = [] if snapshot is None else sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        for task in tasks:
            for file in (task.file, *task.delete_files):
                _inside(file.file_path, home, address)
        # the snapshot is its files' rows: nothing deleted in them, Parquet, columns of one form
        if len(table.metadata.schemas) == 1 and all(
            not task.delete_files and str(task.file.file_format).upper().endswith("PARQUET") for task in tasks
        ):
            return Files(
                name=name,
                files=_files(address, table, [task.file.file_path for task in tasks]),
                origin=origin | {"files": len(tasks)},
                schema=_plain_text(scan.projection().as_arrow()),
            )
        rows = scan.to_arrow_batch_reader()
        return Records(name=name, schema=rows.schema, batches=rows, origin=origin, notes=(_UNORDERED,))

    @classmethod
    def example(cls, folder: Path) -> str | None:
        """Make a table of one snapshot."""
        try:
            from pyiceberg.catalog.sql import SqlCatalog
        except ImportError:
            return None
        import pyarrow as pa

        rows = pa.table({"sex": ["f", "m"], "hired": [1, 0]})
        catalog = SqlCatalog("here", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")
        try:
            catalog.create_namespace("db")
            catalog.create_table("db.people", rows.schema, location=f"file://{folder / 'people'}").append(rows)
        finally:
            catalog.engine.dispose()
        return f"iceberg:{folder / 'people'}"

    @classmethod
    def secret_host(cls, address: Address) -> str | None:
        """Return another server than that of the store that the table is in."""
        inner = _inner(address)
        return None if inner is None else secret_host(inner)


def _inner(address: Address) -> Address | None:
    return folder_in_store(address, "Iceberg", {"snapshot", "catalog"})


def _own_folders() -> list[Path]:
    """Return the folders whose configuration of the library is the user's own."""
    named = os.environ.get("PYICEBERG_HOME")
    return [folder.resolve() for folder in (Path.home(), *([Path(named)] if named else []))]


def _from_catalog(address: Address) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    if Path(_CONFIGURATION).is_file() and Path.cwd() not in _own_folders():
        raise fairkit.DataError(
            f"{_CONFIGURATION} in the working folder is not followed: whoever wrote it could name a server or a class "
            "to load. Move it to your home folder, or name its folder in PYICEBERG_HOME"
        )
    name = address.options["catalog"]
    try:
        return load_catalog(name).load_table(address.location)
    except NoSuchTableError:
        raise fairkit.DataError(f"the catalog {name!r} has no table {address.location!r}") from None
    except ValueError as error:
        raise fairkit.DataError(
            f"there is no catalog {name!r} in the configuration of pyiceberg (.pyiceberg.yaml)"
        ) from error


def _from_folder(address: Address) -> Any:
    """Read the table's newest metadata.

    Nothing that the file itself says about how it is to be read is followed: its properties may name a class to
    load, or a server that is given signed requests.
    """
    from pyarrow.fs import FileSelector, LocalFileSystem
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table import StaticTable
    from pyiceberg.table.metadata import TableMetadataUtil

    inner = _inner(address)
    filesystem, root = (LocalFileSystem(), _absolute(address)) if inner is None else store(inner)
    folder = f"{root.rstrip('/')}/metadata"
    names = [entry.base_name for entry in filesystem.get_file_info(FileSelector(folder, allow_not_found=True))]
    path = f"{folder}/{_newest(address, filesystem, folder, names)}"
    with filesystem.open_input_stream(path) as file:  # a name that ends in .gz is decompressed
        content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise fairkit.DataError(f"the metadata of the Iceberg table at {address.text} has more than 256 MiB")
    try:
        metadata = TableMetadataUtil.parse_raw(content.decode())
    except (ValueError, ValidationError) as error:
        raise fairkit.DataError(f"{path} is no metadata of an Iceberg table") from error
    settings = {} if inner is None else _settings(inner)
    name = ("static-table", path)
    return StaticTable(name, metadata, path, PyArrowFileIO(settings), NoopCatalog("static-table"))


def _newest(address: Address, filesystem: Any, folder: str, names: list[str]) -> str:
    """Return the name of the metadata file that holds: the hinted one, else the one of the highest number."""
    numbered = {name: int(match[1]) for name in names if (match := _METADATA.fullmatch(name))}
    if not numbered:
        raise fairkit.DataError(f"there is no Iceberg table at {address.location}, or you may not read it")
    if _HINT in names:
        with filesystem.open_input_stream(f"{folder}/{_HINT}") as file:
            hint = file.read(1_000).decode(errors="replace").strip()
        hinted = [name for name in (hint, f"v{hint}.metadata.json", f"{hint}.metadata.json") if name in numbered]
        if hinted:
            return hinted[0]
    newest = [name for name, number in numbered.items() if number == max(numbered.values())]
    if len(newest) > 1:  # two writers at once: only the catalog knows which of them it took
        raise fairkit.DataError(
            f"the Iceberg table at {address.location} has {len(newest)} metadata files of the same version; name the "
            "table in its catalog: iceberg:db.table?catalog=NAME"
        )
    return newest[0]


def _absolute(address: Address) -> str:
    return str(Path(address.location).absolute())


def _settings(inner: Address) -> dict[str, str]:
    """Return the library's storage options, besides its own environment variables."""
    server, settings = server_of(inner), dict[str, str]()
    if inner.scheme == "s3":
        if server is not None:
            settings["s3.endpoint"] = f"{server[0]}://{server[1]}"
        if inner.options.get("region"):
            settings["s3.region"] = inner.options["region"]
        if inner.options.get("anonymous") == "true":
            settings["s3.anonymous"] = "true"
    return settings


def _snapshot(table: Any, address: Address) -> Any:
    """Return the snapshot that is asked for; None for the current one of a table without rows."""
    text = address.options.get("snapshot")
    if text is None:
        return table.current_snapshot()
    if not (text.isascii() and text.isdigit()):
        raise fairkit.DataError(f"snapshot of {address.text} is no whole number; write ?snapshot=4325")
    snapshot = table.snapshot_by_id(int(text))
    if snapshot is None:
        newest = table.current_snapshot()
        current = "it has none" if newest is None else f"its current one is {newest.snapshot_id}"
        raise fairkit.DataError(f"{address.text} has no snapshot {text}; {current}")
    return snapshot


def _plain_text(schema: Any) -> Any:
    """Return the schema with the text type that Parquet files have, and without the library's own marks."""
    import pyarrow as pa

    return pa.schema(
        [pa.field(field.name, pa.string() if pa.types.is_large_string(field.type) else field.type) for field in schema]
    )


def _files(address: Address, table: Any, paths: list[str]) -> list[StoredFile]:
    """Look at the files; a table names no file outside its own folder."""
    from pyarrow.fs import LocalFileSystem

    home = table.location().rstrip("/")
    in_catalog = "catalog" in address.options
    inner = Address.parse(home) if in_catalog and not home.startswith(("file:", "/")) else _inner(address)
    if inner is None:
        root = home.removeprefix("file://") if in_catalog else _absolute(address)
        filesystem: Any = LocalFileSystem()
    else:
        filesystem, root = store(inner)
    names = [_inside(path, home, address) for path in paths]
    gone = f"a file of this snapshot of {address.text} is gone: it was expired; name a newer snapshot"
    return files_inside(filesystem, root, names, address, "Iceberg", gone)


def _inside(path: str, home: str, address: Address) -> str:
    """Return a file's path in the table's folder; a table that names another file is refused."""
    inside = path.removeprefix(f"{home}/")
    check_inside(inside, address, "Iceberg")
    return inside


@fairkit.hookimpl
def fairkit_sources() -> list[type[DataSource]]:
    """Offer Iceberg tables."""
    return [IcebergTable]
