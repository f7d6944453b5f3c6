"""Two models on the same rows: joint totals, and what they say about the difference of their numbers.

The rows are the same, so most of the noise is too: it cancels in the difference. A row contributes s_A to the
sums of model A and s_B to those of model B; Σ w² (s_A, s_B)(s_A, s_B)ᵀ is the covariance of both sums when rows
are resampled, and the delta method carries it to any smooth function of the sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.clusters import BUCKETS
from fairkit.intervals import student
from fairkit.metrics import Rate
from fairkit.statistics import Confusion, Sums
from fairkit_comparing.records import Paired

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric
    from fairkit.statistics import Rows
    from fairkit_comparing.records import DrawnScores

    Array = NDArray[np.float64]


def contributions(metric: Metric, rows: Rows) -> Array:
    """Return each row's contributions to a metric's sums, shape [n, m]."""
    if isinstance(metric.statistic, Confusion):
        assert rows.decision is not None  # noqa: S101 -- asked only where there are decisions
        favorable = rows.outcome > 0.5
        no, yes = 1 - rows.decision, rows.decision
        return np.column_stack([~favorable * no, ~favorable * yes, favorable * no, favorable * yes])
    parts = rows.expected(metric.contributions)
    return parts[:, None] if parts.ndim == 1 else parts


def joint_sums(first: Array, second: Array, weights: Array | None, groups: NDArray[np.int64], n_groups: int) -> Sums:
    """Total the contributions of two models to the same rows."""
    parts = np.hstack([first, second])
    weighted = parts if weights is None else parts * weights[:, None]
    width = parts.shape[1]
    order = np.argsort(groups, kind="stable")
    ends = np.searchsorted(groups[order], np.arange(n_groups + 1))
    totals, squares = np.zeros((n_groups, width)), np.zeros((n_groups, width, width))
    for g in range(n_groups):
        mine = weighted[order[ends[g] : ends[g + 1]]]
        totals[g], squares[g] = mine.sum(axis=0), mine.T @ mine
    return Sums(np.diff(ends).astype(np.float64), totals, squares)


def paired(metric: Metric, sums: Sums, z: float) -> Paired:
    """Turn joint sums into both models' numbers in every group, with their covariance.

    Where the models agree on every row of a rate, the plain covariance says that the difference is exactly 0.
    As Bonett & Price (2012) do for paired proportions, one row each way is added to the disagreements.
    """
    width = sums.first.shape[1] // 2
    values = np.empty((2, len(sums.count)))
    slopes = np.zeros((2, *sums.first.shape))
    for model in (0, 1):
        part = slice(model * width, (model + 1) * width)
        values[model], slopes[model, :, part] = _gradient(metric, sums.first[:, part], sums.second[:, part, part])
    covariance = np.einsum("agi,gij,bgj->gab", slopes, sums.second, slopes)
    if isinstance(metric, Rate):
        over = np.array(metric.over, dtype=np.float64)
        with np.errstate(divide="ignore"):
            extra = [1 / (sums.first[:, m * width : (m + 1) * width] @ over) ** 2 for m in (0, 1)]
        covariance[:, 0, 0] += extra[0]
        covariance[:, 1, 1] += extra[1]
    else:
        covariance *= ((student(z, sums.count) / z) ** 2)[:, None, None]
    return Paired(values, covariance)


def joint_buckets(first: Array, second: Array, weights: Array | None, cells: NDArray[np.int64], n_cells: int) -> Array:
    """Sum the contributions of two models by group and bucket of clusters, shape [n_cells, 2m]."""
    parts = np.hstack([first, second])
    weighted = parts if weights is None else parts * weights[:, None]
    return np.stack([np.bincount(cells, column, n_cells) for column in weighted.T], axis=1)


def dependent(metric: Metric, sums: Sums, buckets: Array, z: float) -> Paired:
    """Turn joint sums into both models' numbers, with the noise of buckets of clusters."""
    plain = paired(metric, sums, z)
    width = sums.first.shape[1] // 2
    pull = np.empty((2, *buckets.shape[:2]))
    for model in (0, 1):
        part = slice(model * width, (model + 1) * width)
        _, slopes = _gradient(metric, sums.first[:, part], sums.second[:, part, part])
        pull[model] = np.einsum("gi,gbi->gb", slopes, buckets[:, :, part])
    count = (buckets != 0).any(axis=2).sum(axis=1).astype(np.float64)
    factor = np.sqrt(count / np.maximum(count - 1, 1)) * student(z, count) / z
    return Paired(plain.values, plain.covariance, pull * factor[:, None])


