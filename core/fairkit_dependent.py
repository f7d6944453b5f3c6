"""Rows that are not independent: the noise of every metric from totals by bucket of clusters.

Rows of one cluster share a bucket (`fairkit.data.groups`), so that buckets are independent whatever happens inside.
A metric is computed without each bucket in turn: the jackknife over buckets gives its variance, and its covariance
between groups where clusters have rows of several groups (Wolter 2007, chapter 4). With fewer clusters than buckets a
bucket is a cluster, but for the few that share one; with more, a bucket holds several, and its variance is theirs
together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.hashing import BUCKETS
from fairkit.limits import student, weighted_share_limits
from fairkit.metrics import Estimate, Mean, Metric, Rate, moments_of
from fairkit.statistics import MomentSums, ScoreTable
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

FEWEST = 40
"""With fewer clusters their noise cannot be estimated."""
FEWEST_EFFECTIVE = 20
"""Nor with clusters so unequal that they count as fewer of one size (Carter, Schnepel & Steigerwald 2017)."""

SCORE_BUCKETS = BUCKETS // 4
"""Score tables are kept for every fourth of a bucket's number only: they are larger."""


STRATA_BUCKETS = BUCKETS // 16
"""Score tables by stratum, group and bucket are larger still."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What buckets say about a number in every group."""

    influence: Array  # how far each bucket pulls the number, shape [G, B]: their products add up to (co)variances
    buckets: Array  # buckets with rows, shape [G]
    degrees: Array  # of freedom of the variance, shape [G]: fewer than buckets where a few of them make up most of it
    effective: Array  # as how many buckets of one size they count, shape [G]

    @property
    def variance(self) -> Array:
        """Of each group's number, shape [G]; NaN where it is not known."""
        return np.asarray((self.influence**2).sum(axis=1))

    @property
    def skewness(self) -> Array:
        """Of each group's number, shape [G]."""
        with np.errstate(all="ignore"):
            return np.asarray(np.nan_to_num((self.influence**3).sum(axis=1) / self.variance**1.5))

    @property
    def correlation(self) -> Array:
        """Between groups, shape [G, G]; 0 where it is not known."""
        with np.errstate(all="ignore"):
            covariance = self.influence @ self.influence.T
            scale = np.sqrt(np.diag(covariance))
            return np.asarray(np.clip(np.nan_to_num(covariance / np.outer(scale, scale)), -1, 1))

    @property
    def few(self) -> dict[int, str]:
        """Why the interval of a group is not to be trusted, by its place."""
        return doubts_of(self.buckets, self.effective)


def doubts_of(clusters: Sequence[float] | Array, effective: Sequence[float] | Array) -> dict[int, str]:
    """Return why intervals are not to be trusted, by the place of the group."""
    both = enumerate(zip(clusters, effective, strict=True))
    doubts = {index: too_few(int(count), float(size)) for index, (count, size) in both}
    return {index: text for index, text in doubts.items() if text}


def too_few(clusters: int, effective: float = math.inf) -> str:
    """Say that nothing can be known about so few clusters; empty where they are enough."""
    if clusters < FEWEST:
        return f"there are about {clusters} clusters, and with fewer than {FEWEST} their noise cannot be known"
    if effective < FEWEST_EFFECTIVE:
        return (
            f"there are about {clusters} clusters, and a few of them have most of the rows: they count as about "
            f"{effective:.0f} of one size, and with fewer than {FEWEST_EFFECTIVE} their noise cannot be known"
        )
    return ""


def effective_clusters(sizes: Array) -> Array:
    """Return as how many clusters of one size some count, (Σ size)² / Σ size², for sizes of the shape [..., B]."""
    with np.errstate(all="ignore"):
        return np.asarray(np.nan_to_num(sizes.sum(axis=-1) ** 2 / (sizes**2).sum(axis=-1)))


def noise_of(influence: Array, there: NDArray[np.bool_], sizes: Array | None = None) -> Noise:
    """Return the noise that buckets make."""
    buckets = there.sum(axis=1).astype(np.float64)
    effective = buckets if sizes is None else effective_clusters(np.where(there, sizes, 0.0))
    with np.errstate(all="ignore"):
        scaled = np.where(there, influence, 0.0) * np.sqrt(buckets / np.maximum(buckets - 1, 1))[:, None]
        # 3 (Σ v²)² / Σ v⁴ is about B for normal influences, less where a few buckets dominate
        heavy = 3 * (scaled**2).sum(axis=1) ** 2 / (scaled**4).sum(axis=1)
    degrees = np.maximum(np.where(np.isfinite(heavy), np.minimum(heavy, effective), effective) - 1, 1)
    scaled[buckets < 2] = np.nan
    return Noise(scaled, buckets, degrees, effective)


