"""Proof logs: the tree of splits of a search, small enough for a certificate, and its check without a search."""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.inputs.problem import CHANCE, FLIP, SCORE, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.inputs.forest import CellTree, Layout
    from fairkit.inputs.searching import Answer, Splits

MOST_TEXT = 2_000_000
"""A longer log is left out."""
MOST_BOXES = 4_000_000

Log = Mapping[str, Sequence[Any]]
"""By pair, as ``first,second``: the splits in the order first box, its `yes` side, its `no` side.

A split is a block and the cells of its `yes` side: ``[block, cut]`` for the cells below a cut, ``[block, "hex bits"]``
for a set; 0 closes a box."""


def log_of(layout: Layout, answer: Answer, *, whole: bool = False) -> Log:
    """Return the splits that prove the upper bound of an answer; `whole`: only the bound of everything holds."""
    return {
        ",".join(map(str, key)): _preorder(layout, splits, answer.upper, whole=whole)
        for key, splits in answer.splits.items()
    }


def _preorder(layout: Layout, splits: Splits, upper: float, *, whole: bool) -> list[Any]:
    words = layout.words
    found: list[Any] = []
    waiting = [0]
    while waiting:
        item = waiting.pop()
        block, key, child = splits.split[item].tolist()
        # of points only the bound of everything holds for the numbers between them
        if block < 0 or splits.bounds[item] <= upper or (whole and item == 0):
            found.append(0)
            continue
        if words[block]:
            bits = sum(int(splits.masks[item, w]) << (63 * w) for w in range(int(words[block])))
            found.append([block, f"{bits:x}"])
        else:
            found.append([block, key])
        waiting += [child + 1, child]
    return found


def packed(log: Log) -> str | None:
    """Return a log as text for evidence; None where it is too long."""
    text = base64.b85encode(zlib.compress(json.dumps(log, separators=(",", ":")).encode(), 9)).decode()
    return text if len(text) <= MOST_TEXT else None


def unpacked(text: str) -> Log:
    """Read what `packed` wrote.

    Raises
    ------
    DataError
        It is damaged, or too large.
    """
    try:
        opened = zlib.decompressobj()
        raw = opened.decompress(base64.b85decode(text), 40 * MOST_TEXT)
        log = json.loads(raw)
    except (ValueError, zlib.error, RecursionError) as error:
        raise DataError(f"the proof log cannot be read: {error}") from error
    if opened.unconsumed_tail or not isinstance(log, dict):
        raise DataError("the proof log cannot be read: it is no log, or too large")
    return log


