"""The standardized mean difference of scores: Cohen's d with the mean of the two groups' variances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.limits.means import student
from fairkit.metrics import Estimate
from fairkit.statistics import ScoreTable
from fairkit_dependent import SCORE_BUCKETS, doubts_of, noise_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def mean_differences(table: ScoreTable, buckets: ScoreTable | None, reference: int) -> Estimate:
    """Return (mean of a group - mean of the reference) / sqrt of the mean of both variances, for every group.

    Its variance is that of the influence function (μ moves by y - μ, a variance by (y - μ)² - σ²), which needs no
    normal scores (Austin 2009 gives the form for normal ones).
    """
    mass = table.mass.sum(axis=2)
    squares = table.squares.sum(axis=2)
    values, own, other = _influences(mass, table.middles, reference)
    with np.errstate(all="ignore"):
        rows = mass.sum(axis=0) ** 2 / squares.sum(axis=0)
        variance = (own**2 * squares).sum(axis=0) + (other**2 * squares[:, [reference]]).sum(axis=0)
    degrees = np.minimum(rows, rows[reference]) - 1
    doubts: dict[int, str] = {}
    if isinstance(buckets, ScoreTable):
        variance, degrees, doubts = _dependent(buckets, reference, len(values))
    error = np.sqrt(variance)
    error[reference] = 0.0

    def limits(z: float) -> tuple[Array, Array]:
        half = student(z, degrees + 1) * error
        return values - half, values + half

    return Estimate(values, limits, sizes=rows, doubts=doubts)


def _influences(mass: Array, scores: Array, reference: int) -> tuple[Array, Array, Array]:
    """Return the differences, and how far a row of the group and one of the reference pull them, each [U, G]."""
    with np.errstate(all="ignore"):
        total = mass.sum(axis=0)
        mean = (mass * scores[:, None]).sum(axis=0) / total
        away = scores[:, None] - mean
        spread = (mass * away**2).sum(axis=0) / total
        scale = np.sqrt((spread + spread[reference]) / 2)
        value = np.where(scale > 0, (mean - mean[reference]) / scale, np.nan)
        own = (away / scale - value / (4 * scale**2) * (away**2 - spread)) / total
        base, base_spread = away[:, [reference]], spread[reference]
        other = (-base / scale - value / (4 * scale**2) * (base**2 - base_spread)) / total[reference]
    value[reference] = 0.0
    return value, own, other


def _dependent(buckets: ScoreTable, reference: int, groups: int) -> tuple[Array, Array, dict[int, str]]:
    """Return the variances, their degrees of freedom and what is in doubt, from buckets of clusters."""
    mass = buckets.mass.sum(axis=2).reshape(len(buckets.values), groups, SCORE_BUCKETS)
    _, own, other = _influences(mass.sum(axis=2), buckets.middles, reference)
    with np.errstate(all="ignore"):
        pull = np.einsum("ug,ugb->gb", np.nan_to_num(own), mass)
        pull = pull + np.einsum("ug,ub->gb", np.nan_to_num(other), mass[:, reference])
    sizes = mass.sum(axis=0)
    noise = noise_of(pull, (sizes > 0) | (sizes[reference] > 0), sizes)
    fewer = np.minimum(noise.effective, noise.effective[reference])
    return (
        noise.variance,
        np.minimum(noise.degrees, np.maximum(noise.degrees[reference], 1)),
        doubts_of(noise.buckets, fewer),
    )
