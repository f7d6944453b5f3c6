"""What a watch was asked at its start: rules, columns, groups, what is expected. Nothing of it changes later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Self

from fairkit.data.roles import Sensitive
from fairkit.errors import ParameterError, PolicyError
from fairkit.results.rules import Rule
from fairkit.support.records import record_of

WINDOWS_A_YEAR = 52
POOLED = ""
"""The split with one group: everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of decisions' tables."""

    decision: str  # the decision: the favorable value or another, or 1 or 0
    favorable_decision: Any = None  # the value of a favorable decision; None: that of the label, or 1
    score: str | None = None  # a number for each decision whose mean is watched; None: none
    label: str | None = None  # the outcome and its favorable value; an outcome that is missing may come later
    favorable: Any = None  # the outcome and its favorable value; an outcome that is missing may come later
    id: str | None = None  # what labels that come later name a decision by
    weights: str | None = None  # weights of the decisions
    day: str | None = None  # the day of the decision; None: it is in the file's name, or said with each table


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What is expected before the first decision, from a certificate or an audit."""

    rates: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by split and group: the share of the rows
    numbers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    def rate(self, split: str, group: str, name: str) -> float | None:
        """Return an expected rate; None where none is known."""
        return self.rates.get(split, {}).get(group, {}).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """The settings of a watch."""

    rules: tuple[Mapping[str, Any], ...]  # the policy, as in a configuration file
    columns: Columns  # what the tables' columns are
    sensitive: tuple[str, ...] = ()  # the ways to split people into groups, as `sex` or `age:25:60+sex`
    missing: str = "drop"  # `drop` or `group`: rows without a sensitive value
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reference: Reference = field(default_factory=Reference)  # what is expected of them
    confidence: float = 0.95  # of all verdicts together, at all times; of all bands of groups, too
    horizon: int = 0
    selective: bool = False  # whether outcomes exist for favorable decisions only
    labelled: str | None = None  # `random`: outcomes are looked up for decisions drawn at random, the others count not
    review_rows: int = 100_000
    run_length: int = 1_000  # batches (days) between false alarms of recent change, on average, all rules together
    since: str | None = None  # the first day; None: that of the first decisions
    model: str | None = None
    sha256: str | None = None
    certificate: str | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ParameterError(f"confidence {self.confidence} is not between 0 and 1; 0.95 is usual")
        for name, least in (("horizon", 0), ("review_rows", 100), ("run_length", 10)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ParameterError(f"{name.replace('_', ' ')} {value} is too small; give at least {least}")
        if self.since is not None:
            read_day(self.since)
        if self.labelled not in (None, "random") or (self.labelled and self.selective):
            raise ParameterError(
                f"labelled is 'random', where outcomes are looked up for decisions drawn at random, not "
                f"{self.labelled!r}; `selective` says that nobody drew them"
            )
        if self.missing not in ("drop", "group"):
            raise ParameterError(f"missing is 'drop' or 'group', not {self.missing!r}")
        if not self.rules and not self.sensitive:
            raise PolicyError("there is nothing to watch: give rules (a policy) or sensitive columns")

    @property
    def digest(self) -> str:
        """SHA-256 of the settings in their one JSON form."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self, without=() if self.labelled else ("labelled",))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        if "follows" in record:
            raise ParameterError(
                "this watch follows another one with other settings (`fairkit watch set`), which fairkit no longer "
                "reads; begin a new watch"
            )
        try:
            numbers = {key: (float(a), float(b), float(c)) for key, (a, b, c) in record["reference"]["numbers"].items()}
            return cls(
                **{
                    **record,
                    "rules": tuple(record["rules"]),
                    "sensitive": tuple(record["sensitive"]),
                    "groups": {split: tuple(names) for split, names in record["groups"].items()},
                    "columns": Columns(**record["columns"]),
                    "reference": Reference(**{**record["reference"], "numbers": numbers}),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, (ParameterError, PolicyError)):
                raise
            raise ParameterError(f"policy.json is not what `fairkit watch init` writes: {error}") from None

    def policy(self) -> tuple[Rule, ...]:
        """Return the rules."""
        return tuple(Rule.from_dict(record) for record in self.rules)


def canonical(value: Any) -> bytes:
    """Return a JSON value in one form: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def read_day(text: str) -> date:
    """Read a day in the form 2026-11-21."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ParameterError(f"{text!r} is no day; write it as 2026-11-21") from None


def split_name(text: str) -> str:
    """Return the name of a split: ``age:25:60+sex`` is ``age+sex``."""
    return Sensitive.parse(text, [part.partition(":")[0] for part in text.split("+")]).name
