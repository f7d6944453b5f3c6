"""The log of a watch as its parts need it: what was counted under which name, which alarms were raised."""

from __future__ import annotations

import datetime
import json
import math
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit import plugins
from fairkit.errors import FairkitError, ParameterError
from fairkit.support.files import FileError, explain, sync_folder, write_atomic
from fairkit.support.lazy_dataclass import dataclass
from fairkit_watch import alarms as alarming
from fairkit_watch.alarms import Alarm, GroupLook, RuleLook, windows
from fairkit_watch.judging import MANY_UNRESOLVED, NOT_DRAWN, Judge, RulePath, reason, unresolved, verdict
from fairkit_watch.log import Log, StateError, check_records, read
from fairkit_watch.settings import WINDOWS_A_YEAR, WatchSettings, canonical, needs_labels, questions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_watch.judging import Daily, Increments, Split, Verdict
    from fairkit_watch.log import Record
    from fairkit_watch.settings import Question

    Array = NDArray[np.float64]


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
        last = max(record.get("at", "") for record in self.records)
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
            return tuple(Alarm.from_dict(record["alarm"]) for record in self.records if record["kind"] == "alarm")
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
    return Counter((alarm.level, alarm.subject) for alarm in alarms)


# One look at all counts, and the course of each number over the days.


POINTS = 160
"""Days of a course; more are thinned."""

_ORDER: Mapping[Verdict, int] = {"pass": 0, "undecided": 1, "fail": 2}


def rule_looks(judge: Judge, data: Daily, *, weeks: bool = True) -> tuple[RuleLook, ...]:
    """Return every rule at the newest day; the current week alone too, where that is asked for."""
    week = (windows(data.days)[-1:] or [(0, 0)])[0] if weeks else None
    return tuple(_rule(judge, question, data, week) for question in judge.questions)


def _rule(judge: Judge, question: Question, data: Daily, week: tuple[int, int] | None) -> RuleLook:
    split = data.splits[question.split]
    parts = split.summed()
    value, interval = judge.interval(question, split, parts).at()
    recent: tuple[float | None, tuple[float, float] | None] = (None, None)
    if week is not None:
        recent = judge.interval(question, split, split.window(*week).summed(), 1 / WINDOWS_A_YEAR).at()
    low, high = interval or (math.nan, math.nan)
    outcome = verdict(question, low, high)
    text = reason(question, value, interval, data.days[0] if data.days else "the start")
    refused = judge.refused(question, parts)
    if refused is not None:
        outcome, text = "undecided", refused
    open_ = unresolved(parts) if question.needs_labels else 0.0
    if open_ > MANY_UNRESOLVED:
        text += f"; the outcome of {open_:.1%} of the decisions is not known, and the interval allows for any"
    reference = judge.settings.reference.numbers.get(question.name)
    return RuleLook(
        metric=question.rule.metric,
        sensitive=question.split or None,
        kind=question.rule.side,
        limit=question.limit,
        value=value,
        interval=interval,
        verdict=outcome,
        reason=question.rule.with_scenario(text),
        unresolved=open_,
        week=(*recent, verdict(question, *(recent[1] or (math.nan, math.nan)))),
        reference=None if reference is None else (reference[0], (reference[1], reference[2])),
    )


def group_looks(judge: Judge, data: Daily) -> tuple[GroupLook, ...]:
    """Return every group at the newest day."""
    looks: list[GroupLook] = []
    for name, split in data.splits.items():
        if name == "" and len(data.splits) > 1:
            continue
        parts = split.summed()
        rows = parts["d"].sum(axis=-1)
        bands = {rate.name: judge.rates(rate, split, parts, name) for at, rate in judge.watched() if at == name}
        if judge.settings.columns.score is not None:
            bands["mean_score"] = judge.means(split, parts)
        for g, group in enumerate(split.groups):
            share = float(rows[g] / rows.sum()) if rows.sum() else 0.0
            looks.append(
                GroupLook(
                    split=name,
                    group=group,
                    rows=round(float(rows[g])),
                    share=share,
                    expected=g < split.declared,
                    rates={key: band.at(g) for key, band in bands.items()},
                )
            )
    return tuple(looks)


