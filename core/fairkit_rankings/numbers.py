"""Numbers of groups in rankings from sums by query, and how far every query pulls them.

Exposure of a position j is 1 / log2(1 + j). Queries weigh the same. Groups are compared in the queries that have at
least two of them, and what queries differ in (their length, above all) is taken out: a group's number is the mean over
its queries of how far its mean is from that of all of the query's items, on top of the mean over all these queries.
Between two groups the difference is then that of Singh and Joachims (2018), exposure(G0|q) - exposure(G1|q), averaged
over queries, and random rankings have none, however groups and queries' lengths go together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_rankings.queries import Queries

    Array = NDArray[np.float64]
    Pulls = tuple[Array, Array, NDArray[np.bool_]]
    """Each group's number, how far each query pulls it, and which queries count in it: [G], [G, Q], [G, Q]."""


def compared(queries: Queries) -> NDArray[np.bool_]:
    """Return which groups have items in which queries with at least two groups, shape [G, Q]."""
    there = queries.rows.T > 0
    return np.asarray(there & (there.sum(axis=0) > 1))


def _shares(part: Array, queries: Queries) -> Array:
    """Return the mean of a group's items in a query, shape [G, Q]; 0 where it has none."""
    rows = queries.rows.T
    return np.asarray(part.T / np.where(rows > 0, rows, 1.0))


def adjusted(part: Array, queries: Queries) -> Pulls:
    """Return the groups' means of a part without what queries differ in; see the module."""
    there = compared(queries)
    used: NDArray[np.bool_] = np.asarray(there.any(axis=0))
    with np.errstate(all="ignore"):
        everybody = part.sum(axis=1) / queries.rows.sum(axis=1)
    apart, pull = mean_of(_shares(part, queries) - np.where(used, everybody, 0.0), there)
    level, common = mean_of(everybody[None], used[None])
    return apart + level, pull + common, there


def per_relevance(part: Array, queries: Queries) -> Pulls:
    """Return the sum over queries of a group's mean part over that of its mean relevance."""
    assert queries.relevance is not None  # noqa: S101 -- asked of labelled rankings only
    there = compared(queries)
    top, bottom = (np.where(there, _shares(one, queries), 0.0) for one in (part, queries.relevance))
    ratio, pull = ratio_of(top, bottom)
    return ratio, pull, there


def mean_of(values: Array, there: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return means over the queries that count, shape [G], and how far each query pulls them, shape [G, Q]."""
    count = there.sum(axis=1)
    with np.errstate(all="ignore"):
        means = np.where(there, values, 0.0).sum(axis=1) / count
        pull = np.where(there, values - means[:, None], 0.0) / count[:, None]
    return means, pull


def ratio_of(top: Array, bottom: Array) -> tuple[Array, Array]:
    """Return ratios of sums over queries, shape [G], and how far each query pulls them; arguments of shape [G, Q]."""
    with np.errstate(all="ignore"):
        total = bottom.sum(axis=1)
        ratio = np.where(total > 0, top.sum(axis=1) / total, np.nan)
        pull = (top - ratio[:, None] * bottom) / total[:, None]
    return ratio, pull
