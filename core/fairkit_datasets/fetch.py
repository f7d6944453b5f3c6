"""Finding a data set: in a folder, in the cache, or at its publisher's address."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

from fairkit.errors import DataError, FairkitError, MissingExtraError
from fairkit.support.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER_VARIABLE = "FAIRKIT_DATA"
"""The environment variable that names a folder with the data sets as Parquet files."""

_TIMEOUT_SECONDS = 60
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file at its publisher's."""

    url: str  # its address, https
    sha256: str | None = None  # of its bytes; None where only the content is pinned
    size_limit: int = 64 << 20  # bytes after which the download is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to get a data set, and what its columns are for."""

    name: str  # the Parquet file is `NAME.parquet`
    downloads: tuple[Download, ...]  # the publisher's files
    convert: Callable[[Sequence[bytes]], pa.Table]  # turns their bytes, in the same order, into the table
    content: str  # the digest of the converted table's content (`fairkit.data.digest.TableDigest`)
    roles: Mapping[str, Any]  # arguments of `fairkit.load_data`

    @property
    def filename(self) -> str:
        """The name of its file in FAIRKIT_DATA and in the cache."""
        return f"{self.name}.parquet"


def locate(recipe: Recipe, cache: Path | None = None) -> Path:
    """Return the data set's Parquet file, downloading it where that must be."""
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
        raise _unusable(recipe, recipe.downloads[0], f"holds another table than the known one (content {found})")
    return table


class _TooLargeError(Exception):
    """More bytes than a publisher's file has."""


class _Limited:
    """A file that takes a number of bytes and no more."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self.file, self.most, self.count = file, most, 0

    def write(self, piece: bytes) -> int:
        self.count += len(piece)
        if self.count > self.most:
            raise _TooLargeError
        return self.file.write(piece)

    def flush(self) -> None:
        self.file.flush()


def _get(recipe: Recipe, download: Download) -> bytes:
    """Download a file over HTTPS, also after redirections, up to its size limit, and check its digest."""
    try:
        import pooch
        import requests
    except ImportError as error:
        raise MissingExtraError("pooch", "datasets") from error
    _need_https(download.url)
    responses: list[Any] = []

    def seen(response: Any, **_: Any) -> None:
        responses.append(response)
        _check_redirection(response)

    fetch = pooch.HTTPDownloader(
        chunk_size=_PIECE, timeout=_TIMEOUT_SECONDS, headers={"Accept-Encoding": "identity"}, hooks={"response": seen}
    )
    received = 0

    def save(url: str, target: str, _: object) -> None:
        nonlocal received
        with Path(target).open("wb") as file:
            limited = _Limited(file, download.size_limit)
            try:
                fetch(url, limited, None)
            finally:
                received = limited.count
                for response in responses:
                    response.close()

    known = None if download.sha256 is None else f"sha256:{download.sha256}"
    pooch.get_logger().setLevel("ERROR")  # it would name the file and its digest on standard error
    try:
        with TemporaryDirectory(prefix="fairkit-") as folder:
            return Path(pooch.retrieve(download.url, known, "file", folder, downloader=save)).read_bytes()
    except _TooLargeError:
        limit = f"{download.size_limit:,}"
        raise _unusable(recipe, download, f"is larger than the {limit} bytes it may have") from None
    except ValueError as error:
        if isinstance(error, FairkitError | requests.RequestException):
            raise _unusable(recipe, download, f"could not be downloaded ({error})") from error
        found = re.findall(r"[0-9a-f]{64}", str(error))
        told = f"{received} bytes with SHA-256 {found[-1]}, not {download.sha256}" if found else str(error)
        raise _unusable(recipe, download, f"has the wrong checksum: {told}") from error
    except requests.RequestException as error:
        partial = re.search(r"IncompleteRead\((\d+) bytes", str(error))
        if partial:
            raise _unusable(recipe, download, f"broke off after {partial[1]} bytes") from error
        raise _unusable(recipe, download, f"could not be downloaded ({_reason(error)})") from error
    except OSError as error:
        raise _unusable(recipe, download, f"could not be kept ({error.strerror or error})") from error


def _reason(error: Exception) -> str:
    """Return the first line of what a library says, without the addresses of its objects."""
    return re.sub(r"<[^>]* at 0x[0-9a-f]+>:? ?", "", str(error)).splitlines()[0]


def _need_https(url: str) -> None:
    if not url.startswith("https://"):
        raise DataError(f"{url} is no https address: what comes without encryption may be anybody's")


def _check_redirection(response: Any) -> None:
    if response.is_redirect:
        from urllib.parse import urljoin

        _need_https(urljoin(response.url, response.headers["location"]))


def _unusable(recipe: Recipe, download: Download, what: str) -> DataError:
    return DataError(
        f"the data set {recipe.name!r}: {download.url} {what}; try again later, or set {FOLDER_VARIABLE} to a "
        f"folder that holds {recipe.filename}"
    )


def content_digest(table: pa.Table) -> str:
    """Return the digest of a table's content, as a report shows it."""
    from fairkit.data.dataset import BATCH_ROWS
    from fairkit.data.digest import TableDigest
    from fairkit.data.plain import plain

    digest = TableDigest(table.column_names)
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        digest.update(plain(batch, "table"))
    return digest.hexdigest()


def _store(table: pa.Table, path: Path) -> None:
    """Write the table whole or not at all."""
    import pyarrow.parquet as pq

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            pq.write_table(table, file, compression="zstd")
    except OSError as error:
        raise DataError(
            f"the data set {path.stem!r} cannot be kept in {str(path.parent)!r} ({error.strerror or error}); "
            f"make that folder writable, or set {FOLDER_VARIABLE} to a folder that holds {path.name}"
        ) from error
