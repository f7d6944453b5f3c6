"""A watch that is open: making and opening its folder, and looking at what was counted."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.data.arrow_types import as_numpy
from fairkit.data.roles import Sensitive, require_columns
from fairkit.errors import DataError
from fairkit.sources.interface import is_address
from fairkit.support.files import FileError, explain, replacing
from fairkit_watch import records as looking
from fairkit_watch.alarms import WatchSnapshot, lately
from fairkit_watch.counting import ROWS, UNKNOWN, binary, text_ids
from fairkit_watch.judging import Increments, add_up, daily, summary, whole
from fairkit_watch.log import Log, StateError, locked
from fairkit_watch.records import LOCK, LOG, OPEN, WatchRecords, begin, judge_of, read_records, read_settings
from fairkit_watch.records import today as clock_day
from fairkit_watch.settings import POOLED, Columns, WatchSettings, canonical, split_name

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from fairkit.data.source import Source
    from fairkit.results.rules import Rule
    from fairkit_watch.alarms import Alarm
    from fairkit_watch.judging import Daily
    from fairkit_watch.log import Record


class OpenWatch:
    """A watch's folder, open; see `Watch`."""

    def __init__(self, book: WatchRecords) -> None:
        self.book = book
        self.judge = judge_of(book.settings)
        self._cohorts = Cohorts(book)
        self._labels = looking.labels_wanted(self.judge)
        self._open = ExitStack()
        self._data: Daily | None = None

    # ---- opening

    @classmethod
    def create(
        cls,
        folder: str | Path,
        policy: Sequence[Rule] = (),
        *,
        decision: str,
        favorable: Any = None,
        favorable_decision: Any = None,
        score: str | None = None,
        label: str | None = None,
        id: str | None = None,
        weights: str | None = None,
        day: str | None = None,
        sensitive: Sequence[str] = (),
        **more: Any,
    ) -> Self:
        """Make a watch in a new folder, and open it.

        Parameters
        ----------
        folder
            A folder that does not exist, or is empty.
        policy
            Rules about rates of decisions: levels, group minima and maxima, differences and ratios.
        decision, favorable, favorable_decision, score, label, id, weights, day
            See `Columns`.
        sensitive
            The ways to split people into groups.
        **more
            Further fields of `WatchSettings`: groups, reference, confidence, horizon, selective, ...

        Raises
        ------
        FairkitError
            A rule cannot be watched, a setting is out of range, or the folder cannot be used.
        """
        columns = Columns(
            decision=decision,
            favorable_decision=favorable_decision,
            score=score,
            label=label,
            favorable=favorable,
            id=id,
            weights=weights,
            day=day,
        )
        rules = tuple(rule.to_dict() for rule in policy)
        settings = WatchSettings(rules=rules, columns=columns, sensitive=tuple(sensitive), **more)
        return cls.begin(folder, settings)

    @classmethod
    def begin(cls, folder: str | Path, settings: WatchSettings) -> Self:
        """Make a watch from settings; see `create`."""
        begin(Path(folder), settings)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path, *, write: bool = True) -> Self:
        """Open a watch.

        Parameters
        ----------
        folder
            Where it is.
        write
            False only looks: no lock is taken, and nothing is written.

        Raises
        ------
        StateError
            There is no watch, it is damaged, its policy was changed, or another process writes to it.
        """
        folder = Path(folder)
        settings = read_settings(folder)
        with ExitStack() as stack:
            log = None
            if write:
                stack.enter_context(locked(folder / LOCK))
                log = Log(folder / LOG)
                stack.callback(log.close)
            watch = cls(WatchRecords(folder, settings, log.records if log else read_records(folder), log))
            if log is not None:
                watch._cohorts.tidy()
            watch._open = stack.pop_all()
        return watch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others write."""
        self._open.close()

    # ---- looking

    def look(self, today: datetime.date | None = None) -> WatchSnapshot:
        """Return all statements about the decisions so far.

        Parameters
        ----------
        today
            The day of the look; by default the clock's.
        """
        data = self.data
        rules = looking.rule_looks(self.judge, data)
        odd = self.book.odd()
        return WatchSnapshot(
            since=data.days[0] if data.days else None,
            until=data.days[-1] if data.days else None,
            today=(today or clock_day()).isoformat(),
            rows=sum(int(record["rows"]) for record in self.book.records if record["kind"] == "add"),
            days=len(data.days),
            missing_days=looking.missing_days(data.days),
            model=self.settings.model,
            alias=self.settings.alias,
            certificate=self.settings.certificate,
            confidence=self.settings.confidence,
            streams=self.judge.streams,
            verdict=looking.worst(rules),
            rules=rules,
            groups=looking.group_looks(self.judge, data),
            alarms=self.alarms,
            lately=lately(self.judge, data),
            open=self._cohorts.waiting(),
            odd={key: count for key, count in odd.items() if count and key != "clock"},
            notes=tuple(looking.notes_of(self.judge, odd, data)),
        )

    @property
    def data(self) -> Daily:
        """All counts by day and group."""
        if self._data is None:
            splits = [split_name(text) for text in self.settings.sensitive]
            self._data = daily(
                self.book.increments(), self.settings.groups, splits, drawn=self.settings.labelled is not None
            )
        return self._data

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Every alarm so far, the oldest first."""
        return self.book.alarms

    def totals(self, records: int | None = None) -> bytes:
        """Return all totals in one form: the same bytes for every order and partition of the same counts.

        With `records` those of so many records from the beginning of the log.
        """
        log = self.book.records[:records]
        return canonical(summary(add_up(record["days"] for record in log if "days" in record)))

    @property
    def settings(self) -> WatchSettings:
        """What the watch was asked at its start."""
        return self.book.settings


