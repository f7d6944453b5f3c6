"""Trees that are merged in a box: the largest value of a sum of two trees is at most the sum of their largest values.

Inside a box most branches of a tree are out of reach. What is left of two trees has few enough leaves to be one tree,
whose largest value is the largest of the sum at one point: two trees that want different things no longer add up.
(H. Chen et al. 2019 merge trees of the whole domain; here those of each box that stays open are merged anew.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.forest import DEEP, ForestArrays
from fairkit_all_inputs.bounds.kernels import _sides, _walked, most, narrow, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import Forest, Grid

LEAVES = 256
"""A merged tree has at most so many leaves."""
LEAST = 1e-9
"""Two trees whose sum is smaller by less are not merged."""


@numba.njit(cache=True, nogil=True)
def meet(left: Any, right: Any, grid: Any) -> Any:
    """Tell whether two boxes have a point in common."""
    slots, widths = grid.slots, grid.widths
    for b in range(len(widths)):
        at = slots[b]
        if widths[b] == 0:
            if max(left[at], right[at]) > min(left[at + 1], right[at + 1]):
                return False
        else:
            some = False
            for w in range(widths[b]):
                some = some or (left[at + w] & right[at + w]) != 0
            if not some:
                return False
    return True


@numba.njit(cache=True, nogil=True)
def most_of_two(
    forest: Any, first: Any, second: Any, box: Any, grid: Any, enough: Any, stack: Any, under: Any, part: Any
) -> Any:
    """Return the largest value of the sum of two trees in a box, or one that is at least `enough`."""
    block, cut, yes, no, value, high, masks = _walked(forest)
    slots, widths = grid.slots, grid.widths
    second_most, _ = most(forest, second, box, grid, under)
    best = -np.inf
    stack[0] = first
    top = 1
    while top:
        top -= 1
        node = stack[top]
        # prune: at most high[node] from the first tree, and the second's largest value in the box
        if high[node] + second_most <= best:
            continue
        if block[node] < 0:
            put(box, part)
            narrow(forest, node, part, grid)
            rest, _ = most(forest, second, part, grid, under)
            best = max(best, value[node] + rest)
            if best >= enough:
                return best
            continue
        sides = _sides(node, box, block, cut, masks, slots, widths)
        left, right = yes[node], no[node]
        if high[left] > high[right]:
            left, right = right, left
        for turn in range(2):
            child = left if turn == 0 else right
            if sides & (1 if child == yes[node] else 2):
                stack[top] = child
                top += 1
    return best


@numba.njit(cache=True, nogil=True)
def gains(forest: Any, box: Any, grid: Any, most_leaves: Any, leaves: Any) -> Any:
    """Return by how much the largest value of each two trees is smaller than the sum of their largest, [T, T]."""
    roots = forest.roots
    trees = len(roots)
    stack, under = np.empty(DEEP, np.int64), np.empty(DEEP, np.int64)
    best = np.empty(trees)
    parts = np.empty((trees, len(box)), np.int64)
    part = box.copy()
    for t in range(trees):
        best[t], leaf = most(forest, roots[t], box, grid, stack)
        put(box, parts[t])
        narrow(forest, leaf, parts[t], grid)
    lowered = np.zeros((trees, trees))
    for t in range(trees):
        for u in range(t + 1, trees):
            # best leaves that meet are reached together: then the sum's maximum is that of both
            if leaves[t] * leaves[u] > most_leaves or meet(parts[t], parts[u], grid):
                continue
            both = best[t] + best[u]
            lowered[t, u] = both - most_of_two(forest, roots[t], roots[u], box, grid, both, stack, under, part)
    return lowered


@numba.njit(cache=True, nogil=True)
def _settled(node: Any, box: Any, forest: Any, grid: Any) -> Any:
    """Go down a tree while a box reaches one side alone."""
    block, cut, yes, no, _, _, masks = _walked(forest)
    slots, widths = grid.slots, grid.widths
    while block[node] >= 0:
        sides = _sides(node, box, block, cut, masks, slots, widths)
        if sides == 3:
            break
        node = yes[node] if sides == 1 else no[node]
    return node


@numba.njit(cache=True, nogil=True)
def _grow(  # noqa: PLR0912 -- one compiled loop
    forest: Any, tree: Any, two: Any, root: Any, grid: Any, out: Any, start: Any, limit: Any
) -> Any:
    """Write a tree's part in a box, or the sum of two (`two` >= 0), from `start` on; return its end (-1: too large)."""
    block, cut, yes, no, value, masks = (
        forest.block, forest.cut, forest.yes, forest.no, forest.value, forest.masks,
    )  # fmt: skip
    boxes, stack = np.empty((DEEP, len(root)), np.int64), np.empty((DEEP, 4), np.int64)
    box = root.copy()
    put(root, boxes[0])
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = tree, two, -1, 0
    top, free = 1, start
    while top:
        top -= 1
        a, b, above, side = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        put(boxes[top], box)
        a = _settled(a, box, forest, grid)
        if b >= 0:
            b = _settled(b, box, forest, grid)
        if free - start >= limit or free >= len(out[0]):
            return -1
        here = free
        free += 1
        out[4][here] = above
        if above >= 0:
            if side == 0:
                out[2][above] = here
            else:
                out[3][above] = here
        # the sum of two trees: split by the first one's tests, and in its leaves by the second's
        node = a if block[a] >= 0 else (b if b >= 0 and block[b] >= 0 else -1)
        if node < 0:
            out[0][here], out[1][here], out[2][here], out[3][here] = -1, 0, -1, -1
            out[5][here] = value[a] + (value[b] if b >= 0 else 0.0)
            continue
        out[0][here], out[1][here], out[5][here] = block[node], cut[node], 0.0
        at, count = grid.slots[block[node]], grid.widths[block[node]]
        if count:  # the cells that come here are those that all tests above leave
            out[1][here] = out[7][0]
            for branch in range(2):
                for w in range(count):
                    out[6][out[7][0]] = box[at + w] & masks[cut[node] + branch * count + w]
                    out[7][0] += 1
        for branch in range(2):
            child = boxes[top]
            put(box, child)
            if count == 0 and branch == 0:
                child[at + 1] = min(child[at + 1], cut[node] - 1)
            elif count == 0:
                child[at] = max(child[at], cut[node])
            else:
                for w in range(count):
                    child[at + w] &= masks[cut[node] + branch * count + w]
            below = yes[node] if branch == 0 else no[node]
            stack[top, 0] = below if node == a else a
            stack[top, 1] = b if node == a else below
            stack[top, 2], stack[top, 3] = here, branch
            top += 1
    return free


