"""A policy before anything is trained: columns that are there, limits that can be kept together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.capabilities import constraint_of
from fairkit.errors import PolicyError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.results.rules import Rule


def check_policy(rules: Sequence[Rule], data: Dataset) -> None:
    """Refuse rules that no audit of this data can decide."""
    names = [split.name for split in data.roles.sensitive]
    inside = [split.columns for split in data.roles.within]
    for rule in rules:
        if rule.within and rule.within not in inside:
            raise PolicyError(
                f"the policy asks {rule.metric!r} inside the strata of {'+'.join(rule.within)!r}; name them "
                "as `within` in the settings of the data"
            )
        column = None if rule.sensitive is None else rule.sensitive.partition("|")[0]
        if column is not None and column not in names:
            raise PolicyError(
                f"the policy asks {rule.metric!r} for {column!r}, which is not among the sensitive columns; "
                f"name it with `sensitive`. {did_you_mean(column, names, what='sensitive columns')}"
            )
        _check_range(rule)
    for place, one in enumerate(rules):
        for other in rules[place + 1 :]:
            _check_pair(one, other)


def _check_range(rule: Rule) -> None:
    below = rule.upper and rule.limit < 0 and rule.metric.endswith(("_difference", "_ratio"))
    above = not rule.upper and rule.limit > 1 and rule.metric.endswith("_ratio")
    if below or above:
        raise PolicyError(f"no model can keep the policy rule {rule.metric} {rule.say()}: it lies between 0 and 1")


def _check_pair(one: Rule, other: Rule) -> None:
    same = constraint_of(one.metric) == constraint_of(other.metric) and _ending(one) == _ending(other)
    if not same or (None not in (one.sensitive, other.sensitive) and one.sensitive != other.sensitive):
        return
    for low, high in ((one, other), (other, one)):
        if high.upper and not low.upper and low.limit > high.limit:
            raise PolicyError(
                f"two policy rules contradict each other: {low.metric} {low.say()}, and {high.metric} {high.say()}; "
                "leave one of them out"
            )


def _ending(rule: Rule) -> str:
    return next((end for end in ("_difference", "_ratio") if rule.metric.endswith(end)), rule.metric)
