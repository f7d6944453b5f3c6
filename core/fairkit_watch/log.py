"""The append-only log of a watch: records that survive a kill at any byte.

A record is its length and CRC-32, four bytes each (little-endian), and JSON in UTF-8. It counts once `Log.append` has
returned: it is then on the disk. What an interrupted write left at the end is cut off by the next writer; damage
before that is an error, since acknowledged records must not be lost.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairkit.errors import FairkitError
from fairkit.support.files import FileError, explain, sync_folder

_HEAD = struct.Struct("<II")
LARGEST = 256 * 1024 * 1024
"""Bytes of one record; more is damage."""

Record = dict[str, Any]


class StateError(FairkitError, RuntimeError):
    """A watch's folder that cannot be used: missing, damaged, changed, or in use."""


def frame(record: Mapping[str, Any]) -> bytes:
    """Return a record as it stands in the log; equal records give equal bytes."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    body = text.encode("ascii")
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read(raw: bytes, where: str) -> tuple[list[Record], int]:
    """Read records until the end, or until what an interrupted write left."""
    records: list[Record] = []
    at = 0
    while at < len(raw):
        body = _body(raw, at)
        if body is None:
            if _later(raw, at):
                raise StateError(
                    f"{where} is damaged at byte {at:,}: a record is not what was written, and others follow it. "
                    "That was no interrupted write: restore the folder from a backup"
                )
            break
        try:
            records.append(json.loads(body))
        except ValueError as error:
            raise StateError(f"{where} is damaged at byte {at:,}: {error}; restore it from a backup") from None
        at += _HEAD.size + len(body)
    return records, at


def _body(raw: bytes, at: int) -> bytes | None:
    """Return the record's body at a place; None where there is no whole, right one."""
    if at + _HEAD.size > len(raw):
        return None
    length, check = _HEAD.unpack_from(raw, at)
    body = raw[at + _HEAD.size : at + _HEAD.size + length]
    if not 2 <= length <= LARGEST or len(body) < length or zlib.crc32(body) != check:
        return None
    return body


def _later(raw: bytes, at: int) -> bool:
    """Say whether a whole record begins anywhere after a place that holds none."""
    place = raw.find(b'{"', at + _HEAD.size + 1)
    while place >= 0:
        if _body(raw, place - _HEAD.size) is not None:
            return True
        place = raw.find(b'{"', place + 1)
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process."""
    try:
        handle = path.open("ab")
    except OSError as error:
        raise FileError(explain(error, "cannot open", path)) from error
    with handle:
        try:
            _lock(handle.fileno())
        except OSError as error:
            raise StateError(
                f"another process is writing to the watch {str(path.parent)!r}; one folder has one writer at a time. "
                "Let it finish, then try again"
            ) from error
        yield


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Log:
    """A log file, open to append."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FileError(explain(error, "cannot open", path)) from error
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            raw = path.read_bytes()
            self.records, self._size = read(raw, str(path))
            self.cut = len(raw) - self._size
            if self.cut:
                self._back()
        except BaseException:
            self._file.close()
            raise

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record; when this returns, it is on the disk."""
        data = frame(record)
        try:
            self._file.seek(self._size)
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            _sync(self._file.fileno())
            if self._size == 0:
                sync_folder(self.path.parent)
        except BaseException as error:
            with suppress(OSError):
                self._back()
            if isinstance(error, OSError):
                raise FileError(explain(error, "cannot write", self.path)) from error
            raise
        self._size += len(data)
        self.records.append(dict(record))

    def _back(self) -> None:
        """Cut off what is after the last record."""
        self._file.truncate(self._size)
        _sync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sync(descriptor: int) -> None:
    getattr(os, "fdatasync", os.fsync)(descriptor)
