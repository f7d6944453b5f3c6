"""Sums of per-row contributions, group by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of per-row contributions, group by group; adding two is merging two sets of rows.

    `count`: rows, shape [G]; `first`: Σ w s, shape [G, m], for per-row contributions s in R^m and weights w; `second`:
    Σ w² s sᵀ, shape [G, m, m]: the covariance of `first` when rows are resampled (Poisson bootstrap).
    """

    count: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]

    def __add__(self, right: Sums) -> Sums:
        return Sums(self.count + right.count, self.first + right.first, self.second + right.second)

    def pooled(self) -> Sums:
        """All groups as one, shape [1, ...]."""
        return Sums(*(part.sum(axis=0, keepdims=True) for part in (self.count, self.first, self.second)))


@dataclass(frozen=True, slots=True)
class CellSums(Sums):
    """Sums of soft confusion cells, with what the skewness of a rate is made from.

    `cubes`: Σ w³ (1, h, h², h³) for decision probabilities h, by group and outcome, shape [G, 2, 4].
    """

    cubes: NDArray[np.float64]

    def __add__(self, right: Sums) -> Sums:
        plain = Sums.__add__(self, right)
        if not isinstance(right, CellSums):
            return plain
        return CellSums(plain.count, plain.first, plain.second, self.cubes + right.cubes)

    def pooled(self) -> CellSums:
        """All groups as one."""
        plain = Sums.pooled(self)
        return CellSums(plain.count, plain.first, plain.second, self.cubes.sum(axis=0, keepdims=True))


@dataclass(frozen=True, slots=True)
class MomentSums(Sums):
    """Sums of one number per row and of its powers, with the range seen in all groups together.

    `powers`: of y = number - origin: Σ w (1, y), Σ w² (1, y, y²), Σ w³ (1, y, y², y³), shape [G, 9]; `least`, `most`:
    the smallest and the largest number of any row, shape [1]; `reach`: Σ w of what the rows' numbers would be at the
    other outcome, over all groups, and Σ w, shape [2]; zeros where that is not known; `certain`: Σ w of the rows whose
    outcome was given the probability 0 or 1, and of those of them that it was 0 for, shape [G, 2]; zeros where the
    number is no such loss.
    """

    powers: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    reach: NDArray[np.float64]
    certain: NDArray[np.float64]

    def __add__(self, right: Sums) -> Sums:
        plain = Sums.__add__(self, right)
        if not isinstance(right, MomentSums):
            return plain
        return MomentSums(
            plain.count,
            plain.first,
            plain.second,
            self.powers + right.powers,
            np.minimum(self.least, right.least),
            np.maximum(self.most, right.most),
            self.reach + right.reach,
            self.certain + right.certain,
        )

    def pooled(self) -> MomentSums:
        """All groups as one."""
        plain = Sums.pooled(self)
        powers = self.powers.sum(axis=0, keepdims=True)
        certain = self.certain.sum(axis=0, keepdims=True)
        return MomentSums(plain.count, plain.first, plain.second, powers, self.least, self.most, self.reach, certain)
