"""What a watch was asked at its start: rules, columns, groups, what is expected. Nothing of it changes later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Self

from fairkit.data.roles import Sensitive
from fairkit.errors import ParameterError, PolicyError
from fairkit.planning.assumptions import Target, target_of
from fairkit.results.rules import Rule
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from fairkit.metrics import Metric, Rate


WINDOWS_A_YEAR = 52
POOLED = ""
"""The split with one group: everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of decisions' tables."""

    decision: str  # the decision: the favorable value or another, or 1 or 0
    favorable_decision: Any = None  # the value of a favorable decision; None: that of the label, or 1
    score: str | None = None  # a number for each decision whose mean is watched; None: none
    label: str | None = None  # the outcome; one that is missing may come later
    favorable: Any = None  # its favorable value
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


# Rules as questions about counts: which rates of which groups, compared how.


SELECTIVE = (
    "the outcome of a rejected person is unknown: labels exist for favorable decisions only, so that {metric} cannot "
    "be measured. Watch rates among the accepted, such as precision, or selection_rate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One rule, and what it asks of which groups."""

    rule: Rule  # the rule
    target: Target  # the rates that the number is made of, and how groups are compared
    split: str  # the sensitive column; `""` for a rule about everybody

    @property
    def name(self) -> str:
        """The name in reports: ``metric:column``."""
        return f"{self.rule.metric}:{self.split}" if self.split else self.rule.metric

    @property
    def subject(self) -> str:
        """The name of the rule in alarms: ``metric:column max 0.1``."""
        return f"{self.name} {self.rule.side} {self.limit:g}"

    @property
    def limit(self) -> float:
        """The rule's limit."""
        return float(self.rule.limit)

    @property
    def needs_labels(self) -> bool:
        """Whether outcomes are needed."""
        return any(needs_labels(rate) for rate in self.target.rates)

    @property
    def same(self) -> tuple[Any, ...]:
        """What tells questions apart: two with one value ask the same, under two names or with two limits."""
        rates = tuple(sorted((rate.over, rate.counted) for rate in self.target.rates))
        return rates, self.target.kind, self.split


def needs_labels(rate: type[Rate]) -> bool:
    """Say whether a rate depends on the outcome: on the cells (outcome 0 no, 0 yes, 1 no, 1 yes)."""
    return rate.over[:2] != rate.over[2:] or rate.counted[:2] != rate.counted[2:]


def among_accepted(rate: type[Rate]) -> bool:
    """Say whether a rate is over favorable decisions only."""
    return not (rate.over[0] or rate.over[2])


def questions(settings: WatchSettings, metrics: Sequence[type[Metric]]) -> tuple[Question, ...]:
    """Return the rules as questions."""
    declared = [
        Question(rule=rule, target=_target(rule, metrics), split=split)
        for rule in settings.policy()
        for split in _splits(rule, settings, metrics)
    ]
    for entry in declared:
        if not entry.needs_labels:
            continue
        if settings.columns.label is None:
            raise PolicyError(
                f"the rule on {entry.rule.metric} needs outcomes: name the `label` and its favorable value, or leave "
                "such rules out"
            )
        check_selective(entry, selective=settings.selective)
    return tuple(declared)


def check_selective(question: Question, *, selective: bool) -> None:
    """Refuse a rate over people whose outcomes do not exist."""
    if selective and any(needs_labels(rate) and not among_accepted(rate) for rate in question.target.rates):
        raise PolicyError(SELECTIVE.format(metric=question.rule.metric))


def _target(rule: Rule, metrics: Sequence[type[Metric]]) -> Target:
    if rule.within:
        raise PolicyError(f"a watch compares groups as a whole: leave |{'+'.join(rule.within)} out of the rule")
    if rule.support is not None:
        raise PolicyError(f"a watch counts decisions: leave @{rule.support} out of the rule on {rule.metric}")
    try:
        return target_of(rule.metric, metrics)
    except PolicyError as error:
        hint = str(error).rpartition(" it. ")[2] or str(error)
        raise PolicyError(f"{rule.metric!r} is not made of rates of decisions, and cannot be watched. {hint}") from None


def _splits(rule: Rule, settings: WatchSettings, metrics: Sequence[type[Metric]]) -> list[str]:
    """Return the splits that a rule is about: the one that it names, or all; none for a rate of everybody."""
    if _target(rule, metrics).kind == "level":
        if rule.sensitive is not None:
            raise PolicyError(
                f"the rule on {rule.metric} is about everybody; for each group of {rule.sensitive} write "
                f"{rule.metric}_group_min or {rule.metric}_group_max"
            )
        return [POOLED]
    if rule.sensitive is None:
        if not settings.sensitive:
            raise PolicyError(f"the rule on {rule.metric} compares groups: name `sensitive` columns")
        return [split_name(text) for text in settings.sensitive]
    names = [split_name(text) for text in settings.sensitive]
    if rule.sensitive not in names:
        raise PolicyError(
            f"the rule on {rule.metric}:{rule.sensitive} names a column that is not watched; the `sensitive` columns "
            f"are {', '.join(names) or 'none'}"
        )
    return [rule.sensitive]
