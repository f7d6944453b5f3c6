"""Rules as questions about counts: which rates of which groups, compared how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.errors import PolicyError
from fairkit.planning.targets import Target, target_of
from fairkit_watch.settings import POOLED, WatchSettings, split_name

if TYPE_CHECKING:
    from fairkit.metrics import Metric, Rate
    from fairkit.results.rules import Rule

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
