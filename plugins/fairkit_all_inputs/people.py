"""The people of the data: inputs within a distance of one of them, and the share of them that can be flipped."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import two_sided
from fairkit.limits.means import weighted_share_limits
from fairkit.limits.shares import clopper_pearson
from fairkit_all_inputs.bounds.problem import FLIP
from fairkit_all_inputs.bounds.questions import answer
from fairkit_all_inputs.bounds.searching import Answer, Effort
from fairkit_all_inputs.distances import costs_near
from fairkit_all_inputs.weighed import Weighed, placed
from fairkit_all_inputs.witness import ask, cells_of, differs
from fairkit_all_inputs.witness import decided as said_of
from fairkit_all_inputs.witnesses import pair_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit_all_inputs.bounds.questions import AnyProblem
    from fairkit_all_inputs.collect import People
    from fairkit_all_inputs.distances import Summed
    from fairkit_all_inputs.parameters import Parameters

EACH = 2_000
"""Boxes that the question about one person may split."""

Nearest = Mapping[str, Any]
"""By column, for each cell of its block the raw value that is nearest to somebody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How many of the people looked at can be flipped."""

    flips: NDArray[np.bool_]  # by person: whether a flip was found; whether it is not decided
    open: NDArray[np.bool_]  # by person: whether a flip was found; whether it is not decided
    weights: NDArray[np.float64] | None  # what each person counts; None where all count the same
    boxes: int  # how many boxes were split

    @property
    def ends(self) -> tuple[float, float]:
        """The share that is flipped for certain, and that which may be, by weight."""
        weights = np.ones(len(self.flips)) if self.weights is None else self.weights
        total = max(float(weights.sum()), 1e-300)
        low = float(weights[self.flips].sum()) / total
        return low, low + float(weights[self.open].sum()) / total

    def interval(self, confidence: float, *, sampled: bool) -> tuple[float, float]:
        """Return bounds of the share, with the draw's uncertainty where people were drawn."""
        low, high = self.ends
        if not sampled:
            return low, high
        z = two_sided(confidence)
        both = np.array([low, high])
        if self.weights is None:
            limits = clopper_pearson(both, np.full(2, float(len(self.flips))), z)
        else:  # as many people as would say so much if all counted the same (Kish)
            size = float(self.weights.sum()) ** 2 / max(float((self.weights**2).sum()), 1e-300)
            limits = weighted_share_limits(both, np.full(2, size), z)
        return float(limits[0][0]), float(limits[1][1])


def shares(
    problem: AnyProblem,
    people: People,
    parameters: Parameters,
    context: AuditContext,
    metric: Summed | Weighed | None,
    *,
    none: bool,
    effort: Effort,
) -> Shares:
    """Find the people who can be flipped within `near` of where they are; `none`: it is proved that nobody can.

    When the seconds are used up, those who were not looked at stay undecided.
    """
    started = time.monotonic()
    columns = {name: people.columns[name] for name in context.scorer.columns}
    decided = []
    block = problem.blocks[problem.changing]
    for cell in range(block.size):
        changed = dict(columns)
        for name in block.columns:
            value = block.values[name][cell]
            like = cells_of([{name: None if value is None else value}], {name: columns[name]})[name]
            changed[name] = np.repeat(like, len(people.rows))
        decided.append(np.asarray(said_of(context.scorer.predict(changed))))
    flips = np.ptp(np.stack(decided), axis=0) > 0
    undecided, boxes = np.zeros(len(flips), dtype=np.bool_), 0
    if parameters.near and not none:
        for person in np.flatnonzero(~flips).tolist():
            if effort.seconds is not None and time.monotonic() - started > effort.seconds:
                undecided[person] = True
                continue
            got, values = _near(problem, FLIP, people, person, parameters.near, metric, _each(parameters))
            boxes += got.boxes
            if _flips(problem, got, values, people, context):
                flips[person] = True
            elif got.upper > -problem.rounding:
                undecided[person] = True
    return Shares(flips=flips, open=undecided, weights=people.weights, boxes=boxes)


def _flips(problem: AnyProblem, got: Answer, values: Nearest, people: People, context: AuditContext) -> bool:
    """Tell whether a point that was found flips; where rounding may decide, the model is run."""
    if got.point is None:
        return False
    if got.lower > 4.0 * problem.rounding:
        return True
    return differs(ask(context.scorer, pair_of(problem, got, values), people.columns))


def _each(parameters: Parameters) -> Effort:
    return Effort(boxes=min(EACH, parameters.boxes))


def _near(
    problem: AnyProblem,
    kind: int,
    people: People,
    person: int,
    near: float,
    metric: Summed | Weighed | None,
    effort: Effort,
    floor: float = -math.inf,
) -> tuple[Answer, Nearest]:
    """Bound an objective over the inputs near one person; a witness is near by the metric's own function."""
    costs, values = costs_near(problem, people, person, metric)
    got = answer(problem, kind, effort=effort, costs=costs, near=near, floor=floor)
    if not isinstance(metric, Weighed) or got.point is None:
        return got, values
    found = placed(problem, people, person, metric, got.point, near, values)
    return (replace(got, pair=None, point=None), values) if found is None else (got, found)


def nearby(
    problem: AnyProblem,
    kind: int,
    people: People,
    parameters: Parameters,
    effort: Effort,
    metric: Summed | Weighed | None,
) -> tuple[Answer, Nearest | None, list[Answer]]:
    """Bound an objective over the inputs within `near` of any of the people; the witness is near one of them.

    When the boxes or seconds are used up, one bound of all that is near each of the others is taken.
    """
    assert parameters.near is not None  # noqa: S101 -- asked only then
    lower, boxes, started = -math.inf, 0, time.monotonic()
    best: Answer | None = None
    nearest: Nearest | None = None
    each: list[Answer] = []
    for person in range(len(people.rows)):
        late = effort.seconds is not None and time.monotonic() - started > effort.seconds
        person_effort = Effort(boxes=0) if late or boxes > effort.boxes else _each(parameters)
        got, values = _near(problem, kind, people, person, parameters.near, metric, person_effort, lower)
        boxes += got.boxes
        each.append(got)
        if got.point is not None and got.lower > lower:
            best, lower, nearest = got, got.lower, values
        if kind == FLIP and lower > 4.0 * problem.rounding:
            break
    joined = Answer(
        kind=kind,
        lower=lower,
        upper=max([lower, *(one.upper for one in each)]),
        pair=None if best is None else best.pair,
        point=None if best is None else best.point,
        boxes=boxes,
    )
    return joined, nearest, each