@numba.njit(cache=True, nogil=True)
def join(forest: Any, ones: Any, twos: Any, box: Any, grid: Any, limit: Any, size: Any) -> Any:
    """Return the parts of trees in a box, some of them added up two by two."""
    roots = forest.roots
    widest = 1
    for b in range(len(grid.widths)):
        widest = max(widest, grid.widths[b])
    out = (
        np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64),
        np.empty(size, np.int64), np.empty(size), np.empty(2 * widest * size + 1, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip
    starts, members = np.empty(2 * len(ones), np.int64), np.empty((2 * len(ones), 2), np.int64)
    count, end, base, none = 0, np.int64(0), 0.0, np.int64(-1)
    for k in range(len(ones)):
        first, second = ones[k], twos[k]
        below, cells = roots[second] if second >= 0 else none, out[7][0]
        got = _grow(forest, roots[first], below, box, grid, out, end, limit if second >= 0 else size)
        for turn in range(1 if got >= 0 else 2):  # too large: each alone
            mine = first if turn == 0 else second
            stop, partner = got, second
            if got < 0:
                out[7][0] = cells if turn == 0 else out[7][0]
                stop, partner = _grow(forest, roots[mine], none, box, grid, out, end, size), none
            if stop == end + 1:
                base += out[5][end]
                continue
            starts[count], members[count, 0], members[count, 1] = end, mine, partner
            count += 1
            end = stop
    high = out[5][:end].copy()
    for node in range(end - 1, -1, -1):  # children come after their parents
        if out[0][node] >= 0:
            # the largest value below a node, from its children up
            high[node] = max(high[out[2][node]], high[out[3][node]])
    arrays = ForestArrays(
        starts[:count].copy(), out[0][:end].copy(), out[1][:end].copy(), out[2][:end].copy(), out[3][:end].copy(),
        out[4][:end].copy(), out[5][:end].copy(), high, out[6][: out[7][0] + 1].copy(),
    )  # fmt: skip
    return arrays, members[:count].copy(), base


class Merged:
    """A forest in a box, some of its trees added up."""

    def __init__(
        self, arrays: ForestArrays, base: float, groups: Sequence[tuple[int, ...]], *, apart: bool = False
    ) -> None:
        self.arrays, self.base, self.groups, self.apart = arrays, base, list(groups), apart

    @classmethod
    def of(cls, forest: Forest) -> Merged:
        """Begin with every tree alone."""
        return cls(forest.arrays, forest.base, [(t,) for t in range(len(forest.roots))])

    def name(self, places: Sequence[int]) -> None:
        """Name trees that are alone by their roots' places; a root of two trees has no name."""
        self.groups = [(root,) for root in places]
        self.apart = len(set(places)) < len(places)

    @property
    def told(self) -> list[list[int]]:
        """The places of roots whose trees are added up."""
        return [sorted(group) for group in self.groups if len(group) > 1]

    def inside(self, box: NDArray[np.int64], grid: Grid) -> Merged:
        """Restrict the trees to a box, and merge pairs while that lowers the sum of their largest values."""
        merged = self._joined(np.arange(len(self.groups)), np.full(len(self.groups), -1), box, grid)
        refused: set[frozenset[tuple[int, ...]]] = set()
        while not self.apart:
            pairs = merged._matched(box, grid, refused)
            if not pairs:
                break
            taken = {t for pair in pairs for t in pair}
            alone = [(t, -1) for t in range(len(merged.groups)) if t not in taken]
            ones, twos = np.ascontiguousarray(np.array([*pairs, *alone], dtype=np.int64).T)
            refused |= {frozenset({merged.groups[t], merged.groups[u]}) for t, u in pairs}  # where it is too large
            merged = merged._joined(ones, twos, box, grid)
        return merged

    def _matched(
        self, box: NDArray[np.int64], grid: Grid, refused: set[frozenset[tuple[int, ...]]]
    ) -> list[tuple[int, int]]:
        """Choose which trees are to be one: those that gain most, each once."""
        roots = self.arrays.roots
        leaves = (np.diff(np.append(roots, len(self.arrays.block))) + 1) // 2
        gain = gains(self.arrays, box, grid, 4 * LEAVES, leaves)
        first, second = np.nonzero(gain > LEAST)
        order = np.argsort(-gain[first, second], kind="stable")
        taken: set[int] = set()
        pairs = []
        for t, u in zip(first[order].tolist(), second[order].tolist(), strict=True):
            if t in taken or u in taken or frozenset({self.groups[t], self.groups[u]}) in refused:
                continue
            taken |= {t, u}
            pairs.append((t, u))
        return pairs

    def _joined(self, ones: NDArray[np.int64], twos: NDArray[np.int64], box: NDArray[np.int64], grid: Grid) -> Merged:
        size = len(self.arrays.block) + 2 * LEAVES * int((twos >= 0).sum()) + 1
        arrays, members, base = join(self.arrays, ones, twos, box, grid, 2 * LEAVES, size)
        groups = [self.groups[a] + (self.groups[b] if b >= 0 else ()) for a, b in members.tolist()]
        return Merged(arrays, self.base + base, groups, apart=self.apart)
