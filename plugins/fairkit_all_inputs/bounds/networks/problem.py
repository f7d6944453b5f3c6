"""A question about a network over cells: two values of what changes, and the features of every cell."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_all_inputs.bounds.networks.aims import Aim
from fairkit_all_inputs.bounds.networks.bounds import Bounds, bounds
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, plain
from fairkit_onnx.structure.networks.layers import Layer, output

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.forest import Layout
    from fairkit_all_inputs.bounds.networks.boxes import CellFeatures
    from fairkit_onnx.structure.domain import Block
    from fairkit_onnx.structure.group_rules import GroupThresholds

    Floats = NDArray[np.float64]

SLACK = 1e-9
"""What float64 may lose in a bound, relative to the sum's size: far more than it does."""


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """A network over the cells of blocks, one of which changes."""

    blocks: Sequence[Block]  # the blocks, the changing one among them
    cells: CellFeatures  # their features
    layers: Sequence[Layer]  # the network; larger sums are more favorable
    encode: Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]  # raw columns to features, shape [n, d]
    threshold: float | None
    logistic: bool = False  # whether the score is the logistic function of the sum
    band: float = 0.0  # how far from the threshold the runtime may decide either way
    rule: GroupThresholds | None = None  # the threshold of each group, in the place of the one number
    points: bool = False

    def of(self, kind: int) -> NetworkProblem:
        """Return the problem that asks a question: this one."""
        del kind
        return self

    @property
    def changing(self) -> int:
        """The number of the changing block."""
        return self.cells.changing

    @property
    def layout(self) -> Layout:
        """How boxes are written."""
        return self.cells.layout

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The ordered pairs of cells of the changing block."""
        places = range(self.blocks[self.changing].size)
        return [(first, second) for first in places for second in places if first != second]

    @cached_property
    def touching(self) -> bool:
        """Whether any unit reads what the changing block makes, or the rule does."""
        if self.rule is not None and self.changing in self.rule.blocks:
            return True
        mine = self.cells.features[self.changing]
        values = self.cells.first[self.changing]
        moving = mine[(values != values[:1]).any(axis=0)]
        return bool((self.layers[0].spread[:, moving] > 0).any())

    @cached_property
    def root(self) -> NDArray[np.int64]:
        """The box of everything, shape [1, width]."""
        return self.layout.pack(self.layout.full)[None, :]

    @cached_property
    def rounding(self) -> float:
        """By how much the runtime's sum may differ from the exact one, anywhere."""
        opened = self.cells.opened(self.root)
        return max(
            (float(bounds(self.layers, opened, self.sides(pair), whole=False).error[0]) for pair in self.pairs),
            default=0.0,
        )

    def sides(self, pair: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return the changing block's contributions to the features at a pair's two cells, [d] each."""
        return self.cells.side(pair[0]), self.cells.side(pair[1])

    def sums_of(self, columns: Mapping[str, NDArray[Any]], points: NDArray[np.int64]) -> Floats:
        """Return the sums at raw values, shape [n], whichever cells they are in."""
        del points
        return output(self.layers, np.asarray(self.encode(columns), dtype=np.float64))

    def sums(self, points: NDArray[np.int64]) -> Floats:
        """Return the sums at the smallest values of cells, shape [n] for points [n, B]."""
        features = np.repeat(self.cells.fixed[None, :], len(points), axis=0)
        for block, mine in enumerate(self.cells.features):
            features[:, mine] = self.cells.first[block][points[:, block]]
        return output(self.layers, features)

    def value(self, block: int, cell: int, top: bool) -> dict[str, Any]:
        """Return the raw values of a block at an end of a cell."""
        one = self.blocks[block]
        if one.ends is None:
            return {name: plain(values[cell]) for name, values in one.values.items()}
        number = one.ends[cell] if top else self.starts(block)[cell]
        return {one.columns[0]: plain(number)}

    def starts(self, block: int) -> Floats:
        """Return the smallest number of each cell of a block."""
        return starts_of(self.blocks[block])

    def raw(self, point: Sequence[int]) -> dict[str, Any]:
        """Return raw values of a point, by column."""
        return {
            column: plain(block.values[column][cell])
            for block, cell in zip(self.blocks, point, strict=True)
            for column in block.columns
        }

    @cached_property
    def sha256(self) -> str:
        """The digest of all that a proof is about."""
        digest = hashlib.sha256()
        for layer in self.layers:
            for name in Layer.__slots__:
                digest.update(np.ascontiguousarray(getattr(layer, name)).tobytes())
        for some in (self.cells.first, self.cells.last, self.cells.features):
            for array in some:
                digest.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        digest.update(repr((self.changing, self.threshold, self.logistic)).encode())
        if self.rule is not None:
            digest.update(repr(self.rule.blocks).encode() + np.ascontiguousarray(self.rule.table).tobytes())
        return digest.hexdigest()

    @cached_property
    def units(self) -> int:
        """How many hidden units there are."""
        return sum(len(layer.bias) for layer in self.layers[:-1])

    @cached_property
    def last(self) -> Floats:
        """What makes a unit of the last hidden layer come first, shape [2 · units]."""
        layers = [
            np.full(len(layer.bias), place == len(self.layers) - 2) for place, layer in enumerate(self.layers[:-1])
        ]
        return np.tile(np.concatenate([np.zeros(0), *layers]), 2) * 1e6

    def thresholds(
        self, pair: tuple[int, int], masks: Mapping[int, NDArray[np.bool_]]
    ) -> tuple[Floats | float, Floats | float]:
        """Return the least threshold of the first value, and the largest of the second, in boxes of these cells."""
        if self.rule is None:
            one = self.threshold if self.threshold is not None else 0.0
            return one, one
        tables = [self._at(cell) for cell in pair]
        free = [block for block in self.rule.blocks if block != self.changing]
        inside: NDArray[np.bool_] = np.ones((len(next(iter(masks.values()))), 1), dtype=np.bool_)
        for block in free:
            inside = (inside[:, :, None] & masks[block][:, None, :]).reshape(len(inside), -1)
        least = np.where(inside, tables[0].reshape(1, -1), np.inf).min(axis=1)
        return least, np.where(inside, tables[1].reshape(1, -1), -np.inf).max(axis=1)

    def _at(self, cell: int) -> Floats:
        """Return the rule's thresholds with the changing block at a cell, by the cells of its other blocks."""
        assert self.rule is not None  # noqa: S101 -- asked only then
        if self.changing not in self.rule.blocks:
            return self.rule.table
        return np.asarray(self.rule.table.take(cell, axis=self.rule.blocks.index(self.changing)))

    def thresholds_at(self, pair: tuple[int, int], points: NDArray[np.int64]) -> tuple[Floats | float, Floats | float]:
        """Return the thresholds of both values at points given by a cell of each block."""
        if self.rule is None:
            return self.thresholds(pair, {})
        free = tuple(points[:, block] for block in self.rule.blocks if block != self.changing)
        first, second = (self._at(cell)[free] if free else np.full(len(points), float(self._at(cell))) for cell in pair)
        return first, second

    def bound(
        self, kind: int, pair: tuple[int, int], packed: NDArray[np.int64], unit_signs: NDArray[np.int8], target: float
    ) -> tuple[Floats, Floats, Bounds]:
        """Bound an objective in boxes; `unit_signs` and `target` are those of `bounds`."""
        split = bool(unit_signs.any())
        thresholds = self.thresholds(pair, self.cells.masks(packed)) if kind == FLIP else (0.0, 0.0)
        aim = Aim(kind, thresholds)
        opened, sides = self.cells.opened(packed), self.sides(pair)
        bounded = bounds(self.layers, opened, sides, kind != SCORE, unit_signs if split else None, aim, target)
        size = np.abs(bounded.gap) + np.maximum(np.abs(bounded.least), np.abs(bounded.first))
        error = bounded.error + SLACK * (1.0 + size) + (self.band if kind == FLIP else 0.0)
        most, extra = bounded.gap, 2.0 * error
        if kind == FLIP:
            most = np.minimum(most, np.minimum(bounded.first - thresholds[0], thresholds[1] - bounded.least))
            most, extra = most + error, np.zeros(len(most))
        elif kind == CHANCE:
            extra = 0.5 * error + 1e-6
        if kind == FLIP:  # equal sums are decided alike by one threshold, or where the first one's is the larger
            most = np.where(bounded.still & (thresholds[0] >= thresholds[1]), -np.inf, most)
        else:
            most = np.where(bounded.still, np.minimum(most, 0.0), most)
        return np.where(bounded.empty, -np.inf, most), np.where(bounded.still, 0.0, extra), bounded


def starts_of(block: Block) -> Floats:
    """Return the smallest number of each cell of a block of numbers; NaN for the missing one."""
    first, last = block.intervals
    return np.concatenate([first, np.full(block.size - len(last), np.nan)])
