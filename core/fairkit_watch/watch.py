"""A watch: a folder with settings and a log, to which decisions are added and that may be looked at at any time."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit.data.sources import open_source
from fairkit.errors import DataError, ParameterError
from fairkit_watch.alarms import Added
from fairkit_watch.counting import Counter
from fairkit_watch.folder import OpenWatch, file_digest, file_of, read_labels
from fairkit_watch.records import today as clock_day
from fairkit_watch.records import unraised
from fairkit_watch.settings import canonical, read_day

if TYPE_CHECKING:
    from pathlib import Path

    from fairkit.data.source import Source
    from fairkit_watch.alarms import Alarm
    from fairkit_watch.log import Record


class Watch(OpenWatch):
    """Decisions over time, with statements that hold at every look.

    Open one with `Watch.create` or `Watch.open`, and use it in a ``with`` block: one process writes at a time.

    Examples
    --------
    >>> import fairkit
    >>> rules = [fairkit.Rule.parse("demographic_parity_difference:sex=0.1", "max")]
    >>> table = {"decision": ["approved", "denied"], "sex": ["f", "m"]}
    >>> with fairkit.Watch.create("watch", rules, decision="decision", favorable="approved", sensitive=["sex"]) as w:
    ...     added = w.add(table, day="2026-11-21")
    ...     look = w.look()
    >>> look.verdict
    'undecided'
    """

    def add(
        self,
        data: Any,
        *,
        day: str | None = None,
        batch: str | None = None,
        today: datetime.date | None = None,
        alarms: bool = True,
    ) -> Added:
        """Add decisions.

        Parameters
        ----------
        data
            A path, an address, a data frame, an Arrow table or a dict of arrays.
        day
            The column of the day, or one day for all rows; else that of the settings, else a day in the file's name.
        batch
            The name of these decisions: a name counts once. By default the file's name; tables in memory get a number.
        today
            The day of the look; by default the clock's. Later days are refused.
        alarms
            False leaves the search for alarms to the next call.

        Returns
        -------
        Added
            When this returns, the decisions are on the disk.

        Raises
        ------
        StateError
            The batch was added before.
        FairkitError
            The table cannot be used, or cannot be written; nothing was counted.
        """
        source, path, name, digest = self._batch(data, batch)
        now = today or clock_day()
        day_of_batch = day or self._day(source, path)
        self.book.refuse_bytes(name, digest)
        counter = Counter(self.settings, labels=self._labels)
        counted = counter.count(source, day_of_batch, lambda one: self._check_day(one, now))
        fingerprint = hashlib.sha256(canonical(counted.increments)).hexdigest()
        self.book.refuse_counts(
            name,
            digest,
            fingerprint,
            counted.rows,
            named=batch is not None or (path is None and not isinstance(data, str)),
        )
        record: Record = {
            "kind": "add",
            "batch": name,
            "sha256": digest,
            "counts": fingerprint,
            "rows": counted.rows,
            "days": counted.increments,
        }
        if any(counted.ungrouped.values()):
            record["ungrouped"] = counted.ungrouped
        if counted.pending:
            record["pending"] = self._cohorts.keep(counted.pending, source.name)
        self._append(record)
        closed = self._closed(now)
        new = self.new_alarms() if alarms else ()
        days = tuple(sorted(counted.increments))
        return Added(batch=name, rows=counted.rows, days=days, closed=closed, alarms=new)

    def label(
        self,
        data: Any,
        *,
        id: str | None = None,
        label: str | None = None,
        batch: str | None = None,
        today: datetime.date | None = None,
        alarms: bool = True,
    ) -> Added:
        """Add outcomes of decisions that were added before, by id.

        Parameters
        ----------
        data
            As for `add`.
        id, label
            Its columns; by default those of the settings.
        batch, today, alarms
            As for `add`.

        Returns
        -------
        Added
            `rows` met a decision; `unknown` did not: their cohort closed, or the id is wrong.

        Raises
        ------
        FairkitError
            The table cannot be used, or this watch awaits no labels.
        """
        columns = self.settings.columns
        if not self._labels or self.settings.horizon == 0:
            raise ParameterError(
                "this watch awaits no labels: its rules need none, or its horizon is 0 and they come with the decisions"
            )
        source, _, name, digest = self._batch(data, batch)
        self.book.refuse_bytes(name, digest)
        labels = read_labels(source, id or str(columns.id), label or str(columns.label), columns.favorable)
        inside = self._cohorts.known(labels.column("id").combine_chunks())
        matched = labels.filter(inside)
        unknown = labels.num_rows - matched.num_rows
        record: Record = {
            "kind": "labels",
            "batch": name,
            "sha256": digest,
            "rows": matched.num_rows,
            "unknown": unknown,
        }
        if matched.num_rows:
            record["labels"] = self._cohorts.keep_labels(matched)
        self._append(record)
        closed = self._closed(today or clock_day())
        new = self.new_alarms() if alarms and closed else ()
        return Added(batch=name, rows=matched.num_rows, unknown=unknown, closed=closed, alarms=new)

    def new_alarms(self) -> tuple[Alarm, ...]:
        """Find alarms that were not raised before, write them down, and return them."""
        alarms = []
        for alarm in unraised(self.book, self.judge, self.data):
            numbered = replace(alarm, number=len(self.alarms) + 1)
            self.book.append({"kind": "alarm", "alarm": numbered.to_dict()})
            alarms.append(numbered)
        return tuple(alarms)

    def delivered(self, alarm: Alarm, where: str) -> None:
        """Write down that an alarm reached a place, so that it is not sent there again."""
        self._append({"kind": "delivered", "number": alarm.number, "where": where})

    def undelivered(self, where: str) -> tuple[Alarm, ...]:
        """Return the alarms that were raised and did not reach a place yet."""
        sent = {
            record["number"]
            for record in self.book.records
            if record["kind"] == "delivered" and record["where"] == where
        }
        return tuple(alarm for alarm in self.alarms if alarm.number not in sent)

    # ---- inside

    def _batch(self, data: Any, batch: str | None) -> tuple[Source, Path | None, str, str | None]:
        """Return a table, the file that it is, the name that it counts under, and the file's digest."""
        source, path = open_source(data), file_of(data)
        if path is None:
            return source, None, batch or f"{self.book.writer}/{len(self.book.records)}", None
        return source, path, batch or path.name, file_digest(path)

    def _append(self, record: Record) -> None:
        self.book.append(record)
        self._data = None

    def _closed(self, today: datetime.date) -> tuple[str, ...]:
        days = self._cohorts.close(today)
        self._data = None
        return days

    def _day(self, source: Source, path: Path | None) -> str | None:
        name = self.settings.columns.day
        if name is not None and name in source.columns:
            return name
        for start in range(len(path.name) if path else 0):
            with contextlib.suppress(ParameterError):
                text = path.name[start : start + 10] if path else ""
                if len(text) == 10 and text[4] == "-":
                    return read_day(text).isoformat()
        hint = f"; the column {name!r} is not there" if name else ""
        raise DataError(
            f"{source.name}: which day are these decisions of? Name the column or the day with `day`, or put the day "
            f"into the file's name, as in decisions-2026-11-21.parquet{hint}"
        )

    def _check_day(self, day: str, now: datetime.date) -> None:
        since = self.settings.since
        if since is not None and day < since:
            raise DataError(f"there are decisions of {day}, before this watch began ({since}); leave them out")
        if day > (now + datetime.timedelta(1)).isoformat():
            raise DataError(
                f"there are decisions of {day}, but today is {now}; correct the days, or the clock of this machine"
            )
