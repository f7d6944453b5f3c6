"""A watch that is open: making and opening its folder, and looking at what was counted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit_watch import snapshot as looking
from fairkit_watch.alarms import lately
from fairkit_watch.beginning import begin, judge_of
from fairkit_watch.cohorts import Cohorts
from fairkit_watch.log import Log, locked
from fairkit_watch.records import LOCK, LOG, WatchRecords, read_records, read_settings
from fairkit_watch.records import today as clock_day
from fairkit_watch.results import WatchSnapshot
from fairkit_watch.settings import Columns, WatchSettings, canonical, split_name
from fairkit_watch.totals import add_up, daily, summary

if TYPE_CHECKING:
    import datetime
    from types import TracebackType

    from fairkit.results.rules import Rule
    from fairkit_watch.alarms import Alarm
    from fairkit_watch.totals import Daily


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
            rows=sum(int(one["rows"]) for one in self.book.records if one["kind"] == "add"),
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
