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
from fairkit_all_inputs.bounds.forest import BITS
from fairkit_all_inputs.bounds.proof_bounds import Trees, checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import Layout
    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_all_inputs.bounds.regions import Groups, Splits
    from fairkit_all_inputs.bounds.searching import Answer

MOST_TEXT = 2_000_000
"""A longer log is left out."""
MOST_BOXES = 4_000_000

Log = Mapping[str, Sequence[Any]]
"""By pair, as ``first,second``: the splits in the order first box, its `yes` side, its `no` side.

A split is a block and the cells of its `yes` side: ``[block, cut]`` for the cells below a cut, ``[block, "hex bits"]``
for a set. 0 closes a box. Before an entry may stand which trees are
added up in that box and all below, as places in the roots:
``{"gap": [[0, 5], ...], "first": ..., "less": ..., "more": ...}``; other trees are bounded one by one."""


def log_of(layout: Layout, answer: Answer, *, whole: bool = False) -> Log:
    """Return the splits that prove the upper bound of an answer; `whole`: only the bound of everything holds."""
    return {
        ",".join(map(str, key)): _preorder(layout, splits, answer.upper, whole=whole)
        for key, splits in answer.splits.items()
    }


def _preorder(layout: Layout, splits: Splits, upper: float, *, whole: bool) -> list[Any]:
    widths = layout.words
    record: list[Any] = []
    waiting = [0]
    while waiting:
        item = waiting.pop()
        block, key, child = splits.split[item].tolist()
        if item in splits.groups:
            record.append({name: [list(one) for one in some] for name, some in splits.groups[item].items()})
        # of points only the bound of everything holds for the numbers between them
        if block < 0 or splits.bounds[item] <= upper or (whole and item == 0):
            record.append(0)
            continue
        if widths[block]:
            bits = sum(int(splits.masks[item, w]) << (BITS * w) for w in range(int(widths[block])))
            record.append([block, f"{bits:x}"])
        else:
            record.append([block, key])
        waiting += [child + 1, child]
    return record


def packed(log: Log) -> str | None:
    """Return a log as text for evidence; None where it is too long."""
    text = base64.b85encode(zlib.compress(json.dumps(log, separators=(",", ":")).encode(), 9)).decode()
    return text if len(text) <= MOST_TEXT else None


def unpacked(text: str) -> Log:
    """Read what `packed` wrote."""
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
) -> list[tuple[NDArray[np.bool_], Groups]]:
    """Return the closed boxes of a pair's log, by the trees that are added up in them.

    Each is one bit for each cell of the free blocks, shape [n, cells]. `root` is the box that was split; default:
    everything.
    """
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(int)
    waiting = [(np.ones(starts[-1], dtype=np.bool_) if root is None else root, 0)]
    closed: list[tuple[list[NDArray[np.bool_]], Groups]] = [([], {})]
    for entry in entries:
        if not waiting:
            raise DataError("the proof log goes on after its last box")
        box, mine = waiting.pop()
        if isinstance(entry, dict):
            waiting.append((box, len(closed)))
            closed.append(([], checked(problem, entry)))
            continue
        if entry == 0:
            closed[mine][0].append(box)
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
        waiting += [(other, mine), (one, mine)]
    if waiting:
        raise DataError(f"the proof log leaves {len(waiting)} boxes open")
    return [(np.array(boxes), groups) for boxes, groups in closed if boxes]


def proved(problem: Problem, kind: int, log: Log) -> float:
    """Return the upper bound that a log proves, over all pairs: the largest bound of a closed box."""
    check_pairs(problem, log)
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(np.int64)
    upper = -np.inf
    for first, second in problem.pairs:
        trees = Trees(problem, kind, (first, second))
        for boxes, groups in boxes_of(problem, log[f"{first},{second}"]):
            for some in np.array_split(boxes, max(1, len(boxes) // 20_000)):
                kept = some[filled(some, starts)]
                if len(kept):
                    upper = max(upper, float(trees.bounds(kept, groups).max()))
    return float(upper)


def check_pairs(problem: Problem, log: Log) -> None:
    """Refuse a log that is not about every pair of values."""
    expected = {f"{first},{second}" for first, second in problem.pairs}
    if set(log) != expected:
        raise DataError(f"the proof log is about {len(set(log))} pairs of values, and there are {len(expected)}")


def filled(boxes: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which boxes hold a point."""
    filled = [boxes[:, a:b].any(axis=1) for a, b in itertools.pairwise(starts)]
    return np.asarray(np.logical_and.reduce(filled), dtype=np.bool_)
