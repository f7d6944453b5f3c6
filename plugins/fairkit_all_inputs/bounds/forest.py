"""Trees over cells: every test of a tree is a set of cells of one block, and two trees subtract as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


BITS = 63
"""Cells in one word of a box."""
MOST_NODES = 20_000
"""A difference of two trees with more nodes stays two trees."""

Box = tuple[int, ...]
"""For each block, the cells that are left, as the bits of one number."""


@dataclass(frozen=True, slots=True)
class CellTree:
    """A tree by nodes: a test is a block, the cells that come here and go to `yes`, and those that go to `no`."""

    block: list[int]  # the test's, by node: 0 is the root, children come after it; -1 at a leaf
    cells: list[int]  # those that go to `yes`
    others: list[int]  # those that go to `no`
    yes: list[int]  # a node
    no: list[int]  # a node
    value: list[float]  # a leaf's

    @property
    def negative(self) -> CellTree:
        """The tree with every value negated."""
        return replace(self, value=[-value for value in self.value])

    @property
    def constant(self) -> bool:
        """Whether it is one leaf."""
        return len(self.block) == 1

    def at(self, point: Sequence[int]) -> float:
        """Return its value at a cell of each block."""
        node = 0
        while self.block[node] >= 0:
            node = (self.yes if self.cells[node] >> point[self.block[node]] & 1 else self.no)[node]
        return self.value[node]


class Builder:
    """Makes trees over the cells of the free blocks, with the changing block set to one of its cells."""

    def __init__(
        self,
        tests: Sequence[tuple[int, int]],
        yes: Sequence[int],
        no: Sequence[int],
        value: Sequence[float],
        full: Box,
        changing: int,
    ) -> None:
        self.tests, self.yes, self.no, self.value = tests, yes, no, value
        self.full, self.changing = full, changing

    def touches(self, root: int) -> bool:
        """Tell whether a tree splits on the changing block."""
        waiting, seen = [root], set()
        while waiting:
            node = waiting.pop()
            block = self.tests[node][0]
            if block == self.changing:
                return True
            if block >= 0 and node not in seen:
                seen.add(node)
                waiting += [self.yes[node], self.no[node]]
        return False

    def restricted(self, root: int, cell: int) -> CellTree:
        """Return a tree with the changing block at a cell."""
        return self._grown([(root, cell)], lambda values: values[0])

    def difference(self, root: int, first: int, second: int) -> list[CellTree]:
        """Return the tree at one cell of the changing block less itself at another; two if too large."""
        try:
            return [self._grown([(root, first), (root, second)], lambda values: values[0] - values[1])]
        except _TooLargeError:
            minus = self.restricted(root, second)
            return [self.restricted(root, first), minus.negative]

    def _settled(self, node: int, cell: int, box: Box) -> int:
        """Go down while the box leaves one side."""
        for _ in range(len(self.tests) + 1):
            block, cells = self.tests[node]
            if block < 0:
                return node
            left = 1 << cell if block == self.changing else box[block]
            if not left & ~cells:
                node = self.yes[node]
            elif not left & cells:
                node = self.no[node]
            else:
                return node
        raise ValueError("a tree's branches lead in a circle")

    def _grown(self, nodes: list[tuple[int, int]], joined: Callable[[list[float]], float]) -> CellTree:
        tree = CellTree([], [], [], [], [], [])
        self._grow(tree, nodes, self.full, joined, {})
        return tree

    def _grow(
        self,
        tree: CellTree,
        nodes: list[tuple[int, int]],
        box: Box,
        joined: Callable[[list[float]], float],
        memory: dict[Any, bool],
    ) -> int:
        if len(tree.block) > MOST_NODES:
            raise _TooLargeError
        nodes = [(self._settled(node, cell, box), cell) for node, cell in nodes]
        index = len(tree.block)
        for numbers in (tree.block, tree.cells, tree.others, tree.yes, tree.no):
            numbers.append(-1)
        tree.value.append(0.0)
        same = len(nodes) == 2 and nodes[0][0] == nodes[1][0]
        if same and not self._below(nodes[0][0], memory):
            return index  # the two cancel
        inner = next((node for node, _ in nodes if self.tests[node][0] >= 0), None)
        if inner is None:
            tree.value[index] = joined([self.value[node] for node, _ in nodes])
            return index
        block, cells = self._chained(inner, box)
        yes_box = (*box[:block], box[block] & cells, *box[block + 1 :])
        no_box = (*box[:block], box[block] & ~cells, *box[block + 1 :])
        left = self._grow(tree, nodes, yes_box, joined, memory)
        right = self._grow(tree, nodes, no_box, joined, memory)
        if tree.block[left] < 0 and tree.block[right] < 0 and tree.value[left] == tree.value[right]:
            tree.value[index] = tree.value[left]
            for numbers in (tree.block, tree.cells, tree.others, tree.yes, tree.no):
                del numbers[index + 1 :]
            del tree.value[index + 1 :]
            return index
        tree.block[index], tree.yes[index], tree.no[index] = block, left, right
        tree.cells[index], tree.others[index] = yes_box[block], no_box[block]
        return index

    def _below(self, node: int, memory: dict[Any, bool]) -> bool:
        if node not in memory:
            memory[node] = self.touches(node)
        return memory[node]

    def _chained(self, node: int, box: Box) -> tuple[int, int]:
        """Read ``x in {a, b, ...}``, written as a chain of tests whose `yes` branches meet, as one test."""
        block, cells = self.tests[node]
        target, following = self.yes[node], self.no[node]
        while self.tests[following][0] == block and self.yes[following] == target:
            cells |= self.tests[following][1]
            following = self.no[following]
        if not box[block] & ~cells:  # the chain takes all that is left: its first link alone splits
            cells = self.tests[node][1]
        return block, cells


class _TooLargeError(Exception):
    """A difference has too many nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where each block lies in a box of words."""

    sizes: NDArray[np.int64]  # cells of each block
    ordered: NDArray[np.bool_]  # which blocks are intervals of cells
    place: NDArray[np.int64]  # where a block's entries begin, shape [B]
    words: NDArray[np.int64]

    @classmethod
    def of(cls, sizes: Sequence[int], ordered: Sequence[bool]) -> Layout:
        """Lay out blocks."""
        widths = [0 if flat else -(-size // BITS) for size, flat in zip(sizes, ordered, strict=True)]
        takes = np.array([2 if count == 0 else count for count in widths], dtype=np.int64)
        slots = np.concatenate([[0], np.cumsum(takes)]).astype(np.int64)
        return cls(
            np.array(sizes, dtype=np.int64), np.array(ordered, dtype=np.bool_), slots, np.array(widths, dtype=np.int64)
        )

    @property
    def grid(self) -> Grid:
        """What the loops take."""
        offset = np.concatenate([[0], np.cumsum(self.sizes + 1)]).astype(np.int64)
        return Grid(self.place, self.words, self.sizes, offset)

    @property
    def width(self) -> int:
        """The entries of a box."""
        return int(self.place[-1])

    def pack(self, box: Box) -> NDArray[np.int64]:
        """Write a box as words; of an ordered block its hull."""
        packed = np.zeros(self.width, dtype=np.int64)
        for block, cells in enumerate(box):
            at = int(self.place[block])
            if self.words[block] == 0:
                packed[at], packed[at + 1] = (cells & -cells).bit_length() - 1, cells.bit_length() - 1
            else:
                for word in range(int(self.words[block])):
                    packed[at + word] = cells >> (BITS * word) & ((1 << BITS) - 1)
        return packed

    def unpack(self, packed: NDArray[np.int64]) -> Box:
        """Read what `pack` wrote."""
        cells_by_block = []
        for block in range(len(self.sizes)):
            at = int(self.place[block])
            if self.words[block] == 0:
                low, high = int(packed[at]), int(packed[at + 1])
                cells_by_block.append(((1 << (high + 1)) - 1) & ~((1 << low) - 1) if high >= low else 0)
            else:
                places = range(int(self.words[block]))
                cells_by_block.append(sum(int(packed[at + word]) << (BITS * word) for word in places))
        return tuple(cells_by_block)

    @property
    def full(self) -> Box:
        """The box of everything."""
        return tuple((1 << int(size)) - 1 for size in self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees as the arrays that the loops read (see `fairkit_all_inputs.bounds.kernels`)."""

    roots: NDArray[np.int64]
    block: NDArray[np.int64]
    cut: NDArray[np.int64]
    yes: NDArray[np.int64]
    no: NDArray[np.int64]
    parent: NDArray[np.int64]
    value: NDArray[np.float64]
    high: NDArray[np.float64]
    low: NDArray[np.float64]
    masks: NDArray[np.int64]
    base: float
    moved: bool = False
    """Whether a tree of one leaf that is not 0 is part of `base`."""

    @classmethod
    def of(cls, trees: Sequence[CellTree], layout: Layout, base: float = 0.0) -> Forest:
        """Join trees; the constant ones become part of `base`."""
        constants = [tree.value[0] for tree in trees if tree.constant]
        base += float(sum(constants))
        trees = [tree for tree in trees if not tree.constant]
        starts = np.concatenate([[0], np.cumsum([len(tree.block) for tree in trees])]).astype(np.int64)
        block = np.array([b for tree in trees for b in tree.block], dtype=np.int64)
        yes, no = (
            np.array([start + child if child >= 0 else -1 for tree, start in zip(trees, starts, strict=False)
                      for child in getattr(tree, side)], dtype=np.int64)
            for side in ("yes", "no")
        )  # fmt: skip
        value = np.array([v for tree in trees for v in tree.value], dtype=np.float64)
        cut = np.zeros(len(block), dtype=np.int64)
        masks: list[int] = []
        seen: dict[tuple[int, int, int], int] = {}
        sides = [pair for tree in trees for pair in zip(tree.cells, tree.others, strict=True)]
        for node, (b, pair) in enumerate(zip(block.tolist(), sides, strict=True)):
            mine, others = pair
            if b < 0:
                continue
            if layout.words[b] == 0:
                if mine & -mine > others & -others:  # `yes` has the cells from some place on: turned round
                    mine, others = others, mine
                    yes[node], no[node] = no[node], yes[node]
                cut[node] = (others & -others).bit_length() - 1
                continue
            if (b, mine, others) not in seen:
                seen[b, mine, others] = len(masks)
                for side in (mine, others):
                    masks += [side >> (BITS * w) & ((1 << BITS) - 1) for w in range(int(layout.words[b]))]
            cut[node] = seen[b, mine, others]
        parent = np.full(len(block), -1, dtype=np.int64)
        inner = np.flatnonzero(block >= 0)
        parent[yes[inner]], parent[no[inner]] = inner, inner
        high, low = value.copy(), value.copy()
        for node in inner[::-1].tolist():  # children come after their parents
            high[node] = max(high[yes[node]], high[no[node]])
            low[node] = min(low[yes[node]], low[no[node]])
        return cls(
            starts[:-1],
            block,
            cut,
            yes,
            no,
            parent,
            value,
            high,
            low,
            np.array(masks or [0], dtype=np.int64),
            base,
            any(constants),
        )

    @property
    def negative(self) -> Forest:
        """The trees with every value negated."""
        return Forest(
            self.roots, self.block, self.cut, self.yes, self.no, self.parent, -self.value, -self.low, -self.high,
            self.masks, -self.base, self.moved,
        )  # fmt: skip

    @property
    def arrays(self) -> ForestArrays:
        """What the loops take."""
        return ForestArrays(
            self.roots, self.block, self.cut, self.yes, self.no, self.parent, self.value, self.high, self.masks
        )


