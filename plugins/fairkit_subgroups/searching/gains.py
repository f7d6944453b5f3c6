"""The group whose scores are worth moving most: one Newton step of the log loss, found among all groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from fairkit_subgroups.searching import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.family import Family

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """A group with the step for its logits, Σ (y - p) / (Σ p (1 - p) + λ), and what that gains."""

    table: int
    number: int
    amount: float
    gain: float


@numba.njit(cache=True, nogil=True)
def _best(sums: Any, runs_a: Any, rows: float, shrinkage: float) -> tuple[float, int, float]:
    best, number, amount = 0.0, -1, 0.0
    width = sums.shape[2]
    for r in range(len(runs_a)):
        first, last = runs_a[r, 0], runs_a[r, 1] + 1
        for k in range(width):
            if sums[0, last, k] - sums[0, first, k] < rows:
                continue
            g = sums[1, last, k] - sums[1, first, k]
            h = sums[2, last, k] - sums[2, first, k]
            # second-order gain of a Newton step of the log loss: g² / (2 (h + λ)) at g / (h + λ)
            gain = 0.5 * g * g / (h + shrinkage)
            if gain > best:
                best, number, amount = gain, r * width + k, g / (h + shrinkage)
    return best, number, amount


class Residuals:
    """Joint tables of rows, Σ w (y - p) and Σ w p (1 - p), kept up to date while scores move."""

    def __init__(self, family: Family, codes: NDArray[np.uint8], outcome: Array, weights: Array) -> None:
        self.family, self.codes, self.outcome, self.weights = family, codes, outcome, weights
        self._tables = np.zeros((family.cells, 3))

    def set(self, score: Array) -> None:
        """Count all rows with their scores, shape [n]."""
        self._tables[:] = 0.0
        w = self.weights
        parts = [np.ones(len(score)), w * (self.outcome - score), w * score * (1 - score)]
        self._add(np.arange(len(score)), np.stack(parts, axis=1))

    def move(self, rows: NDArray[np.int64], before: Array, after: Array) -> None:
        """Change the scores of some rows."""
        w = self.weights[rows]
        parts = [np.zeros(len(rows)), w * (before - after), w * (after * (1 - after) - before * (1 - before))]
        self._add(rows, np.stack(parts, axis=1))

    def best(self, rows: float, shrinkage: float) -> Step | None:
        """Return the group of at least so many rows whose step gains most; None where none gains."""
        laid = self.family.laid_out(self._tables)
        step: Step | None = None
        for table, place in enumerate(self.family.places):
            block = np.ascontiguousarray(laid[:, place.start : place.stop].reshape(-1, *place.shape))
            sums = kernels.boxes(block, place.runs[1], place.runs[2])
            gain, number, amount = _best(sums, place.runs[0], rows, shrinkage)
            if number >= 0 and (step is None or gain > step.gain * (1 + 1e-9)):
                step = Step(table, int(number), float(amount), float(gain))
        return step

    def _add(self, rows: NDArray[np.int64], values: Array) -> None:
        family = self.family
        for start in range(0, len(rows), kernels.CHUNK):
            some = rows[start : start + kernels.CHUNK]
            codes = np.ascontiguousarray(self.codes[:, some])
            part = np.ascontiguousarray(values[start : start + kernels.CHUNK])
            kernels.count_sums(codes, part, family.sizes, family.offsets, self._tables)
