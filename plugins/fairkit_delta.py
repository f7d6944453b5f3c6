"""Data in Delta tables: the Parquet files of one version, on this machine or in a store, read where they lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import fairkit
from fairkit.errors import MissingExtraError
from fairkit.sources import Address, DataSource, Files, Records, StoredFile
from fairkit_stores import STORES, files_inside, folder_in_store, secret_host, server_of, store

FAIRKIT_INTERFACE = 1
_PATIENCE = {"max_retries": "2", "retry_timeout": "8s", "connect_timeout": "4s"}
_UNORDERED = (
    "This version of the Delta table has deletion vectors or renamed columns: its rows were read once, in an order "
    "that another reading may not repeat. `OPTIMIZE` or `REORG TABLE ... APPLY (PURGE)` writes a version without them."
)


class DeltaTable(DataSource):
    """A Delta table at a version: delta:loans?version=7, or delta:s3://bucket/loans?version=7."""

    name = "delta"
    schemes = ("delta",)
    options: ClassVar[Mapping[str, str]] = {
        "version": "The table's version, a whole number; default: the newest. Reports name it.",
        **STORES["s3"],
    }

    def open(self, address: Address) -> Files | Records:
        """Look up the files of the version."""
        try:
            import deltalake
        except ImportError as error:
            raise MissingExtraError("deltalake", "delta") from error
        inner = _inner(address)
        table = _table(deltalake, address, inner)
        version = table.version()
        name = f"{address.location.rstrip('/').rpartition('/')[2]}, version {version}"
        origin = {"kind": self.name, "address": address.text, "id": str(table.metadata().id), "version": version}
        import pyarrow as pa

        schema = pa.schema(table.schema().to_arrow())
        entries = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        entries.sort(key=lambda entry: str(entry["path"]))
        if _is_plain(table) and not any("://" in entry["path"] for entry in entries):
            return Files(
                name=name,
                files=_files(address, inner, [entry["path"] for entry in entries]),
                origin=origin | {"files": len(entries)},
                schema=schema,
                constants=[_constants(entry, table) for entry in entries],
            )
        rows = pa.RecordBatchReader.from_stream(table.scan())
        return Records(name=name, schema=rows.schema, batches=rows, origin=origin, notes=(_UNORDERED,))

    @classmethod
    def secret_host(cls, address: Address) -> str | None:
        """Return another server than that of the store that the table is in."""
        inner = _inner(address)
        return None if inner is None else secret_host(inner)

    @classmethod
    def example(cls, folder: Path) -> str | None:
        """Make a table of two versions."""
        try:
            import deltalake
        except ImportError:
            return None
        import pyarrow as pa

        for sex, hired in (("f", 1), ("m", 0)):
            rows = pa.table({"sex": [sex], "hired": [hired]})
            deltalake.write_deltalake(str(folder / "people"), rows, mode="append")
        return f"delta:{folder / 'people'}?version=1"


def _inner(address: Address) -> Address | None:
    return folder_in_store(address, "Delta", {"version"})


def _table(deltalake: Any, address: Address, inner: Address | None) -> Any:
    text = address.options.get("version")
    if text is not None and not (text.isascii() and text.isdigit()):
        raise fairkit.DataError(f"version of {address.text} is no whole number; write ?version=7")
    version = None if text is None else int(text)
    if inner is None and not Path(address.location).is_dir():
        raise fairkit.DataError(f"there is no folder {address.location!r} with a Delta table")
    location = address.location if inner is None else inner.text
    try:
        table = deltalake.DeltaTable(location, storage_options=None if inner is None else _settings(inner))
    except deltalake.exceptions.TableNotFoundError:
        raise fairkit.DataError(f"there is no Delta table at {location}, or you may not read it") from None
    newest = table.version()
    if version is not None and version > newest:
        raise fairkit.DataError(f"{address.text} has no version {version}; its newest is {newest}")
    if version is not None and version != newest:
        table.load_as_version(version)
    return table


def _settings(inner: Address) -> dict[str, str]:
    """Return the library's storage options, besides its own environment variables."""
    settings, environment = dict(_PATIENCE), os.environ
    server = server_of(inner)
    if inner.scheme == "s3":
        if server is not None:
            settings |= {"aws_endpoint": f"{server[0]}://{server[1]}", "aws_allow_http": "true"}
        region = inner.options.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        settings["aws_region"] = region or "us-east-1"
        if inner.options.get("anonymous") == "true":
            settings["aws_skip_signature"] = "true"
    elif inner.scheme in {"abfs", "abfss"}:
        for name, variable in (("account_key", "AZURE_STORAGE_KEY"), ("sas_token", "AZURE_STORAGE_SAS_TOKEN")):
            if environment.get(variable):
                settings[f"azure_storage_{name}"] = environment[variable]
    return settings


def _is_plain(table: Any) -> bool:
    """Tell whether the version is its files' rows: no deletion vectors, no columns by other names."""
    mode = (table.metadata().configuration or {}).get("delta.columnMapping.mode", "none")
    if mode != "none":
        return False
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return True
    import pyarrow as pa

    return not any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()))


def _files(address: Address, inner: Address | None, paths: list[str]) -> list[StoredFile]:
    """Look at the files; a name in the table's log is percent-encoded."""
    from pyarrow.fs import LocalFileSystem

    filesystem, root = (LocalFileSystem(), address.location) if inner is None else store(inner)
    gone = f"a file of this version of {address.text} is gone: it was vacuumed; name a newer version"
    return files_inside(filesystem, root, [unquote(path) for path in paths], address, "Delta", gone)


def _constants(entry: Mapping[str, Any], table: Any) -> dict[str, Any]:
    """Return the values of the columns by which the table is cut: they do not stand in the file."""
    return {name: entry.get(f"partition.{name}") for name in table.metadata().partition_columns}


@fairkit.hookimpl
def fairkit_sources() -> list[type[DataSource]]:
    """Offer Delta tables."""
    return [DeltaTable]
