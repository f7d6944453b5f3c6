"""Findings and results of rules: what an audit measured, as frozen values that go to JSON and back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

from fairkit.errors import ParameterError
from fairkit.results.rendering import Shown, place_words
from fairkit.support.files import read_record
from fairkit.support.lazy_dataclass import dataclass, field

VerdictName = Literal["pass", "fail", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Shown):
    """One measured number with its interval, parameters and evidence.

    Attributes
    ----------
    auditor, metric, sensitive
        Who measured what, between the groups of which sensitive column (None: over all rows).
    value
        The number, or None where it is not defined; the notes say why.
    interval
        Two-sided, at `confidence`; None where there is none, and the notes say why.
    better
        Which direction is better for the people concerned: ``lower``, ``higher`` or ``none``.
    groups
        The value in each group.
    parameters
        What the auditor was told, and what it chose.
    evidence
        What a person can look at: pairs of rows, bounds, multipliers. Plain JSON values.
    notes
        Sentences that a reader must know to use the number.
    inconclusive
        Why no verdict may be made from this finding (a group is too small, say); None where one may.
    reference
        The group that the others are compared with; None for disparities between all groups.
    within
        The columns whose strata the groups are compared in; empty where they are compared as a whole.
    strata
        The number in each stratum.
    missing
        The metric of the rows without a group, which are in no comparison; None where there are no such rows.
    interval_at
        The interval as a function of the confidence in (0, 1), for adjustments for multiplicity. Not serialised.
    upper_at
        The same for `evidence["upper_confidence_bound"]`, the one-sided bound that a maximum is judged by.
    under
        The interval where the odds of a known outcome may differ by a factor between outcomes, and the confidence.
    """

    auditor: str
    metric: str
    value: float | None
    sensitive: str | None = None
    interval: Interval | None = None
    confidence: float = 0.95
    better: Better = "none"
    groups: tuple[GroupValue, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    inconclusive: str | None = None
    reference: str | None = None
    within: tuple[str, ...] = ()
    strata: tuple[StratumValue, ...] = ()
    missing: GroupValue | None = None
    interval_at: Callable[[float], Interval | None] | None = field(default=None, compare=False, repr=False)
    upper_at: Callable[[float], float | None] | None = field(default=None, compare=False, repr=False)
    under: Callable[[float, float], Interval | None] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Return the number and its interval on one line."""
        where = f" of {self.place}" if self.sensitive else ""
        where += f" ({self.parameters['class']})" if "class" in self.parameters else ""
        value = "not defined" if self.value is None else f"{self.value:.4g}"
        ends = "" if self.interval is None else f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        return f"{self.metric}{where}: {value}{ends}"

    def __repr__(self) -> str:
        """Return a line; `to_dict` gives everything."""
        return f"<Finding {self}>"

    def _repr_height(self) -> str:
        return f"{min(16 + 3 * (len(self.groups) + len(self.strata) + len(self.notes)), 42):.0f}em"

    @property
    def place(self) -> str | None:
        """Between which groups, in words: ``sex``, ``sex against male``, ``sex | department``; None over all rows."""
        return place_words(self)

    @property
    def plain(self) -> bool:
        """Whether it compares all groups with each other, and as a whole."""
        return self.reference is None and not self.within

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this number from every other one of a report, in any version of it: a tuple that can be hashed."""
        told = tuple(sorted((name, _fixed(value)) for name, value in self.parameters.items()))
        return (self.auditor, self.metric, self.sensitive, self.reference, self.within, told)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report schema."""
        return {
            "auditor": self.auditor,
            "metric": self.metric,
            "sensitive": self.sensitive,
            "value": json_number(self.value),
            "interval": json_interval(self.interval),
            "confidence": self.confidence,
            "better": self.better,
            "groups": [group.to_dict() for group in self.groups],
            "parameters": dict(self.parameters),
            "evidence": dict(self.evidence),
            "notes": list(self.notes),
            "inconclusive": self.inconclusive,
            **({} if self.reference is None else {"reference": self.reference}),
            **({"within": list(self.within)} if self.within else {}),
            **({"strata": [stratum.to_dict() for stratum in self.strata]} if self.strata else {}),
            **({} if self.missing is None else {"missing": self.missing.to_dict()}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            auditor=record["auditor"],
            metric=record["metric"],
            sensitive=record["sensitive"],
            value=record["value"],
            interval=read_interval(record["interval"]),
            confidence=record["confidence"],
            better=record["better"],
            groups=tuple(GroupValue.from_dict(group) for group in record["groups"]),
            parameters=record["parameters"],
            evidence=record["evidence"],
            notes=tuple(record["notes"]),
            inconclusive=record.get("inconclusive"),
            reference=record.get("reference"),
            within=tuple(record.get("within", ())),
            strata=tuple(StratumValue.from_dict(stratum) for stratum in record.get("strata", ())),
            missing=None if record.get("missing") is None else GroupValue.from_dict(record["missing"]),
        )


def _fixed(value: Any) -> Any:
    """Return a JSON value as one that can be hashed."""
    if isinstance(value, Mapping):
        return tuple(sorted((key, _fixed(item)) for key, item in value.items()))
    return tuple(map(_fixed, value)) if isinstance(value, list | tuple) else value


# Numbers of groups and strata: values with their intervals, as they go to JSON and back.


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
        return read_record(cls, {**record, "interval": read_interval(record.get("interval"))})


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
        groups = [GroupValue.from_dict(group) for group in record.get("groups", ())]
        return read_record(cls, {**record, "interval": read_interval(record.get("interval")), "groups": groups})


# Conditions as data, and in plain words: what describes a group of people.


_AGES = {"age", "agep"}


def in_words(conditions: Sequence[Mapping[str, Any]], within: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return conditions in words: ``aged 32 to 66, COW = 5, WKHP 40 or more``."""
    conditions_text = ", ".join(_words(condition) for condition in conditions)
    return (
        f"{conditions_text} (within {', '.join(_words(condition) for condition in within)})"
        if within
        else conditions_text
    )


def texts_of(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return conditions as options take them: ``COLUMN=VALUE``, ``COLUMN=LOW:HIGH``; missing: ``COLUMN=``."""

    def end(value: Any) -> str:
        return "" if value is None else str(value)

    return [
        f"{condition['column']}={end(condition['value'])}"
        if "value" in condition
        else f"{condition['column']}={end(condition.get('low'))}:{end(condition.get('high'))}"
        for condition in conditions
    ]


def _words(condition: Mapping[str, Any]) -> str:
    column = str(condition["column"])
    if "value" in condition:
        value = condition["value"]
        if value is None:
            return f"{column} is missing"
        return f"aged {_text(value)}" if column.lower() in _AGES and _is_number(value) else f"{column} = {_text(value)}"
    name = "aged" if column.lower() in _AGES else column
    low, high = condition.get("low"), condition.get("high")
    if low is None and high is None:
        return f"{column} is known"
    if low is None:
        return f"{name} {_text(high)} or less"
    if high is None:
        return f"{name} {_text(low)} or more"
    return f"{name} {_text(low)} to {_text(high)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def is_conditions(value: Any) -> bool:
    """Whether something has the form of conditions: it may come from somebody else's file."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(item, Mapping) and isinstance(item.get("column"), str) for item in value)
    )


# Facts about what was audited that no number follows from: what the model is for, who owns it.


KNOWN: Mapping[str, str] = {
    "intended_use": "Intended use",
    "owner": "Owner",
    "contact": "Contact",
    "version": "Version",
    "period": "Period of the data",
    "date": "Date of the audit",
}
"""The facts that a page names by a heading of their own; others are shown under their name."""

LONGEST = 2000
"""Characters of one fact."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def facts_of(about: Mapping[str, str]) -> dict[str, str]:
    """Check facts and return them."""
    for name, text in about.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError(
                f"`about` names {name!r}; a fact's name is of small letters, digits and _, as in intended_use"
            )
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
            raise ParameterError(f"`about` {name!r} takes a text of 1 to {LONGEST:,} characters")
    return dict(about)


def heading(name: str) -> str:
    """Return a fact's heading on a page: ``Intended use`` for intended_use."""
    return KNOWN.get(name) or name.replace("_", " ").capitalize()
