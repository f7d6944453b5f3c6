"""Attribution of decisions, rates and scores of any model: random walks from one group's rows to the other's.

A walk takes a row x of the group and a row z of the reference, and changes z into x one player after the other, in an
order drawn anew for every walk (Castro, Gómez & Tejada 2009); each step's change of the prediction is an unbiased
estimate of that player's Shapley value. The steps of a walk add up to f(x) - f(z), whose mean is known without
sampling: each player's steps are corrected by a regression on f(x) and f(z), and then add up to the gap exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fairkit_why.limits import by_cluster, clustered, effective, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]

ENOUGH = 0.3
"""Sampling stops when its part of the variance is at most this."""
ASKED = 32_768
"""Rows that the model is asked about at a time."""
FIRST = 2_000
"""Walks before the variance is estimated for the first time."""


class Asks(Protocol):
    """Rows of two groups, and a model that is asked about rows which take some players from either."""

    def mixed(self, x: Ints, z: Ints, from_x: NDArray[np.bool_]) -> Array:
        """Return f of hybrid rows, shape [k]: of row x where `from_x`, shape [k, P], else of row z."""
        ...

    def differ(self, x: Ints, z: Ints) -> NDArray[np.bool_]:
        """Tell in which players two rows differ, shape [k, P]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """What walks say."""

    values: Array  # by player, shape [P]; the variance has the rows of both groups and the sampling in it
    variance: Array  # by player, shape [P]; the variance has the rows of both groups and the sampling in it
    degrees: Array  # by player, shape [P]; the variance has the rows of both groups and the sampling in it
    sampling: float  # the sampling's share of the variance, over all players
    walks: int  # how many walks were taken, and how many rows the model was asked about
    calls: int  # how many walks were taken, and how many rows the model was asked about


def walk(
    asks: Asks,
    f: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    clusters: tuple[Array, Array] | None,
    players: int,
    *,
    calls: int,
    rng: np.random.Generator,
) -> Walks:
    """Divide the difference of two groups' means among players."""
    sizes = len(f[0]), len(f[1])
    taken, steps, used = [], [], 0
    size = FIRST
    queue = _Deck(sizes[0], rng), _Deck(sizes[1], rng)
    while True:
        x, z = queue[0].draw(size), queue[1].draw(size)
        found, asked = _steps(asks, x, z, f, players, rng)
        taken.append((x, z))
        steps.append(found)
        used += asked
        result = _estimate(np.concatenate(steps), taken, f, weights, clusters, used)
        if result.sampling <= ENOUGH or used >= calls or asked == 0:
            return result
        per_walk = max(used / result.walks, 1e-9)
        # the sampling's variance is s/walks: as many as would be enough, by what is known now
        odds = result.sampling / (1 - result.sampling) if result.sampling < 1 else np.inf
        wanted = min(result.walks * odds * (1 - ENOUGH) / ENOUGH, 8.0 * result.walks)
        size = int(min(max(wanted - result.walks, FIRST), (calls - used) / per_walk + 1))


class _Deck:
    """Rows in random order, each used equally often."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._size, self._rng = size, rng
        self._left = np.empty(0, dtype=np.int64)

    def draw(self, count: int) -> Ints:
        parts = [self._left]
        while sum(map(len, parts)) < count:
            parts.append(self._rng.permutation(self._size))
        both = np.concatenate(parts)
        self._left = both[count:]
        return both[:count]


def _steps(
    asks: Asks, x: Ints, z: Ints, f: tuple[Array, Array], players: int, rng: np.random.Generator
) -> tuple[Array, int]:
    """Walk from each z to its x; return every player's step, shape [k, P], and how often the model was asked."""
    walks = len(x)
    differ = asks.differ(x, z)
    order = rng.permuted(np.broadcast_to(np.arange(players), (walks, players)), axis=1)
    rank = np.argsort(order, axis=1)
    moves = np.take_along_axis(differ, order, axis=1)
    last = players - 1 - np.argmax(moves[:, ::-1], axis=1)
    ask = moves.copy()
    ask[np.arange(walks), last] = False  # after the last change the row is x
    row, step = np.nonzero(ask)
    values = np.empty(len(row))
    for start in range(0, len(row), ASKED):
        some = slice(start, start + ASKED)
        from_x = rank[row[some]] <= step[some, None]
        values[some] = asks.mixed(x[row[some]], z[row[some]], from_x)
    path = np.full((walks, players + 1), np.nan)
    path[:, 0] = f[1][z]
    path[row, step + 1] = values
    moved = moves.any(axis=1)
    path[moved, last[moved] + 1] = f[0][x][moved]
    known = np.where(np.isnan(path), 0, np.arange(players + 1))
    # a player in whom both rows agree changes nothing: carry the last value forward
    path = np.take_along_axis(path, np.maximum.accumulate(known, axis=1), axis=1)
    return np.take_along_axis(np.diff(path, axis=1), rank, axis=1), len(row)