# What the compiled loops take: named tuples of arrays.


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
    yes: Ints  # the node where the test holds
    no: Ints  # where it fails
    parent: Ints  # the node above
    value: Floats  # a leaf's
    high: Floats  # the largest below
    masks: Ints  # words


class Sums(NamedTuple):
    """Sums of trees: the trees of all, where those of each sum begin, shape [G + 1], and what is added to each, [G]."""

    trees: ForestArrays
    group: Ints
    bases: Floats

    @classmethod
    def of(cls, forests: Sequence[Any], grid: Grid) -> Sums:
        """Join forests, or merged ones."""
        parts = [forest.arrays for forest in forests]
        starts = np.concatenate([[0], np.cumsum([len(part.block) for part in parts])])
        offsets = np.concatenate([[0], np.cumsum([len(part.masks) for part in parts])])
        group = np.concatenate([[0], np.cumsum([len(part.roots) for part in parts])]).astype(np.int64)
        columns: dict[str, list[Any]] = {name: [] for name in ForestArrays._fields}
        for one, start, word in zip(parts, starts, offsets, strict=False):
            listed = (one.block >= 0) & (grid.widths > 0)[one.block]
            for name in ("roots", "yes", "no", "parent"):
                nodes = getattr(one, name)
                columns[name].append(np.where(nodes >= 0, nodes + start, -1))
            columns["cut"].append(one.cut + np.where(listed, word, 0))
            for name in ("block", "value", "high", "masks"):
                columns[name].append(getattr(one, name))
        trees = ForestArrays(*(np.concatenate(some) for some in columns.values()))
        return cls(trees, group, np.array([forest.base for forest in forests]))


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
