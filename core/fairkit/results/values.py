"""Numbers of groups and strata: values with their intervals, as they go to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

Better = Literal["lower", "higher", "none"]


Interval = tuple[float, float]


def json_number(value: float | None) -> float | None:
    """Return a number for JSON, which has no NaN and no infinity: a number that is not finite is absent."""
    return None if value is None or not math.isfinite(value) else float(value)


def json_interval(pair: Interval | None) -> list[float | None] | None:
    """Return an interval in the JSON form; an end that is not finite is absent."""
    return None if pair is None else [json_number(pair[0]), json_number(pair[1])]


def read_interval(pair: list[float | None] | None) -> Interval | None:
    """Return an interval from its JSON form; an absent end is infinite."""
    if pair is None:
        return None
    low, high = pair
    return (-math.inf if low is None else float(low), math.inf if high is None else float(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """One group's part of a finding.

    `value` is None where the metric is not defined for the group (for instance a true positive rate
    without positives); `rows` counts the rows that the group has in the audited data. `denominator` is the number of
    rows that a rate is over (positives, for a true positive rate), or the effective number under weights; None for
    other metrics.
    """

    group: str
    rows: int
    value: float | None
    interval: Interval | None = None
    denominator: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of interfaces: group, rows, value, interval."""
        return {
            "group": self.group,
            "rows": self.rows,
            "value": json_number(self.value),
            "interval": json_interval(self.interval),
        } | ({} if self.denominator is None else {"denominator": json_number(self.denominator)})

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            group=record["group"],
            rows=record["rows"],
            value=record["value"],
            interval=read_interval(record.get("interval")),
            denominator=record.get("denominator"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumValue:
    """One stratum's part of a finding that is pooled over strata.

    `value` is the number between the two groups that the finding is about, with the sign of their order there: negative
    where the stratum says the opposite. `few` marks strata with too few rows of a group to be read by themselves; they
    count in the pooled number all the same.
    """

    stratum: str
    rows: int
    value: float | None
    interval: Interval | None = None
    few: bool = False
    groups: tuple[GroupValue, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "stratum": self.stratum,
            "rows": self.rows,
            "value": json_number(self.value),
            "interval": json_interval(self.interval),
            "few": self.few,
            "groups": [{"group": g.group, "rows": g.rows, "value": json_number(g.value)} for g in self.groups],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            stratum=record["stratum"],
            rows=record["rows"],
            value=record["value"],
            interval=read_interval(record.get("interval")),
            few=record.get("few", False),
            groups=tuple(GroupValue.from_dict(group) for group in record.get("groups", ())),
        )
