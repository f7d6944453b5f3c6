"""Proof logs: the tree of splits of a search, small enough for a certificate, and its check without a search."""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.support.files import write_atomic
from fairkit_all_inputs.bounds.forest import BITS
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, domain_record, plain
from fairkit_onnx.structure.cells import encode_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import CellTree, Layout
    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_all_inputs.bounds.searching import Answer, Groups, Splits
    from fairkit_onnx.structure.cells import Block
    from fairkit_onnx.structure.encoded import Features
    from fairkit_onnx.structure.trees import TreeModel

    Part = tuple[float, dict[int, int]]


MOST_TEXT = 2_000_000
"""A longer log is left out."""

Log = Mapping[str, Sequence[Any]]
"""By pair, as ``first,second``: the splits in the order first box, its `yes` side, its `no` side.

A split is a block and the cells of its `yes` side: ``[block, cut]`` for the cells below a cut, ``[block, "hex bits"]``
for a set. 0 closes a box. Before an entry may stand which trees are
added up in that box and all below, as places in the roots:
``{"gap": [[0, 5], ...], "first": ..., "less": ..., "more": ...}``; other trees are bounded one by one."""


def log_of(problem: Problem, answer: Answer) -> Log:
    """Return the splits that prove the upper bound of an answer; of points only the bound of everything holds."""
    return {
        ",".join(map(str, key)): _preorder(problem.layout, splits, answer.upper, whole=problem.points)
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
            record.append({name: [list(item) for item in some] for name, some in splits.groups[item].items()})
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
        stream = zlib.decompressobj()
        raw = stream.decompress(base64.b85decode(text), 40 * MOST_TEXT)
        log = json.loads(raw)
    except (ValueError, zlib.error, RecursionError) as error:
        raise DataError(f"the proof log cannot be read: {error}") from error
    if stream.unconsumed_tail or not isinstance(log, dict):
        raise DataError("the proof log cannot be read: it is no log, or too large")
    return log


def boxes_of(problem: Problem, entries: Sequence[Any]) -> list[tuple[NDArray[np.bool_], Groups]]:
    """Return the closed boxes of a pair's log, by the trees that are added up in them.

    Each is one bit for each cell of the free blocks, shape [n, cells].
    """
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(int)
    waiting = [(np.ones(starts[-1], dtype=np.bool_), 0)]
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
        left, right = box.copy(), box.copy()
        left[cells] &= side
        right[cells] &= ~side
        waiting += [(right, mine), (left, mine)]
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
                some_kept = some[filled(some, starts)]
                if len(some_kept):
                    upper = max(upper, float(trees.bounds(some_kept, groups).max()))
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


MOST_PARTS = 5_000
"""A sum of trees with more leaves is refused."""
_NAMES = frozenset({"first", "less", "more", "gap"})


def checked(problem: Problem, record: Mapping[Any, Any]) -> Groups:
    """Return the groups of an entry of a log."""
    for name, groups in record.items():
        places = [root for group in groups for root in group]
        right = all(type(root) is int and 0 <= root < len(problem.roots) for root in places)
        if name not in _NAMES or not right or len(set(places)) < len(places):
            raise DataError(f"the proof log adds up trees that are not there, or twice, as {name!r}")
    return record


def largest(trees: Sequence[CellTree], boxes: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.float64]:
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


def _parts(tree: CellTree, reach: Sequence[int]) -> list[Part]:
    """Return the leaves of a tree that are in reach: the value, and the cells of each block that lead there."""
    parts: list[Part] = []
    waiting: list[tuple[int, dict[int, int]]] = [(0, {})]
    while waiting:
        node, needs = waiting.pop()
        block = tree.block[node]
        if block < 0:
            parts.append((tree.value[node], needs))
            continue
        for cells, child in ((tree.cells[node], tree.yes[node]), (tree.others[node], tree.no[node])):
            left = needs.get(block, reach[block]) & cells
            if left:
                waiting.append((child, {**needs, block: left}))
    return parts


def _added(left: Sequence[Part], right: Sequence[Part]) -> list[Part]:
    """Return the leaves of the sum of two trees."""
    sums = []
    for value, needs in left:
        for more, others in right:
            both = needs | {b: needs[b] & cells if b in needs else cells for b, cells in others.items()}
            if all(both.values()):
                sums.append((value + more, both))
    if len(sums) > MOST_PARTS:
        raise DataError(f"the proof log adds up trees to more than {MOST_PARTS} leaves")
    return sums


def _largest_of(parts: Sequence[Part], boxes: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest value of the leaves that each box reaches, shape [n]."""
    best = np.full(len(boxes), -np.inf)
    rows = np.arange(len(boxes))
    for value, needs in sorted(parts, key=lambda part: -part[0]):
        some = rows
        for block, cells in needs.items():
            places = starts[block] + np.array([c for c in range(cells.bit_length()) if cells >> c & 1])
            some = some[boxes[np.ix_(some, places)].any(axis=1)]
        best[some] = value
        rows = rows[best[rows] == -np.inf]
        if not len(rows):
            break
    return best


class Trees:
    """The trees of a question about one pair of values."""

    def __init__(self, problem: Problem, kind: int, pair: tuple[int, int]) -> None:
        self.problem, self.kind = problem, kind
        self.starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(np.int64)
        self.gap = problem.gap_trees_by_root(*pair)
        firsts = seconds = {}
        if kind != SCORE:
            firsts = {index: [tree] for index, tree in enumerate(problem.trees_at(pair[0]))}
            seconds = {index: [tree] for index, tree in enumerate(problem.trees_at(pair[1]))}
        self.first, self.more = firsts, seconds
        self.less = {root: [tree.negative for tree in trees] for root, trees in seconds.items()}

    def _most(
        self, trees: Mapping[int, Sequence[CellTree]], boxes: NDArray[np.bool_], groups: Sequence[Sequence[int]]
    ) -> NDArray[np.float64]:
        """Return an upper bound of the sum of trees in each box, those of a group taken together."""
        together = {root for group in groups for root in group}
        alone = [tree for root, some in trees.items() if root not in together for tree in some]
        total = largest(alone, boxes, self.starts)
        if not groups:
            return total
        everything = np.asarray(boxes.any(axis=0))
        reach = [
            sum(1 << c for c in np.flatnonzero(everything[a:b]).tolist())
            for a, b in zip(self.starts, self.starts[1:], strict=False)
        ]
        for group in groups:
            parts: list[Part] = [(0.0, {})]
            for place in group:
                for tree in trees.get(place, ()):
                    parts = _added(parts, _parts(tree, reach))
            total += _largest_of(parts, boxes, self.starts)
        return total

    def bounds(self, boxes: NDArray[np.bool_], groups: Groups) -> NDArray[np.float64]:
        """Return an upper bound of the objective in each box, shape [n]."""
        by_forest = {name: groups.get(name, ()) for name in _NAMES}
        gap = self._most(self.gap, boxes, by_forest["gap"])
        if self.kind == SCORE:
            return gap
        base = self.problem.base
        most_first = base + self._most(self.first, boxes, by_forest["first"])
        least_second = base - self._most(self.less, boxes, by_forest["less"])
        if self.kind == FLIP:
            threshold = self.problem.threshold if self.problem.threshold is not None else 0.0
            result = np.minimum(np.minimum(most_first - threshold, threshold - least_second), gap / 2.0)
            result[self._still(boxes, gap)] = -np.inf
            return result
        assert self.kind == CHANCE  # noqa: S101 -- the third question
        most_second = base + self._most(self.more, boxes, by_forest["more"])
        second = np.maximum(least_second, np.minimum(np.minimum(-gap / 2.0, most_second), most_first - gap))
        return _sigmoid(np.minimum(most_first, second + gap)) - _sigmoid(second)

    def _still(self, boxes: NDArray[np.bool_], gap: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the boxes in which no tree differs: the two sums are the same, rounded alike."""
        rows = np.flatnonzero(gap <= 0.0)
        for tree in (tree for some in self.gap.values() for tree in some):
            for signed_tree in (tree, tree.negative):
                rows = rows[largest([signed_tree], boxes[rows], self.starts) == 0.0] if len(rows) else rows
        return rows


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 0.5 * (1.0 + np.tanh(0.5 * values))
    return result


# The file of `save_proof`: what a checker without fairkit needs beside the ONNX file and the report.


SCHEMA = "fairkit.all-inputs/3"


def proof_file(problem: Problem, model: TreeModel, features: Features, logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file as plain JSON values; floats that a digest is about are written in hexadecimal digits."""
    same = np.array_equal(np.asarray(problem.value), model.ensemble.value)
    return {
        "schema": SCHEMA,
        "model_sha256": model.scorer.info.sha256,
        "problem_sha256": problem.sha256,
        "trees": list(model.outputs),
        "inputs": [list(bounds) for bounds in problem.inputs],
        "changing": problem.changing,
        "domain": [domain_record(block) for block in problem.blocks],
        "features": _features(problem, model, features),
        "direction": 1 if same else -1,
        "base": float(problem.base).hex(),
        "threshold": None if problem.threshold is None else float(problem.threshold).hex(),
        "rounding": float(problem.rounding).hex(),
        "logs": dict(logs),
    }


def save_proof(path: str, problem: Problem, model: TreeModel, features: Features, logs: Mapping[str, Any]) -> None:
    """Write the file."""
    record = proof_file(problem, model, features, logs)
    write_atomic(Path(path), json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")


def _features(problem: Problem, model: TreeModel, features: Features) -> dict[str, list[Any]]:
    """Return by feature that a tree reads its block (-1: a constant), and each cell's least and largest value."""
    tested = sorted(set(model.ensemble.feature[model.ensemble.mode > 0].tolist()))
    of_column = {column: position for position, block in enumerate(problem.blocks) for column in block.columns}
    rows: list[Block] = []
    cells: list[NDArray[np.int64]] = []
    for block in problem.blocks:
        made, cell = _at_ends(block)
        rows.append(made)
        cells.append(cell)
    defaults = {name: plain(values[0]) for block in rows for name, values in block.values.items()}
    matrix, starts = encode_rows(rows, model.encoding(doubles=True), defaults)
    ranges = {}
    for feature in tested:
        index = of_column.get(features.source[feature] or "", -1)
        if index < 0:
            value = float(matrix[0, feature]).hex()
            ranges[str(feature)] = [-1, [value], [value]]
            continue
        values = matrix[starts[index] : starts[index + 1], feature].astype(np.float64)
        low, high = np.full(problem.blocks[index].size, np.inf), np.full(problem.blocks[index].size, -np.inf)
        np.minimum.at(low, cells[index], values)
        np.maximum.at(high, cells[index], values)
        ranges[str(feature)] = [index, _hex(low), _hex(high)]
    return ranges


def _hex(values: Sequence[float] | NDArray[np.float64]) -> list[str]:
    return [float(value).hex() for value in values]


def _at_ends(block: Block) -> tuple[Block, NDArray[np.int64]]:
    """Return a block of every listed value, or of both ends of each cell of numbers; and the cell of each."""
    if block.ends is None:
        values = {}
        for index, name in enumerate(block.columns):
            some = [choice[index] for choice in block.choices]
            text = any(isinstance(value, str) or value is None for value in some)
            values[name] = np.array(some, dtype=object if text else None)
        return replace(block, values=values), np.array(list(block.members.values()), dtype=np.int64)
    first, last = block.intervals
    missing = np.full(block.size - len(last), np.nan)
    ends = np.concatenate([first, missing, last, missing])
    return replace(block, values={block.columns[0]: ends}), np.tile(np.arange(block.size), 2)
