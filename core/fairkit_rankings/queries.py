"""Sums over the items of each query and group: what numbers about rankings are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_rankings.positions import Positions, ndcg, pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_rankings.items import Chunk

    Array = NDArray[np.float64]


TOP = 10
"""How many places are the top, unless another number is given."""


@dataclass(frozen=True, slots=True)
class Queries:
    """Sums by query and group, shape [Q, G] each."""

    rows: Array  # items, their exposures, and the places that they have among the first k
    exposure: Array  # items, their exposures, and the places that they have among the first k
    top: Array  # items, their exposures, and the places that they have among the first k
    relevance: Array | None = None  # the sum of relevance, and of exposure times relevance; None without a label
    clicks: Array | None = None  # the sum of relevance, and of exposure times relevance; None without a label
    right: Array | None = None
    pairs: Array | None = None
    ndcg: Array | None = None  # of each query, shape [Q]; None without a label


def queries_of(items: Chunk, k: int, groups: list[tuple[str | None, int]], model: int = 0) -> list[Queries]:
    """Sum the items of a model's rankings, by every one of several ways to split them."""
    query = np.unique(items.query, return_inverse=True)[1].ravel().astype(np.int64)
    positions = Positions.of(query, items.scores[model])
    count = int(query[-1]) + 1 if len(query) else 0
    exposure = positions.exposure()
    parts: dict[str, Array] = {"rows": np.ones(len(query)), "exposure": exposure, "top": positions.in_top(k)}
    quality = None
    if items.relevance is not None:
        parts |= {"relevance": items.relevance, "clicks": exposure * items.relevance}
        counted = pairs(positions, items.relevance)
        if counted is not None:
            parts |= {"right": counted[0], "pairs": counted[1]}
        quality = ndcg(positions, items.relevance, k)
    queries = []
    for sensitive, size in groups:
        codes = np.zeros(len(query), np.int64) if sensitive is None else items.groups[sensitive]
        known = codes >= 0  # an item without a group has a place, and counts in no group
        cells = query[known] * size + codes[known]
        sums = {
            name: np.bincount(cells, values[known], count * size).astype(np.float64).reshape(count, size)
            for name, values in parts.items()
        }
        queries.append(Queries(ndcg=quality, **sums))
    return queries