def worst(looks: Sequence[RuleLook]) -> Verdict | None:
    """Return the worst verdict; None where there are no rules."""
    return max((question.verdict for question in looks), key=lambda one: _ORDER[one], default=None)


def missing_days(days: Sequence[str]) -> tuple[str, ...]:
    """Return the days between the first and the last that are not among them."""
    if not days:
        return ()
    first, last = (datetime.date.fromisoformat(day) for day in (days[0], days[-1]))
    every = (first + datetime.timedelta(step) for step in range((last - first).days + 1))
    present = set(days)
    return tuple(day.isoformat() for day in every if day.isoformat() not in present)


@dataclass(frozen=True, slots=True)
class Course:
    """A number over the days, and week by week."""

    question: Question  # the rule
    days: tuple[str, ...]  # the days of `path`, thinned to about `POINTS`; the last one is the newest
    path: RulePath  # of all decisions up to the day, shape [T]
    weeks: tuple[tuple[str, str, float | None, tuple[float, float] | None], ...]


def courses(judge: Judge, data: Daily) -> tuple[Course, ...]:
    """Return every rule's course."""
    return tuple(_course(judge, question, data) for question in judge.questions)


def _course(judge: Judge, question: Question, data: Daily) -> Course:
    split = data.splits[question.split]
    days = len(data.days)
    at = np.unique(np.linspace(0, days - 1, min(days, POINTS)).round().astype(np.intp))
    cumulated = {key: part[at] for key, part in split.cumulated().items()}
    path = judge.interval(question, split, cumulated)
    if judge.refused(question, split.summed()) is not None:
        path = RulePath(path.value, np.full_like(path.low, np.nan), np.full_like(path.high, np.nan))
    weekly = windows(data.days)
    sums = {key: _summed(part, weekly) for key, part in split.parts.items()}
    interval = judge.interval(question, split, sums, 1 / WINDOWS_A_YEAR)
    weeks = tuple((data.days[start], data.days[stop - 1], *interval.at(i)) for i, (start, stop) in enumerate(weekly))
    return Course(question, tuple(data.days[t] for t in at.tolist()), path, weeks)


def _summed(values: Array, weeks: Sequence[tuple[int, int]]) -> Array:
    """Return the sums over the days of each week, shape [W, ...]."""
    sums = [values[start:stop].sum(axis=0) for start, stop in weeks]
    return np.array(sums).reshape((len(weeks), *values.shape[1:]))


def weekly_shares(data: Daily, split: Split) -> tuple[tuple[str, ...], Array]:
    """Return each group's share of the decisions, week by week: the weeks' first days, and shape [W, G]."""
    weekly = windows(data.days)
    rows = split.parts["d"].sum(axis=-1)
    sums = _summed(rows, weekly)
    total = sums.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(total > 0, sums / total, np.nan)
    return tuple(data.days[start] for start, _ in weekly), shares


def labels_wanted(judge: Judge) -> bool:
    """Say whether any rule needs outcomes."""
    return any(needs_labels(rate) for _, rate in judge.watched())


def notes_of(judge: Judge, odd: Mapping[str, int], data: Daily) -> tuple[str, ...]:
    """Return sentences that a reader must know."""
    notes = []
    aliases: dict[Any, str] = {}
    for question in judge.questions:
        alias = aliases.setdefault(question.same, question.name)
        if alias != question.name:
            notes.append(
                f"{question.name} and {alias} are one number under two names; they share one part of the error "
                "probability"
            )
    if NOT_DRAWN in data.splits[""].parts:
        drawn, others = (float(data.splits[""].parts[key].sum()) for key in ("c", NOT_DRAWN))
        notes.append(
            f"outcomes of {drawn:,.0f} of {drawn + others:,.0f} decisions are known, drawn at random by whoever looked "
            "them up: numbers that need an outcome are of these"
        )
    if judge.settings.columns.weights is not None:
        notes.append("decisions have weights: all intervals are asymptotic, and begin at 100 effective decisions")
    if odd.get("clock"):
        notes.append(f"the clock of this machine went back {odd['clock']} times between writes")
    splits = {split for split in judge.settings.groups if judge.settings.groups[split]}
    for name, split in data.splits.items():
        if name and name not in splits and data.days:
            notes.append(
                f"no groups of {name} were declared at the start; those of the first day "
                f"({', '.join(split.groups[: split.declared])}) count as declared"
            )
    return tuple(notes)


