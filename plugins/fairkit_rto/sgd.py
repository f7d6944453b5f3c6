"""Algorithm 1 of the RTO paper: thresholds by projected stochastic gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Rows = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]

_CHUNK = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Duals:
    """Constraints |mean of z h - b| ≤ slack, one for each pair λ, μ of dual variables."""

    owner: NDArray[np.int64]  # for each of G groups, the pair of its constraint, from 0, shape [G]
    factors: NDArray[np.float64]  # for each group, z, shape [G]
    offset: float  # b, and what is allowed on either side of it
    slack: float  # b, and what is allowed on either side of it


def sgd_thresholds(stream: Iterable[Rows], duals: Duals, *, gamma: float, steps: int) -> NDArray[np.float64]:
    """Return the thresholds (λ - μ) z of the groups after one pass over a stream of rows, in its order.

    For each row with h = clip((f - (λ - μ) z)/γ, 0, 1), λ and μ those of its group's constraint::

        λ <- max(0, λ - η (slack + b - z h))
        μ <- max(0, μ - η (slack - b + z h))

    with the paper's rate η = .1 √(K/T). For equal rates, z = 1, b = ρ and slack = ε/2. A weighted row takes
    a step that is longer by its weight.
    """
    pairs = int(duals.owner.max()) + 1
    rate = 0.1 * math.sqrt(pairs / max(steps, 1))
    upper, lower = [0.0] * pairs, [0.0] * pairs
    owner, factors = duals.owner.tolist(), duals.factors.tolist()
    above, below = duals.slack + duals.offset, duals.slack - duals.offset
    for margins, codes, weights in stream:
        for margin, code, weight in zip(margins.tolist(), codes.tolist(), weights.tolist(), strict=True):
            pair, factor = owner[code], factors[code]
            moved = factor * min(max((margin - (upper[pair] - lower[pair]) * factor) / gamma, 0.0), 1.0)
            step = rate * weight
            upper[pair] = max(0.0, upper[pair] - step * (above - moved))
            lower[pair] = max(0.0, lower[pair] - step * (below + moved))
    found = np.array(upper) - np.array(lower)
    thresholds: NDArray[np.float64] = found[duals.owner] * duals.factors
    return thresholds


def shuffled_epochs(rows: Rows, epochs: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Yield the rows `epochs` times, each time in a new random order, in batches."""
    margins, codes, weights = rows
    for _ in range(epochs):
        order = rng.permutation(len(margins))
        for start in range(0, len(order), _CHUNK):
            part = order[start : start + _CHUNK]
            yield margins[part], codes[part], weights[part]