def _estimate(
    steps: Array,
    taken: Sequence[tuple[Ints, Ints]],
    f: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    clusters: tuple[Array, Array] | None,
    calls: int,
) -> Walks:
    """Return the corrected means of steps, and their variance by rows of both groups (Cameron, Gelbach & Miller)."""
    x, z = (np.concatenate([pair[side] for pair in taken]) for side in (0, 1))
    row_shares = shares(weights[0], len(f[0])), shares(weights[1], len(f[1]))
    mass = row_shares[0][x] * row_shares[1][z]
    mass = mass / mass.sum()
    means = float(row_shares[0] @ f[0]), float(row_shares[1] @ f[1])
    design = np.stack([np.ones(len(x)), f[0][x] - means[0], f[1][z] - means[1]], axis=1)
    root = np.sqrt(mass)[:, None]
    # control variates: f(x) and f(z), whose means over all rows are known
    fit, *_ = np.linalg.lstsq(design * root, steps * root, rcond=None)
    # rounding, and predictions of which no value but one was drawn: then the fit is not unique
    values = fit[0] + (means[0] - means[1] - fit[0].sum()) / steps.shape[1]
    left = mass[:, None] * (steps - design @ fit)
    count = steps.shape[1]
    pulls, sampled = [], []
    for side, rows in ((0, x), (1, z)):
        sums = np.stack([np.bincount(rows, left[:, p], len(f[side])) for p in range(count)], axis=1)
        sampled.append((sums**2).sum(axis=0))
        pulls.append(sums + np.outer(row_shares[side] * (f[side] - means[side]), fit[1 + side]))
    pair = (left**2).sum(axis=0)
    parts = [(pull**2).sum(axis=0) for pull in pulls]
    n, m, walks = (effective(weights[0], len(f[0])), effective(weights[1], len(f[1])), float(1 / (mass**2).sum()))
    noise = _sampling(sampled, pair, n, m, walks)
    with np.errstate(all="ignore"):
        degrees = (parts[0] + parts[1]) ** 2 / (parts[0] ** 2 / max(n - 1, 1) + parts[1] ** 2 / max(m - 1, 1))
    degrees = np.where(np.isfinite(degrees), degrees, max(min(n, m) - 1, 1))
    if clusters is not None:
        every = np.concatenate(clusters)
        both, degrees = clustered(by_cluster(np.concatenate(pulls), every), every)
        parts = [clustered(by_cluster(pull, c), c)[0] for pull, c in zip(pulls, clusters, strict=True)]
        # two-way clustering: clusters of x plus clusters of z, less the pairs
        total = np.fmax.reduce([both - pair, *parts])
    else:
        total = np.maximum.reduce([parts[0] + parts[1] - pair, *parts])
    share = float(noise.sum() / total.sum()) if total.sum() > 0 else 0.0
    return Walks(values, total, degrees, min(share, 1.0), len(x), calls)


def _sampling(parts: Sequence[Array], pair: Array, n: float, m: float, walks: float) -> Array:
    """Return the variance that more walks would take away, shape [P].

    With components S_x, S_z, S_e of the variance that the regression leaves, V_pair = (S_x + S_z + S_e)/B,
    V_x = S_x/n + (S_z + S_e)/B and V_z = S_z/m + (S_x + S_e)/B. Of rows that are used once at most, all of the pairs'
    variance is sampling.
    """
    found = []
    for part, size in zip(parts, (n, m), strict=True):
        gap = 1 / size - 1 / walks
        found.append(np.maximum((part - pair) / gap, 0.0) if gap > 1e-12 else np.zeros_like(pair))
    return np.asarray(np.maximum(pair - (found[0] + found[1]) / walks, 0.0))
