"""Finding a data set: in a folder, in the cache, or at its publisher's address."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER_VARIABLE = "FAIRKIT_DATA"
"""The environment variable that names a folder with the data sets as Parquet files."""

_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file at its publisher's: its address and the SHA-256 of its bytes (None where only the content is pinned)."""

    url: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to get a data set, and what its columns are for.

    Attributes
    ----------
    name
        The Parquet file is ``NAME.parquet``.
    downloads
        The publisher's files.
    convert
        Turns their bytes, in the same order, into the table.
    content
        The digest of the converted table's content (`fairkit.data.digest.TableDigest`).
    roles
        Arguments of `fairkit.load_data`.
    """

    name: str
    downloads: tuple[Download, ...]
    convert: Callable[[Sequence[bytes]], pa.Table]
    content: str
    roles: Mapping[str, Any]

    @property
    def filename(self) -> str:
        """The name of its file in FAIRKIT_DATA and in the cache."""
        return f"{self.name}.parquet"


def locate(recipe: Recipe, cache: Path | None = None) -> Path:
    """Return the data set's Parquet file, downloading it where that must be.

    Parameters
    ----------
    recipe
        Which.
    cache
        The folder for downloads; by default the user's cache folder.

    Raises
    ------
    DataError
        FAIRKIT_DATA does not hold the file, or the publisher's file cannot be had or is not the known one.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        path = Path(folder).expanduser() / recipe.filename
        if not path.is_file():
            raise DataError(
                f"{FOLDER_VARIABLE} is {folder!r}, which holds no {recipe.filename}; put the file there, "
                f"or unset {FOLDER_VARIABLE} to download the data set"
            )
        return path
    path = (cache or default_cache()) / recipe.filename
    if not path.is_file():
        _store(_download_table(recipe), path)
    return path


def default_cache() -> Path:
    """The folder in which downloaded data sets are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("fairkit", appauthor=False)) / "datasets"


def _download_table(recipe: Recipe) -> pa.Table:
    contents = [_get(recipe, download) for download in recipe.downloads]
    try:
        table = recipe.convert(contents)
    except (ValueError, KeyError, IndexError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _unusable(recipe, recipe.downloads[0], f"is not in the known format ({reason})") from error
    found = content_digest(table)
    if found != recipe.content:
        raise _unusable(
            recipe, recipe.downloads[0], f"holds another table than the known one (content {found})"
        )
    return table


def _get(recipe: Recipe, download: Download) -> bytes:
    import http.client
    import urllib.error
    import urllib.request

    if not download.url.startswith(("https://", "http://")):
        raise ValueError(f"not an http address: {download.url}")
    try:
        with urllib.request.urlopen(download.url, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 -- checked above
            content: bytes = response.read()
    except http.client.IncompleteRead as error:
        raise _unusable(recipe, download, f"broke off after {len(error.partial)} bytes") from error
    except urllib.error.HTTPError as error:
        error.close()
        raise _unusable(recipe, download, f"could not be downloaded ({error})") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise _unusable(recipe, download, f"could not be downloaded ({reason})") from error
    found = hashlib.sha256(content).hexdigest()
    if download.sha256 is not None and found != download.sha256:
        raise _unusable(
            recipe,
            download,
            f"has the wrong checksum: {len(content)} bytes with SHA-256 {found}, not {download.sha256}",
        )
    return content


def _unusable(recipe: Recipe, download: Download, what: str) -> DataError:
    return DataError(
        f"the data set {recipe.name!r}: {download.url} {what}; try again later, or set {FOLDER_VARIABLE} to a "
        f"folder that holds {recipe.filename}"
    )


def content_digest(table: pa.Table) -> str:
    """Return the digest of a table's content, as a report shows it."""
    from fairkit.data.dataset import BATCH_ROWS
    from fairkit.data.digest import TableDigest
    from fairkit.data.sources import plain

    digest = TableDigest(table.column_names)
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        digest.update(plain(batch, "table"))
    return digest.hexdigest()


def _store(table: pa.Table, path: Path) -> None:
    """Write the table under another name, flush it, rename it: a broken run leaves no half file."""
    import pyarrow.parquet as pq

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"the data set {path.stem!r} cannot be kept in {str(path.parent)!r} ({error.strerror}); "
            f"make that folder writable, or set {FOLDER_VARIABLE} to a folder that holds {path.name}"
        ) from error
