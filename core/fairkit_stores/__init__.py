"""Object stores through pyarrow's file systems, and the data files that lie under an address there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from fairkit.errors import DataError
from fairkit.sources.address import Address, check_reachable, keeps_secrets, said
from fairkit.sources.interface import StoredFile
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass

STORES: dict[str, Mapping[str, str]] = {
    "s3": {
        "region": "The bucket's region; default: AWS_REGION, else it is looked up.",
        "endpoint": "Another server that speaks S3: http://host:port; default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL.",
        "anonymous": "true asks without credentials.",
    },
    "gs": {
        "endpoint": "Another server: http://host:port; default: STORAGE_EMULATOR_HOST.",
        "anonymous": "true asks without credentials.",
    },
    "abfs": {"endpoint": "Another server than dfs.core.windows.net: http://host:port."},
}
"""The stores by scheme, each with what may follow ``?`` in an address."""

_SERVERS = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "gs": ("STORAGE_EMULATOR_HOST",)}
"""The variables that name another server, as the stores' own tools take them."""

_CONNECT, _REQUEST, _TRIES = 3.0, 20.0, 2
_AZURE_SECRETS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN")
_AZURE_HOST = ".dfs.core.windows.net"
_DELTA_LOG = "_delta_log"


def store(address: Address) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it.

    Credentials come from the environment, as the store's own tools take them: ``AWS_ACCESS_KEY_ID`` and
    ``AWS_SECRET_ACCESS_KEY``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_KEY`` or ``AZURE_STORAGE_SAS_TOKEN``.

    Raises
    ------
    DataError
        The address names no bucket, or its server cannot be reached.
    """
    kind = {"abfss": "abfs"}.get(address.scheme, address.scheme)
    if not address.slashes or not address.bucket:
        raise DataError(f"{address.scheme}: addresses are written {_form(kind)}")
    if "@" in address.bucket and kind != "abfs":
        # it may be a key: it is not shown
        raise DataError(f"a bucket has no '@' in its name; write {_form(kind)}, and put keys into the environment")
    made = {"s3": _s3, "gs": _google, "abfs": _azure}[kind]
    return made(address)


@dataclass(frozen=True, slots=True)
class _Again:
    """Makes the file system of an address once more, in a process with an environment of its own."""

    scheme: str
    location: str
    options: tuple[tuple[str, str], ...]

    def __call__(self) -> Any:
        return store(Address(self.scheme, self.location, dict(self.options)))[0]


def files_at(address: Address) -> list[StoredFile]:
    """Return the data files at an address: the file, a folder's Parquet (else CSV) files by name, or a glob's.

    Raises
    ------
    DataError
        There are none, or the store cannot be reached.
    """
    filesystem, path = store(address)
    # a file system for Azure carries its key where it goes
    keyed = type(filesystem).__name__ == "AzureFileSystem"
    again = _Again(address.scheme, address.location, tuple(address.options.items())) if keyed else None
    return found_files(filesystem, path, address.text, again)


def found_files(filesystem: Any, path: str, shown: str, again: Callable[[], Any] | None = None) -> list[StoredFile]:
    """Return the data files at a path: the file, a folder's Parquet (else CSV) files by name, or a glob's.

    Parameters
    ----------
    filesystem
        A ``pyarrow.fs.FileSystem``.
    path
        A file, a folder, or a path with ``*``, ``**`` or ``[...]``.
    shown
        The address in messages.
    again
        See `StoredFile`.

    Raises
    ------
    DataError
        There are none.
    """
    try:
        paths = _matching(filesystem, path, shown) if _is_glob(path) else _lying(filesystem, path, shown)
        return [StoredFile.of(filesystem, path, again) for path in paths]
    except OSError as error:
        raise DataError(f"{visible(shown)} cannot be read: {said(error)}") from None


def _lying(filesystem: Any, path: str, shown: str) -> list[str]:
    from pyarrow.fs import FileType

    kind = FileType.Directory if path.endswith("/") else filesystem.get_file_info(path).type
    if kind == FileType.File:
        return [path]
    if kind == FileType.NotFound:
        _check_bucket(filesystem, path, shown)
        raise DataError(f"there is no data file {visible(shown)}; check the name, and that you may read it")
    listed = _listed(filesystem, path.rstrip("/"))
    if any(f"/{_DELTA_LOG}/" in path for path in listed):
        raise DataError(
            f"{visible(shown)} is a Delta table, whose folder holds removed rows, too; "
            f"name it as delta:{visible(shown)}"
        )
    if any(path.endswith(".metadata.json") and "/metadata/" in path for path in listed):
        raise DataError(
            f"{visible(shown)} is an Iceberg table, whose folder holds removed rows, too; "
            f"name it as iceberg:{visible(shown)}"
        )
    files = [path for path in listed if path.endswith(".parquet")] or [path for path in listed if path.endswith(".csv")]
    if not files:
        _check_bucket(filesystem, path, shown)
        raise DataError(f"the folder {visible(shown)} holds no .parquet file and no .csv file")
    return files


def _check_bucket(filesystem: Any, path: str, shown: str) -> None:
    """Say that it is the bucket that is missing: a missing object looks the same."""
    from pyarrow.fs import FileType

    bucket = path.partition("/")[0]
    if filesystem.get_file_info(bucket).type == FileType.NotFound:
        raise DataError(f"there is no bucket {visible(bucket)!r} at {visible(shown)}, or you may not see it")


def _matching(filesystem: Any, path: str, shown: str) -> list[str]:
    fixed = []
    for piece in path.split("/"):
        if _is_glob(piece):
            break
        fixed.append(piece)
    wanted = _glob(path)
    result = [path for path in _listed(filesystem, "/".join(fixed)) if wanted.fullmatch(path)]
    if not result:
        raise DataError(f"no data file matches {visible(shown)}")
    return result


def _listed(filesystem: Any, folder: str) -> list[str]:
    """Return all files under a folder, by name."""
    from pyarrow.fs import FileSelector, FileType

    entries = filesystem.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
    return sorted(entry.path for entry in entries if entry.type == FileType.File)


def _is_glob(text: str) -> bool:
    return any(sign in text for sign in "*[")


def _glob(path: str) -> re.Pattern[str]:
    """Return the pattern of a path with ``*`` (not beyond a slash), ``**`` and ``[...]``."""
    pieces = re.split(r"(\*\*/|\*\*|\*|\[[^]/]+\])", path)
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(meant.get(p) or (p if p.startswith("[") else re.escape(p)) for p in pieces))


def _form(kind: str) -> str:
    return "abfs://container@account.dfs.core.windows.net/path" if kind == "abfs" else f"{kind}://bucket/path"


def _server(told: str, *, plain: bool) -> tuple[str, str]:
    """Return scheme and host:port of another server, which must answer; `plain`: no key is sent to it."""
    parts = urlsplit(told if "://" in told else f"https://{told}")
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        port = 0
    odd = parts.username is not None or parts.query or parts.path not in ("", "/")
    if odd or not port or parts.scheme not in ("http", "https") or not parts.hostname:
        # not shown: it may hold a password
        raise DataError("the endpoint of the store is no address such as http://host:port")
    if not plain and not keeps_secrets(parts.geturl()):
        raise DataError(
            "the endpoint of the store is reached without encryption, and keys are not sent so beyond this machine: "
            "name an https:// address, or add ?anonymous=true where no key is needed"
        )
    check_reachable(parts.hostname, port)
    return parts.scheme, parts.netloc


def server_of(address: Address) -> tuple[str, str] | None:
    """Return scheme and host:port of the server that is not the store's own; None for its own.

    Raises
    ------
    DataError
        It does not answer, or its address cannot be used.
    """
    endpoint = address.options.get("endpoint") or next(
        (os.environ[name] for name in _SERVERS.get(address.scheme, ()) if os.environ.get(name)), None
    )
    if endpoint is None:
        return None
    return _server(endpoint, plain=_yes(address, "anonymous"))


def secret_host(address: Address) -> str | None:
    """Return the host that an address in a store names, where keys of the environment go to it; see `DataSource`.

    A bucket of the store's own servers is none; an account of Azure is, as whoever has it sees the token.
    """
    if _yes(address, "anonymous"):
        return None
    if address.options.get("endpoint"):
        text = address.options["endpoint"]
        return urlsplit(text if "://" in text else f"https://{text}").netloc or text
    azure = address.scheme in ("abfs", "abfss") and any(os.environ.get(name) for name in _AZURE_SECRETS)
    return address.bucket.partition("@")[2] if azure else None


def _s3(address: Address) -> tuple[Any, str]:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    environment = os.environ
    scheme, server = server_of(address) or ("https", None)
    region = address.options.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region is None and server is None:
        try:
            region = resolve_s3_region(address.bucket)
        except OSError as error:
            raise DataError(
                f"the region of the bucket {visible(address.bucket)!r} is not known ({said(error)}); name it: "
                "?region=..., or AWS_REGION"
            ) from None
    filesystem = S3FileSystem(
        anonymous=_yes(address, "anonymous"),
        region=region or "us-east-1",
        scheme=scheme,
        endpoint_override=server,
        connect_timeout=_CONNECT,
        request_timeout=_REQUEST,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_TRIES),
    )
    return filesystem, address.location


def _google(address: Address) -> tuple[Any, str]:
    from pyarrow.fs import GcsFileSystem

    scheme, server = server_of(address) or ("https", None)
    filesystem = GcsFileSystem(
        anonymous=_yes(address, "anonymous"),
        scheme=scheme,
        endpoint_override=server,
        retry_time_limit=timedelta(seconds=8),
    )
    return filesystem, address.location


def _azure(address: Address) -> tuple[Any, str]:
    from pyarrow.fs import AzureFileSystem

    container, _, host = address.bucket.partition("@")
    account = host.removesuffix(_AZURE_HOST)
    if not container or not account or "." in account or ":" in account:
        raise DataError(f"{address.scheme}: addresses are written {_form('abfs')}")
    more: dict[str, Any] = {}
    server = server_of(address)
    if server is not None:
        for kind in ("blob", "dfs"):
            more |= {f"{kind}_storage_scheme": server[0], f"{kind}_storage_authority": server[1]}
    key, token = (os.environ.get(name) for name in _AZURE_SECRETS)
    filesystem = AzureFileSystem(account, account_key=key, sas_token=None if key else token, **more)
    return filesystem, f"{container}/{address.key}"


def _yes(address: Address, option: str) -> bool:
    value = address.options.get(option, "false").lower()
    if value not in ("true", "false"):
        raise DataError(f"{option} of {address.text} is true or false")
    return value == "true"


def origin_of(address: Address, kind: str, files: Sequence[StoredFile]) -> dict[str, Any]:
    """Return the origin of files in a store, for reports: where, how many, and which versions."""
    import hashlib
    import json

    origin: dict[str, Any] = {"kind": kind, "address": address.text, "files": len(files)}
    origin["bytes"] = sum(file.size for file in files)
    if len(files) == 1:
        return origin | {"version": dict(files[0].stamp)}
    listing = json.dumps([file.told() for file in files], sort_keys=True)
    return origin | {"listing_sha256": hashlib.sha256(listing.encode()).hexdigest()}


def folder_in_store(address: Address, kind: str, own: Collection[str]) -> Address | None:
    """Return the address of a table's folder in a store; None for one on this machine.

    Parameters
    ----------
    address
        Of the table: its location is a path, or an address in a store.
    kind
        The format of the table, for messages: ``Delta``.
    own
        The options of the format; the others are the store's.

    Raises
    ------
    DataError
        The scheme is no store's, or an option is not one of the store.
    """
    if "://" not in address.location:
        return None
    inner = Address.parse(address.location)
    if inner.scheme not in {"s3", "gs", "abfs", "abfss"}:
        raise DataError(f"{kind} tables lie on this machine, or at s3://, gs:// or abfs://, not at {inner.scheme}:")
    options = {name: value for name, value in address.options.items() if name not in own}
    inner = Address(inner.scheme, inner.location, options)
    inner.check_options(STORES.get({"abfss": "abfs"}.get(inner.scheme, inner.scheme), {}))
    return inner


def files_inside(
    filesystem: Any, root: str, names: Sequence[str], address: Address, kind: str, gone: str
) -> list[StoredFile]:
    """Look at a table's files, which its own log names.

    Parameters
    ----------
    filesystem, root
        Where the table's folder is.
    names
        The files, relative to it.
    address, kind, gone
        For messages: the table's address and format, and what a missing file means.

    Raises
    ------
    DataError
        A file is gone, or its name leads out of the folder: a log that others wrote names no file elsewhere.
    """
    files = []
    for name in names:
        check_inside(name, address, kind)
        try:
            files.append(StoredFile.of(filesystem, f"{root.rstrip('/')}/{name}"))
        except FileNotFoundError:
            raise DataError(gone) from None
    return files


def check_inside(name: str, address: Address, kind: str) -> None:
    """Refuse a file's name that leads out of the table's folder."""
    if name.startswith("/") or "://" in name or ".." in name.split("/"):
        raise DataError(f"the {kind} table at {visible(address.text)} names a file outside its folder: {visible(name)}")
