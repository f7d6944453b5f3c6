"""A question about an ensemble over cells: two values of what changes, and the trees at both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_all_inputs.bounds.forest import Box, Builder, CellTree, Forest, Layout
from fairkit_onnx.structure.cells import (
    Block,
    Listed,
    Numbers,
    encode_rows,
    keys_of,
    listed_block,
    make_blocks,
    numbers_block,
    numbers_of,
)
from fairkit_onnx.structure.linear import GroupThresholds, group_thresholds
from fairkit_onnx.structure.trees import TreeModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit_onnx.structure.encoded import Features
    from fairkit_onnx.structure.linear import LinearModel


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
        sizes = [1 if index == self.changing else block.size for index, block in enumerate(self.blocks)]
        ordered = [block.ordered or index == self.changing for index, block in enumerate(self.blocks)]
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
            index: self._builder.difference(root, first, second)
            for index, root in enumerate(self.roots)
            if root in touching
        }

    def places(self, first: int, second: int | None = None) -> list[int]:
        """Return by tree of `at(first)`, or of `gap(first, second)`, its root's place in `roots`."""
        if second is None:
            return [index for index, tree in enumerate(self.trees_at(first)) if not tree.constant]
        by_root = self.gap_trees_by_root(first, second)
        return [root for root, trees in by_root.items() for tree in trees if not tree.constant]

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
            "inputs": [list(bounds) for bounds in self.inputs],
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
    return layout.pack(tuple(1 if index == changing else 1 << cell for index, cell in enumerate(point)))


# The problem of a sum of trees, or of a weighted sum of features, over the cells of a domain.


POINTS = 256
"""Numbers of a column at which a witness is looked for."""
_UNIT = 2.0**-24


def problem_of(
    model: TreeModel | LinearModel, domains: Sequence[Numbers | Listed], changing: int, features: Features
) -> Problem:
    """Return a model over a domain; see `tree_problem`."""
    if isinstance(model, TreeModel):
        return tree_problem(model, domains, changing, features)
    return linear_problem(model, domains, changing, features)


def tree_problem(model: TreeModel, domains: Sequence[Numbers | Listed], changing: int, features: Features) -> Problem:
    """Return the model over the cells of a domain."""
    source = features.source
    encode, defaults = model.encoding(doubles=True), model.defaults(domains)
    blocks, tests = make_blocks(
        model.ensemble, source, domains, encode, defaults, model.kinds(), model.pieces(domains, features), model.grouped
    )
    ensemble = model.ensemble
    return _decided(
        model,
        model.reach(),
        blocks=blocks,
        changing=changing,
        tests=tests,
        yes=ensemble.yes.tolist(),
        no=ensemble.no.tolist(),
        value=ensemble.value.tolist(),
        roots=ensemble.roots.tolist(),
        base=ensemble.base,
        rounding=model.rounding,
    )


def _decided(model: TreeModel | LinearModel, reach: tuple[float, float], **sums: Any) -> Problem:
    """Return the problem of sums, turned so that larger ones are favorable, with the threshold of decisions.

    Where each group has a threshold, a problem of its own asks for flips: a tree of the groups' thresholds is
    subtracted from the sum, and the rest is compared with zero.
    """
    part, blocks = model.tail.groups, sums["blocks"]
    sums["inputs"] = [(feed.input.name, feed.input.kind, list(feed.columns)) for feed in model.scorer.feeds]
    rule: GroupThresholds | None = None
    threshold: float | None
    if part is None:
        direction, threshold, logistic = model.link(*reach)
    else:
        direction, rule, logistic = group_thresholds(model, blocks, *reach)
        threshold = None
    sums["value"] = [direction * value for value in sums["value"]]
    sums["base"] = direction * sums["base"]
    if rule is None:
        return Problem(**sums, threshold=threshold, logistic=logistic)
    tests, yes, no, value, roots = _tree(blocks, rule, len(sums["tests"]))
    ruled = {
        "tests": [*sums["tests"], *tests],
        "yes": [*sums["yes"], *yes],
        "no": [*sums["no"], *no],
        "value": [*sums["value"], *value],
        "roots": [*sums["roots"], *roots],
    }
    return Problem(**sums, threshold=0.0, logistic=logistic, ruled=Problem(**(sums | ruled), threshold=0.0))


def _tree(
    blocks: Sequence[Block], rule: GroupThresholds, start: int
) -> tuple[list[tuple[int, int]], list[int], list[int], list[float], list[int]]:
    """Return a tree, numbered from `start`, with a group's threshold, negated, in its leaves."""
    tests: list[tuple[int, int]] = []
    yes: list[int] = []
    no: list[int] = []
    value: list[float] = []

    def grow(table: NDArray[np.float64], cells: tuple[NDArray[np.int64], ...]) -> int:
        node = len(tests)
        tests.append((-1, 0))
        yes.append(-1)
        no.append(-1)
        value.append(0.0)
        if np.ptp(table) == 0:
            value[node] = -float(table.flat[0])
            return start + node
        axis = next(k for k in range(table.ndim) if (table != table.take([0], axis=k)).any())
        middle = len(cells[axis]) // 2
        parts = np.split(table, [middle], axis=axis)
        tests[node] = (rule.blocks[axis], sum(1 << int(cell) for cell in cells[axis][:middle]))
        for side, part, here in ((yes, parts[0], slice(None, middle)), (no, parts[1], slice(middle, None))):
            side[node] = grow(part, (*cells[:axis], cells[axis][here], *cells[axis + 1 :]))
        return start + node

    root = grow(rule.table, tuple(np.arange(size) for size in rule.table.shape))
    return tests, yes, no, value, [root]


