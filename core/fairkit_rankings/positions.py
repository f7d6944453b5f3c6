"""Positions in rankings and what they are worth; items with equal scores share their positions evenly.

Ties are broken at random, and every number here is the expectation over that: an item that shares the positions
a..a+m-1 has the mean of what these are worth (McSherry and Najork 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Places = NDArray[np.int64]

MOST_GRADES = 64
"""With more distinct relevances in a query's items pairs are not counted."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Where items stand in their queries' rankings."""

    query: Places  # each item's query, shape [n], from 0, not decreasing
    before: Places  # how many items of its query have a larger score, shape [n]
    tied: Places  # how many have the same score, itself included, shape [n]

    @classmethod
    def of(cls, query: Places, scores: Array) -> Positions:
        """Rank items by decreasing score within queries; `query` does not decrease."""
        order = np.lexsort((-scores, query))
        sorted_query, sorted_scores = query[order], scores[order]
        starts = np.flatnonzero(np.r_[True, sorted_query[1:] != sorted_query[:-1]])
        first = np.repeat(starts, np.diff(np.r_[starts, len(query)]))
        fresh = np.r_[True, (sorted_query[1:] != sorted_query[:-1]) | (sorted_scores[1:] != sorted_scores[:-1])]
        blocks = np.flatnonzero(fresh)
        sizes = np.diff(np.r_[blocks, len(query)])
        before, tied = np.empty_like(query), np.empty_like(query)
        before[order] = np.repeat(blocks, sizes) - first
        tied[order] = np.repeat(sizes, sizes)
        return cls(query, before, tied)

    def worth(self, values: Array) -> Array:
        """Return the mean worth of each item's positions, shape [n]."""
        total = np.r_[0.0, np.cumsum(values)]
        last = len(values)
        start, end = np.minimum(self.before, last), np.minimum(self.before + self.tied, last)
        return np.asarray((total[end] - total[start]) / self.tied)

    def longest(self) -> int:
        """Return the number of items of the longest ranking."""
        return int(np.bincount(self.query).max()) if len(self.query) else 0

    def exposure(self) -> Array:
        """Return each item's exposure 1 / log2(1 + position), shape [n], in (0, 1] (Singh and Joachims 2018)."""
        return self.worth(discounts(self.longest()))

    def in_top(self, k: int) -> Array:
        """Return each item's chance of a place among the first k of its query, shape [n]."""
        return self.worth(np.ones(k))


def discounts(count: int) -> Array:
    """Return 1 / log2(1 + j) for the positions j = 1..count."""
    return np.asarray(1 / np.log2(np.arange(count) + 2.0))


def ndcg(positions: Positions, relevance: Array, k: int) -> Array:
    """Return NDCG@k of every query, shape [Q]: gains 2^relevance - 1; NaN where nothing is relevant."""
    values, gains = discounts(k), 2.0**relevance - 1
    best = Positions.of(positions.query, relevance)
    # equal relevances share positions and gains alike, so that the best order needs no other rule for them
    reached, ideal = (np.bincount(positions.query, gains * one.worth(values)) for one in (positions, best))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(ideal > 0, reached / np.where(ideal > 0, ideal, 1.0), np.nan))


def pairs(positions: Positions, relevance: Array) -> tuple[Array, Array] | None:
    """Return for each item how many less relevant ones stand below it, and how many there are, both of shape [n].

    Equal scores count half (Beutel et al. 2019, pairwise accuracy). None where there are too many grades.
    """
    grades = np.unique(relevance)
    if len(grades) > MOST_GRADES:
        return None
    right, all_of = np.zeros(len(relevance)), np.zeros(len(relevance))
    order = np.lexsort((positions.before, positions.query))
    query = positions.query[order]
    starts = np.searchsorted(query, np.arange(query[-1] + 1 if len(query) else 0))
    base = starts[positions.query]
    for grade in grades[1:]:
        total = np.r_[0.0, np.cumsum(relevance[order] < grade)]
        own = relevance == grade
        low, high = base + positions.before, base + positions.before + positions.tied
        whole = np.r_[starts, len(query)][positions.query + 1]
        right[own] = (total[whole] - total[high] + 0.5 * (total[high] - total[low]))[own]
        all_of[own] = (total[whole] - total[base])[own]
    return right, all_of
