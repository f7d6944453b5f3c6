"""A question about an ensemble over cells: two values of what changes, and the trees at both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_all_inputs.bounds.forest import Box, Builder, CellTree, Forest, Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_onnx.structure.domain import Block

SCORE, FLIP, CHANCE = 0, 1, 2
"""What is maximised: f - g; min(f - t, t - g) for the threshold t; f - g after 1 / (1 + exp(-x))."""
FIRST, LESS, MORE, GAP = 0, 1, 2, 3
"""Their sums: f, -g, g and f - g."""


@dataclass(frozen=True, eq=False)
class Problem:
    """An ensemble over the cells of blocks, one of which changes."""

    blocks: Sequence[Block]  # the blocks, the changing one among them
    changing: int  # its number
    tests: Sequence[tuple[int, int]]
    yes: Sequence[int]
    no: Sequence[int]
    value: Sequence[float]
    roots: Sequence[int]
    base: float
    rounding: float  # by how much the runtime's float32 sum may differ from the sum of the leaves
    threshold: float | None
    logistic: bool = False  # whether the score is the logistic function of the sum
    points: bool = False
    ruled: Problem | None = None
    inputs: Sequence[Sequence[Any]] = ()  # of the file: name, kind, and the columns that it takes

    def of(self, kind: int) -> Problem:
        """Return the problem that asks a question."""
        return self.ruled if kind == FLIP and self.ruled is not None else self

    @cached_property
    def layout(self) -> Layout:
        """How boxes of the free blocks are written; the changing block has one cell in it."""
        sizes = [1 if place == self.changing else block.size for place, block in enumerate(self.blocks)]
        ordered = [block.ordered or place == self.changing for place, block in enumerate(self.blocks)]
        return Layout.of(sizes, ordered)

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The ordered pairs of cells of the changing block."""
        cells = range(self.blocks[self.changing].size)
        return [(first, second) for first in cells for second in cells if first != second]

    @cached_property
    def _builder(self) -> Builder:
        full = tuple((1 << block.size) - 1 for block in self.blocks)
        return Builder(self.tests, self.yes, self.no, self.value, full, self.changing)

    @cached_property
    def touching(self) -> list[int]:
        """The roots of trees that split on the changing block."""
        return [root for root in self.roots if self._builder.touches(root)]

    @cached_property
    def widest(self) -> float:
        """At least the largest change, without a search: what the trees that split on the changing block range over."""
        return sum(float(np.ptp([self.value[leaf] for leaf in self.leaves_of(root)])) for root in self.touching)

    def leaves_of(self, root: int) -> list[int]:
        """Return the leaves of a tree, each once."""
        waiting, seen, leaves = [root], {root}, []
        while waiting:
            node = waiting.pop()
            if self.tests[node][0] < 0:
                leaves.append(node)
                continue
            children = {self.yes[node], self.no[node]} - seen
            seen |= children
            waiting += children
        return leaves

    @cached_property
    def _restricted(self) -> dict[int, Forest]:
        return {}

    def at(self, cell: int) -> Forest:
        """Return the trees with the changing block at a cell."""
        if cell not in self._restricted:
            self._restricted[cell] = Forest.of(self.trees_at(cell), self.layout, self.base)
        return self._restricted[cell]

    def trees_at(self, cell: int) -> list[CellTree]:
        """Return the trees one by one."""
        return [self._builder.restricted(root, cell) for root in self.roots]

    @cached_property
    def _differences(self) -> dict[tuple[int, int], Forest]:
        return {}

    def gap(self, first: int, second: int) -> Forest:
        """Return the trees at one cell of the changing block less those at another."""
        if (first, second) not in self._differences:
            if (second, first) in self._differences:
                self._differences[first, second] = self._differences[second, first].negative
            else:
                trees = self.gap_trees(first, second)
                self._differences[first, second] = Forest.of(trees, self.layout)
        return self._differences[first, second]

    def gap_trees(self, first: int, second: int) -> list[CellTree]:
        """Return the differences one by one."""
        return [tree for trees in self.gap_trees_by_root(first, second).values() for tree in trees]

    def gap_trees_by_root(self, first: int, second: int) -> dict[int, list[CellTree]]:
        """Return the differences by the place of their root: mostly one tree."""
        touching = set(self.touching)
        return {
            place: self._builder.difference(root, first, second)
            for place, root in enumerate(self.roots)
            if root in touching
        }

    def places(self, first: int, second: int | None = None) -> list[int]:
        """Return by tree of `at(first)`, or of `gap(first, second)`, its root's place in `roots`."""
        if second is None:
            return [place for place, tree in enumerate(self.trees_at(first)) if not tree.constant]
        by_root = self.gap_trees_by_root(first, second)
        return [place for place, trees in by_root.items() for tree in trees if not tree.constant]

    def forests(self, kind: int, pair: Sequence[int]) -> list[Forest]:
        """Return the sums of a question: the first, the second negated, the second, and the difference."""
        first, second = pair
        if kind == SCORE:
            return [self.empty, self.empty, self.empty, self.gap(first, second)]
        more = self.at(second)
        return [self.at(first), more.negative, more, self.gap(first, second)]

    @cached_property
    def empty(self) -> Forest:
        """No trees."""
        return Forest.of([], self.layout)

    @cached_property
    def sha256(self) -> str:
        """The digest of all that a proof is about: cells, trees, threshold, rounding."""
        record = {
            "sizes": [block.size for block in self.blocks],
            "changing": self.changing,
            "tests": [[block, f"{cells & ((1 << self.blocks[block].size) - 1):x}" if block >= 0 else ""]
                      for block, cells in self.tests],
            "yes": list(self.yes),
            "no": list(self.no),
            "value": [float(value).hex() for value in self.value],
            "roots": list(self.roots),
            "numbers": [float(self.base).hex(), float(self.rounding).hex(), None if self.threshold is None
                        else float(self.threshold).hex()],
            "domain": [domain_record(block) for block in self.blocks],
            "inputs": [list(one) for one in self.inputs],
        }  # fmt: skip
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

    def sums(self, points: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum at points given by a cell of each block, shape [n, B]."""
        sums = np.full(len(points), self.base)
        blocks, _ = zip(*self.tests, strict=True)
        block = np.array(blocks)
        masks = [np.array([cells >> c & 1 for c in range(self.blocks[b].size)], dtype=bool) if b >= 0 else None
                 for b, cells in self.tests]  # fmt: skip
        yes, no, value = np.array(self.yes), np.array(self.no), np.array(self.value)
        for root in self.roots:
            waiting = [(root, np.arange(len(points)))]
            while waiting:
                node, rows = waiting.pop()
                if not len(rows):
                    continue
                if block[node] < 0:
                    sums[rows] += value[node]
                    continue
                mask = masks[node]
                assert mask is not None  # noqa: S101 -- an inner node has one
                side = mask[points[rows, block[node]]]
                waiting += [(int(yes[node]), rows[side]), (int(no[node]), rows[~side])]
        return sums

    def raw(self, point: Sequence[int]) -> dict[str, Any]:
        """Return raw values of a point, by column."""
        return {
            column: plain(block.values[column][cell])
            for block, cell in zip(self.blocks, point, strict=True)
            for column in block.columns
        }


def domain_record(block: Block) -> dict[str, Any]:
    """Return a block's cells as plain JSON values: the ends of numbers, or the listed values with their cells."""
    record: dict[str, Any] = {"name": block.name, "columns": list(block.columns)}
    if block.ends is not None:
        ends = [float(end).hex() for end in block.ends]
        return record | {"low": float(block.low).hex(), "ends": ends, "whole": block.whole, "single": block.single}
    members = [[list(key), cell] for key, cell in block.members.items()]
    return record | {"members": members, "choices": [[plain(value) for value in some] for some in block.choices]}


def plain(value: Any) -> Any:
    """Return a raw value as one of Python's; a missing one is None."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and value != value:  # noqa: PLR0124 -- NaN
        return None
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def point_of(layout: Layout, packed: NDArray[np.int64], changing: int, cell: int) -> tuple[int, ...]:
    """Return the cells of a box of one point, with a cell of the changing block."""
    box: Box = layout.unpack(packed)
    cells = [mask.bit_length() - 1 for mask in box]
    cells[changing] = cell
    return tuple(cells)


def pack_point(layout: Layout, point: Sequence[int], changing: int) -> NDArray[np.int64]:
    """Return the box of one point."""
    return layout.pack(tuple(1 if place == changing else 1 << cell for place, cell in enumerate(point)))
