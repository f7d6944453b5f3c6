"""How far a number, or a disparity between groups, differs between two models: the difference and its interval.

A disparity is a maximum θ = max_p x_p over forms x_p of the groups' numbers: differences v_a - v_b over ordered
pairs of groups, minus the ratios v_a / v_b, the numbers themselves, or the differences of two rates seen from all
directions. With p* the form that attains θ_B and any fixed q, θ_B - θ_A ≤ x_{p*}(B) - x_q(A). The upper limit is
therefore the largest of the forms' own upper limits
for x_p(B) - x_q(A), one-sided at α/2, over the forms p that may be the largest of B given the noise; q is the one
that looks largest for A, or p itself (whose noise cancels), whichever limit is smaller. The lower limit is the
mirror image. No correction for the number of forms is needed (an intersection-union argument; Berger 1982), and
the choice of q costs less than the screened maximum gains, as simulation shows (tests). Between two clearly
different groups it is the usual interval of a paired difference.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import two_sided
from fairkit.support.lazy_dataclass import dataclass
from fairkit_comparing.collect import Difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_comparing.collect import DrawnScores, Paired

    Array = NDArray[np.float64]


SCREEN = 0.998
"""The confidence with which forms that cannot be the largest are left out."""
MOST_FORMS = 20_000
"""With many pairs of groups, each is looked at from fewer directions."""


@dataclass(frozen=True, slots=True)
class Forms:
    """Forms of the places' numbers for both models."""

    values: Array  # shape [2, P]
    slopes: Array  # shape [2, P, S]: their slopes in the places' numbers


def differences(paired: Paired) -> Forms:
    """Return v_a - v_b for every ordered pair of places, in pairs (a, b)."""
    return _stacked(paired, list(itertools.permutations(range(paired.values.shape[1]), 2)))


def _stacked(paired: Paired, pairs: list[tuple[int, int]]) -> Forms:
    a, b = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    slopes = np.zeros((len(pairs), paired.values.shape[1]))
    slopes[np.arange(len(pairs)), a] = 1
    slopes[np.arange(len(pairs)), b] = -1
    return Forms(paired.values[:, a] - paired.values[:, b], np.stack([slopes, slopes]))


def differences_within(paired: Paired, sizes: tuple[int, int]) -> Forms:
    """Return the differences within each of two blocks of places, as equalized odds needs them."""
    blocks = [range(sizes[0]), range(sizes[0], sizes[0] + sizes[1])]
    return _stacked(paired, [pair for block in blocks for pair in itertools.permutations(block, 2)])


