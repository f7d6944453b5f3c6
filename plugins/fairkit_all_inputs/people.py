"""The people of the data: inputs within a distance of one of them, and the share of them that can be flipped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.inputs.problem import FLIP
from fairkit.inputs.questions import answer
from fairkit.inputs.searching import Answer, Effort
from fairkit.intervals import two_sided
from fairkit.limits.means import weighted_share_limits
from fairkit.limits.shares import clopper_pearson
from fairkit_all_inputs.witness import cells_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.inputs.domain import Block
    from fairkit.inputs.questions import AnyProblem
    from fairkit_all_inputs.collect import People, Seen
    from fairkit_all_inputs.parameters import Parameters

EACH = 2_000
"""Boxes that the question about one person may split."""

Nearest = Mapping[str, Any]
"""By column, for each cell of its block the raw value that is nearest to somebody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How many of the people looked at can be flipped.

    Attributes
    ----------
    flips, open
        By person: whether a flip was found; whether it is not decided.
    weights
        What each person counts; None where all count the same.
    boxes
        How many boxes were split.
    """

    flips: NDArray[np.bool_]
    open: NDArray[np.bool_]
    weights: NDArray[np.float64] | None
    boxes: int

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


def shares(problem: AnyProblem, people: People, told: Parameters, context: AuditContext) -> Shares:
    """Find the people who can be flipped within `near` of where they are."""
    columns = {name: people.columns[name] for name in context.scorer.columns}
    decided = []
    block = problem.blocks[problem.changing]
    for cell in range(block.size):
        changed = dict(columns)
        for name in block.columns:
            value = block.values[name][cell]
            like = cells_of([{name: None if value is None else value}], {name: columns[name]})[name]
            changed[name] = np.repeat(like, len(people.rows))
        decided.append(np.asarray(context.scorer.predict(changed).decision))
    flips = np.ptp(np.stack(decided), axis=0) > 0
    undecided, boxes = np.zeros(len(flips), dtype=np.bool_), 0
    if told.near:
        for person in np.flatnonzero(~flips).tolist():
            costs, values = costs_near(problem, people, person)
            got = answer(problem, FLIP, effort=_each(told), costs=costs, near=told.near, values=values)
            boxes += got.boxes
            if got.lower > 4.0 * problem.rounding:
                flips[person] = True
            elif got.upper > -problem.rounding:
                undecided[person] = True
    return Shares(flips=flips, open=undecided, weights=people.weights, boxes=boxes)


def _each(told: Parameters) -> Effort:
    return Effort(boxes=min(EACH, told.boxes))


def nearby(
    problem: AnyProblem, kind: int, people: People, told: Parameters, effort: Effort
) -> tuple[Answer, Nearest | None]:
    """Bound an objective over the inputs within `near` of any of the people; the witness is near one of them.

    Returns
    -------
    Answer, mapping
        The values nearest to that person, in which the witness is written; None without a witness.
    """
    assert told.near is not None  # noqa: S101 -- asked only then
    lower, upper, boxes = -math.inf, -math.inf, 0
    best: Answer | None = None
    nearest: Nearest | None = None
    for person in range(len(people.rows)):
        costs, values = costs_near(problem, people, person)
        got = answer(
            problem, kind, effort=_each(told), costs=costs, near=told.near, floor=lower, values=values
        )
        boxes += got.boxes
        upper = max(upper, got.upper)
        if got.point is not None and got.lower > lower:
            best, lower, nearest = got, got.lower, values
        if (kind == FLIP and lower > 4.0 * problem.rounding) or boxes > effort.boxes:
            if person + 1 < len(people.rows) and kind != FLIP:
                upper = math.inf
            break
    joined = Answer(
        kind=kind,
        lower=lower,
        upper=max(upper, lower),
        pair=None if best is None else best.pair,
        point=None if best is None else best.point,
        boxes=boxes,
    )
    return joined, nearest


def costs_near(
    problem: AnyProblem, people: People, person: int
) -> tuple[dict[int, NDArray[np.float64]], dict[str, NDArray[Any]]]:
    """Return the squared distance of each cell from somebody, by block, and the nearest raw value of each cell."""
    costs: dict[int, NDArray[np.float64]] = {}
    values: dict[str, NDArray[Any]] = {}
    for place, block in enumerate(problem.blocks):
        if place == problem.changing:
            continue
        if block.ends is not None:
            name = block.columns[0]
            own = float(people.columns[name][person])
            costs[place], values[name] = _numbers_near(block, own, people.seen[name])
            continue
        row = {name: people.columns[name][person : person + 1] for name in block.columns}
        cell = int(block.cells_of(row)[0])
        count = len(block.members)
        cost = np.full(block.size, 1.0 if count == 2 and len(block.columns) == 1 else 2.0)
        for name in block.columns:
            values[name] = block.values[name].copy()
        if cell >= 0:
            cost[cell] = 0.0
            for name in block.columns:
                values[name][cell] = row[name][0]
        costs[place] = cost
    return costs, values


def _numbers_near(block: Block, own: float, seen: Seen) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    assert block.ends is not None  # noqa: S101 -- a block of numbers
    ends = block.ends
    known = ends[~np.isnan(ends)]
    above = known[:-1] + 1 if block.whole else _next(known[:-1], single=block.single)
    starts = np.concatenate([[block.low], above])
    nearest = known if block.points else np.clip(np.nan_to_num(own), starts, known)
    cost = ((nearest - own) / seen.spread) ** 2
    if np.isnan(own):
        cost = np.ones(len(known))
    if len(known) < len(ends):
        nearest, cost = np.append(nearest, np.nan), np.append(cost, 0.0 if np.isnan(own) else 1.0)
    return cost, nearest


def _next(values: NDArray[np.float64], *, single: bool) -> NDArray[np.float64]:
    if single:
        return np.nextafter(values.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    return np.nextafter(values, np.inf)