# Decisions whose outcome is not known yet: kept by day until the day's cohort closes, and then deleted.


class Pending:
    """The folder of open cohorts."""

    def __init__(self, folder: Path, splits: Sequence[str]) -> None:
        self.folder = folder
        self.splits = [Sensitive.parse(text, [p.partition(":")[0] for p in text.split("+")]).name for text in splits]

    def write(self, name: str, table: pa.Table) -> str:
        """Write a table under a new name; it is on the disk when this returns."""
        import pyarrow.parquet as pq

        try:
            self.folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise FileError(explain(error, "cannot make", self.folder)) from error
        with replacing(self.folder / name, mode=0o600) as file:
            pq.write_table(table, file)
        return name

    def read(self, names: Iterable[str]) -> pa.Table | None:
        """Read files as one table; None where there are none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = []
        for name in names:
            try:
                tables.append(pq.read_table(self.folder / name, memory_map=False))
            except (OSError, pa.ArrowInvalid) as error:
                raise StateError(
                    f"the open cohort {str(self.folder / name)!r} cannot be read: {error}; restore it from a backup"
                ) from None
        return pa.concat_tables(tables).unify_dictionaries() if tables else None

    def tidy(self, wanted: Iterable[str]) -> None:
        """Delete the files that no record needs."""
        keep = set(wanted)
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.name not in keep:
                    path.unlink(missing_ok=True)

    def known(self, names: Iterable[str], ids: Any) -> Any:
        """Say which of some ids are in files: an Arrow array of booleans."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self.read(names)
        if table is None:
            return pa.array(np.zeros(len(ids), bool))
        return pc.is_in(ids, value_set=table.column("id").combine_chunks())

    def close(self, day: str, names: Sequence[str], labels: Sequence[str]) -> Increments:
        """Return a day's counts when its cohort closes: cells, and decisions without a known outcome."""
        import pyarrow.compute as pc

        cohort = self.read(names)
        if cohort is None:
            return {}
        outcome = as_numpy(cohort.column("label").combine_chunks()).astype(np.int64)
        came = self.read(labels)
        if came is not None:  # the newest label of an id counts: look from the end
            newest = came.take(np.arange(came.num_rows)[::-1].copy())
            at = pc.index_in(cohort.column("id").combine_chunks(), value_set=newest.column("id").combine_chunks())
            index = as_numpy(pc.fill_null(at, -1)).astype(np.int64)
            values = as_numpy(newest.column("label").combine_chunks()).astype(np.int64)
            outcome = np.where(index >= 0, values[np.maximum(index, 0)], outcome)
        yes = as_numpy(cohort.column("decision").combine_chunks()).astype(np.int64)
        weights = as_numpy(cohort.column("weight").combine_chunks()) if "weight" in cohort.column_names else None
        added: dict[str, dict[str, dict[str, list[float]]]] = {}
        codes = [(POOLED, [POOLED], np.zeros(len(yes), np.int64))]
        for i, split in enumerate(self.splits):
            column = cohort.column(f"group{i}").combine_chunks()
            places = as_numpy(pc.fill_null(column.indices, -1)).astype(np.int64)
            codes.append((split, column.dictionary.to_pylist(), places))
        for split, groups, group in codes:
            of_split: dict[str, dict[str, list[float]]] = {}
            for g, name in enumerate(groups):
                inside = group == g
                if inside.any():
                    of_split[name] = _cells(outcome[inside], yes[inside], None if weights is None else weights[inside])
            added[split] = of_split
        return whole({day: added})


def _cells(outcome: Any, yes: Any, weights: Any) -> dict[str, list[float]]:
    cells: dict[str, list[float]] = {}
    for suffix, mass in ((1, weights), (2, None if weights is None else weights**2)):
        if suffix == 2 and mass is None:
            continue
        counts = np.bincount(outcome * 2 + yes, mass, 2 * (UNKNOWN + 1)).tolist()
        cells["c" * suffix] = counts[:4]
        if any(counts[4:]):
            cells["u" * suffix] = counts[4:]
    return cells