def root_mean_squares(first: Paired, second: Paired) -> Forms:
    """Return sqrt(((v_a - v_b)^2 + (w_a - w_b)^2) / 2) for every pair of places, as a maximum of linear forms.

    It is the largest over angles of (cos t (v_a - v_b) + sin t (w_a - w_b)) / sqrt 2: each pair is looked at from
    a few directions and from the two models' own, where the forms are exact. So there is no kink at 0.
    """
    places = first.values.shape[1]
    pairs = np.array(list(itertools.permutations(range(places), 2)))
    turns = int(np.clip(MOST_FORMS // len(pairs), 4, 24))
    a, b = pairs[:, 0], pairs[:, 1]
    gaps = [sums.values[:, a] - sums.values[:, b] for sums in (first, second)]
    angle = np.arctan2(gaps[1], gaps[0])  # [2, pairs]
    even = np.broadcast_to(np.pi * np.arange(turns)[:, None] / turns, (turns, len(pairs)))
    angles = np.vstack([angle, even])
    parts = [np.cos(angles) / np.sqrt(2), np.sin(angles) / np.sqrt(2)]
    values = np.stack([(parts[0] * gaps[0][m] + parts[1] * gaps[1][m]).ravel() for m in (0, 1)])
    slopes = np.zeros((len(angles), len(pairs), 2 * places))
    rows = np.arange(len(pairs))
    for part, start in zip(parts, (0, places), strict=True):
        slopes[:, rows, start + a] = part
        slopes[:, rows, start + b] = -part
    flat = slopes.reshape(-1, 2 * places)
    return Forms(values, np.stack([flat, flat]))


def ratios(paired: Paired) -> Forms:
    """Return -v_a / v_b for every ordered pair of places; their maximum is minus the smallest ratio."""
    return _ratios(paired, list(itertools.permutations(range(paired.values.shape[1]), 2)))


def ratios_within(paired: Paired, sizes: tuple[int, int]) -> Forms:
    """Return the ratios within each of two blocks of places, with the sign of `ratios`."""
    blocks = [range(sizes[0]), range(sizes[0], sizes[0] + sizes[1])]
    return _ratios(paired, [pair for block in blocks for pair in itertools.permutations(block, 2)])


def _ratios(paired: Paired, pairs: list[tuple[int, int]]) -> Forms:
    a, b = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    top, bottom = paired.values[:, a], paired.values[:, b]
    slopes = np.zeros((2, len(pairs), paired.values.shape[1]))
    rows = np.arange(len(pairs))
    slopes[:, rows, a] = -1 / bottom
    slopes[:, rows, b] = top / bottom**2
    return Forms(-top / bottom, slopes)


def levels(paired: Paired) -> Forms:
    """Return the numbers themselves."""
    places = paired.values.shape[1]
    return Forms(paired.values, np.stack([np.eye(places)] * 2))


def change(forms: Forms, paired: Paired, confidence: float, *, directions: bool = False) -> Difference:
    """Compare the largest forms of two models (see the module's derivation)."""
    z, screen = two_sided(confidence), two_sided(SCREEN)
    top = forms.values.argmax(axis=1)
    seen, clear = [], []
    for model in (0, 1):
        gap = forms.values[model, top[model]] - forms.values[model]
        slopes = forms.slopes[model] - forms.slopes[model, top[model]]
        noise = np.sqrt(_of_model(paired, slopes, model))
        seen.append(np.flatnonzero(gap <= screen * noise))
        variance = (forms.slopes[model, top[model]] ** 2) @ paired.covariance[:, model, model]
        error = np.sqrt(np.maximum(variance, 0))  # rounding leaves less than 0 where everybody scores alike
        error = np.sqrt(_of_model(paired, forms.slopes[model, top[model]], model))
        clear.append(not directions or bool(forms.values[model, top[model]] > screen * error))
    upper, lower = (_offset(forms, paired, seen[1 - m], seen[1 - m], z * (1 - 2 * m)) for m in (0, 1))
    if clear[0]:
        upper = np.minimum(upper, _offset(forms, paired, seen[1], top[:1], z))
    if clear[1]:
        lower = np.maximum(lower, _offset(forms, paired, top[1:], seen[0], -z))
    high, low = upper.max(), lower.min()
    first, second = (float(forms.values[model, top[model]]) for model in (0, 1))
    return Difference(first, second, float(low), float(high))


def _offset(forms: Forms, paired: Paired, p: NDArray[np.intp], q: NDArray[np.intp], z: float) -> Array:
    """Return x_p(B) - x_q(A) + z times its standard error."""
    variance = paired.variance(-forms.slopes[0, q], forms.slopes[1, p])
    return np.asarray(forms.values[1, p] - forms.values[0, q] + z * np.sqrt(variance))


def _of_model(paired: Paired, slopes: Array, model: int) -> Array:
    """Return the variance of forms of one model's values."""
    nothing = np.zeros_like(slopes)
    return paired.variance(*((slopes, nothing) if model == 0 else (nothing, slopes)))


def mirrored(found: Difference) -> Difference:
    """Turn the sign, for a minimum that was written as a maximum."""
    return Difference(-found.first, -found.second, -found.high, -found.low)


def within_strata(paired: Paired, weights: Array, groups: int) -> Forms:
    """Return the pooled difference of every ordered pair of groups: Σ W_s (v_as - v_bs) over strata with both."""
    strata = paired.values.shape[1] // groups
    defined = np.isfinite(paired.values).all(axis=0).reshape(strata, groups)
    mass = weights.reshape(strata, groups)
    slopes = []
    for a, b in itertools.permutations(range(groups), 2):
        with np.errstate(all="ignore"):
            shared = np.where(defined[:, a] & defined[:, b], mass[:, a] * mass[:, b] / (mass[:, a] + mass[:, b]), 0.0)
        shared = np.nan_to_num(shared)
        if shared.sum() > 0:
            form = np.zeros((strata, groups))
            form[:, a], form[:, b] = shared / shared.sum(), -shared / shared.sum()
            slopes.append(form.ravel())
    both = np.array(slopes).reshape(len(slopes), strata * groups)
    return Forms(np.nan_to_num(paired.values) @ both.T, np.stack([both, both]))


def against(paired: Paired, place: int, reference: int) -> Forms:
    """Return the one signed difference of a place from another."""
    return _stacked(paired, [(place, reference)])


# How far statistical parity of scores differs between two models on the same rows.


GRID = 32
"""Forms are looked at where the shares of everybody are multiples of one in so many, and where they are largest."""
DRAWS = 499
SCREENED = 1.5
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
        is_known = groups >= 0
        scores = (scores[0].some(is_known), scores[1].some(is_known))
        groups, weights = groups[is_known], None if weights is None else weights[is_known]
    every = np.ones(len(groups)) if weights is None else weights
    sizes = np.bincount(groups, every, n_groups).astype(np.float64)
    curves = [_Curves.of(score, groups, every, sizes) for score in scores]
    levels = np.unique([*np.arange(1, GRID) / GRID, *curves[0].tops, *curves[1].tops])
    processes = [curve.at(levels) for curve in curves]
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

    place: NDArray[np.int64]  # which of the U scores each possible score of a row is, shape [n, K]
    shares: Array  # the chances of these, shape [K]
    own: Array  # the distribution in each group, shape [G, U]
    everybody: Array  # over all, shape [U]

    @classmethod
    def of(cls, scores: DrawnScores, groups: NDArray[np.int64], weights: Array, sizes: Array) -> _Curves:
        values, inverse = np.unique(scores.values, return_inverse=True)
        inverse = inverse.reshape(scores.values.shape)
        mass = _masses(inverse, scores.shares, groups, weights, len(sizes), len(values))
        everybody = np.cumsum(mass.sum(axis=0)) / sizes.sum()
        return cls(inverse, scores.shares, np.cumsum(mass, axis=1) / sizes[:, None], everybody)

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
    bins: NDArray[np.int64]  # between which of the scores each possible score lies, shape [n, K]
    shares: Array  # the chances of these, shape [K]
    own: Array  # F_a there, shape [G, Z]
    gaps: Array  # its differences from F, shape [G, Z]

    def moved(self, pulls: Array, bins: NDArray[np.int64], groups: NDArray[np.int64], sizes: Array) -> Array:
        """Return how far rows pulled by so much each move the differences, shape [G, grid]."""
        width = self.own.shape[1]
        mass = _masses(bins, self.shares, groups, pulls, len(sizes), width + 1)
        total = mass.sum(axis=1, keepdims=True)
        excess = (np.cumsum(mass, axis=1)[:, :width] - total * self.own) / sizes[:, None]
        everybody = (sizes / sizes.sum()) @ self.own
        pooled = (np.cumsum(mass.sum(axis=0))[:width] - total.sum() * everybody) / sizes.sum()
        return np.asarray(excess - pooled)


def _masses(
    bins: NDArray[np.int64], shares: Array, groups: NDArray[np.int64], weights: Array, n_groups: int, n_bins: int
) -> Array:
    """Total weights by group and bin, shape [n_groups, n_bins]."""
    masses = np.zeros(n_groups * n_bins)
    for member, share in enumerate(shares.tolist()):
        masses += share * np.bincount(groups * n_bins + bins[:, member], weights, len(masses))
    return masses.reshape(n_groups, n_bins)


def _units(
    bins: list[NDArray[np.int64]], groups: NDArray[np.int64], weights: Array
) -> tuple[list[NDArray[np.int64]], Array]:
    """Put rows together that are in the same bins: their columns, and the root of their summed squared weights."""
    columns = [*bins, groups[:, None]]
    table, inverse = distinct_rows(np.hstack(columns))
    spread = np.sqrt(np.bincount(inverse, weights**2, len(table)))
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
            distinct, code = np.unique(code, return_inverse=True)
            most = len(distinct)
        most, code = most * count, code * count + column
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return rows[first], inverse


def _signed(process: _Process, moved: Array) -> tuple[Array, Array]:
    """Return the differences with both signs, shape [forms], and their noise, shape [draws, forms]."""
    gaps = process.gaps.ravel()
    flat = moved.reshape(len(moved), -1)
    return np.concatenate([gaps, -gaps]), np.hstack([flat, -flat])


def _near(values: Array, noise: Array) -> NDArray[np.intp]:
    """Tell which differences noise does not tell from the largest one."""
    top = int(values.argmax())
    apart = (noise - noise[:, [top]]).std(axis=0)
    return np.flatnonzero(values[top] - values <= SCREENED * apart)


def _upper(first: tuple[Array, Array], second: tuple[Array, Array], level: float) -> float:
    """Return the upper limit of how much larger the second's largest difference is than the first's."""
    (a, noise_a), (b, noise_b) = first, second
    mine, theirs = _near(b, noise_b), _near(a, noise_a)
    same = b[mine] - a[mine] + np.quantile(noise_a[:, mine] - noise_b[:, mine], level, axis=0)
    reach = noise_a[:, theirs].max(axis=1, keepdims=True)
    largest = b[mine] - a.max() + np.quantile(reach - noise_b[:, mine], level, axis=0)
    return float(np.minimum(same, largest).max())