def boxes_of(
    problem: Problem, entries: Sequence[Any], root: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Return the closed boxes of a pair's log, as one bit for each cell of the free blocks, shape [n, cells].

    `root` is the box that was split; default: everything.

    Raises
    ------
    DataError
        The splits do not tile the domain, or are no splits.
    """
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(int)
    waiting = [np.ones(starts[-1], dtype=np.bool_) if root is None else root]
    found = []
    for entry in entries:
        if not waiting:
            raise DataError("the proof log goes on after its last box")
        box = waiting.pop()
        if entry == 0:
            found.append(box)
            continue
        block, key = entry if isinstance(entry, list) and len(entry) == 2 else (-1, 0)
        if not isinstance(block, int) or not 0 <= block < len(problem.layout.sizes):
            raise DataError(f"the proof log has the entry {entry!r}, which is no split")
        cells = slice(starts[block], starts[block + 1])
        size = int(problem.layout.sizes[block])
        bits = int(key, 16) if isinstance(key, str) else (1 << min(max(int(key), 0), size)) - 1
        side = np.array([bits >> c & 1 for c in range(size)], dtype=np.bool_)
        one, other = box.copy(), box.copy()
        one[cells] &= side
        other[cells] &= ~side
        waiting += [other, one]
    if waiting:
        raise DataError(f"the proof log leaves {len(waiting)} boxes open")
    return np.array(found)


def largest(
    trees: Sequence[CellTree], boxes: NDArray[np.bool_], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the sum over trees of the largest value that each reaches in each box, shape [n]."""
    total = np.zeros(len(boxes))
    for tree in trees:
        best = np.full(len(boxes), -np.inf)
        waiting = [(0, np.arange(len(boxes)))]
        while waiting:
            node, rows = waiting.pop()
            if not len(rows):
                continue
            block = tree.block[node]
            if block < 0:
                best[rows] = np.maximum(best[rows], tree.value[node])
                continue
            for cells, child in ((tree.cells[node], tree.yes[node]), (tree.others[node], tree.no[node])):
                width = int(starts[block + 1] - starts[block])
                places = starts[block] + np.array([c for c in range(width) if cells >> c & 1], dtype=int)
                waiting.append((child, rows[boxes[np.ix_(rows, places)].any(axis=1)]))
        total += best
    return total


def proved(problem: Problem, kind: int, log: Log) -> float:
    """Return the upper bound that a log proves, over all pairs: the largest bound of a closed box.

    Raises
    ------
    DataError
        It does not cover every pair and every input.
    """
    check_pairs(problem, log)
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(np.int64)
    upper = -np.inf
    for first, second in problem.pairs:
        boxes = boxes_of(problem, log[f"{first},{second}"])
        for some in np.array_split(boxes, max(1, len(boxes) // 20_000)):
            kept = some[filled(some, starts)]
            if len(kept):
                upper = max(upper, float(bounds_of(problem, kind, (first, second), kept, starts).max()))
    return float(upper)


def check_pairs(problem: Problem, log: Log) -> None:
    """Refuse a log that is not about every pair of values."""
    expected = {f"{first},{second}" for first, second in problem.pairs}
    if set(log) != expected:
        raise DataError(
            f"the proof log is about {len(set(log))} pairs of values, and there are {len(expected)}"
        )


def filled(boxes: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which boxes hold a point."""
    filled = [boxes[:, a:b].any(axis=1) for a, b in itertools.pairwise(starts)]
    return np.asarray(np.logical_and.reduce(filled), dtype=np.bool_)


def bounds_of(
    problem: Problem, kind: int, pair: tuple[int, int], boxes: NDArray[np.bool_], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return an upper bound of the objective in each box, shape [n]."""
    trees = problem.gap_trees(*pair)
    gap = largest(trees, boxes, starts)
    if kind == SCORE:
        return gap
    most_first = problem.base + largest(problem.trees_at(pair[0]), boxes, starts)
    seconds = problem.trees_at(pair[1])
    least_second = problem.base - largest([tree.negative for tree in seconds], boxes, starts)
    if kind == FLIP:
        threshold = problem.threshold if problem.threshold is not None else 0.0
        found = np.minimum(np.minimum(most_first - threshold, threshold - least_second), gap / 2.0)
        rows = np.flatnonzero(gap <= 0.0)
        moving = np.zeros(len(rows))
        for tree in trees:  # boxes in which no tree differs: the two sums are the same, rounded alike
            moving += np.abs(largest([tree], boxes[rows], starts))
            moving += np.abs(largest([tree.negative], boxes[rows], starts))
        found[rows[moving == 0.0]] = -np.inf
        return found
    assert kind == CHANCE  # noqa: S101 -- the third question
    most_second = problem.base + largest(seconds, boxes, starts)
    second = np.maximum(least_second, np.minimum(np.minimum(-gap / 2.0, most_second), most_first - gap))
    return _sigmoid(np.minimum(most_first, second + gap)) - _sigmoid(second)


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found


def proof_file(problem: Problem, logs: Mapping[str, Any], claims: Mapping[str, float]) -> dict[str, Any]:
    """Return everything that an independent checker needs, as plain JSON values (see the explanation page).

    Parameters
    ----------
    problem
        The ensemble over cells.
    logs, claims
        By question, its log, or a list of those near each of the people, and the upper bound that it proves.
    """
    return {
        "schema": "fairkit.all-inputs/1",
        "problem_sha256": problem.sha256,
        "sizes": [int(size) for size in problem.layout.sizes],
        "changing": problem.changing,
        "values": problem.blocks[problem.changing].size,
        "blocks": [block.name for block in problem.blocks],
        "tests": [[block, f"{cells & ((1 << problem.blocks[block].size) - 1):x}"] if block >= 0 else [-1, "0"]
                  for block, cells in problem.tests],
        "yes": list(problem.yes),
        "no": list(problem.no),
        "leaf": [float(value) for value in problem.value],
        "roots": list(problem.roots),
        "base": problem.base,
        "threshold": problem.threshold,
        "rounding": problem.rounding,
        "logs": dict(logs),
        "claims": dict(claims),
    }  # fmt: skip
