"""Which alarms of the counts were not raised before: once per change, not at every look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairkit_watch import alarms as alarming
from fairkit_watch import snapshot as looking
from fairkit_watch.alarms import Alarm
from fairkit_watch.records import raised

if TYPE_CHECKING:
    from fairkit_watch.judging import Judge
    from fairkit_watch.records import WatchRecords
    from fairkit_watch.totals import Daily


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
    for question, status in zip(judge.questions, looking.rule_looks(judge, data, weeks=False), strict=True):
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
