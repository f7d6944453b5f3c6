"""From totals by stratum and group to numbers that can be pooled: values, weights and variances in every cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.metrics import CONFUSION, Estimate, Mean, Metric, Rate, moments_of
from fairkit.statistics import MomentSums, ScoreTable, Sums
from fairkit_dependent import STRATA_BUCKETS, by_bucket, jackknife_pair, noise_of, score_influence
from fairkit_group.stratified.pooled import Pair, StratumCells, pairs_of, pooled_pair
from fairkit_group.totals import EVERYBODY, of_key, of_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit_dependent import Noise

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Strata:
    """The totals of one sensitive column inside the strata of one column."""

    names: list[str]  # of the strata
    groups: int  # how many groups there are
    totals: Mapping[str, Any]  # by statistic: each of stratum and group
    buckets: Mapping[str, Any]

    def counts(self) -> Array:
        """Return the rows of each stratum and group, shape [S, G]."""
        parts = {key: part for key, part in self.totals.items() if key.endswith(EVERYBODY)} or self.totals
        known = [part for part in parts.values() if isinstance(part, Sums)]
        if known:
            return self._shaped(known[0].count)
        tables = [part for part in parts.values() if isinstance(part, ScoreTable)]
        return self._shaped(tables[0].mass.sum(axis=(0, 2)))

    def confusion(self) -> Array | None:
        """Return the soft confusion cells, shape [S, G, 4]; None without decisions."""
        cells = of_key(self.totals, CONFUSION.key)
        return cells.first.reshape(len(self.names), self.groups, 4) if isinstance(cells, Sums) else None

    def whole(self) -> bool:
        """Whether decisions are whole and rows count the same, so that cells are counts."""
        cells = of_key(self.totals, CONFUSION.key)
        return isinstance(cells, Sums) and np.allclose(cells.second, cells.first[:, :, None] * np.eye(4))

    def effective(self) -> Array:
        """Return the confusion cells scaled to effective numbers of rows, shape [S, G, 4]."""
        cells = of_key(self.totals, CONFUSION.key)
        with np.errstate(all="ignore"):
            factor = cells.first.sum(axis=1) / cells.second.sum(axis=(1, 2))
        return np.asarray((cells.first * np.nan_to_num(factor)[:, None]).reshape(len(self.names), self.groups, 4))

    def cells(self, metric: Metric, rng: np.random.Generator) -> StratumCells | None:
        """Return a metric in every stratum and group; None where its totals are not kept by stratum."""
        totals = of_metric(self.totals, metric)
        if not isinstance(totals, Sums | ScoreTable):
            return None
        if isinstance(metric, Rate) and isinstance(totals, Sums):
            return self._rate(metric, totals)
        if isinstance(metric, Mean) and isinstance(totals, MomentSums):
            return self._mean(metric, totals).inverse_variance()
        return self._other(metric, metric.estimate(totals, rng), totals)

    def pair(self, metric: Metric, cells: StratumCells, a: int, b: int) -> Pair:
        """Pool two groups' numbers."""
        sums = of_metric(self.buckets, metric)
        if sums is None:
            return pooled_pair(cells, a, b)
        if isinstance(sums, ScoreTable):
            return pooled_pair(cells, a, b, lambda weights: self._score_noise(metric, sums, (a, b), weights))
        shaped = by_bucket(sums, len(self.names) * self.groups)
        shaped = shaped.reshape(len(self.names), self.groups, *shaped.shape[1:])[:, [a, b]]

        def noise(weights: Array) -> Noise:
            return jackknife_pair(metric.compute, shaped, weights)

        return pooled_pair(cells, a, b, noise)

    def influence(self, metric: Metric, table: ScoreTable) -> tuple[Array, NDArray[np.bool_]]:
        """Return how far buckets pull a function of scores in every stratum and group, and which do, [S, G, B]."""
        pull, there = score_influence(metric, table, len(self.names) * self.groups, STRATA_BUCKETS)
        shape = (len(self.names), self.groups, STRATA_BUCKETS)
        return pull.reshape(shape), there.reshape(shape)

    def _score_noise(self, metric: Metric, table: ScoreTable, pair: tuple[int, int], weights: Array) -> Noise:
        pull, there = self.influence(metric, table)
        used, places = weights > 0, list(pair)
        pooled = np.einsum("s,sgb->gb", weights[used], pull[used][:, places])
        some: NDArray[np.bool_] = np.asarray(there[used][:, places].any(axis=0))
        mass = table.mass.sum(axis=(0, 2)).reshape(len(self.names), self.groups, STRATA_BUCKETS)
        return noise_of(pooled, some | some[::-1], mass[used][:, places].sum(axis=0))

    def pairs(self, metric: Metric, cells: StratumCells, reference: int | None = None) -> list[Pair]:
        """Pool every pair of groups, or every group with the reference, that some stratum has."""
        found = [self.pair(metric, cells, a, b) for a, b in pairs_of(self.groups, reference)]
        return [pair for pair in found if pair.known]

    def _shaped(self, values: Array) -> Array:
        return np.asarray(values, dtype=np.float64).reshape(len(self.names), self.groups)

    def _rate(self, metric: Rate, totals: Sums) -> StratumCells:
        over, counted = np.array(metric.over, float), np.array(metric.counted, float)
        base = totals.first @ over
        with np.errstate(all="ignore"):
            rate = (totals.first @ counted) / base
            residual = counted - rate[:, None] * over
            square = np.einsum("gi,gij,gj->g", residual, totals.second, residual)
            rows = base**2 / np.einsum("i,gij,j->g", over, totals.second, over)
            variance = square / base**2 * rows / np.maximum(rows - 1, 1)
        return StratumCells(
            values=self._shaped(rate),
            mass=self._shaped(base),
            sizes=self._shaped(np.nan_to_num(rows)),
            variance=self._shaped(np.nan_to_num(variance)),
            cube=np.zeros((len(self.names), self.groups)),
            span=(0.0, 1.0),
            share=True,
        )

    def _mean(self, metric: Mean, totals: MomentSums) -> StratumCells:
        with np.errstate(all="ignore"):
            values = np.asarray(metric.compute(totals.first), dtype=np.float64)
            n, error, skewness = moments_of(totals)
        span, reach = metric.range, totals.reach
        if not np.isfinite(span).all():
            span = (float(totals.least[0]), float(totals.most[0]))
        elif reach[1] > 0 and not totals.certain.any():  # as far as the same rows' losses at the other outcomes go
            span = (float(totals.least[0]), float(max(totals.most[0], reach[0] / reach[1])))
        return StratumCells(
            values=self._shaped(values),
            mass=self._shaped(np.nan_to_num(n)),
            sizes=self._shaped(np.nan_to_num(n)),
            variance=self._shaped(np.nan_to_num(error) ** 2),
            cube=self._shaped(np.nan_to_num(skewness) * np.nan_to_num(error) ** 3),
            span=span,
            share=False,
        )

    def _other(self, metric: Metric, estimate: Estimate, totals: Any) -> StratumCells:
        low, high = estimate.limits(1.0)
        if estimate.inflated is not None:  # its lower limit allows for that, too
            low = 2 * estimate.values - high
        rows = estimate.sizes if estimate.sizes is not None else totals.count
        variance = ((high - low) / 2) ** 2
        known = np.isfinite(estimate.values) & np.isfinite(variance)
        return StratumCells(
            values=self._shaped(np.where(known, estimate.values, np.nan)),
            mass=self._shaped(np.nan_to_num(rows)),
            sizes=self._shaped(np.nan_to_num(rows)),
            variance=self._shaped(np.nan_to_num(variance, posinf=0.0)),
            cube=np.zeros((len(self.names), self.groups)),
            span=metric.range,
            share=False,
            inflated=estimate.inflated,
        )
