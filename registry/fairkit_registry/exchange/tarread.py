"""Reading a tar file that a stranger made."""

from __future__ import annotations

import re
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, BinaryIO

from fairkit_registry.blobs import CHUNK
from fairkit_registry.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ALLOWED = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")
_FOLDERS = frozenset({"", "blobs", "blobs/sha256"})
MOST_MEMBERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A regular file of the archive, to be read before the next one is asked for."""

    name: str
    size: int
    handle: IO[bytes]

    def chunks(self) -> Iterator[bytes]:
        """Return the content piece by piece."""
        left = self.size
        while left:
            piece = self.handle.read(min(CHUNK, left))
            if not piece:
                raise ArchiveError(f"the archive is cut off within {self.name}")
            left -= len(piece)
            yield piece

    def small(self, limit: int) -> bytes:
        """Return the content of a file that must be small."""
        if self.size > limit:
            raise ArchiveError(f"{self.name} has {self.size} bytes; at most {limit} are read there")
        return b"".join(self.chunks())


class _Bounded:
    """A file whose reads are bounded: tarfile would read a header of any declared size into memory."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= CHUNK:
            raise ArchiveError("the archive is refused: a header in it is of absurd size")
        return self._raw.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()


@contextmanager
def members(path: Path, *, most_bytes: int) -> Iterator[Iterator[Member]]:
    """Open an archive and go through its files, refusing what an OCI layout does not hold.

    No name from the archive ever becomes a path. Links, devices, sparse files, other names, doubles
    and compressed archives are refused.
    """
    try:
        with path.open("rb") as raw:
            yield _walk(path, raw, most_bytes)
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"{path} is not a tar archive, or is damaged ({error})") from None
    except OSError as error:
        raise ArchiveError(f"cannot read the archive {path}: {error.strerror or error}") from None


def _walk(path: Path, raw: BinaryIO, most_bytes: int) -> Iterator[Member]:
    magic = raw.read(6)
    raw.seek(0)
    if magic[:2] == b"\x1f\x8b" or magic[:3] == b"BZh" or magic == b"\xfd7zXZ\x00" or magic[:4] == b"\x28\xb5\x2f\xfd":
        raise ArchiveError(f"{path} is compressed; unpack it first (gunzip): only plain tar archives are read")
    seen: set[str] = set()
    total = end = 0
    with tarfile.open(fileobj=_Bounded(raw), mode="r:") as tar:  # type: ignore[call-overload]
        while (entry := tar.next()) is not None:
            # A negative size would send the reader back and round in circles.
            if entry.size < 0 or entry.offset < end:
                raise ArchiveError("the archive is refused: the size of a file in it is negative")
            end = entry.offset_data
            name = _safe_name(entry)
            if entry.isdir():
                continue
            total += entry.size
            if total > most_bytes:
                raise ArchiveError(
                    f"the archive holds more than {most_bytes} bytes; pass a larger --max-bytes if you trust it"
                )
            if name in seen or len(seen) >= MOST_MEMBERS:
                raise ArchiveError(f"the archive is refused: {name} stands in it twice, or it has too many files")
            seen.add(name)
            handle = tar.extractfile(entry)
            if handle is None:
                raise ArchiveError(f"the archive is refused: {name} is no file")
            yield Member(name=name, size=entry.size, handle=handle)
            tar.members = []  # tarfile would keep a record of every member


def _safe_name(entry: tarfile.TarInfo) -> str:
    name = entry.name.removeprefix("./").rstrip("/")
    if entry.isdir() and (name in _FOLDERS or name == "."):
        return name
    if not entry.isreg() or entry.issparse():
        kind = "a link" if entry.issym() or entry.islnk() else "no regular file"
        raise ArchiveError(f"the archive is refused: {entry.name!r} is {kind}")
    if not _ALLOWED.fullmatch(name):
        raise ArchiveError(f"the archive is refused: {entry.name!r} does not belong into an OCI image layout")
    return name
