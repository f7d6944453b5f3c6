"""The append-only log of a watch: records that survive a kill at any byte.

A record is its length and CRC-32, four bytes each (little-endian), and JSON in UTF-8. It counts once `Log.append` has
returned: it is then on the disk. What an interrupted write left at the end is cut off by the next writer; damage
before that is an error, since acknowledged records must not be lost.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairkit.errors import FairkitError
from fairkit.support.files import FileError, explain, sync_folder
from fairkit_watch.judging import PARTS
from fairkit_watch.settings import POOLED, WatchSettings, canonical, read_day

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
    offset = raw.find(b'{"', at + _HEAD.size + 1)
    while offset >= 0:
        if _body(raw, offset - _HEAD.size) is not None:
            return True
        offset = raw.find(b'{"', offset + 1)
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


# Is a log what a watch writes? Every record is held against its own digest and counts, at every reading.


KINDS = ("begin", "add", "close", "labels", "alarm", "delivered")
_SIGNED = {"m": (2, 3)}
"""The numbers of a part that may be negative: sums of scores."""
_SLACK = 1e-9
"""Relative error of sums of weights."""
_FILE = re.compile(r"[0-9A-Za-z-]+\.[0-9]{8}\.parquet")
_MISREAD = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def check_records(records: Sequence[Any], settings: WatchSettings, where: str) -> None:
    """Refuse a log that no watch with these settings has written."""
    batches: set[str] = set()
    last = ""
    for number, record in enumerate(records):
        try:
            reason = _problem(record, number, settings, batches)
            last, back = max(last, record["at"]), record["at"] < last
        except (*_MISREAD, FairkitError) as error:
            if isinstance(error, StateError):
                raise
            reason, back = f"it does not have the form of a record ({error})", False
        reason = reason or ("its time lies before that of the record before it" if back else None)
        if reason is not None:
            raise StateError(
                f"record {number + 1} of {where} is not what a watch writes: {reason}. Restore the folder from a backup"
            )


def _problem(record: Record, number: int, settings: WatchSettings, batches: set[str]) -> str | None:
    """Return what is wrong with a record; None where nothing is."""
    kind = record["kind"]
    if kind not in KINDS or (kind == "begin") != (number == 0):
        return f"its kind is {kind!r}"
    if number and record["policy"] != settings.digest[:16]:
        return "it was written under other settings"
    if kind in ("add", "close"):
        if record["batch"] in batches:
            return f"the batch {record['batch']!r} counts twice"
        batches.add(str(record["batch"]))
        if record["counts"] != hashlib.sha256(canonical(record["days"])).hexdigest():
            return "its counts do not have its digest"
        return _days_problem(record, settings)
    if kind == "labels":
        _whole(record["rows"], record["unknown"])
        _check_files([record["labels"]] if "labels" in record else [])
    return None


def _days_problem(record: Record, settings: WatchSettings) -> str | None:
    """Return what is wrong with the counts of a record."""
    _check_files(name for names in record.get("pending", {}).values() for name in names)
    rows = 0.0
    for day, splits in record["days"].items():
        if read_day(day).isoformat() != day or (settings.since is not None and day < settings.since):
            return f"it counts decisions of {day}, before the watch began ({settings.since})"
        for split, groups in splits.items():
            for group, parts in groups.items():
                for key, values in parts.items():
                    if not _possible(key, values):
                        return f"the counts of {split or 'everybody'}={group or 'all'} on {day} cannot be"
        everybody = splits[POOLED][POOLED] if splits else {}
        rows += math.fsum(everybody.get("d", ()))
        if not all(_inside(groups, everybody) for split, groups in splits.items() if split != POOLED):
            return f"the groups of {day} have more decisions than there are"
    if record["kind"] == "add" and settings.columns.weights is None:
        (stated,) = _whole(record["rows"])
        if rows != stated:
            return f"it says {stated:,} rows and counts {rows:,.0f}"
    return None


def _possible(key: str, values: Sequence[float]) -> bool:
    """Tell whether numbers can be the counts of a part."""
    signed = _SIGNED.get(key, ())
    return len(values) == PARTS[key] and all(
        isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) and (x >= 0 or i in signed)
        for i, x in enumerate(values)
    )


def _inside(groups: Mapping[str, Any], everybody: Mapping[str, Any]) -> bool:
    """Tell whether the groups of a split are a part of everybody, in every count that cannot be negative."""
    for key in {key for parts in groups.values() for key in parts} - {"m"}:
        whole = everybody.get(key)
        if whole is None:
            return False
        for i, total in enumerate(whole):
            if math.fsum(parts[key][i] for parts in groups.values() if key in parts) > total * (1 + _SLACK):
                return False
    return True


def _whole(*values: Any) -> tuple[int, ...]:
    """Return whole numbers of rows; ValueError where one is none."""
    if any(type(value) is not int or value < 0 for value in values):
        raise ValueError("a number of rows is none")
    return values


def _check_files(names: Iterable[str]) -> None:
    """Refuse names that lead out of the folder of open cohorts."""
    for name in names:
        if not _FILE.fullmatch(name):
            raise ValueError("a file of an open cohort has a name that no watch gives")
