"""The distance between score distributions inside strata, standardised to each group's own strata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import kolmogorov_quantile
from fairkit_dependent import STRATA_BUCKETS, effective_clusters, noise_of, too_few

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.statistics import ScoreTable

    Array = NDArray[np.float64]

_LEVELS = 150


@dataclass(frozen=True, slots=True)
class Standardised:
    """Each group's distance to everybody inside strata."""

    values: Array
    scale: Array  # what Kolmogorov's quantile is multiplied by, shape [G]
    at: Array  # the score where the distance is reached, shape [G]
    bound: float  # how much cells of scores can hide
    rows: Array  # the effective number of rows of each group in these strata, shape [G]
    doubts: dict[int, str]  # why a group's interval is not to be trusted, by its place

    def limits(self, confidence: float) -> tuple[Array, Array]:
        """Return limits for each group alone."""
        half = kolmogorov_quantile(confidence) * self.scale
        return np.maximum(self.values - half, 0), np.minimum(self.values + half + self.bound, 1)


def distances_within(table: ScoreTable, strata: int, buckets: ScoreTable | None) -> Standardised:
    """Measure how far a group's scores are from those that everybody in its strata has.

    In a stratum F_as - F_s = (1 - p_as)(F_as - F_rest,s), whose deviation from the truth is (1 - p_as) times that of
    two independent samples: about c_s B_s(F_s(z)) with a Brownian bridge B_s and
    c_s² = (1 - p_as)² (1 / n_as + 1 / n_rest,s). The sum over strata with weights w_s, which are taken as given, has
    the covariance Σ w_s² c_s² (F_s(min) - F_s F_s'): that of one bridge of the size C² = Σ w_s² c_s² at the mean of
    the F_s, less a covariance of the F_s. Its largest deviation is then stochastically at most C times Kolmogorov's
    (Anderson 1955): the limits hold, and are wide where strata have different scores. With one stratum it is
    `fairkit_group.ranking.distances`.
    """
    mass, squares = (part.sum(axis=2).reshape(len(part), strata, -1) for part in (table.mass, table.squares))
    size, square = mass.sum(axis=0), squares.sum(axis=0)
    everybody, rest = size.sum(axis=1, keepdims=True), size.sum(axis=1, keepdims=True) - size
    used = (size > 0) & (rest > 0)
    own = np.where(used, size, 0.0)
    total = own.sum(axis=0)
    with np.errstate(all="ignore"):
        weights = own / total
        factors = np.where(used, weights / size, 0.0), np.where(used, weights / everybody, 0.0)
        step = (mass * factors[0]).sum(axis=1) - np.einsum("us,sg->ug", mass.sum(axis=2), factors[1])
        gap = np.abs(np.cumsum(step, axis=0))
        rest_square = square.sum(axis=1, keepdims=True) - square
        noise = (weights * rest / everybody) ** 2 * (square / size**2 + rest_square / rest**2)
        scale = np.sqrt(np.where(used, noise, 0.0).sum(axis=0))
        rows = total**2 / np.where(used, square, 0.0).sum(axis=0)
        hidden = (mass * np.where(used, 1.0, 0.0)).sum(axis=1)[table.mixed] / total
    values = np.where(total > 0, gap.max(axis=0, initial=0.0), np.nan)
    doubts: dict[int, str] = {}
    if buckets is not None:
        scale, doubts = _stretched(buckets, factors, scale)
    bound = 0.0 if table.exact else float(np.nanmax(hidden, initial=0.0))
    return Standardised(values, scale, table.values[gap.argmax(axis=0)], bound, rows, doubts)


def _stretched(buckets: ScoreTable, factors: tuple[Array, Array], scale: Array) -> tuple[Array, dict[int, str]]:
    """Stretch the limits of independent rows by the largest noise that buckets show at any score."""
    strata, groups = factors[0].shape
    mass = buckets.mass.sum(axis=2).reshape(-1, strata, groups, STRATA_BUCKETS)
    below = np.cumsum(mass, axis=0)[:: max(len(mass) // _LEVELS, 1)]
    size = mass.sum(axis=0)  # [S, G, B]
    stretched, doubts = scale.copy(), {}
    for group in range(groups):
        group_factors, base = factors[0][:, group], factors[1][:, group]
        with np.errstate(all="ignore"):
            mean = np.nan_to_num(below[:, :, group].sum(axis=2) / size[:, group].sum(axis=1))  # F_as
            pull = np.einsum("s,zsb->zb", group_factors, below[:, :, group] - mean[:, :, None] * size[:, group])
            all_below, everybody = below.sum(axis=2), size.sum(axis=1)
            whole = np.nan_to_num(all_below.sum(axis=2) / everybody.sum(axis=1))  # F_s
            pull = pull - np.einsum("s,zsb->zb", base, all_below - whole[:, :, None] * everybody)
        there: NDArray[np.bool_] = np.asarray(size[group_factors > 0].any(axis=(0, 1)))
        counted = size[group_factors > 0][:, group].sum(axis=0)
        noise = noise_of(pull, np.tile(there, (len(pull), 1)))
        largest = float(np.sqrt(np.nanmax(noise.variance, initial=0.0)))
        if scale[group] > 0:
            stretched[group] = scale[group] * max(largest / (0.5 * scale[group]), 1.0)
        doubt = too_few(int(there.sum()), float(effective_clusters(counted)))
        if doubt:
            doubts[group] = doubt
    return stretched, doubts
