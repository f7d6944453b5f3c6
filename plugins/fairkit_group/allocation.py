"""What rows without a sensitive value could do: bounds over all ways to put them into groups.

The rows' decisions, outcomes and scores are known, their groups are not (partial identification; Manski 2003). A
rate is largest in a group when all missing rows that count go there, and smallest when all that do not count go
there. Means use that j of m numbers with mean μ and standard deviation s have a mean within s √((m-j)/j) of μ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.metrics import Mean, Rate
from fairkit.statistics import ScoreTable, Sums
from fairkit_group.boxes import Box
from fairkit_group.ranking import RocAuc
from fairkit_group.rates import BalancedAccuracy, F1Score, TrueNegativeRate, TruePositiveRate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric

    Array = NDArray[np.float64]

_STEPS = 2_001


def allocated(metric: Metric, observed: Any, missing: Any) -> Box | None:
    """Return the bounds on a metric in every group, whatever groups the missing rows belong to."""
    if isinstance(metric, Rate):
        return _rate(np.array(metric.over), np.array(metric.counted), observed, missing)
    if isinstance(metric, F1Score):
        box = _rate(np.array((0, 1, 1, 1)), np.array((0, 0, 0, 1)), observed, missing)
        return Box(2 * box.low / (1 + box.low), 2 * box.high / (1 + box.high))
    if isinstance(metric, BalancedAccuracy):
        parts = [allocated(one, observed, missing) for one in (TruePositiveRate(), TrueNegativeRate())]
        return Box(*(sum(getattr(p, side) for p in parts) / 2 for side in ("low", "high")))
    if isinstance(metric, Mean):
        return _mean(metric, observed, missing)
    if isinstance(metric, RocAuc) and isinstance(observed, ScoreTable):
        return _area(metric, observed, missing)
    return None


def _rate(over: Array, counted: Array, known: Sums, missing: Sums) -> Box:
    inside, denominator = known.first @ counted, known.first @ over
    for_it, against = float(missing.first[0] @ counted), float(missing.first[0] @ (over - counted))
    with np.errstate(divide="ignore", invalid="ignore"):
        return Box(inside / (denominator + against), (inside + for_it) / (denominator + for_it))


def _mean(metric: Mean, known: Sums, missing: Sums) -> Box | None:
    """Bound means; under weights only those with a range."""
    rows, total = known.first[:, 0], known.first[:, 1]
    mass = float(missing.first[0, 0])
    if not np.isclose(missing.second[0, 0, 0], mass):
        low, high = metric.range
        if not np.isfinite([low, high]).all():
            return None
        return Box((total + mass * low) / (rows + mass), (total + mass * high) / (rows + mass))
    mean = missing.first[0, 1] / mass
    spread = np.sqrt(max(missing.second[0, 1, 1] / mass - mean**2, 0.0))
    taken = mass * np.sin(np.linspace(0, np.pi / 2, _STEPS))[:, None] ** 2  # dense at both ends
    reach = spread * np.sqrt(taken * (mass - taken))
    low = ((total + taken * mean - reach) / (rows + taken)).min(axis=0)
    high = ((total + taken * mean + reach) / (rows + taken)).max(axis=0)
    return Box(np.clip(low, *metric.range), np.clip(high, *metric.range))


def _area(metric: RocAuc, observed: ScoreTable, missing: ScoreTable) -> Box:
    """Bound the area: pairs with a missing row all count, or none."""
    pairs = observed.mass[..., 0].sum(axis=0) * observed.mass[..., 1].sum(axis=0)
    all_pairs = (observed.mass[..., 0].sum(axis=0) + missing.mass[..., 0].sum()) * (
        observed.mass[..., 1].sum(axis=0) + missing.mass[..., 1].sum()
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        right = metric.compute(observed.mass) * pairs
        return Box(right / all_pairs, 1 - (pairs - right) / all_pairs)


def distance_bounds(observed: ScoreTable, missing: ScoreTable) -> tuple[float, float]:
    """Return the smallest and largest distance of a group's score distribution to everybody's.

    Everybody's distribution is known. With M(z) the missing mass up to z, of m, and N(z) the group's, of n, its
    distribution at z lies between N(z) / (n + m - M(z)) and (N(z) + M(z)) / (n + M(z)).
    """
    at = np.union1d(observed.values, missing.values)
    own, gone = _up_to(observed, at), _up_to(missing, at).sum(axis=1)
    everybody = (own.sum(axis=1) + gone) / (own[-1].sum() + gone[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        low = own / (own[-1] + (gone[-1] - gone)[:, None])
        high = (own + gone[:, None]) / (own[-1] + gone[:, None])
    away = np.maximum(np.maximum(low - everybody[:, None], everybody[:, None] - high), 0)
    far = np.maximum(high - everybody[:, None], everybody[:, None] - low)
    return float(np.nanmax(away)), float(np.nanmax(far))


def _up_to(table: ScoreTable, at: Array) -> Array:
    """Return each group's mass with a score of at most each of some values, shape [values, G]."""
    below = np.cumsum(table.mass.sum(axis=2), axis=0)
    places = np.searchsorted(table.values, at, side="right")
    return np.asarray(np.vstack([np.zeros(below.shape[1]), below])[places])
