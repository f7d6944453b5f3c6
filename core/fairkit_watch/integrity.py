"""Is a log what a watch writes? Every record is held against its own digest and counts, at every reading."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit_watch.log import StateError
from fairkit_watch.settings import POOLED, WatchSettings, canonical, read_day
from fairkit_watch.totals import PARTS

if TYPE_CHECKING:
    from fairkit_watch.log import Record

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
