"""The grid of predictions, the cover of labels, and the costs between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_fair_regression.losses import Loss

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """The thresholds Z = {1/N, 2/N, ..., 1}; a prediction's level is how many of them it reaches."""

    size: int  # N

    @property
    def step(self) -> float:
        """α = 1/N."""
        return 1.0 / self.size

    @property
    def values(self) -> Array:
        """What the levels 0 to N stand for: rounded down to the grid plus α/2, at most 1. Shape [N + 1]."""
        return np.asarray(np.minimum((np.arange(self.size + 1) + 0.5) * self.step, 1.0))

    def levels(self, predictions: NDArray[np.floating]) -> Codes:
        """Return each prediction's level, 0 to N; in float32, as the exported graph computes it."""
        scaled = np.clip(predictions, 0, 1).astype(np.float32) * np.float32(self.size)
        return np.asarray(np.clip(np.floor(scaled), 0, self.size), dtype=np.int64)

    def losses(self, loss: Loss, labels: Array) -> Array:
        """Return the discretised loss ℓ(y, level) for labels [Y], shape [Y, N + 1]."""
        return loss(labels[:, None], self.values[None, :])

    def costs(self, loss: Loss, labels: Array) -> Array:
        """Return c(y, z) = N (ℓ(y, z + α/2) - ℓ(y, z - α/2)) for labels [Y], shape [Y, N] (eq. 9)."""
        return np.asarray(np.diff(self.losses(loss, labels), axis=1) * self.size)


@dataclass(frozen=True, slots=True)
class Cover:
    """Labels that stand for all labels: every label has one within α/2, and no two are that near."""

    labels: Array  # increasing, shape [Y], at most 2N
    codes: Codes  # for each row the place of the smallest label within α/2, shape [n]


def cover_labels(labels: Array, step: float, loss: Loss | None = None) -> Cover:
    """Choose a cover from the labels themselves, from the smallest up (section 4.1)."""
    values, inverse = np.unique(labels, return_inverse=True)
    distinct = values if loss is None or loss.rates is None else loss.rates.to_cover(values)
    half = step / 2 * (1 + 1e-12)
    chosen: list[int] = []
    place = 0
    while place < len(distinct):
        farthest = int(np.searchsorted(distinct, distinct[place] + half, side="right")) - 1
        chosen.append(farthest)
        place = int(np.searchsorted(distinct, distinct[farthest] + half, side="right"))
    codes = np.searchsorted(distinct[chosen], distinct - half, side="left")
    return Cover(values[chosen], codes[inverse.ravel()].astype(np.int64))
