"""What group probabilities leave open: the smallest and the largest difference of two groups' rates.

Let z be a cell of rows with about the same group probabilities, C and F the masses of its rows that a rate counts and
of those that it is over and does not count, n its mass, and π_a its mass times the probability of group a. Nobody knows
which rows are in which group. The mass of a among the counted ones lies between max(0, π_a + C - n) and min(π_a, C)
(Fréchet), and a's rate is largest where it has as many counted and as few other rows as possible. The largest rate of a
and the smallest of b are reached together, as there are enough other rows for both (Kallus, Mao & Zhou 2022, prop. 3).
Rows whose probabilities differ a little share a cell: that can only widen the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.dependent import noise_of
from fairkit.limits.means import student

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class End:
    """One end of a group's rate.

    Attributes
    ----------
    value
        The rate; NaN where the group may have no rows that it is over.
    slopes
        In each cell's sums (π_1 .. π_K, confusion cells), shape [Z, K + 4].
    """

    value: float
    slopes: Array


def end_of(sums: Array, group: int, groups: int, over: Array, counted: Array, *, largest: bool) -> End:
    """Return the smallest or the largest rate that a group can have.

    Parameters
    ----------
    sums
        By cell: the masses π of the groups, then the four confusion cells, shape [Z, K + 4].
    group, groups
        Its place, and how many there are.
    over, counted
        The cells that the rate is over and those that it counts, as 0 and 1, shape [4].
    largest
        Which end.
    """
    own = np.zeros(groups + 4)
    own[group] = 1
    good, bad = np.append(np.zeros(groups), counted), np.append(np.zeros(groups), over - counted)
    if not largest:
        good, bad = bad, good
    everybody = np.append(np.zeros(groups), np.ones(4))
    most, spare = sums @ own < sums @ good, own + bad - everybody
    gained = np.where(most[:, None], own, good)
    forced = np.where((sums @ spare > 0)[:, None], spare, 0.0)
    top, rest = float((gained * sums).sum()), float((forced * sums).sum())
    with np.errstate(all="ignore"):
        share = np.float64(top) / (top + rest)
        slopes = ((1 - share) * gained - share * forced) / (top + rest)
    return End(float(share), slopes) if largest else End(float(1 - share), -slopes)


@dataclass(frozen=True, slots=True)
class Error:
    """A standard error and its degrees of freedom: without end where rows are independent."""

    value: float
    degrees: float

    def reach(self, z: float) -> float:
        """Return how far an end goes at a normal quantile."""
        return self.value * float(student(z, np.array([self.degrees + 1]))[0])


@dataclass(frozen=True, slots=True)
class Sampling:
    """Where the noise of functions of the sums comes from: rows, or buckets of clusters (the sandwich over buckets).

    Attributes
    ----------
    second
        By cell the sums of the products by row, shape [Z, K + 4, K + 4].
    buckets
        The sums by cell and bucket, shape [Z, B, K + 4]; None where rows are independent.
    """

    second: Array
    buckets: Array | None = None

    def error(self, slopes: Array) -> Error:
        """Return the error of a number with these slopes in the sums, shape [Z, K + 4]."""
        if self.buckets is None:
            square = np.einsum("zi,zij,zj->", slopes, self.second, slopes)
            return Error(float(np.sqrt(max(square, 0.0))), np.inf)
        pull = np.einsum("zi,zbi->b", np.nan_to_num(slopes), self.buckets)
        noise = noise_of(pull[None], np.asarray(self.buckets.any(axis=(0, 2)))[None])
        return Error(float(np.sqrt(noise.variance[0])), float(noise.degrees[0]))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of what a number can be, with their standard errors."""

    low: float
    high: float
    low_error: Error
    high_error: Error

    def limits(self, z: float) -> tuple[float, float]:
        """Return the ends with sampling error on top."""
        return self.low - self.low_error.reach(z), self.high + self.high_error.reach(z)


def rate_bounds(sums: Array, sampling: Sampling, group: int, over: Array, counted: Array) -> Bounds:
    """Return the bounds of a group's rate.

    Parameters
    ----------
    sums
        By cell, shape [Z, K + 4].
    sampling
        Their noise.
    group, over, counted
        As in `end_of`.
    """
    groups = sums.shape[1] - 4
    low, high = (end_of(sums, group, groups, over, counted, largest=side) for side in (False, True))
    return Bounds(low.value, high.value, sampling.error(low.slopes), sampling.error(high.slopes))


def difference_bounds(
    sums: Array, sampling: Sampling, pair: tuple[int, int], over: Array, counted: Array
) -> Bounds:
    """Return the bounds of the difference of two groups' rates, first minus second."""
    groups = sums.shape[1] - 4
    first, other = (
        [end_of(sums, group, groups, over, counted, largest=side) for side in (False, True)] for group in pair
    )
    low, high = first[0].slopes - other[1].slopes, first[1].slopes - other[0].slopes
    return Bounds(
        first[0].value - other[1].value,
        first[1].value - other[0].value,
        sampling.error(low),
        sampling.error(high),
    )
