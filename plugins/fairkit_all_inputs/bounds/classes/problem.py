"""A question about the class of the largest sum: the margins between every two classes, as sums of trees over cells."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import Forest, Layout
    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_onnx.structure.domain import Block

    Floats = NDArray[np.float64]

Question = tuple[int, int, int, int]
"""Two cells of the changing block, the class that is predicted at the first, and that at the second."""


@dataclass(frozen=True, eq=False)
class ClassProblem:
    """Sums of trees over the cells of blocks, one for each class."""

    plain: Problem  # the blocks, tests and branches, without values
    values: Floats  # the leaves' addends by class and node, shape [K, N]
    roots: tuple[int, ...]  # of all trees
    bases: tuple[float, ...]
    roundings: tuple[float, ...]
    band: float  # how close two sums may be for either class to be predicted, besides rounding
    names: tuple[str, ...]  # the classes
    threshold: None = None
    logistic: bool = False
    points: bool = False

    def of(self, kind: int) -> ClassProblem:
        """Return the problem that asks a question: this one."""
        del kind
        return self

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks, the changing one among them."""
        return self.plain.blocks

    @property
    def changing(self) -> int:
        """The number of the changing block."""
        return self.plain.changing

    @property
    def layout(self) -> Layout:
        """How boxes are written."""
        return self.plain.layout

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The ordered pairs of cells of the changing block."""
        return self.plain.pairs

    @cached_property
    def touching(self) -> list[int]:
        """The roots of trees that split on the changing block."""
        return replace(self.plain, roots=self.roots, value=self.values[0].tolist()).touching

    @property
    def rounding(self) -> float:
        """By how much a margin in the runtime's arithmetic may differ from that of the leaves, at most."""
        return sum(sorted(self.roundings)[-2:]) + self.band

    @cached_property
    def questions(self) -> list[Question]:
        """Every two cells and two classes."""
        classes = range(len(self.names))
        return [(s, t, k, m) for s, t in self.pairs for k in classes for m in classes if k != m]

    def margins(self, question: Sequence[int]) -> list[tuple[int, Problem]]:
        """Return the margins that must be positive, each with the cell at which it must."""
        s, t, k, m = question
        others = range(len(self.names))
        return [(cell, self.margin(own, other)) for cell, own in ((s, k), (t, m)) for other in others if other != own]

    def forests(self, kind: int, question: Sequence[int]) -> list[Forest]:
        """Return the sums of which the least must be positive: the margins, and half of the margin's change."""
        del kind
        s, t, k, m = question
        gap = self.margin(k, m).gap(s, t)
        half = replace(gap, value=gap.value / 2.0, high=gap.high / 2.0, low=gap.low / 2.0, base=gap.base / 2.0)
        return [*(margin.at(cell) for cell, margin in self.margins(question)), half]

    @cached_property
    def widest(self) -> float:
        """At least the largest change of the difference of two classes' sums, without a search."""
        ranges = [np.ptp(self.values[:, self.plain.leaves_of(root)], axis=1) for root in self.touching]
        return float(sum(np.sort(some)[-2:].sum() for some in ranges))

    def of_class(self, place: int) -> Problem:
        """Return the sum of a class."""
        return self._made(self.values[place], self.bases[place], self.roundings[place])

    def margin(self, first: int, second: int) -> Problem:
        """Return the sum of one class less that of another."""
        if (first, second) not in self._margins:
            self._margins[first, second] = self._made(
                self.values[first] - self.values[second],
                self.bases[first] - self.bases[second],
                self.roundings[first] + self.roundings[second],
            )
        return self._margins[first, second]

    @cached_property
    def _margins(self) -> dict[tuple[int, int], Problem]:
        return {}

    @cached_property
    def _of_root(self) -> dict[int, NDArray[np.int64]]:
        """By root, the nodes below it."""
        by_root = {}
        for root in self.roots:
            waiting, seen = [root], {root}
            while waiting:
                node = waiting.pop()
                if self.plain.tests[node][0] >= 0:
                    new = {self.plain.yes[node], self.plain.no[node]} - seen
                    seen |= new
                    waiting += new
            by_root[root] = np.array(sorted(seen))
        return by_root

    def _made(self, value: Floats, base: float, rounding: float) -> Problem:
        roots = [root for root in self.roots if value[self._of_root[root]].any()]
        return replace(self.plain, value=value.tolist(), roots=roots, base=base, rounding=rounding)

    def sums(self, points: NDArray[np.int64]) -> Floats:
        """Return the sums at points given by a cell of each block, shape [n, K]."""
        return np.stack([self.of_class(k).sums(points) for k in range(len(self.names))], axis=1)

    def raw(self, point: Sequence[int]) -> dict[str, Any]:
        """Return raw values of a point, by column."""
        return self.plain.raw(point)

    @cached_property
    def sha256(self) -> str:
        """The digest of all that a proof is about."""
        parts = [self.of_class(k).sha256 for k in range(len(self.names))]
        told = [*parts, *self.names, float(self.band).hex()]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()

    def sums_of(self, columns: Mapping[str, NDArray[Any]], points: NDArray[np.int64]) -> Floats:
        """Return the sums at raw values whose cells are given, shape [n, K]."""
        del columns
        return self.sums(points)
