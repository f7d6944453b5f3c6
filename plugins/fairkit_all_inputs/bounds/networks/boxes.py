"""Boxes of inputs as features: what a weighted sum of features can be in each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.forest import BITS, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DIGITS = 9
"""After which numbers that are compared are rounded."""


@dataclass(frozen=True, eq=False)
class CellFeatures:
    """The features of every cell."""

    layout: Layout  # how boxes are written; one place of the changing block
    changing: int  # its number
    features: Sequence[NDArray[np.int64]]  # by block, the features that it makes, shape [d_b]
    first: Sequence[Floats]
    last: Sequence[Floats]
    fixed: Floats  # all features with the constant ones filled in, shape [d]

    @cached_property
    def ranges(self) -> list[int]:
        """The blocks whose boxes are ranges of cells."""
        free = [b for b in range(len(self.features)) if b != self.changing]
        return [b for b in free if self.layout.words[b] == 0]

    @cached_property
    def lists(self) -> list[int]:
        """The blocks whose boxes are sets of cells."""
        return [b for b in range(len(self.features)) if b != self.changing and self.layout.words[b] > 0]

    def mask(self, packed: NDArray[np.int64], block: int) -> NDArray[np.bool_]:
        """Return which cells of a block are left, shape [B, cells]."""
        at, size = int(self.layout.place[block]), int(self.layout.sizes[block])
        cells = np.arange(size)
        if self.layout.words[block] == 0:
            return np.asarray((cells >= packed[:, at : at + 1]) & (cells <= packed[:, at + 1 : at + 2]))
        words = packed[:, at + cells // BITS]
        return np.asarray((words >> (cells % BITS) & 1).astype(np.bool_))

    def masks(self, packed: NDArray[np.int64]) -> dict[int, NDArray[np.bool_]]:
        """Return by block that stays which cells are left, shape [B, cells] each."""
        return {block: self.mask(packed, block) for block in [*self.ranges, *self.lists]}

    def opened(self, packed: NDArray[np.int64]) -> BoxRanges:
        """Return the features' ranges in boxes, shape [B, width of the layout]."""
        low = np.repeat(self.fixed[None, :], len(packed), axis=0)
        high = low.copy()
        for block in self.ranges:
            at, mine = int(self.layout.place[block]), self.features[block]
            ends = self.first[block][packed[:, at]], self.last[block][packed[:, at + 1]]
            low[:, mine], high[:, mine] = np.minimum(*ends), np.maximum(*ends)
        masks = self.masks(packed)
        for block in self.lists:
            mine, mask = self.features[block], masks[block]
            ends = self.first[block], self.last[block]
            small, large = np.minimum(*ends), np.maximum(*ends)
            low[:, mine] = np.where(mask[:, :, None], small, np.inf).min(axis=1)
            high[:, mine] = np.where(mask[:, :, None], large, -np.inf).max(axis=1)
        changing = self.features[self.changing]
        low[:, changing] = high[:, changing] = 0.0
        return BoxRanges(self, low, high, masks)

    def side(self, cell: int) -> Floats:
        """Return the changing block's contribution to the features at a cell, shape [d], zero elsewhere."""
        found = np.zeros(len(self.fixed))
        found[self.features[self.changing]] = self.first[self.changing][cell]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class BoxRanges:
    """Boxes, opened: `low` and `high` are the features' ranges, with zeros for the changing block, shape [B, d]."""

    cells: CellFeatures
    low: Floats
    high: Floats
    masks: dict[int, NDArray[np.bool_]]

    @property
    def size(self) -> Floats:
        """The features' largest absolute values, shape [B, d]."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def most(self, weights: Floats) -> Floats:
        """Return the largest weighted sums, shape [B, n], for weights of the shape [B or 1, n, d]."""
        cells = self.cells
        middle, radius = 0.5 * (self.low + self.high), 0.5 * (self.high - self.low)
        listed = np.concatenate([np.zeros(0, dtype=np.int64), *(cells.features[b] for b in cells.lists)])
        middle[:, listed], radius[:, listed] = 0.0, 0.0
        if len(weights) == 1:
            total = middle @ weights[0].T + radius @ np.abs(weights[0]).T
        else:
            total = (weights @ middle[:, :, None] + np.abs(weights) @ radius[:, :, None])[:, :, 0]
        for block in cells.lists:
            mine = weights[:, :, cells.features[block]]
            first, last = cells.first[block], cells.last[block]
            values = mine @ (0.5 * (first + last)).T
            if (first != last).any():
                values = values + np.abs(mine) @ (0.5 * np.abs(last - first)).T
            total = total + np.where(self.masks[block][:, None, :], values, -np.inf).max(axis=2)
        return np.asarray(total)

    def corners(self, weights: Floats) -> tuple[Floats, NDArray[np.int64], NDArray[np.bool_]]:
        """Return, for one row of weights each (shape [B, d]), the inputs with the largest sums."""
        cells, rows = self.cells, np.arange(len(weights))
        chosen = np.zeros((len(weights), len(cells.features)), dtype=np.int64)
        top = np.zeros(chosen.shape, dtype=np.bool_)
        corners = np.repeat(cells.fixed[None, :], len(weights), axis=0)
        corners[:, cells.features[cells.changing]] = 0.0
        for block in [*cells.ranges, *cells.lists]:
            mine = weights[:, cells.features[block]]
            # rounded: what differs by the order of additions only must choose alike when a proof is checked
            first, last = (np.round(mine @ ends[block].T, DIGITS) for ends in (cells.first, cells.last))
            values = np.where(self.masks[block], np.maximum(first, last), -np.inf)
            chosen[:, block] = values.argmax(axis=1)
            top[:, block] = last[rows, chosen[:, block]] > first[rows, chosen[:, block]]
            ends = np.where(
                top[:, block, None], cells.last[block][chosen[:, block]], cells.first[block][chosen[:, block]]
            )
            corners[:, cells.features[block]] = ends
        return corners, chosen, top
