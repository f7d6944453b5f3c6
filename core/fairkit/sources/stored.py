"""A file of a pyarrow file system, as it was when it was first seen: another one in its place is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import DataError
from fairkit.sources.secrets import said

if TYPE_CHECKING:
    import pyarrow as pa

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
    told = {key: _text(value) for key, value in (file.metadata() or {}).items()}
    stamp = tuple((key, told[key].strip('"')) for key in _STAMPS if told.get(key))
    return stamp or (("modified", str(filesystem.get_file_info(path).mtime_ns)),)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
