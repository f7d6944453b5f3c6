"""What rows without a group or an outcome could do: bounds over all ways to give them one.

Decisions and scores are known (partial identification; Manski 2003). A rate is largest in a group when its rows
without an outcome have the one that counts, or else one that the rate is not over, and all rows without a group that
count go there; it is smallest the other way round. Means use that j of m numbers with mean μ and standard deviation s
have a mean within s √((m-j)/j) of μ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.metrics import CONFUSION, Mean
from fairkit.statistics import ScoreTable, Sums
from fairkit_group.boxes import Box
from fairkit_group.misclassified import of_rates
from fairkit_group.ranking import SCORES, RocAuc
from fairkit_group.totals import of_key, of_metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.metrics import Metric, Rate
    from fairkit_group.stratified.pooled import Pair

    Array = NDArray[np.float64]

_STEPS = 2_001


def allocated(metric: Metric, totals: Mapping[str, Any], without: Mapping[str, Any]) -> Box | None:
    """Return the bounds on a metric in every group, whatever outcomes and groups the rows have that lack one.

    `totals` are by group, `without` those of the rows without a group as one; empty where there are none.
    """
    known: Any = of_metric(totals, metric)
    gone: Any = of_metric(without, metric)
    unseen, nowhere = (_without_outcome(parts) if metric.outcome else None for parts in (totals, without))
    if gone is not None and type(gone) is not type(known):
        return None
    if isinstance(known, Sums) and metric.statistic is CONFUSION:
        parts = known.first, np.zeros((1, 4)) if gone is None else gone.first
        both = [np.zeros((1, 2)) if one is None else one for one in (unseen, nowhere)]
        return of_rates(metric, lambda over, counted: _rate(over, counted, *parts, *both))
    rest = 0.0 if nowhere is None else nowhere.sum()
    if isinstance(metric, Mean) and isinstance(known, Sums):
        if unseen is None:
            return None if gone is None else _mean(metric, known, gone)
        rest = rest + (0.0 if gone is None else gone.first[0, 0])
        return _any_value(metric, known, unseen.sum(axis=1) + rest)
    if isinstance(metric, RocAuc) and isinstance(known, ScoreTable):
        lost = 0.0 if gone is None else gone.mass.sum(axis=(0, 1))
        return _area(metric, known, lost, rest if unseen is None else rest + unseen.sum(axis=1))
    return None


def pooled_bounds(metric: Rate, known: Array, gone: Array, pairs: Sequence[Pair]) -> Array:
    """Return the smallest and the largest pooled difference of pairs of groups, first minus second, shape [P, 2].

    `known` are the cells by stratum and group, shape [S, G, 4], `gone` those without a group, shape [S, 4]. In every
    stratum the difference lies between those of the groups' boxes, and the weight n_a n_b / (n_a + n_b) between that
    of the known rows and that of both groups with all that is gone. The largest Σ w d / Σ w gives the strata with the
    largest d their largest weights.
    """
    over, counted = np.array(metric.over, float), np.array(metric.counted, float)
    none, every = np.zeros((1, 2)), np.repeat(gone, known.shape[1], axis=0)
    box = _rate(over, counted, known.reshape(-1, 4), every, none, none)
    low, high = (end.reshape(known.shape[:2]) for end in (box.low, box.high))
    masses = known @ over, known @ over + (gone @ over)[:, None]
    ends = np.empty((len(pairs), 2))
    with np.errstate(all="ignore"):
        for place, (a, b) in enumerate(pair.groups for pair in pairs):
            least, most = (np.nan_to_num(n[:, a] * n[:, b] / (n[:, a] + n[:, b])) for n in masses)
            for side, apart in enumerate((high[:, b] - low[:, a], high[:, a] - low[:, b])):
                order = [s for s in np.argsort(-apart) if most[s] > 0]
                d, w, more = apart[order], least[order], (most - least)[order]
                top, base = (np.append(0, np.cumsum(more * of)) + (w * of).sum() for of in (d, np.ones(len(d))))
                ends[place, side] = (2 * side - 1) * np.nanmax(top / base)
    return ends


def _without_outcome(parts: Mapping[str, Any]) -> Array | None:
    """Return the mass of the rows without an outcome by group and decision, shape [G, 2]; None where all have one.

    Without decisions all of it stands as no.
    """
    for key in (CONFUSION.key, SCORES.key):
        every: Any = of_key(parts, key)
        some: Any = parts.get(key)
        if every is some or type(every) is not type(some):
            continue
        if isinstance(every, ScoreTable):
            mass = (every.mass.sum(axis=0) - some.mass.sum(axis=0)).sum(axis=1)
            return np.column_stack([mass, np.zeros_like(mass)])
        return np.asarray((every.first - some.first).reshape(-1, 2, 2).sum(axis=1))
    return None


def _rate(over: Array, counted: Array, known: Array, gone: Array, unseen: Array, nowhere: Array) -> Box:
    def most(good: Array, bad: Array) -> Array:
        best = np.argmax((good - bad).reshape(2, 2), axis=0)  # the outcome, by decision, that raises the share most
        cells, entering = known.copy(), gone.copy()
        for decision, outcome in enumerate(best):
            cells[:, 2 * outcome + decision] += unseen[:, decision]
            entering[:, 2 * outcome + decision] += nowhere[:, decision]
        inside = cells @ good + entering @ good
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(inside / (inside + cells @ bad))

    return Box(1 - most(over - counted, counted), most(counted, over - counted))


def _any_value(metric: Mean, known: Sums, mass: Array) -> Box | None:
    """Bound a mean to which values of some mass are added, of which only the range is known."""
    low, high = metric.range
    if not np.isfinite([low, high]).all():
        return None
    rows, total = known.first[:, 0], known.first[:, 1]
    return Box((total + mass * low) / (rows + mass), (total + mass * high) / (rows + mass))


def _mean(metric: Mean, known: Sums, missing: Sums) -> Box | None:
    """Bound means; under weights only those with a range."""
    rows, total = known.first[:, 0], known.first[:, 1]
    mass = float(missing.first[0, 0])
    if not np.isclose(missing.second[0, 0, 0], mass):
        return _any_value(metric, known, np.array(mass))
    mean = missing.first[0, 1] / mass
    spread = np.sqrt(max(missing.second[0, 1, 1] / mass - mean**2, 0.0))
    taken = mass * np.sin(np.linspace(0, np.pi / 2, _STEPS))[:, None] ** 2  # dense at both ends
    reach = spread * np.sqrt(taken * (mass - taken))
    low = ((total + taken * mean - reach) / (rows + taken)).min(axis=0)
    high = ((total + taken * mean + reach) / (rows + taken)).max(axis=0)
    return Box(np.clip(low, *metric.range), np.clip(high, *metric.range))


def _area(metric: RocAuc, observed: ScoreTable, missing: Any, unseen: Any) -> Box:
    """Bound the area: pairs with a row that lacks a group or an outcome all count, or none."""
    negative, positive = observed.mass.sum(axis=0).T
    lost = np.broadcast_to(missing, 2)
    pairs, all_pairs = negative * positive, (negative + lost[0] + unseen) * (positive + lost[1] + unseen)
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