def open_files(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return the files of cohorts that are still open, by day, oldest record first."""
    files: dict[str, list[str]] = {}
    for record in records:
        for day, names in record.get("pending", {}).items():
            files.setdefault(day, []).extend(names)
        for day in record.get("closed", ()):
            files.pop(day, None)
    return files


def label_files(records: Iterable[Record]) -> list[str]:
    """Return the files of labels that an open cohort may still need, oldest first.

    A label is for a decision that waited when it came: its file is needed until all that waited then are closed.
    """
    open_: dict[str, list[str]] = {}
    came: list[tuple[str, set[str]]] = []
    for record in records:
        for day, names in record.get("pending", {}).items():
            open_.setdefault(day, []).extend(names)
        for day in record.get("closed", ()):
            open_.pop(day, None)
        if record.get("labels"):
            came.append((record["labels"], {name for names in open_.values() for name in names}))
    waiting = {name for names in open_.values() for name in names}
    return [file for file, then in came if then & waiting]


# Cohorts: decisions wait for their outcome until the horizon has passed, and are then counted at once.


class Cohorts:
    """The open cohorts of a watch."""

    def __init__(self, book: WatchRecords) -> None:
        self.book = book
        self.pending = Pending(book.folder / OPEN, book.settings.sensitive)

    def keep(self, pending: Mapping[str, Sequence[pa.Table]], table: str) -> dict[str, list[str]]:
        """Write the rows whose outcome comes later, and return the files by day."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables = {day: pa.concat_tables(parts).unify_dictionaries() for day, parts in pending.items()}
        ids = pa.chunked_array([part.column("id").combine_chunks() for part in tables.values()]).combine_chunks()
        repeated = len(ids) - pc.count_distinct(ids).as_py()
        if repeated:
            raise DataError(
                f"{table}: {repeated:,} ids stand twice; labels are matched by id, so each decision needs its own"
            )
        again = int(pc.sum(self.known(ids)).as_py() or 0)
        if again:
            raise DataError(f"{table}: {again:,} of {len(ids):,} ids were added before; a decision is added once")
        number = len(self.book.records)
        return {day: [self.pending.write(f"{day}.{number:08d}.parquet", part)] for day, part in tables.items()}

    def keep_labels(self, labels: pa.Table) -> str:
        """Write labels, and return the file."""
        return self.pending.write(f"labels.{len(self.book.records):08d}.parquet", labels)

    def known(self, ids: Any) -> Any:
        """Say which ids wait for an outcome: an Arrow array of booleans."""
        return self.pending.known(self._files(), ids)

    def close(self, today: datetime.date) -> tuple[str, ...]:
        """Count the cohorts that are older than the horizon, seen from the newest decision; return their days."""
        open_ = open_files(self.book.records)
        if not open_:
            return ()
        newest = min(self.book.newest, (today + datetime.timedelta(1)).isoformat())
        horizon = datetime.timedelta(self.book.settings.horizon)
        last = (datetime.date.fromisoformat(newest) - horizon).isoformat()
        due = sorted(day for day in open_ if day <= last)
        if due:
            labels = label_files(self.book.records)
            added = add_up(self.pending.close(day, open_[day], labels) for day in due)
            counts = hashlib.sha256(canonical(added)).hexdigest()
            batch = f"{self.book.writer}/close/{len(self.book.records)}"
            self.book.append({"kind": "close", "batch": batch, "counts": counts, "days": added, "closed": due})
            self.tidy()
        return tuple(due)

    def tidy(self) -> None:
        """Delete the files that no open cohort needs."""
        self.pending.tidy([*self._files(), *label_files(self.book.records)])

    def waiting(self) -> int:
        """Return how many decisions wait for their outcome."""
        import pyarrow.parquet as pq

        count = 0
        for name in self._files():
            with contextlib.suppress(OSError):
                count += pq.read_metadata(self.pending.folder / name).num_rows
        return count

    def _files(self) -> list[str]:
        return [file for names in open_files(self.book.records).values() for file in names]


# Tables of outcomes that come after the decisions.


def read_labels(source: Source, id_column: str, label: str, favorable: Any) -> pa.Table:
    """Read a table of ids and outcomes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    require_columns([id_column, label], source.columns, role="label", table=source.name)
    ids, outcomes = [], []
    for batch in source.batches([id_column, label], ROWS):
        outcome = binary(batch.column(label), favorable, source.name, "label", label)
        is_known = outcome != UNKNOWN
        ids.append(text_ids(batch.column(id_column), source.name, id_column).filter(pa.array(is_known)))
        outcomes.append(outcome[is_known].astype(np.int8))
    joined = pa.chunked_array(ids, pa.string()).combine_chunks()
    values = np.concatenate(outcomes) if outcomes else np.empty(0, np.int8)
    table = pa.table({"id": joined, "label": pa.array(values)})
    distinct = table.group_by(["id", "label"]).aggregate([])
    if distinct.num_rows > pc.count_distinct(joined).as_py():
        raise DataError(f"{source.name}: an id stands twice in {id_column!r}, with two outcomes; leave one of them out")
    return distinct.select(["id", "label"])


# Tables of decisions as files: whether a batch is one, and its digest.


def file_of(data: Any) -> Path | None:
    """Return the file that a batch is; None for tables in memory and for addresses."""
    if isinstance(data, str) and is_address(data):
        return None
    return Path(data) if isinstance(data, str | os.PathLike) else None


def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file's bytes; None for folders and globs."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
