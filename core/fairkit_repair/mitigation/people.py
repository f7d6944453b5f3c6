"""What a repair does to people: who gets the favorable decision before and after, and who gets another answer."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import value_text
from fairkit.support.records import record_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.objective import Objective

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A number before and after."""

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveChange:
    """The objective's value before and after, with a paired interval of the difference."""

    kind: str
    name: str
    before: float
    after: float
    difference: float
    interval: tuple[float, float]

    @property
    def outcome(self) -> str:
        """``better``, ``worse``, or ``not significant``."""
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "not significant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """How many people of a group get another answer in one direction, as expected under a rule that draws."""

    sensitive: str
    group: str
    size: int
    to_favorable: float
    to_unfavorable: float


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The decisions on the test rows before and after; shares are weighted where rows are."""

    rows: int
    approved: Pair
    approved_bad: Pair | None  # among people whose outcome is not the favorable one
    label: str  # the outcome's column, and the value that is not favorable
    bad: str
    favorable: str
    changed: float  # the share of people who get another answer
    moves: tuple[Move, ...]
    objective: ObjectiveChange

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self) | {"objective": record_of(self.objective) | {"outcome": self.objective.outcome}}


def people_of(table: Table, before: Array, after: Array, objective: Objective, confidence: float) -> People:
    """Compare chances of the favorable decision, [n] each, on the rows of a table."""
    weights = table.row_weights()
    bad = table.target <= 0

    def pair(rows: NDArray[np.bool_]) -> Pair | None:
        if not weights[rows].sum() > 0:
            return None
        first, last = (float(np.average(each[rows], weights=weights[rows])) for each in (before, after))
        return Pair(before=first, after=last)

    moves = [
        Move(
            sensitive=split,
            group=name,
            size=int((own := groups.codes == code).sum()),
            to_favorable=float(np.maximum(after - before, 0)[own].sum()),
            to_unfavorable=float(np.maximum(before - after, 0)[own].sum()),
        )
        for split, groups in table.groups.items()
        for code, name in enumerate(groups.names)
    ]
    (first, one), (last, two) = (objective.measure(table, each) for each in (before, after))
    apart = two - one
    error = float(np.sqrt((weights**2 * apart**2).sum()) / weights.sum())
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * error
    whole = pair(np.ones(len(table), dtype=bool))
    assert whole is not None  # noqa: S101 -- an audit has rows
    return People(
        rows=len(table),
        approved=whole,
        approved_bad=pair(bad),
        label=table.roles.label or "",
        bad=value_text(table.classes[0]),
        favorable=value_text(table.classes[-1]),
        changed=float(np.average(np.abs(after - before), weights=weights)),
        moves=tuple(moves),
        objective=ObjectiveChange(
            kind=objective.told(),
            name=objective.label,
            before=first,
            after=last,
            difference=last - first,
            interval=(last - first - reach, last - first + reach),
        ),
    )
