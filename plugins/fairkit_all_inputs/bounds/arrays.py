"""What the compiled loops take: named tuples of arrays.

A box is one row of int64. An ordered block takes two entries, its first and last cell; any other block one bit for each
of its cells, in words of 63 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

DEEP = 512
"""Nodes that wait on the way through a tree, at most."""


class Grid(NamedTuple):
    """How boxes are written, by block."""

    slots: Ints  # where its entries begin, shape [B + 1]
    widths: Ints  # its words; 0 where it is ordered
    sizes: Ints  # its cells
    offset: Ints  # where its cells begin among all, one more than its cells apart, shape [B + 1]

    @property
    def widest(self) -> int:
        """The words of the widest set."""
        return max(1, int(self.widths.max(initial=0)))


class ForestArrays(NamedTuple):
    """Trees by node."""

    roots: Ints  # by tree
    block: Ints  # of a node's test; -1: a leaf
    cut: Ints
    yes: Ints  # nodes; a leaf's value; the largest value below
    no: Ints  # nodes; a leaf's value; the largest value below
    parent: Ints  # nodes; a leaf's value; the largest value below
    value: Floats  # nodes; a leaf's value; the largest value below
    high: Floats  # nodes; a leaf's value; the largest value below
    masks: Ints  # words


class Sums(NamedTuple):
    """Sums of trees: the trees of all, where those of each sum begin, shape [G + 1], and what is added to each, [G]."""

    trees: ForestArrays
    group: Ints
    bases: Floats

    @classmethod
    def of(cls, forests: Sequence[Any], grid: Grid) -> Sums:
        """Join forests, or merged ones."""
        parts = [one.arrays for one in forests]
        starts = np.concatenate([[0], np.cumsum([len(one.block) for one in parts])])
        words = np.concatenate([[0], np.cumsum([len(one.masks) for one in parts])])
        group = np.concatenate([[0], np.cumsum([len(one.roots) for one in parts])]).astype(np.int64)
        columns: dict[str, list[Any]] = {name: [] for name in ForestArrays._fields}
        for one, start, word in zip(parts, starts, words, strict=False):
            listed = (one.block >= 0) & (grid.widths > 0)[one.block]
            for name in ("roots", "yes", "no", "parent"):
                nodes = getattr(one, name)
                columns[name].append(np.where(nodes >= 0, nodes + start, -1))
            columns["cut"].append(one.cut + np.where(listed, word, 0))
            for name in ("block", "value", "high", "masks"):
                columns[name].append(getattr(one, name))
        trees = ForestArrays(*(np.concatenate(some) for some in columns.values()))
        return cls(trees, group, np.array([one.base for one in forests]))


class Objective(NamedTuple):
    """What is maximised, and the threshold of a flip."""

    kind: int
    threshold: float


class Boxes(NamedTuple):
    """Boxes by number: themselves; bounds; block, cut and first child of their splits (-1: none), and its mask."""

    cells: Ints
    bounds: Floats
    split: Ints
    masks: Ints

    @classmethod
    def of(cls, size: int, width: int, widest: int, old: Boxes | None = None) -> Boxes:
        """Make room for so many boxes, and copy the old ones."""
        made = cls(
            np.zeros((size, width), dtype=np.int64), np.zeros(size), np.full((size, 3), -1, dtype=np.int64),
            np.zeros((size, widest), dtype=np.int64),
        )  # fmt: skip
        for new, before in zip(made, old or (), strict=False):
            new[: len(before)] = before
        return made


class Open(NamedTuple):
    """The open boxes: a heap of numbers; how many boxes there are, and are open; the largest bound of a closed one."""

    heap: Ints
    state: Ints
    closed: Floats


class Best(NamedTuple):
    """The best value, with the largest bound of a box that is neither near nor far, shape [2]; and its point."""

    value: Floats
    box: Ints


class Scratch(NamedTuple):
    """Room of the loops: waiting nodes; what cuts lose; what trees are worth; sets to split by; bounds of sums."""

    stack: Ints
    drops: Floats
    order: Floats
    block: Ints
    drop: Floats
    masks: Ints
    ends: Floats

    @classmethod
    def of(cls, trees: int, sums: int, grid: Grid) -> Scratch:
        """Make room for the largest number of trees of a sum, and for sums."""
        rows = 4 * max(trees, 1) + 64
        return cls(
            np.empty(DEEP, np.int64), np.zeros((2, grid.offset[-1] + 1)), np.empty(max(trees, 1)),
            np.empty(rows, np.int64), np.empty(rows), np.empty((rows, grid.widest), np.int64), np.zeros(sums),
        )  # fmt: skip
