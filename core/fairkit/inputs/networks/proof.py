"""The check of a network's proof log: the bounds of its closed boxes, computed anew, without a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.inputs.forest import BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.inputs.networks.problem import NetworkProblem
    from fairkit.inputs.proof import Log

AT_ONCE = 256


def boxes_of(problem: NetworkProblem, entries: Sequence[Any]) -> NDArray[np.int64]:
    """Return the closed boxes of a pair's log that hold a cell of each block, shape [n, width of the layout].

    Raises
    ------
    DataError
        The splits do not tile the domain, or are no splits.
    """
    layout = problem.layout
    waiting = [problem.root[0].copy()]
    found = []
    for entry in entries:
        if not waiting:
            raise DataError("the proof log goes on after its last box")
        box = waiting.pop()
        if entry == 0:
            if _filled(problem, box):
                found.append(box)
            continue
        block, key = entry if isinstance(entry, list) and len(entry) == 2 else (-1, 0)
        if not isinstance(block, int) or not 0 <= block < len(layout.sizes):
            raise DataError(f"the proof log has the entry {entry!r}, which is no split")
        at, words = int(layout.place[block]), int(layout.words[block])
        one, other = box.copy(), box.copy()
        if words == 0:
            if not isinstance(key, int):
                raise DataError(f"the proof log has the entry {entry!r}, which is no split of a range")
            one[at + 1], other[at] = min(one[at + 1], key - 1), max(other[at], key)
        else:
            if not isinstance(key, str):
                raise DataError(f"the proof log has the entry {entry!r}, which is no split of a set")
            cells = int(key, 16)
            for word in range(words):
                mask = cells >> (BITS * word) & ((1 << BITS) - 1)
                one[at + word] &= mask
                other[at + word] &= ~mask
        waiting += [other, one]
    if waiting:
        raise DataError(f"the proof log leaves {len(waiting)} boxes open")
    return np.array(found, dtype=np.int64).reshape(len(found), layout.width)


def _filled(problem: NetworkProblem, box: NDArray[np.int64]) -> bool:
    return all(problem.cells.mask(box[None, :], block).any() for block in range(len(problem.blocks)))


def proved_network(problem: NetworkProblem, kind: int, log: Log) -> float:
    """Return the upper bound that a log proves, over all pairs, with rounding.

    Raises
    ------
    DataError
        It does not cover every pair and every input.
    """
    expected = {f"{first},{second}" for first, second in problem.pairs}
    if set(log) != expected:
        raise DataError(
            f"the proof log is about {len(set(log))} pairs of values, and there are {len(expected)}"
        )
    upper = -np.inf
    for pair in problem.pairs:
        boxes = boxes_of(problem, log[f"{pair[0]},{pair[1]}"])
        for first in range(0, len(boxes), AT_ONCE):
            most, extra, _, _ = problem.bound(kind, pair, boxes[first : first + AT_ONCE])
            upper = max(upper, float((most + extra).max()))
    return upper
