"""Shifts of scores by group that bring a disparity between rankings' groups down to a tolerance.

Take rankings of queries q with utilities u_i and positions worth v_j. The most useful rankings whose groups differ by
a given amount in mean exposure, over all queries together, maximise Σ u_i v(i) + λ (E_a - E_b) for some λ: each query
is sorted by u_i + λ/n_a(q) in group a and u_i - λ/n_b(q) in group b (Singh and Joachims 2018, whose programme has one λ
for each query). What a file can do row by row, without knowing the other items of a query, is the same with one number
for each group: items are sorted by u_i + δ_g.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fairkit_rankings.numbers import adjusted, per_relevance
from fairkit_rankings.queries import queries_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_rankings.items import Chunk
    from fairkit_rankings.queries import Queries

    Array = NDArray[np.float64]

_BISECTIONS = 22
_ROUNDS = 60

NUMBERS: dict[str, Callable[[Queries], Array]] = {
    "exposure": lambda queries: adjusted(queries.exposure, queries)[0],
    "top_k_rate": lambda queries: adjusted(queries.top, queries)[0],
    "disparate_treatment": lambda queries: per_relevance(queries.exposure, queries)[0],
}
"""Each constraint's number in every group."""


def disparity(constraint: str, values: Array) -> float:
    """Return the largest difference, of `disparate_treatment` 1 - the smallest ratio; 0 for fewer than two groups."""
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return 0.0
    if constraint == "disparate_treatment":
        return float(1 - known.min() / known.max()) if known.max() > 0 else 0.0
    return float(known.max() - known.min())


def learn_shifts(
    items: Chunk, groups: int, constraint: str, tolerance: float, k: int, progress: Callable[[int], None]
) -> tuple[Array, Array, Array]:
    """Return shifts whose rankings keep the tolerance, as small as it takes.

    The group that is worst off is lifted until it keeps the tolerance with the one that is best off, then the next.
    """
    scores, codes = items.scores[0], items.groups["group"]
    size = float(np.ptp(scores)) * (1 + 1e-9) if len(scores) else 0.0

    def numbers(shifts: Array) -> Array:
        moved = (scores + shifts[codes]).astype(np.float32).astype(np.float64)
        shown = type(items)(items.query, moved[None], items.relevance, items.groups)
        return NUMBERS[constraint](queries_of(shown, k, [("group", groups)])[0])

    shifts = np.zeros(groups)
    before = values = numbers(shifts)
    for place in range(_ROUNDS):
        progress(place)
        if size == 0 or disparity(constraint, values) <= tolerance:
            break
        worst = int(np.nanargmin(values))
        low, high = 0.0, size + float(shifts.max() - shifts[worst])
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            tried = shifts.copy()
            tried[worst] += middle
            found = numbers(tried)
            others = np.delete(found, worst)
            pair = np.array([found[worst], np.nanmax(others)])
            near = found[worst] >= pair[1] or disparity(constraint, pair) <= tolerance
            low, high = (low, middle) if near else (middle, high)
        shifts[worst] += high
        values = numbers(shifts)
    centred = shifts - shifts.mean()
    return centred, before, numbers(centred)
