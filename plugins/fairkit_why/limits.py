"""Intervals of attributions: the rows of both groups, rows that nobody has seen, and the sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.clusters import BUCKETS
from fairkit.errors import DataError
from fairkit.intervals import student, two_sided
from fairkit_dependent import noise_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Noise:
    """How sure numbers are."""

    variance: Array  # of each number, and of freedom of the variance, shape [P]
    degrees: Array  # of each number, and of freedom of the variance, shape [P]
    reach: Array  # how far one row could pull each number, shape [P]; 0: no row that was seen pulls it at all
    rows: tuple[float, float]  # of both groups, or their clusters (effective ones under weights)

    def half_width(self, confidence: float) -> Array:
        """Return the half widths of intervals, shape [P].

        ``h = (t⁴ V² + u⁴)^¼`` with ``u = reach √(u_a² + u_b²)``, ``u_g = 1 - (α/2)^(1/n_g)``: a share u_g of a group
        may differ from all rows that were seen, as in the limits of shares where none or all were counted.
        """
        z = two_sided(confidence)
        spread = student(z, self.degrees + 1) * np.sqrt(np.maximum(self.variance, 0.0))
        unseen = [1 - ((1 - confidence) / 2) ** (1 / max(n, 1.0)) for n in self.rows]
        return np.asarray((spread**4 + (self.reach * np.hypot(*unseen)) ** 4) ** 0.25)

    def around(self, value: float, most: float = np.inf) -> Callable[[float], tuple[float, float]]:
        """Return the interval of the first number, around `value` and within ± `most`, as a function of confidence."""

        def at(confidence: float) -> tuple[float, float]:
            half = float(self.half_width(confidence)[0])
            return max(value - half, -most), min(value + half, most)

        return at


def effective(weights: Array | None, rows: int) -> float:
    """Return the number of equally weighted rows that would be as sure."""
    return float(rows) if weights is None else float(weights.sum() ** 2 / (weights**2).sum())


def shares(weights: Array | None, rows: int) -> Array:
    """Return weights that add up to 1, shape [n]."""
    if weights is None:
        return np.full(rows, 1.0 / rows)
    if not weights.sum() > 0:
        raise DataError("why: every row of a group has the weight 0, so that there is no gap to explain")
    return np.asarray(weights / weights.sum())


def by_cluster(values: NDArray[Any], clusters: Array) -> Array:
    """Return the sums of rows' values, shape [n, P], by bucket of clusters, shape [P, buckets]."""
    out = np.zeros((values.shape[1], BUCKETS))
    for place, column in enumerate(values.T):
        out[place] = np.bincount(clusters.astype(np.int64), column, BUCKETS)
    return out


def clustered(sums: Array, clusters: Array) -> tuple[Array, Array]:
    """Return the variance and the degrees of freedom of numbers that buckets of clusters pull, shapes [P]."""
    there = np.broadcast_to(np.bincount(clusters.astype(np.int64), minlength=BUCKETS) > 0, sums.shape)
    found = noise_of(sums, there)
    return found.variance, found.degrees


def two_samples(
    rows: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    sizes: tuple[float, float],
    clusters: tuple[Array, Array] | None,
) -> tuple[Array, Array]:
    """Return the variance of a sum of two groups' means, and its degrees of freedom (Welch), shapes [P]."""
    centred, parts, freedom = [], [], []
    for mine, w, size in zip(rows, weights, sizes, strict=True):
        part = shares(w, len(mine))
        away = mine - part @ mine
        squared = part**2 @ away**2 / (part**2).sum()
        parts.append(squared / max(size - 1.0, 1.0))
        freedom.append(max(size - 1.0, 1.0))
        centred.append(part[:, None] * away)
    if clusters is not None:
        return clustered(by_cluster(np.concatenate(centred), np.concatenate(clusters)), np.concatenate(clusters))
    total = parts[0] + parts[1]
    with np.errstate(all="ignore"):
        # Welch and Satterthwaite: (v₁ + v₂)² / (v₁² / ν₁ + v₂² / ν₂)
        degrees = total**2 / (parts[0] ** 2 / freedom[0] + parts[1] ** 2 / freedom[1])
    return total, np.where(np.isfinite(degrees), degrees, min(freedom))
