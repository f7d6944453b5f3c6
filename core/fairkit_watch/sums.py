"""What rows add to the counts of a watch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MOMENTS = 5
"""Sums that the mean of a score needs: Σw, Σw², Σwx, Σw²x, Σw²x²."""


@dataclass(frozen=True, slots=True)
class RowSums:
    """What each row adds to the sums."""

    weights: Array | None = None  # w, shape [n]; None where decisions have none
    squares: Array | None = None  # w², shape [n]
    moments: tuple[Array, ...] | None = None

    @classmethod
    def of_rows(cls, weights: Array | None, score: Array | None) -> RowSums:
        """Return the sums of single rows."""
        squares = None if weights is None else weights**2
        if score is None:
            return cls(weights, squares)
        w = np.ones_like(score) if weights is None else weights
        return cls(weights, squares, (w, w**2, w * score, w**2 * score, w**2 * score**2))

    def inside(self, chosen: NDArray[np.bool_]) -> RowSums:
        """Return the sums of some of the rows."""
        weights, squares = (None if one is None else one[chosen] for one in (self.weights, self.squares))
        moments = None if self.moments is None else tuple(one[chosen] for one in self.moments)
        return RowSums(weights, squares, moments)