# How a watch begins: its folder is there whole, or not at all.


def begin(folder: Path, settings: WatchSettings) -> None:
    """Make the folder of a watch."""
    settings = WatchSettings.from_dict(settings.to_dict())  # as it will be read
    _check(settings)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StateError(f"{str(folder)!r} exists already; a watch begins in a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.parent / f".fairkit-watch-{secrets.token_hex(8)}"
        temporary.mkdir()
    except OSError as error:
        raise FileError(explain(error, "cannot make", folder)) from error
    try:
        write_atomic(temporary / SETTINGS, canonical(settings.to_dict()) + b"\n")
        log = Log(temporary / LOG)
        log.append({"kind": "begin", "policy": settings.digest, "writer": secrets.token_hex(8), "at": clock()})
        log.close()
        temporary.replace(folder)
        sync_folder(folder.parent)
    except OSError as error:
        if isinstance(error, FairkitError):
            raise
        raise FileError(explain(error, "cannot make", folder)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def judge_of(settings: WatchSettings) -> Judge:
    """Return the judge of a watch with these settings."""
    return Judge(settings, questions(settings, plugins.installed_metrics()[0]))


def _check(settings: WatchSettings) -> None:
    """Refuse rules that cannot be watched, and outcomes that could not be matched."""
    wanted = labels_wanted(judge_of(settings))
    if wanted and settings.columns.label == settings.columns.decision:
        raise ParameterError(
            f"decision and outcome are both in the column {settings.columns.decision!r}: name the `label`, "
            "what really came"
        )
    if wanted and settings.horizon > 0 and settings.columns.id is None:
        raise ParameterError(
            "outcomes that come later are matched by an id: name the `id` column, or set the `horizon` to 0 "
            "where outcomes come with the decisions"
        )


# Which alarms of the counts were not raised before: once per change, not at every look.


def unraised(records: WatchRecords, judge: Judge, data: Daily) -> Iterator[Alarm]:
    """Yield the alarms of the counts that the log does not have."""
    before = raised(records.alarms)
    changed = [alarm for alarm, _ in alarming.changes(judge, data)]
    seen: Counter[tuple[str, str]] = Counter()
    for alarm in (*changed, *alarming.shares(judge, data)):
        key = alarm.level, alarm.subject
        seen[key] += 1
        if seen[key] > before[key]:
            yield alarm
    yield from _fails(records, judge, data)


def _fails(records: WatchRecords, judge: Judge, data: Daily) -> Iterator[Alarm]:
    """Yield rules that fail now and did not since they last passed; note those that pass again."""
    state: dict[str, bool] = {}
    for record in records.records:
        if record["kind"] == "alarm" and record["alarm"]["level"] == "fail":
            state[record["alarm"]["subject"]] = True
        elif record["kind"] == "passed":
            state[record["subject"]] = False
    for question, status in zip(judge.questions, rule_looks(judge, data, weeks=False), strict=True):
        subject = question.subject
        if status.verdict == "fail" and not state.get(subject):
            evidence = {
                "value": status.value,
                "interval": None if status.interval is None else list(status.interval),
                "limit": status.limit,
                "since": data.days[0],
                "confidence": records.settings.confidence,
            }
            yield Alarm(level="fail", subject=subject, day=data.days[-1], text=status.reason, evidence=evidence)
        elif status.verdict == "pass" and state.get(subject):
            records.append({"kind": "passed", "subject": subject})
