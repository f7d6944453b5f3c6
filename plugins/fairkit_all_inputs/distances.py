"""How far each cell of each block is from somebody: by default over standardised numbers, or by a saved fair metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_all_inputs.weighed import Weighed, choices_of, joint_near, numbers, weighed
from fairkit_similarity.encode import Encoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.nearness import Joint
    from fairkit_all_inputs.bounds.questions import AnyProblem
    from fairkit_all_inputs.collect import People, Seen
    from fairkit_onnx.structure.domain import Block
    from fairkit_similarity.metric import FairMetric

Costs = dict[int, "NDArray[np.float64]"]
"""By block, the squared distance that each of its cells adds, shape [cells]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockDistance:
    """What a fair metric says about the columns of one block: d² = (e - e')ᵀ sigma (e - e')."""

    encoder: Encoder
    sigma: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summed:
    """A fair metric that adds up over the blocks."""

    parts: dict[int, BlockDistance]


def taken(metric: FairMetric, problem: AnyProblem, name: str) -> Summed | Weighed:
    """Take a metric apart into the blocks of a problem; the columns that change do not count.

    A metric that weighs columns of two blocks together stays whole.
    """
    sigma = metric.matrix @ metric.matrix.T
    owner = {column: place for place, block in enumerate(problem.blocks) for column in block.columns}
    of_feature = [
        (owner.get(column.name, -1), column.name) for column in metric.encoder.columns for _ in column.features
    ]
    counted = [place for place, (block, _) in enumerate(of_feature) if block not in (-1, problem.changing)]
    scale = 1e-9 * float(np.abs(sigma).max(initial=0.0))
    for i in counted:
        for j in counted:
            if of_feature[i][0] != of_feature[j][0] and abs(sigma[i, j]) > scale:
                return weighed(metric, problem, name)
    parts = {}
    for place in {of_feature[i][0] for i in counted}:
        mine = [i for i in counted if of_feature[i][0] == place]
        encoder = Encoder(columns=tuple(c for c in metric.encoder.columns if owner.get(c.name, -1) == place))
        parts[place] = BlockDistance(encoder=encoder, sigma=sigma[np.ix_(mine, mine)])
    return Summed(parts=parts)


def costs_near(
    problem: AnyProblem, people: People, person: int, metric: Summed | Weighed | None = None
) -> tuple[Costs | Joint, dict[str, NDArray[Any]]]:
    """Return the squared distance of each cell from somebody, by block, and the nearest raw value of each cell."""
    costs: Costs = {}
    values: dict[str, NDArray[Any]] = {}
    for index, block in enumerate(problem.blocks):
        if index == problem.changing:
            continue
        row = {name: people.columns[name][person : person + 1] for name in block.columns}
        part = metric.parts.get(index) if isinstance(metric, Summed) else None
        if block.ends is not None:
            name = block.columns[0]
            own = float(row[name][0])
            towards = own if part is None or not np.isnan(own) else part.encoder.columns[0].mean
            costs[index], values[name] = _numbers_near(block, own, towards, people.seen[name])
        else:
            costs[index] = _listed_near(block, row, values)
        if isinstance(metric, Summed):
            if part is None:
                costs[index] = np.zeros(block.size)
            elif block.ends is None:
                costs[index] = _listed_by(part, block, row, values)
            else:
                near = {name: values[name] for name in block.columns}
                costs[index] = _by(part, near, row)
    if isinstance(metric, Weighed):
        return joint_near(problem, people, person, metric), values
    return costs, values


def _by(part: BlockDistance, cells: dict[str, NDArray[Any]], row: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the distance of raw values from those of one row."""
    first, second = ({name: numbers(v) for name, v in some.items()} for some in (cells, row))
    apart = part.encoder.encode(first) - part.encoder.encode(second)
    found: NDArray[np.float64] = np.maximum(((apart @ part.sigma) * apart).sum(axis=1), 0.0)
    return found


def _listed_by(
    part: BlockDistance, block: Block, row: dict[str, NDArray[Any]], values: dict[str, NDArray[Any]]
) -> NDArray[np.float64]:
    """Return the distance of each cell's nearest value, which becomes the cell's."""
    every = _by(part, choices_of(block), row)
    cost = np.full(block.size, np.inf)
    for choice, (cell, far) in enumerate(zip(block.members.values(), every.tolist(), strict=True)):
        if far < cost[cell]:
            cost[cell] = far
            for name, value in zip(block.columns, block.choices[choice], strict=True):
                values[name][cell] = value
    return cost


def _listed_near(block: Block, row: dict[str, NDArray[Any]], values: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    cell = int(block.cells_of(row)[0])
    count = len(block.members)
    cost = np.full(block.size, 1.0 if count == 2 and len(block.columns) == 1 else 2.0)
    for name in block.columns:
        values[name] = block.values[name].copy()
    if cell >= 0:
        cost[cell] = 0.0
        for name in block.columns:
            values[name][cell] = row[name][0]
    return cost


def _numbers_near(
    block: Block, number: float, towards: float, seen: Seen
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    assert block.ends is not None  # noqa: S101 -- a block of numbers
    starts, known = block.intervals
    nearest = known if block.points else np.clip(np.nan_to_num(towards), starts, known)
    cost = ((nearest - number) / seen.spread) ** 2
    if np.isnan(number):
        cost = np.ones(len(known))
    if len(known) < len(block.ends):
        nearest, cost = np.append(nearest, np.nan), np.append(cost, 0.0 if np.isnan(number) else 1.0)
    return cost, nearest
