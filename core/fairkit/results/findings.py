"""Findings and results of rules: what an audit measured, as frozen values that go to JSON and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from fairkit.results.rendering import Shown
from fairkit.results.tables import place_words
from fairkit.results.values import Better, GroupValue, Interval, StratumValue, json_interval, json_number, read_interval

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
        place = f" of {self.place}" if self.sensitive else ""
        place += f" ({self.parameters['class']})" if "class" in self.parameters else ""
        value = "not defined" if self.value is None else f"{self.value:.4g}"
        ends = "" if self.interval is None else f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        return f"{self.metric}{place}: {value}{ends}"

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
        return tuple(sorted((key, _fixed(one)) for key, one in value.items()))
    return tuple(map(_fixed, value)) if isinstance(value, list | tuple) else value
