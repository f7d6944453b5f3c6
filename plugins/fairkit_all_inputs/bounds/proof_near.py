"""Proof logs about the inputs near people: each person's boxes, closed by their bound or for being too far."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit_all_inputs.bounds.proof import boxes_of, check_pairs
from fairkit_all_inputs.bounds.proof_bounds import Trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_all_inputs.bounds.proof import Log


def proved_near(
    problem: Problem, kind: int, logs: Sequence[Log], costs: Sequence[Mapping[int, NDArray[np.float64]]], near: float
) -> float:
    """Return the upper bound that logs prove of the inputs near people."""
    if len(logs) != len(costs):
        raise DataError(f"there are proof logs for {len(logs)} people, and {len(costs)} were looked at")
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(np.int64)
    upper = -np.inf
    for log in logs:
        check_pairs(problem, log)
    for first, second in problem.pairs:
        trees = Trees(problem, kind, (first, second))
        waiting: list[NDArray[np.bool_]] = []
        for person, (log, told) in enumerate(zip(logs, costs, strict=True)):
            cost = cells_of_costs(problem, told)
            for boxes, groups in boxes_of(problem, log[f"{first},{second}"], cost <= near):
                close = boxes[_cheapest(boxes, cost, starts) <= near]
                if not groups:
                    waiting.append(close)
                elif len(close):
                    upper = max(upper, float(trees.bounds(close, groups).max()))
            if person + 1 < len(logs) and sum(map(len, waiting)) < 20_000:
                continue
            kept = np.concatenate(waiting) if waiting else np.zeros((0, starts[-1]), dtype=np.bool_)
            waiting = []
            if len(kept):
                upper = max(upper, float(trees.bounds(kept, {}).max()))
    return float(upper)


def cells_of_costs(problem: Problem, costs: Mapping[int, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the distance that each cell of the free blocks adds, shape [cells]; zero where none is told."""
    parts = [costs.get(block, np.zeros(int(size))) for block, size in enumerate(problem.layout.sizes)]
    return np.concatenate(parts)


def _cheapest(boxes: NDArray[np.bool_], cost: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the least distance in each box, added up in the order of the search; infinite where it is empty."""
    total = np.zeros(len(boxes))
    for a, b in itertools.pairwise(starts):
        total += np.where(boxes[:, a:b], cost[a:b], np.inf).min(axis=1)
    return total


def told_costs(costs: Mapping[int, NDArray[np.float64]], near: float) -> dict[str, Any]:
    """Return distances as plain JSON values: by block the cells that are near enough, and what they add."""
    found = {}
    for block, values in costs.items():
        cells = np.flatnonzero(values <= near)
        found[str(block)] = [cells.tolist(), values[cells].tolist()]
    return found
