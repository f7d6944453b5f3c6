"""The interface of sources: where tables lie that are named by an address, such as ``s3://bucket/loans.parquet``."""

from __future__ import annotations

import functools
import os.path
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fairkit.errors import DataError
from fairkit.sources.address import said, scheme_of
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from fairkit.sources.address import Address


def _nothing() -> None:
    """Close nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A table that is files: they are read where they lie, as often as needed, each time checked to be unchanged.

    Attributes
    ----------
    name
        What reports call the table.
    files
        Its files in the order of their rows: Parquet, or CSV.
    origin
        What a report and a certificate say about where the table is: JSON values, no secret.
    notes
        Sentences that a report keeps beside the data.
    schema
        The columns of the whole table, where files may lack some (which are then missing values); None where all
        files have all columns.
    constants
        For each file the values of columns that do not stand in it; empty where there are none.
    """

    name: str
    files: Sequence[StoredFile]
    origin: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    schema: pa.Schema | None = None
    constants: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Counting:
    """Where the rows of a query can be counted, so that totals travel and rows do not (engine ``sql``).

    `dialect`: the SQL of the engine, by the name that ibis gives it, such as ``postgres``; `query`: the SELECT whose
    rows are the table; `run`: runs one SELECT, in the transaction in which the rows would be read, and returns its
    rows.
    """

    dialect: str
    query: str
    run: Callable[[str], pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A table that may look otherwise when it is read again: it is read once, to a snapshot in a temporary file.

    Attributes
    ----------
    name
        What reports call the table.
    schema
        Its columns.
    batches
        Its rows, in order; all have the schema.
    origin
        What a report and a certificate say about where the table is: JSON values, no secret.
    notes
        Sentences that a report keeps beside the data.
    close
        Called when the rows were read, or when that failed.
    counting
        Where its rows can be counted instead; `batches` are then asked for late, or never. None: nowhere.
    """

    name: str
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    origin: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    close: Callable[[], None] = field(default=_nothing)
    counting: Any = None


class DataSource(ABC):
    r"""Where tables are that an address names: ``--data SCHEME:LOCATION?OPTION=VALUE``, and `fairkit.load_data`.

    A complete plugin, in a module ``my_source.py`` whose distribution declares the entry point
    ``[project.entry-points.fairkit] my-source = "my_source"``::

        from __future__ import annotations

        import fairkit
        from fairkit.sources import DataSource, Records


        class JsonLines(DataSource):
            "A file with a JSON record in each line: jsonl:people.jsonl."

            name = "json-lines"
            schemes = ("jsonl",)

            def open(self, address):
                import pyarrow.json

                table = pyarrow.json.read_json(address.location)
                origin = {"kind": self.name, "address": address.text}
                return Records(
                    name=address.location, schema=table.schema, batches=table.to_batches(), origin=origin
                )

            @classmethod
            def example(cls, folder):
                (folder / "people.jsonl").write_text('{"sex": "f", "hired": 1}\n{"sex": "m", "hired": 0}\n')
                return f"jsonl:{folder / 'people.jsonl'}"


        @fairkit.hookimpl
        def fairkit_sources():
            return [JsonLines]

    Attributes
    ----------
    name
        Lower case words joined by hyphens.
    schemes
        What its addresses begin with, in lower case, of two letters or more.
    options
        The names that may follow ``?`` in an address, each with what it means; others are refused before `open`.
    """

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def open(self, address: Address) -> Files | Records:
        """Return the table, or raise.

        What a library raises becomes one message without secrets. Reading the rows comes later: here it is found out
        whether the table is there, within ten seconds.

        Parameters
        ----------
        address
            With one of `schemes`, and with `options` only.

        Raises
        ------
        DataError
            There is no such table, or it cannot be reached.
        """

    @classmethod
    def secret_host(cls, address: Address) -> str | None:
        """Return the host that the address names and that secrets of the environment would be sent to; None: no such.

        A configuration file may name such a host only if the user trusts it. By default: any host behind ``//``.
        """
        if address.slashes:
            return address.host()[1]
        return address.location.partition("://")[2].partition("/")[0] or None

    @classmethod
    def example(cls, folder: Path) -> str | None:
        """Make a small table in a folder and return its address, for the contract checks; None: it needs a server."""
        return None


# A file of a pyarrow file system, as it was when it was first seen: another one in its place is refused.


_STAMPS = ("ETag", "VersionId", "x-amz-version-id", "generation", "md5Hash", "crc32c", "Last-Modified", "updated")
"""What stores tell about an object besides its size: it changes with the content."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in an object store. It is small when pickled: another process reads the file itself."""

    filesystem: Any  # A ``pyarrow.fs.FileSystem``. Credentials are found in the environment of the process that reads
    path: str  # the file's path there
    size: int  # in bytes
    # What the store says about this version of the file: ETag, version, time of the last change
    stamp: tuple[tuple[str, str], ...] = ()
    # Makes the file system in another process, where it holds a key that must not travel; None: it travels itself
    again: Callable[[], Any] | None = None

    def __reduce__(self) -> Any:
        return _rebuilt, (self.again or self.filesystem, self.path, self.size, self.stamp)

    @classmethod
    def of(cls, filesystem: Any, path: str, again: Callable[[], Any] | None = None) -> Self:
        """Look at a file."""
        with filesystem.open_input_file(path) as file:
            return cls(filesystem, path, file.size(), _stamp(filesystem, path, file), again)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The name's ending, with its dot."""
        dot = self.name.rfind(".")
        return self.name[dot:] if dot > 0 else ""

    def open(self) -> pa.NativeFile:
        """Open the file for reading, if it is still the same."""
        try:
            file = self.filesystem.open_input_file(self.path)
        except FileNotFoundError:
            raise DataError(f"{self.name} was removed while it was read; read it when nobody changes it") from None
        except OSError as error:
            raise DataError(f"{self.name} cannot be read: {said(error)}") from None
        if (file.size(), _stamp(self.filesystem, self.path, file)) != (self.size, self.stamp):
            file.close()
            raise DataError(
                f"{self.name} was replaced by another file while it was read: size, time or ETag are others than at "
                "the first look; read it when nobody writes it, or name a version that nobody replaces"
            )
        return file

    def check(self) -> None:
        """Refuse a file that was replaced while it was read."""
        self.open().close()

    def told(self) -> dict[str, Any]:
        """Return the file's entry in a report."""
        return {"path": self.path, "bytes": self.size, **dict(self.stamp)}


@functools.lru_cache(maxsize=16)
def _made(again: Callable[[], Any]) -> Any:
    return again()


def _rebuilt(filesystem: Any, path: str, size: int, stamp: tuple[tuple[str, str], ...]) -> StoredFile:
    """Take a file out of a pickle."""
    if callable(filesystem):
        return StoredFile(_made(filesystem), path, size, stamp, filesystem)
    return StoredFile(filesystem, path, size, stamp)


def _stamp(filesystem: Any, path: str, file: pa.NativeFile) -> tuple[tuple[str, str], ...]:
    """Return the store's marks of a file's version; at least the time of the last change."""
    stamps = {key: _text(value) for key, value in (file.metadata() or {}).items()}
    stamp = tuple((key, stamps[key].strip('"')) for key in _STAMPS if stamps.get(key))
    return stamp or (("modified", str(filesystem.get_file_info(path).mtime_ns)),)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# Which source an address is for: whoever finds plugins says so here, and nothing here knows them.


Finder = Callable[[str], "type[DataSource] | None"]
"""Returns the source of a scheme; raises `PluginError` where several have it."""

_finders: list[Finder] = []


def add_finder(finder: Finder) -> None:
    """Have a function asked for the sources of schemes."""
    _finders.append(finder)


def find_source(scheme: str) -> type[DataSource] | None:
    """Return the source that has a scheme; None where there is none."""
    return next((source for finder in _finders if (source := finder(scheme)) is not None), None)


def source_at(text: str) -> type[DataSource] | None:
    """Return the source of an address; None where a text names a file.

    An address has ``://``, or begins with the scheme of a source; a file that is there is a path, whatever its name.
    """
    scheme = scheme_of(text)
    if scheme is None or _is_file(text):
        return None
    result = find_source(scheme)
    if result is None and "://" in text:
        raise DataError(
            f"no source is installed for addresses that begin with {scheme}: -- see `fairkit plugins`; for a file on "
            "this machine give its path"
        )
    return result


def is_address(text: str) -> bool:
    """Tell whether a text names a table by an address (see `source_at`)."""
    scheme = scheme_of(text)
    return scheme is not None and not _is_file(text) and ("://" in text or find_source(scheme) is not None)


def _is_file(text: str) -> bool:
    """Tell whether a text that could be an address is a path; one that is too long for a path is none."""
    return "://" not in text and os.path.exists(text)  # noqa: PTH110 -- the path's own raises for a long query
