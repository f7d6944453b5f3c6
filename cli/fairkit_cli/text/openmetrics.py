"""A watch in the text format of OpenMetrics, for Prometheus and what reads its files."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit_watch.results import RuleLook, WatchSnapshot

Sample = tuple[Mapping[str, str], float]
_VERDICTS = ("pass", "fail", "undecided")


def openmetrics(snapshot: WatchSnapshot, at: float) -> str:
    """Return a look as OpenMetrics text, without timestamps of its own."""
    about = {
        key: value
        for key, value in (("model", snapshot.model), ("alias", snapshot.alias), ("certificate", snapshot.certificate))
        if value
    }
    rules = [(_labels(rule), rule) for rule in snapshot.rules]
    levels = Counter(alarm.level for alarm in snapshot.alarms)
    data_age = None if snapshot.until is None else max(at - _end_of(snapshot.until), 0.0)
    families: list[tuple[str, str, Sequence[Sample]]] = [
        ("rule_value", "The metric of a rule, of all decisions since the start.", _known(rules, "value")),
        (
            "rule_lower_bound",
            "Lower end of the interval, which holds at every look, for all rules together.",
            [(labels, rule.interval[0]) for labels, rule in rules if rule.interval is not None],
        ),
        (
            "rule_upper_bound",
            "Upper end of the interval, which holds at every look, for all rules together.",
            [(labels, rule.interval[1]) for labels, rule in rules if rule.interval is not None],
        ),
        ("rule_limit", "The limit of a rule.", [(labels, rule.limit) for labels, rule in rules]),
        (
            "rule_verdict",
            "1 for the verdict that the interval gives, 0 for the others.",
            [
                ({**labels, "verdict": word}, float(rule.verdict == word))
                for labels, rule in rules
                for word in _VERDICTS
            ],
        ),
        (
            "rule_unresolved_ratio",
            "Share of the closed decisions whose outcome is not known.",
            [(labels, rule.unresolved) for labels, rule in rules],
        ),
        (
            "broken_lately",
            "1 for each rule that is broken by the newest decisions.",
            [({"rule": subject}, 1.0) for subject in snapshot.lately],
        ),
        ("decisions", "Decisions since the start.", [({}, float(snapshot.rows))]),
        ("decisions_waiting", "Decisions whose outcome is still awaited.", [({}, float(snapshot.open))]),
        (
            "dates_without_data",
            "Dates without data between the first and the newest.",
            [({}, len(snapshot.missing_days))],
        ),
        ("alarms", "Alarms since the start, by level.", [({"level": level}, n) for level, n in levels.items()]),
        ("last_look_timestamp_seconds", "When this look was.", [({}, at)]),
        (
            "data_age_seconds",
            "From the end of the newest day with decisions to this look.",
            [] if data_age is None else [({}, data_age)],
        ),
    ]
    lines = []
    for name, help_text, samples in families:
        if samples:
            lines += [f"# HELP fairkit_watch_{name} {help_text}", f"# TYPE fairkit_watch_{name} gauge"]
            lines += [_line(name, {**about, **labels}, value) for labels, value in samples]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(rule: RuleLook) -> dict[str, str]:
    groups = {"groups": rule.sensitive} if rule.sensitive else {}
    return {"metric": rule.metric, **groups, "side": rule.kind, "limit": f"{rule.limit:g}"}


def _known(rules: Sequence[tuple[dict[str, str], RuleLook]], name: str) -> list[Sample]:
    return [(labels, getattr(rule, name)) for labels, rule in rules if getattr(rule, name) is not None]


def _end_of(day: str) -> float:
    after = datetime.date.fromisoformat(day) + datetime.timedelta(days=1)
    return datetime.datetime.combine(after, datetime.time(), datetime.UTC).timestamp()


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"fairkit_watch_{name}{f'{{{inside}}}' if inside else ''} {float(value)!r}"


def _escaped(text: str) -> str:
    """Return a label's value as the format has it: backslash, quotation mark and line feed are written out."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