def linear_problem(
    model: LinearModel, domains: Sequence[Numbers | Listed], changing: int, features: Features
) -> Problem:
    """Return the model over points of a domain: listed values, and so many numbers of each column with its ends."""
    encode, defaults = model.encoding(doubles=True), model.defaults(domains)
    pieces = model.pieces(domains, features)
    blocks = [_block(domain, model.kinds(), pieces) for domain in domains]
    of_column = {column: position for position, block in enumerate(blocks) for column in block.columns}
    owner = np.array([of_column.get(name or "", -1) for name in features.source])
    matrix, starts = encode_rows(blocks, encode, defaults)
    terms = matrix.astype(np.float64) * model.weights
    base = model.base + float(terms[0, owner < 0].sum())
    for index, block in enumerate(blocks):
        if block.ends is not None:
            _check_pulls(block, terms[starts[index] : starts[index + 1]][:, owner == index])
    parts = [
        terms[starts[position] : starts[position + 1]][:, owner == position].sum(axis=1)
        for position in range(len(blocks))
    ]
    reach = abs(base) + sum(
        float(np.abs(terms[starts[position] : starts[position + 1]][:, owner == position]).sum(axis=1).max(initial=0.0))
        for position in range(len(blocks))
    )
    rounding = 1.01 * (model.width + 4) * _UNIT * reach
    ends = sum(float(part.min()) for part in parts), sum(float(part.max()) for part in parts)
    tests, yes, no, value, roots = _trees(blocks, parts)
    return _decided(
        model,
        (base + ends[0] - rounding, base + ends[1] + rounding),
        blocks=blocks,
        changing=changing,
        tests=tests,
        yes=yes,
        no=no,
        value=value,
        roots=roots,
        base=base,
        rounding=rounding,
        points=True,
    )


def _check_pulls(block: Block, terms: NDArray[np.float64]) -> None:
    """Refuse features of one column of which some rise and others fall: no end has their largest sum.

    Each term keeps the order of the column between neighbouring points, or they are the ends of two pieces with no
    number between them.
    """
    assert block.ends is not None  # noqa: S101 -- a block of numbers
    count = int((~np.isnan(block.ends)).sum())
    moves = np.diff(terms[:count], axis=0)
    apart = np.flatnonzero((moves > 0).any(axis=1) & (moves < 0).any(axis=1))
    ends = block.ends[:count]
    following = (
        ends[:-1] + 1
        if block.whole
        else np.nextafter(ends[:-1].astype(np.float32 if block.single else np.float64), np.inf).astype(np.float64)
    )
    apart = apart[ends[1:][apart] > following[apart]]
    if len(apart):
        raise ModelError(
            f"all-inputs: the features that the model makes of {block.name!r} pull against each other between "
            f"{ends[apart[0]]:g} and {ends[apart[0] + 1]:g}, so that the ends do not bound their sum; choose a domain "
            f"without that, with all-inputs.domain.{block.name}=LOW:HIGH"
        )


def _block(domain: Numbers | Listed, kinds: Mapping[str, type], pieces: Mapping[str, NDArray[np.float64]]) -> Block:
    """Return points of a column, the ends of its pieces among them."""
    if isinstance(domain, Listed):
        return listed_block(domain)
    some = np.linspace(domain.low, domain.high, POINTS)
    if domain.whole:
        some = np.round(some) if domain.high - domain.low >= POINTS else np.arange(domain.low, domain.high + 1)
    tops, kind = pieces[domain.name], kinds[domain.name]
    firsts = numbers_of(keys_of(tops[:-1], kind, domain.whole) + 1, kind, domain.whole)
    return numbers_block(domain, np.concatenate([some, [domain.low], firsts, tops]), kind, points=True)


def _trees(
    blocks: Sequence[Block], parts: Sequence[NDArray[np.float64]]
) -> tuple[list[tuple[int, int]], list[int], list[int], list[float], list[int]]:
    """Return a tree for each block that has the block's part of the sum in its leaves."""
    tests: list[tuple[int, int]] = []
    yes: list[int] = []
    no: list[int] = []
    value: list[float] = []
    roots: list[int] = []
    for index, part in enumerate(parts):
        roots.append(len(tests))
        waiting = [(0, len(part), -1)]
        while waiting:
            first, end, parent = waiting.pop()
            node = len(tests)
            if parent >= 0 and yes[parent] < 0:
                yes[parent] = node
            elif parent >= 0:
                no[parent] = node
            yes.append(-1)
            no.append(-1)
            if np.ptp(part[first:end]) == 0:
                tests.append((-1, 0))
                value.append(float(part[first]))
                continue
            middle = (first + end) // 2
            tests.append((index, (1 << middle) - (1 << first) if blocks[index].ordered is False else (1 << middle) - 1))
            value.append(0.0)
            waiting += [(middle, end, node), (first, middle, node)]
    return tests, yes, no, value, roots
