"""One audit's gaps: the rows, the groups that are compared, and the form of a finding about two of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import HIGHEST, LARGEST, reference_of
from fairkit.results.conditions import in_words
from fairkit.results.findings import Finding
from fairkit.results.values import GroupValue
from fairkit_why.comparison import Pair
from fairkit_why.exact import read_exact
from fairkit_why.limits import shares
from fairkit_why.parameters import conditions_of, players_of
from fairkit_why.people import PEOPLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit_why.exact import ExactScore
    from fairkit_why.parameters import Parameters
    from fairkit_why.people import People

    Array = NDArray[np.float64]
    Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Why:
    """One audit's gaps."""

    chosen: Parameters  # what was set, the model and the table, and all rows
    context: AuditContext  # what was set, the model and the table, and all rows
    people: People  # what was set, the model and the table, and all rows

    @cached_property
    def recorded(self) -> bool:
        """Whether the predictions are columns of the table, and no model can be asked."""
        return bool(getattr(self.context.scorer, "recorded", False))

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The model's columns."""
        return {name: self.people.column(name) for name in self.context.scorer.columns}

    @cached_property
    def players(self) -> list[tuple[str, ...]]:
        """The columns of every player."""
        return players_of(self.chosen, self.context.scorer.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the players."""
        return tuple("+".join(names) for names in self.players)

    @cached_property
    def exact(self) -> tuple[ExactScore, Any] | str:
        """The score whose attribution is exact, and all rows as it wants them; else why there is none."""
        score = read_exact(self.context.scorer, self.columns, self.players)
        return score if isinstance(score, str) else (score, score.prepare(self.columns))

    def pairs(self) -> list[Pair]:
        """Return every group against its reference, by sensitive column."""
        pairs = []
        every = dict(self.context.dataset.profile.groups)
        if self.chosen.people:
            every[PEOPLE] = dict.fromkeys((in_words(conditions_of(self.chosen)), "everybody else"), 0)
        for name, groups in every.items():
            codes, names = self.people.groups[name], list(groups)
            rows = [np.flatnonzero(codes == place) for place in range(len(names))]
            there = [place for place in range(len(names)) if len(rows[place])]
            if len(there) < 2:
                continue
            reference = self._reference(name, names, rows, there)
            pairs += [
                Pair(self.people, name, names[index], names[reference], (rows[index], rows[reference]), len(there) == 2)
                for index in there
                if index != reference
            ]
        return pairs

    def _reference(self, sensitive: str, names: list[str], rows: list[NDArray[np.int64]], there: list[int]) -> int:
        """Return the reference: the one that was named; else of two groups the lower one, of more the largest."""
        columns = list(self.context.dataset.profile.groups)
        stated = dict(reference_of(text, columns) for text in self.context.dataset.roles.reference).get(sensitive)
        if sensitive == PEOPLE:
            return 1
        f = self.people.number("decision") if self.context.scorer.task != "regression" else None
        f = self.people.number("score") if f is None else f
        means = {} if f is None else {place: self._mean(f, rows[place]) for place in there}
        if stated == LARGEST or (stated is None and (len(there) > 2 or not means)):
            return max(there, key=lambda place: len(rows[place]))
        if stated == HIGHEST:
            return max(means, key=means.__getitem__)
        if stated is None:
            return min(means, key=means.__getitem__)
        return names.index(stated)

    def _mean(self, values: Array, rows: NDArray[np.int64]) -> float:
        weights = self.people.weights
        return float(shares(None if weights is None else weights[rows], len(rows)) @ values[rows])


def parameters_of(pair: Pair, **more: Any) -> dict[str, Any]:
    """Return the finding's parameters: of several groups, the one that is compared; and of several classes."""
    more |= {} if pair.people.label is None else {"class": pair.people.label}
    return more if pair.alone and pair.sensitive != PEOPLE else {**more, "group": pair.group}


def group_values(pair: Pair, means: tuple[float, float] | None) -> tuple[GroupValue, ...]:
    """Return both groups with their means."""
    told = (None, None) if means is None else means
    return tuple(
        GroupValue(group=name, rows=len(rows), value=value)
        for name, rows, value in zip((pair.group, pair.reference), pair.rows, told, strict=True)
    )


def finding_of(why: Why, pair: Pair, metric: str, value: float | None, **more: Any) -> Finding:
    """Return a finding between a group and its reference."""
    at: Callable[[float], Interval] | None = more.get("interval_at")
    confidence = why.context.confidence
    return Finding(
        auditor="why",
        metric=metric,
        sensitive=pair.sensitive or None,
        value=value,
        interval=None if at is None or value is None else at(confidence),
        confidence=confidence,
        reference=pair.reference if pair.sensitive else None,
        **more,
    )
