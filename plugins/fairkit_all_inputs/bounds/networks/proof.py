"""The check of a network's proof log: the bounds of its closed boxes, computed anew, without a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit_all_inputs.bounds.forest import BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.problem import NetworkProblem
    from fairkit_all_inputs.bounds.proof import Log

AT_ONCE = 256


def boxes_of(problem: NetworkProblem, entries: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return the closed boxes of a pair's log that hold a cell of each block, and the signs of their split units.

    Their shapes are [n, width of the layout] and [n, 2 · units].
    """
    waiting = [(problem.root[0].copy(), np.zeros(2 * problem.units, dtype=np.int8))]
    boxes, signs = [], []
    for entry in entries:
        if not waiting:
            raise DataError("the proof log goes on after its last box")
        box, unit_signs = waiting.pop()
        if entry == 0:
            if _filled(problem, box):
                boxes.append(box)
                signs.append(unit_signs)
            continue
        block, key = entry if isinstance(entry, list) and len(entry) == 2 else (-1, 0)
        if block == "u":
            one, other = (box, unit_signs.copy()), (box.copy(), unit_signs.copy())
            _split_unit(problem, key, one[1], other[1])
            waiting += [other, one]
        else:
            halves = _halves(problem, block, key, box)
            waiting += [(halves[1], unit_signs), (halves[0], unit_signs.copy())]
    if waiting:
        raise DataError(f"the proof log leaves {len(waiting)} boxes open")
    return (
        np.array(boxes, dtype=np.int64).reshape(len(boxes), problem.layout.width),
        np.array(signs, dtype=np.int8).reshape(len(boxes), 2 * problem.units),
    )


def _split_unit(problem: NetworkProblem, number: Any, below: NDArray[np.int8], above: NDArray[np.int8]) -> None:
    """Split a unit by the sign of its sum."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2 * problem.units:
        raise DataError(f"the proof log splits the unit {number!r}, and there are {2 * problem.units}")
    if below[number]:
        raise DataError(f"the proof log splits the unit {number!r} twice")
    below[number], above[number] = -1, 1


def _halves(
    problem: NetworkProblem, block: Any, key: Any, box: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    layout = problem.layout
    if isinstance(block, bool) or not isinstance(block, int) or not 0 <= block < len(layout.sizes):
        raise DataError(f"the proof log has the entry {[block, key]!r}, which is no split")
    at, width = int(layout.place[block]), int(layout.words[block])
    left, right = box.copy(), box.copy()
    if width == 0:
        if not isinstance(key, int):
            raise DataError(f"the proof log has the entry {[block, key]!r}, which is no split of a range")
        left[at + 1], right[at] = min(left[at + 1], key - 1), max(right[at], key)
        return left, right
    if not isinstance(key, str):
        raise DataError(f"the proof log has the entry {[block, key]!r}, which is no split of a set")
    try:
        cells = int(key, 16)
    except ValueError as error:
        raise DataError(f"the proof log has the entry {[block, key]!r}, which is no split of a set") from error
    for word in range(width):
        mask = cells >> (BITS * word) & ((1 << BITS) - 1)
        left[at + word] &= mask
        right[at + word] &= ~mask
    return left, right


def _filled(problem: NetworkProblem, box: NDArray[np.int64]) -> bool:
    return all(problem.cells.mask(box[None, :], block).any() for block in range(len(problem.blocks)))


def proved_network(problem: NetworkProblem, kind: int, log: Log, claim: float = -np.inf) -> float:
    """Return the upper bound that a log proves, over all pairs, with rounding.

    Boxes with a bound above the claim are bounded by a linear programme, too, as in the search.
    """
    expected = {f"{first},{second}" for first, second in problem.pairs}
    if set(log) != expected:
        raise DataError(f"the proof log is about {len(set(log))} pairs of values, and there are {len(expected)}")
    upper = -np.inf
    for pair in problem.pairs:
        boxes, held = boxes_of(problem, log[f"{pair[0]},{pair[1]}"])
        for first in range(0, len(boxes), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            most, extra, _ = problem.bound(kind, pair, boxes[some], held[some], claim)
            upper = max(upper, float((most + extra).max()))
    return upper
