"""What group probabilities leave open: the smallest and the largest difference of two groups' rates.

Let z be a cell of rows with about the same group probabilities, C and F the masses of its rows that a rate counts and
of those that it is over and does not count, n its mass, and π_a its mass times the probability of group a. Nobody knows
which rows are in which group. The mass of a among the counted ones lies between max(0, π_a + C - n) and min(π_a, C)
(Fréchet), and a's rate is largest where it has as many counted and as few other rows as possible. The largest rate of a
and the smallest of b are reached together, as there are enough other rows for both (Kallus, Mao & Zhou 2022, prop. 3).
Rows whose probabilities differ a little share a cell: that can only widen the bounds.

The smaller of two noisy masses is too small on average where the two are about equal: in a population whose decisions
*are* the groups the plain bounds would hold the truth in none of a thousand samples of 20 cells. In limits a cell whose
two masses are nearer than `NEAR` standard errors has the mean of the two, which is no smaller than the smaller one and
has no such bias (the problem of intersection bounds; Chernozhukov, Lee & Rosen 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.limits.means import student
from fairkit_dependent import noise_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


NEAR = 2.5
"""So many standard errors apart it is known which of two masses is the smaller one."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a group's rate."""

    value: float  # the rate; NaN where the group may have no rows that it is over
    slopes: Array  # in each cell's sums (π_1 .. π_K, confusion cells), shape [Z, K + 4]


def end_of(
    sums: Array,
    group: int,
    groups: int,
    over: Array,
    counted: Array,
    *,
    largest: bool,
    sampling: Sampling | None = None,
    off: float = 0.0,
) -> End:
    """Return the smallest or the largest rate of a group, whose share of a cell may be `off` its probability."""
    group_mass = np.zeros(groups + 4)
    group_mass[group] = 1
    good, bad = np.append(np.zeros(groups), counted), np.append(np.zeros(groups), over - counted)
    if not largest:
        good, bad = bad, good
    everybody = np.append(np.zeros(groups), np.ones(4))
    # Fréchet, by cell: at most min(π, good) of the group is counted, at least π + bad - 1 is not
    most, spare = group_mass + off * everybody, group_mass + bad - (1 + off) * everybody
    whole, some = (_chosen(sums, part, sampling)[:, None] for part in (good - most, spare))
    gained, forced = whole * most + (1 - whole) * good, some * spare
    top, rest = float((gained * sums).sum()), float((forced * sums).sum())  # the rest may be below 0 by noise
    with np.errstate(all="ignore"):
        share = np.float64(top) / (top + rest)
        # delta method: derivatives of top / (top + rest) in the sums
        slopes = ((1 - share) * gained - share * forced) / (top + rest)
    return End(float(share), slopes) if largest else End(float(1 - share), -slopes)


def _chosen(sums: Array, excess: Array, sampling: Sampling | None) -> Array:
    """Return by cell 1 where an excess is positive, 0 where it is not, one half where noise hides it, shape [Z]."""
    value = sums @ excess
    sign = np.asarray(value > 0, dtype=np.float64)
    if sampling is None:
        return sign
    return np.where(np.abs(value) < NEAR * sampling.cell_errors(excess), 0.5, sign)


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
    """Where the noise of functions of the sums comes from: rows, or buckets of clusters (the sandwich over buckets)."""

    second: Array  # by cell the sums of the products by row, shape [Z, K + 4, K + 4]
    buckets: Array | None = None  # the sums by cell and bucket, shape [Z, B, K + 4]; None where rows are independent
    off: float = 0.0  # how far a group's share of a cell may be from its mean probability

    def cell_errors(self, direction: Array) -> Array:
        """Return the standard error of a combination of each cell's sums, shape [Z]."""
        if self.buckets is None:
            square = np.einsum("i,zij,j->z", direction, self.second, direction)
        else:
            pull = self.buckets @ direction
            square = ((pull - pull.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)))

    def error(self, slopes: Array) -> Error:
        """Return the error of a number with these slopes in the sums, shape [Z, K + 4]."""
        if self.buckets is None:
            square = np.einsum("zi,zij,zj->", slopes, self.second, slopes)
            return Error(float(np.sqrt(max(square, 0.0))), np.inf)
        pull = np.einsum("zi,zbi->b", np.nan_to_num(slopes), self.buckets)
        sizes = np.abs(self.buckets).sum(axis=(0, 2))
        noise = noise_of(pull[None], (sizes > 0)[None], sizes[None])
        return Error(float(np.sqrt(noise.variance[0])), float(noise.degrees[0]))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of what a number can be."""

    low: float  # on these rows
    high: float  # on these rows
    outer: tuple[float, float]  # the two ends with equal masses taken as equal: what limits start from
    errors: tuple[Error, Error]  # their standard errors

    def limits(self, z: float) -> tuple[float, float]:
        """Return the ends with sampling error on top."""
        low, high = min(self.low, self.outer[0]), max(self.high, self.outer[1])
        return low - self.errors[0].reach(z), high + self.errors[1].reach(z)


def rate_bounds(sums: Array, sampling: Sampling, group: int, over: Array, counted: Array) -> Bounds:
    """Return the bounds of a group's rate."""
    plain, outer = (_ends(sums, group, over, counted, noise, sampling.off) for noise in (None, sampling))
    errors = sampling.error(outer[0].slopes), sampling.error(outer[1].slopes)
    return Bounds(plain[0].value, plain[1].value, (outer[0].value, outer[1].value), errors)


def difference_bounds(sums: Array, sampling: Sampling, pair: tuple[int, int], over: Array, counted: Array) -> Bounds:
    """Return the bounds of the difference of two groups' rates, first minus second."""
    plain, outer = (
        [_ends(sums, group, over, counted, noise, sampling.off) for group in pair] for noise in (None, sampling)
    )
    ends = [(first[0].value - second[1].value, first[1].value - second[0].value) for first, second in (plain, outer)]
    first, second = outer
    errors = []
    for side in (0, 1):
        ours, theirs = first[side].slopes, second[1 - side].slopes
        alone = min(sampling.error(ours), sampling.error(theirs), key=lambda error: error.value)
        errors.append(max(sampling.error(ours - theirs), alone, key=lambda error: error.value))  # they may cancel
    return Bounds(*ends[0], ends[1], (errors[0], errors[1]))


def _ends(
    sums: Array, group: int, over: Array, counted: Array, sampling: Sampling | None, off: float
) -> tuple[End, End]:
    groups = sums.shape[1] - 4
    low, high = (
        end_of(sums, group, groups, over, counted, largest=side, sampling=sampling, off=off) for side in (False, True)
    )
    return low, high
