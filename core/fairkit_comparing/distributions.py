"""How far statistical parity of scores differs between two models on the same rows.

Each model's number is a supremum, θ = max of the forms x_p = ± (F_a(z) - F(z)) over groups a and scores z, which are
named by the share of everybody below them, so that they mean the same for both models. With p* the form that attains
θ_B, θ_B - θ_A ≤ x_{p*}(B) - x_{p*}(A), and ≤ x_{p*}(B) - x_q(A) for any q. So the upper limit is the largest, over
the forms that may be B's largest, of the smaller of two limits: of the paired difference x_p(B) - x_p(A), whose noise
cancels, and of x_p(B) less A's largest form, which allows for its having been picked as the largest of those that
noise does not tell from it. The lower limit is the mirror image; compare `fairkit_comparing.disparities`.

The noise is that of resampled rows, the same rows for both models: a Gaussian number for each row, drawn again and
again (the multiplier bootstrap of empirical processes: van der Vaart & Wellner 1996, section 2.9). As limits of
suprema the intervals are wider than need be where groups are many or nearly in parity, never too narrow (tests).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_comparing.records import Difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_comparing.records import DrawnScores

    Array = NDArray[np.float64]

GRID = 32
"""Forms are looked at where the shares of everybody are multiples of one in so many, and where they are largest."""
DRAWS = 499
SCREEN = 1.5
"""A form that is within so many standard errors of the largest one may be the largest."""


def change_of_parity(
    scores: tuple[DrawnScores, DrawnScores],
    groups: NDArray[np.int64],
    n_groups: int,
    weights: Array | None,
    confidence: float,
) -> Difference:
    """Compare the Kolmogorov-Smirnov distances of two models' scores between a group and everybody."""
    if (groups < 0).any():  # rows of no group
        known = groups >= 0
        scores = (scores[0].some(known), scores[1].some(known))
        groups, weights = groups[known], None if weights is None else weights[known]
    every = np.ones(len(groups)) if weights is None else weights
    sizes = np.bincount(groups, every, n_groups).astype(np.float64)
    curves = [_Curves.of(one, groups, every, sizes) for one in scores]
    levels = np.unique([*np.arange(1, GRID) / GRID, *curves[0].tops, *curves[1].tops])
    processes = [one.at(levels) for one in curves]
    units, spread = _units([process.bins for process in processes], groups, every)
    rng = np.random.default_rng(0)
    noise = [np.empty((DRAWS, *process.gaps.shape)) for process in processes]
    for draw in range(DRAWS):
        pulls = rng.standard_normal(len(spread)) * spread
        for model, process in enumerate(processes):
            noise[model][draw] = process.moved(pulls, units[model], units[2][:, 0], sizes)
    first, second = (_signed(process, moved) for process, moved in zip(processes, noise, strict=True))
    level = (1 + confidence) / 2
    high, low = _upper(first, second, level), -_upper(second, first, level)
    one, other = (process.distance for process in processes)
    return Difference(one, other, max(low, -1.0), min(high, 1.0))


@dataclass(frozen=True, slots=True)
class _Curves:
    """One model's distributions of scores."""

    place: NDArray[np.int64]  # which of the U scores each possible score of a row is, shape [n, K], and the chances [K]
    shares: Array  # which of the U scores each possible score of a row is, shape [n, K], and the chances [K]
    own: Array  # the distribution in each group [G, U] and over all [U]
    everybody: Array  # the distribution in each group [G, U] and over all [U]

    @classmethod
    def of(cls, scores: DrawnScores, groups: NDArray[np.int64], weights: Array, sizes: Array) -> _Curves:
        values, place = np.unique(scores.values, return_inverse=True)
        place = place.reshape(scores.values.shape)
        mass = _masses(place, scores.shares, groups, weights, len(sizes), len(values))
        everybody = np.cumsum(mass.sum(axis=0)) / sizes.sum()
        return cls(place, scores.shares, np.cumsum(mass, axis=1) / sizes[:, None], everybody)

    @property
    def gaps(self) -> Array:
        """The differences from everybody, shape [G, U]."""
        return self.own - self.everybody

    @property
    def tops(self) -> Array:
        """The share of everybody below the score where each group's difference is largest, shape [G]."""
        return np.asarray(self.everybody[np.abs(self.gaps).argmax(axis=1)])

    def at(self, levels: Array) -> _Process:
        """Look at the scores that such shares of everybody reach."""
        at = np.minimum(np.searchsorted(self.everybody, levels - 1e-12), len(self.everybody) - 1)
        return _Process(
            distance=float(np.abs(self.gaps).max()),
            bins=np.searchsorted(at, self.place),
            shares=self.shares,
            own=self.own[:, at],
            gaps=self.gaps[:, at],
        )


