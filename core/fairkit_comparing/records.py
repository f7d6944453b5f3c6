"""What a comparison of two models passes on: numbers with covariance, scores that may be drawn, a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Paired:
    """One number of two models in independent places (groups)."""

    values: Array  # shape [2, S]: first model, second model; NaN where the number is not defined
    covariance: Array  # shape [S, 2, 2], of the two values in each place; places are independent
    pull: Array | None = None

    def chosen(self, keep: NDArray[Any]) -> Paired:
        """Return some of the places."""
        pull = None if self.pull is None else self.pull[:, keep]
        return Paired(self.values[:, keep], self.covariance[keep], pull)

    def variance(self, first: Array, second: Array) -> Array:
        """Return the variance of forms of both models' values, shape [P]."""
        if self.pull is not None:
            return np.asarray(((first @ self.pull[0] + second @ self.pull[1]) ** 2).sum(axis=-1))
        c = self.covariance
        mixed = 2 * (first * second) @ c[:, 0, 1]
        return np.asarray(np.maximum((first**2) @ c[:, 0, 0] + mixed + (second**2) @ c[:, 1, 1], 0))

    def known(self) -> Paired:
        """Leave out the places where either number is not defined."""
        keep = np.isfinite(self.values).all(axis=0) & np.isfinite(self.covariance).all(axis=(1, 2))
        return self.chosen(np.asarray(keep))

    def known_with(self, other: Paired) -> Paired:
        """Leave out the places where a number of either kind is not defined."""
        keep = np.ones(self.values.shape[1], dtype=bool)
        for one in (self, other):
            keep &= np.isfinite(one.values).all(axis=0) & np.isfinite(one.covariance).all(axis=(1, 2))
        return self.chosen(keep)

    def negative(self) -> Paired:
        """Turn the sign."""
        return Paired(-self.values, self.covariance, None if self.pull is None else -self.pull)

    def beside(self, other: Paired) -> Paired:
        """Put two numbers' places side by side; they must be over different rows."""
        pulls = [one.pull for one in (self, other) if one.pull is not None]
        return Paired(
            np.concatenate([self.values, other.values], axis=1),
            np.concatenate([self.covariance, other.covariance]),
            np.concatenate(pulls, axis=1) if len(pulls) == 2 else None,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """Two models' numbers and the interval of second minus first."""

    first: float
    second: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class DrawnScores:
    """Scores of one model: each row's is one of K, drawn with the same chances."""

    values: Array  # shape [n, K]
    shares: Array  # shape [K], adding up to 1

    def some(self, keep: NDArray[np.bool_]) -> DrawnScores:
        """Return the rows where `keep`, shape [n], is true."""
        return DrawnScores(self.values[keep], self.shares)