def _gradient(metric: Metric, first: Array, second: Array) -> tuple[Array, Array]:
    """Return the value and its slopes in the sums, by central differences of a thousandth of their noise."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.asarray(metric.compute(first), dtype=np.float64)
        slopes = np.zeros_like(first)
        for i in range(first.shape[1]):
            step = 1e-3 * np.sqrt(np.maximum(second[:, i, i], 1e-300))
            step = np.where(step > 1e-12 * np.abs(first[:, i]), step, 1e-6 * np.abs(first[:, i]) + 1e-12)
            up, down = first.copy(), first.copy()
            up[:, i] += step
            down[:, i] -= step
            slopes[:, i] = (metric.compute(up) - metric.compute(down)) / (2 * step)
    return value, slopes


def paired_areas(
    scores: tuple[DrawnScores, DrawnScores],
    outcome: Array,
    weights: Array | None,
    groups: NDArray[np.int64],
    n_groups: int,
    clusters: NDArray[np.int64] | None = None,
) -> Paired:
    """Return both models' areas under the ROC curve in every group, with DeLong's covariance.

    References
    ----------
    DeLong, DeLong & Clarke-Pearson (1988), Biometrics 44(3).
    """
    values, covariance = np.full((2, n_groups), np.nan), np.full((n_groups, 2, 2), np.nan)
    every = np.ones_like(outcome) if weights is None else weights
    pull = None if clusters is None else np.full((2, n_groups, BUCKETS), np.nan)
    for g in range(n_groups):
        mine = groups == g
        good, weight = outcome[mine] > 0.5, every[mine]
        if not (good.any() and (~good).any()):
            continue
        influence = np.empty((2, int(mine.sum())))
        for model in (0, 1):
            own = scores[model]
            values[model, g], influence[model] = _area(own.values[mine], own.shares, good, weight)
        covariance[g] = influence @ influence.T
        if pull is not None and clusters is not None:
            pull[:, g] = [np.bincount(clusters[mine], one, BUCKETS) for one in influence]
    return Paired(values, covariance, pull)


def _area(score: Array, shares: Array, good: NDArray[np.bool_], weight: Array) -> tuple[float, Array]:
    """Return the area, and how far each row pulls it (placement less area, over its outcome's weight).

    A row whose score is drawn stands at each of its scores, as often as it is drawn.
    """
    levels, level = np.unique(score, return_inverse=True)
    level = level.reshape(score.shape)
    below = [
        sum(share * np.bincount(level[:, k], weight * side, len(levels)) for k, share in enumerate(shares))
        for side in (~good, good)
    ]
    totals = [float((weight * side).sum()) for side in (~good, good)]
    rank = [(np.cumsum(side) - side / 2) / total for side, total in zip(below, totals, strict=True)]
    placement = np.where(good[:, None], rank[0][level], 1 - rank[1][level]) @ shares
    area = float((weight * good * placement).sum() / totals[1])
    rows = [max(int(side.sum()), 2) for side in (~good, good)]
    small = np.where(good, np.sqrt(rows[1] / (rows[1] - 1)), np.sqrt(rows[0] / (rows[0] - 1)))
    return area, small * weight * (placement - area) / np.where(good, totals[1], totals[0])