@dataclass(frozen=True, slots=True)
class _Process:
    """One model's differences F_a(z) - F(z) at some scores, the same shares of everybody for both models."""

    distance: float  # the largest, over all scores
    bins: NDArray[np.int64]  # between which of the scores each possible score lies, shape [n, K], and the chances [K]
    shares: Array  # between which of the scores each possible score lies, shape [n, K], and the chances [K]
    own: Array  # F_a there, and its differences from F, shape [G, Z]
    gaps: Array  # F_a there, and its differences from F, shape [G, Z]

    def moved(self, pulls: Array, bins: NDArray[np.int64], groups: NDArray[np.int64], sizes: Array) -> Array:
        """Return how far rows pulled by so much each move the differences, shape [G, grid]."""
        width = self.own.shape[1]
        mass = _masses(bins, self.shares, groups, pulls, len(sizes), width + 1)
        total = mass.sum(axis=1, keepdims=True)
        own = (np.cumsum(mass, axis=1)[:, :width] - total * self.own) / sizes[:, None]
        everybody = (sizes / sizes.sum()) @ self.own
        pooled = (np.cumsum(mass.sum(axis=0))[:width] - total.sum() * everybody) / sizes.sum()
        return np.asarray(own - pooled)


def _masses(
    bins: NDArray[np.int64], shares: Array, groups: NDArray[np.int64], weights: Array, n_groups: int, n_bins: int
) -> Array:
    """Total weights by group and bin, shape [n_groups, n_bins]."""
    found = np.zeros(n_groups * n_bins)
    for member, share in enumerate(shares.tolist()):
        found += share * np.bincount(groups * n_bins + bins[:, member], weights, len(found))
    return found.reshape(n_groups, n_bins)


def _units(
    bins: list[NDArray[np.int64]], groups: NDArray[np.int64], weights: Array
) -> tuple[list[NDArray[np.int64]], Array]:
    """Put rows together that are in the same bins: their columns, and the root of their summed squared weights."""
    columns = [*bins, groups[:, None]]
    table, place = distinct_rows(np.hstack(columns))
    spread = np.sqrt(np.bincount(place, weights**2, len(table)))
    ends = np.cumsum([part.shape[1] for part in columns])[:-1]
    return [np.ascontiguousarray(part) for part in np.split(table, ends, axis=1)], spread


def distinct_rows(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows of nonnegative numbers in lexicographic order, and which of them each row is.

    As ``numpy.unique`` along the first axis does, which takes ten times as long: here each row is one number.
    """
    most, code = 1, np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        count = int(column.max(initial=0)) + 1
        if most * count >= 1 << 62:
            known, code = np.unique(code, return_inverse=True)
            most = len(known)
        most, code = most * count, code * count + column
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    return rows[first], place


def _signed(process: _Process, moved: Array) -> tuple[Array, Array]:
    """Return the differences with both signs, shape [forms], and their noise, shape [draws, forms]."""
    gaps = process.gaps.ravel()
    flat = moved.reshape(len(moved), -1)
    return np.concatenate([gaps, -gaps]), np.hstack([flat, -flat])


def _near(values: Array, noise: Array) -> NDArray[np.intp]:
    """Tell which differences noise does not tell from the largest one."""
    top = int(values.argmax())
    apart = (noise - noise[:, [top]]).std(axis=0)
    return np.flatnonzero(values[top] - values <= SCREEN * apart)


def _upper(first: tuple[Array, Array], second: tuple[Array, Array], level: float) -> float:
    """Return the upper limit of how much larger the second's largest difference is than the first's."""
    (a, noise_a), (b, noise_b) = first, second
    mine, theirs = _near(b, noise_b), _near(a, noise_a)
    same = b[mine] - a[mine] + np.quantile(noise_a[:, mine] - noise_b[:, mine], level, axis=0)
    reach = noise_a[:, theirs].max(axis=1, keepdims=True)
    largest = b[mine] - a.max() + np.quantile(reach - noise_b[:, mine], level, axis=0)
    return float(np.minimum(same, largest).max())
