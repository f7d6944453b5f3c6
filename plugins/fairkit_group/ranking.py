"""Functions of the whole score distribution: ROC-AUC and the Kolmogorov-Smirnov distance to everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.intervals import kolmogorov_quantile, wilson
from fairkit.metrics import Estimate, Metric
from fairkit.statistics import Scores, ScoreTable, Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.results.findings import Better

    Array = NDArray[np.float64]

SCORES = Scores()


class RocAuc(Metric):
    """The chance that a favorable outcome scores above an unfavorable one, ties counting one half."""

    name: ClassVar[str] = "roc_auc"
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0.5: the score ranks at random; 1: it ranks perfectly."
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    citation: ClassVar[str] = "DeLong, DeLong & Clarke-Pearson (1988), Biometrics 44(3)"

    @property
    def statistic(self) -> Statistic:
        """The score table."""
        return SCORES

    def compute(self, sums: Array) -> Array:
        """Return the area from masses [U, G, 2] (scores increasing, outcome last)."""
        negative, positive = sums[..., 0], sums[..., 1]
        below = np.cumsum(negative, axis=0) - negative / 2
        return np.asarray((positive * below).sum(axis=0) / (positive.sum(axis=0) * negative.sum(axis=0)))

    def estimate(self, totals: ScoreTable, rng: np.random.Generator) -> Estimate:
        """Compute the area in every group, with DeLong's variance on the logit scale."""
        mass, squares = totals.mass, totals.squares
        negative, positive = mass[..., 0], mass[..., 1]
        n0, n1 = negative.sum(axis=0), positive.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            area = self.compute(mass)
            placed1 = (np.cumsum(negative, axis=0) - negative / 2) / n0
            placed0 = 1 - (np.cumsum(positive, axis=0) - positive / 2) / n1
            variance = (squares[..., 1] * (placed1 - area) ** 2).sum(axis=0) / (n1 * np.maximum(n1 - 1, 1))
            variance = variance + (squares[..., 0] * (placed0 - area) ** 2).sum(axis=0) / (
                n0 * np.maximum(n0 - 1, 1)
            )
            spread = np.sqrt(variance) / (area * (1 - area))
            logit = np.log(area / (1 - area))
        extreme = ~np.isfinite(logit) | ~np.isfinite(spread) | (variance <= 0)
        fewest = np.minimum(n0, n1)

        def limits(z: float) -> tuple[Array, Array]:
            low, high = _expit(logit - z * spread), _expit(logit + z * spread)
            rough_low, rough_high = wilson(area, fewest, z)
            return np.where(extreme, rough_low, low), np.where(extreme, rough_high, high)

        return Estimate(area, limits)

    @staticmethod
    def bound(totals: ScoreTable) -> float:
        """Bound the error from binning: half of the pairs of unequal outcome that share a bin."""
        if totals.exact:
            return 0.0
        negative, positive = totals.mass[..., 0], totals.mass[..., 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (negative * positive).sum(axis=0) / (2 * negative.sum(axis=0) * positive.sum(axis=0))
        return float(np.nanmax(share, initial=0.0))


def _expit(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


@dataclass(frozen=True, slots=True)
class Distances:
    """Each group's Kolmogorov-Smirnov distance to everybody, with the parts of its interval.

    Attributes
    ----------
    values
        max over z of |P[f ≥ z | a] - P[f ≥ z]|, shape [G], in [0, 1].
    scale
        (1 - share) · sqrt(1 / n_a + 1 / n_rest): what Kolmogorov's quantile is multiplied by, shape [G].
    at
        The score where the distance is reached, shape [G].
    bound
        How much binning can hide: the largest mass of a bin; 0 where the scores are exact.
    """

    values: Array
    scale: Array
    at: Array
    bound: float

    def limits(self, confidence: float) -> tuple[Array, Array]:
        """Return limits for each group alone, from Smirnov's two-sample limit distribution."""
        half = kolmogorov_quantile(confidence) * self.scale
        return np.maximum(self.values - half, 0), np.minimum(self.values + half + self.bound, 1)


def distances(totals: ScoreTable) -> Distances:
    """Measure statistical parity of scores (Agarwal, Dudík & Wu 2019, definition 1).

    With p_a the group's share, F_a - F = (1 - p_a)(F_a - F_rest): the deviation of the empirical difference
    from the true one is (1 - p_a) times a two-sample Kolmogorov-Smirnov deviation.
    """
    mass = totals.mass.sum(axis=2)
    squares = totals.squares.sum(axis=2)
    size, everybody = mass.sum(axis=0), mass.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.cumsum(mass, axis=0) / size
        gap = np.abs(own - (np.cumsum(mass.sum(axis=1)) / everybody)[:, None])
        rest = everybody - size
        effective = size**2 / squares.sum(axis=0)
        effective_rest = rest**2 / (squares.sum() - squares.sum(axis=0))
        scale = (rest / everybody) * np.sqrt(1 / effective + 1 / effective_rest)
    bound = 0.0 if totals.exact else float(np.nanmax(mass / np.maximum(size, 1e-300)))
    return Distances(gap.max(axis=0), scale, totals.values[gap.argmax(axis=0)], bound)