def ratio_noise(top: Array, base: Array) -> Noise:
    """Return the noise of Σ top / Σ base: CR2 variances with Satterthwaite's degrees of freedom, in closed form.

    A bucket's residual e over √(1 - w), w its share of the base, has no bias where rows are independent (Bell &
    McCaffrey 2002). The degrees of freedom (Σ M_bb)² / Σ M_bc², M the covariance of these, and the rest of the bias are
    the worse of two working models: independent rows, and clusters whose rows are all alike (Pustejovsky & Tipton
    2018 use one). Of B clusters of one size both give the jackknife and B - 1.
    """
    there = (base > 0) | (top != 0)
    with np.errstate(all="ignore"):
        total = base.sum(axis=1, keepdims=True)
        value = top.sum(axis=1, keepdims=True) / total
        w = base / total
        left = np.maximum(1 - w, 1e-12)
        pull = (top - value * base) / (total * np.sqrt(left))
        even, q = (w**2).sum(axis=1), w**2 / left
        independent = 1 / (even + q.sum(axis=1) ** 2 - (q**2).sum(axis=1))
        a0, a1, a2 = ((q * w**power).sum(axis=1) for power in (0, 1, 2))
        trace = (q * (1 - 2 * w + even[:, None])).sum(axis=1)
        square = (q**2 * (1 + 2 * (even[:, None] - 2 * w))).sum(axis=1)
        square = square + even**2 * a0**2 + 2 * a0 * a2 + 2 * a1**2 - 4 * even * a0 * a1
        degrees = np.fmin(independent, trace**2 / square)
        pull = pull * np.sqrt(np.maximum(even / trace, 1.0))[:, None]
        heavy = 3 * (pull**2).sum(axis=1) ** 2 / (pull**4).sum(axis=1) - 1
    buckets = there.sum(axis=1).astype(np.float64)
    pull[buckets < 2] = np.nan
    degrees = np.maximum(np.nan_to_num(np.fmin(degrees, heavy), nan=1.0), 1.0)
    return Noise(np.where(there, pull, 0.0), buckets, degrees, effective_clusters(np.maximum(base, 0.0)))


def jackknife(compute: Callable[[Array], Array], sums: Array) -> Noise:
    """Return the noise of a function of sums: without each bucket in turn."""
    total = sums.sum(axis=1, keepdims=True)
    there = np.asarray((sums != 0).any(axis=2))
    with np.errstate(all="ignore"):
        value = np.asarray(compute(total), dtype=np.float64)
        moved = value - np.asarray(compute(total - sums), dtype=np.float64)
    buckets = there.sum(axis=1, keepdims=True)
    # delete one bucket: variance (B - 1) / B Σ_b (θ - θ_-b)²
    return noise_of(moved * (buckets - 1) / np.maximum(buckets, 1), there, np.abs(sums).sum(axis=2))


def jackknife_pairs(compute: Callable[[Array], Array], sums: Array) -> Callable[[int, int, Array], Noise]:
    """Return the noise of two groups' numbers that are pooled over strata with the same weights, [S].

    `sums`: by stratum, group and bucket, shape [S, G, B, m].
    """
    total = sums.sum(axis=2, keepdims=True)
    with np.errstate(all="ignore"):
        numbers = np.asarray(compute(total), dtype=np.float64)[..., 0]
        left = np.asarray(compute(total - sums), dtype=np.float64)
    there, mass = np.any(sums != 0, axis=3), np.abs(sums).sum(axis=3)

    def noise(a: int, b: int, weights: Array) -> Noise:
        used, both = np.flatnonzero(weights > 0), np.array([a, b])
        cells, used_weights = np.ix_(used, both), weights[used]
        gone = left[cells]
        finite: NDArray[np.bool_] = np.asarray(np.isfinite(gone).all(axis=1))
        with np.errstate(all="ignore"):
            share = np.where(finite, used_weights[:, None], 0.0)
            share = share / share.sum(axis=0)
            without = (share[:, None] * np.where(finite[:, None], gone, 0.0)).sum(axis=0)
        some: NDArray[np.bool_] = there[cells].any(axis=0)
        buckets = some.sum(axis=1, keepdims=True)
        moved = ((used_weights @ numbers[cells])[:, None] - without) * (buckets - 1) / np.maximum(buckets, 1)
        # a bucket's size is as much as it counts in the pooled number
        return noise_of(moved, some | some[::-1], np.tensordot(used_weights, mass[cells], axes=1))

    return noise


def by_bucket(first: Array, groups: int) -> Array:
    """Return sums, shape [G B, m], by group and bucket, shape [G, B, m]."""
    return np.asarray(first.reshape(groups, BUCKETS, -1))


