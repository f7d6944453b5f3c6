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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import two_sided
from fairkit_comparing.records import Difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_comparing.records import Paired

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
    gaps = [one.values[:, a] - one.values[:, b] for one in (first, second)]
    own = np.arctan2(gaps[1], gaps[0])  # [2, pairs]
    even = np.broadcast_to(np.pi * np.arange(turns)[:, None] / turns, (turns, len(pairs)))
    angles = np.vstack([own, even])
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
