"""How many groups it is in effect: the largest of all standardised differences under a multiplier bootstrap.

Groups overlap, so that α/G is too careful. With ξ standard normal for each row of the denominator D, the process
Z_G = Σ_G ξ / n_G - Σ_D ξ / n_D has the correlations that differences have where all rates are equal, and standard error
√(1/n_G - 1/n_D). The quantile c of max |Z_G| over its standard error depends on overlaps, not on the number of rows.
Each limit is then exact at α' = 2 Φ(-c): exact tails, Gaussian dependence (the studentised bootstrap has neither).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit_subgroups.searching import kernels
from fairkit_subgroups.searching.measures import STATES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.local_search import Search
    from fairkit_subgroups.searching.measures import Measure
    from fairkit_subgroups.searching.tables import RowSample

    Array = NDArray[np.float64]

REPLICATES, LANES = 400, 16
MOST_ROWS = 50_000
_NORMAL = NormalDist()


def level(search: Search, maxima: Array, wrong: float) -> float:
    """Return α' from draws of the largest statistic: never below wrong / G."""
    # the ⌈(1 - α)(R + 1)⌉-th of R draws
    index = min(math.ceil((1 - wrong) * (len(maxima) + 1)), len(maxima)) - 1
    critical = float(np.sort(maxima)[index])
    return max(2 * _NORMAL.cdf(-critical), wrong / max(search.groups, 1))


def draws(search: Search, sample: RowSample, seed: int) -> Array:
    """Draw the largest standardised difference over all groups, shape [R]."""
    if len(sample.keys) > MOST_ROWS:
        sample = sample.take(np.argpartition(sample.keys, MOST_ROWS)[:MOST_ROWS])
    sample = sample.take(np.argsort(sample.keys))
    inside = _denominator(search.measure, sample)
    sample = sample.take(np.flatnonzero(inside))
    rng = np.random.default_rng([seed, *b"subgroups"])
    compared = search.measure.kind != "residual"
    largest = [
        _largest(search, sample, rng.standard_normal((len(sample.keys), LANES)), compared)
        for _ in range(REPLICATES // LANES)
    ]
    return np.concatenate(largest)


def _denominator(measure: Measure, sample: RowSample) -> NDArray[np.bool_]:
    over = np.array(measure.over, dtype=bool)
    if over.all():
        return np.ones(len(sample.keys), dtype=bool)
    if STATES in sample.values:
        return np.asarray(over[sample.values[STATES]])
    soft = sample.values[measure.statistic(soft=True)]  # rows by outcome stand at 0 and 6
    return np.asarray(np.where(soft[:, 6] > 0, over[2], over[0]))


def _largest(search: Search, sample: RowSample, noise: Array, compared: bool) -> Array:
    family = search.family
    # multiplier bootstrap: one normal number a row, in all groups (Chernozhukov, Chetverikov & Kato 2013)
    values = np.concatenate([np.ones((len(noise), 1)), noise], axis=1)
    most = np.zeros(LANES)
    for layer in range(len(search.laid)):
        rows = np.flatnonzero(sample.layer == layer)
        tables = np.zeros((family.cells, LANES + 1))
        for start in range(0, len(rows), kernels.CHUNK):
            some = rows[start : start + kernels.CHUNK]
            codes = np.ascontiguousarray(sample.codes[:, some])
            kernels.count_sums(codes, values[some], family.sizes, family.offsets, tables)
        laid = family.laid_out(tables)
        whole = values[rows].sum(axis=0)
        for table, layout in enumerate(family.places):
            if not search.counts[layer][table]:
                continue
            real, _ = search.boxes(layer, table)
            block = np.ascontiguousarray(laid[:, layout.start : layout.stop].reshape(-1, *layout.shape))
            sums = kernels.boxes(block, layout.runs[1], layout.runs[2])
            limits = search.rows, search.least, search.totals[layer][1]
            kernels.largest_statistics(sums, real, layout.runs[0], whole, compared, *limits, most)
    return most
