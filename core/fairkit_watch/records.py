"""The log of a watch as its parts need it: what was counted under which name, which alarms were raised."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit_watch.alarms import Alarm
from fairkit_watch.integrity import check_records
from fairkit_watch.log import Log, StateError, read
from fairkit_watch.settings import WatchSettings

if TYPE_CHECKING:
    from fairkit_watch.log import Record
    from fairkit_watch.totals import Increments

SETTINGS, LOG, LOCK, OPEN = "policy.json", "totals.log", "lock", "pending"
"""What is in the folder of a watch."""

SURE = 100
"""Rows from which equal counts for equal days are no coincidence."""


class WatchRecords:
    """The records of a watch."""

    def __init__(self, folder: Path, settings: WatchSettings, records: list[Record], log: Log | None) -> None:
        self.folder, self.settings, self.records, self._log = folder, settings, records, log
        if not records or not isinstance(records[0], dict) or records[0].get("kind") != "begin":
            raise StateError(f"the log of {str(folder)!r} has no beginning; restore the folder from a backup")
        if records[0].get("policy") != settings.digest:
            raise StateError(
                f"{folder / SETTINGS} was changed after this watch began. Other rules are another sequence: restore "
                "the file, or begin a new watch in another folder"
            )
        check_records(records, settings, str(folder / LOG))

    @property
    def writer(self) -> str:
        """What tells this folder's numbered batches from another's."""
        return str(self.records[0]["writer"])

    @property
    def cut(self) -> int:
        """Bytes of an interrupted write that were cut off when the log was opened."""
        return 0 if self._log is None else self._log.cut

    def append(self, record: Record) -> None:
        """Write a record with the time and the settings' digest; when this returns, it is on the disk."""
        if self._log is None:
            raise StateError("this watch was opened to look only; open it with write=True")
        last = max(one.get("at", "") for one in self.records)
        now = clock()
        if now < last:  # the clock went back: time in the log does not
            record = {**record, "clock": now}
            now = last
        self._log.append({**record, "at": now, "policy": self.settings.digest[:16]})

    def increments(self) -> Iterator[Increments]:
        """Yield what each record adds."""
        return (record["days"] for record in self.records if "days" in record)

    def batches(self) -> dict[str, Record]:
        """Return the records that have a name, by name."""
        return {record["batch"]: record for record in self.records if "batch" in record}

    @property
    def newest(self) -> str:
        """The newest day; empty before the first."""
        return max((max(record["days"]) for record in self.records if record.get("days")), default="")

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Every alarm so far, the oldest first."""
        try:
            return tuple(Alarm.from_dict(one["alarm"]) for one in self.records if one["kind"] == "alarm")
        except (KeyError, TypeError) as error:
            raise StateError(
                f"an alarm in the log of {str(self.folder)!r} is not what a watch writes ({error}); restore the folder "
                "from a backup"
            ) from None

    def refuse_bytes(self, name: str, digest: str | None) -> None:
        """Refuse a file that was added before under this name."""
        for record in self.records:
            if record.get("batch") == name and digest is not None and record.get("sha256") == digest:
                raise _again(name, record)

    def refuse_counts(self, name: str, digest: str | None, counts: str, rows: int, *, named: bool) -> None:
        """Refuse decisions that were counted before: under this name, or the same ones under another."""
        for record in self.records:
            if record["kind"] not in ("add", "close"):
                continue
            same = record.get("counts") == counts
            if record.get("batch") == name:
                if same:
                    raise _again(name, record)
                raise StateError(
                    f"{name} was added before ({record['at']}) with other counts: what was counted is never taken "
                    "back. If these are further decisions, give them a name of their own (`batch`)"
                )
            twice = digest is not None and record.get("sha256") == digest
            if not named and (twice or (same and rows >= SURE)):
                raise StateError(
                    f"{name} holds the same decisions as {record['batch']}, which was added before ({record['at']}); "
                    "nothing was counted twice. If they are others, give them a name (`batch`)"
                )

    def odd(self) -> dict[str, int]:
        """Return counts of oddities in the data, by sentence; ``clock``: how often the clock went back."""
        counts: dict[str, int] = {}

        def count(key: str, number: int) -> None:
            if number:
                counts[key] = counts.get(key, 0) + number

        for record in self.records:
            for split, rows in record.get("ungrouped", {}).items():
                count(f"decisions without a value of {split}; they are in no group of it", rows)
            unknown = record.get("unknown", 0)
            count("labels for ids that no open cohort has: their cohort is closed, or the id is wrong", unknown)
            count("clock", int("clock" in record))
        count("bytes of an interrupted write at the end of the log, cut off; it was never acknowledged", self.cut)
        return counts


def _again(name: str, record: Mapping[str, Any]) -> StateError:
    return StateError(f"{name} was added before ({record['at']}); nothing was counted twice")


def read_settings(folder: Path) -> WatchSettings:
    """Read the settings of a watch."""
    try:
        raw = (folder / SETTINGS).read_bytes()
    except OSError as error:
        raise StateError(
            f"there is no watch in {str(folder)!r} ({error.strerror}); `fairkit watch init --state {folder}` begins one"
        ) from None
    try:
        return WatchSettings.from_dict(json.loads(raw))
    except (ValueError, FairkitError, TypeError) as error:
        raise StateError(
            f"{folder / SETTINGS} was changed and cannot be read ({error}); restore it from a backup"
        ) from None


def read_records(folder: Path) -> list[Record]:
    """Read the log without writing to it; what an interrupted write left is passed over."""
    try:
        return read((folder / LOG).read_bytes(), str(folder / LOG))[0]
    except OSError as error:
        raise StateError(f"the log of {str(folder)!r} cannot be read: {error.strerror}") from error


def clock() -> str:
    """Return the time in UTC as text that sorts."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def today() -> datetime.date:
    """Return the day in UTC."""
    return datetime.datetime.now(datetime.UTC).date()


def raised(alarms: Sequence[Alarm]) -> Counter[tuple[str, str]]:
    """Count alarms by level and subject."""
    return Counter((one.level, one.subject) for one in alarms)