def clustered(metric: Metric, totals: Any, estimate: Estimate, sums: Array | ScoreTable) -> Estimate:
    """Return an estimate with the limits that dependent rows allow."""
    if isinstance(sums, ScoreTable):
        noise = noise_of_scores(metric, sums, len(estimate.values))
        return widened(estimate, noise, metric.range)
    if isinstance(metric, Rate):
        return _rate(metric, estimate, sums)
    if isinstance(metric, Mean) and isinstance(totals, MomentSums) and type(metric).compute is Mean.compute:
        return _mean(metric, totals, ratio_noise(sums[..., 1], sums[..., 0]))
    noise = jackknife(metric.compute, sums)
    if isinstance(metric, Mean) and isinstance(totals, MomentSums):
        return _mean(metric, totals, noise)
    return widened(estimate, noise, metric.range)


def noise_of_scores(metric: Metric, table: ScoreTable, groups: int) -> Noise:
    """Return the noise of a function of score distributions, from a score table by group and bucket."""
    pull, there = score_influence(metric, table, groups, SCORE_BUCKETS)
    sizes = table.mass.sum(axis=(0, 2)).reshape(groups, SCORE_BUCKETS)
    return noise_of(pull, there, sizes)


def score_influence(metric: Metric, table: ScoreTable, groups: int, buckets: int) -> tuple[Array, NDArray[np.bool_]]:
    """Return each bucket's pull on a function of score distributions, and which buckets have rows, shapes [G, B]."""
    mass = table.mass.reshape(len(table.values), groups, buckets, 2)
    with np.errstate(all="ignore"):
        pull = np.nan_to_num(metric.influence(mass.sum(axis=2), table.middles))
    there: NDArray[np.bool_] = np.asarray(mass.sum(axis=(0, 3)) > 0)
    return np.einsum("ugo,ugbo->gb", pull, mass), there


def bucket_sums(clusters: NDArray[np.int64], *parts: Array) -> Array:
    """Return the sums of rows by bucket of clusters, shape [B, parts]."""
    return np.stack([np.bincount(clusters, part, BUCKETS) for part in parts], axis=1)


def noisy_share(rate: Array, noise: Noise, z: float) -> tuple[Array, Array]:
    """Return the limits of shares, shape [G], for the number of rows that would be as noisy."""
    with np.errstate(all="ignore"):
        spread = rate * (1 - rate)
        # p (1 - p) / n' = variance; a share of 0 or 1 counts each bucket as one row
        rows = np.where((spread > 0) & (noise.variance > 0), spread / noise.variance, noise.buckets)
        usable = np.where(np.isfinite(rows), rows, 1.0) * (z / student(z, noise.degrees + 1)) ** 2
        return weighted_share_limits(rate, usable, z)


def _rate(metric: Rate, estimate: Estimate, sums: Array) -> Estimate:
    """Take a share's limits for the number of rows that would be as noisy."""
    noise = ratio_noise(sums @ np.array(metric.counted, float), sums @ np.array(metric.over, float))
    rate = estimate.values

    def limits(z: float) -> tuple[Array, Array]:
        return noisy_share(rate, noise, z)

    return Estimate(rate, limits, estimate.sizes, {**estimate.doubts, **noise.few}, noise.correlation)


def _mean(metric: Mean, totals: MomentSums, noise: Noise) -> Estimate:
    """Take a mean's limits with the standard error and the skewness that buckets show."""
    n, error, _ = moments_of(totals)
    with np.errstate(all="ignore"):
        between = np.sqrt(noise.variance)
        # rows over the design effect, never more than there are
        rows = np.where(error > 0, n * np.minimum((error / between) ** 2, 1), noise.buckets)
        rows = np.clip(np.nan_to_num(rows, nan=1.0), 1.0, n)
        # Student's factor has the freedom of the buckets, what unseen rows could add the number of rows
        factor = student(2.0, noise.degrees + 1) / student(2.0, rows)
    estimate = metric.estimate_from(totals, rows, between * factor, noise.skewness)
    return replace(estimate, sizes=n, doubts={**estimate.doubts, **noise.few}, correlation=noise.correlation)


def widened(estimate: Estimate, noise: Noise, span: tuple[float, float]) -> Estimate:
    """Keep the shape of limits for independent rows, and give them the size that buckets ask for.

    The limits stay inside the range of the number. Where buckets show no noise at all, as for a number at the end of
    its range, each counts as one row.
    """
    error = np.sqrt(noise.variance)

    def limits(z: float) -> tuple[Array, Array]:
        low, high = estimate.limits(z)
        with np.errstate(all="ignore"):
            half = np.where(high < span[1], high - estimate.values, estimate.values - low)  # a whole side
            factor = student(z, noise.degrees + 1) * error / half
            rows = estimate.sizes if estimate.sizes is not None else noise.buckets
            bare = np.sqrt(np.maximum(rows / np.maximum(noise.buckets, 1), 1))
            factor = np.where(error > 0, factor, bare)
            down, up = factor * (estimate.values - low), factor * (high - estimate.values)
            return np.clip(estimate.values - down, *span), np.clip(estimate.values + up, *span)

    return replace(estimate, limits=limits, doubts={**estimate.doubts, **noise.few}, correlation=noise.correlation)
