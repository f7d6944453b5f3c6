"""The linear programme of fair classification, solved in its dual: a few multipliers, whatever the rows.

With probabilities p_ic of row i and class c, weights w_i that add up to 1, and chances of a decision π_ic::

    max Σ_i w_i Σ_c π_ic p_ic
    s.t. Σ_c π_ic = 1,  |Σ_i w_i z_ija π_ic(j) / Z_ja - q_j| ≤ tolerance / 2  for each rate j and group a

where a rate j is the share of decisions for the class c(j) among the rows of an event, z_ija the probability that row i
is of group a and in that event, Z_ja = Σ_i w_i z_ija, and q_j is free. Its dual (Xian and Zhao 2024, theorem 3.1)::

    min_λ Σ_i w_i max_c (p_ic - Σ_{j: c(j) = c} Σ_a λ_ja z_ija / Z_ja) + tolerance / 2 Σ |λ|   s.t. Σ_a λ_ja = 0

A decision for the class of the largest term is optimal; rows where two terms are equal would be drawn by chance, and
are few where probabilities are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

STAGES = (0.05, 0.01, 0.002, 0.0005)
"""The widths within which the largest term is smoothed, one after the other."""
_PATIENCE = {"maxiter": 400, "ftol": 1e-11, "gtol": 1e-7, "maxcor": 30}


@dataclass(frozen=True, slots=True)
class Rate:
    """One rate that shall be equal between groups."""

    target: int  # the class whose decisions it counts
    chances: NDArray[np.float64]  # the probability that a row is of a group and in the event, shape [n, groups]


def solve(
    probabilities: NDArray[np.float64], rates: Sequence[Rate], weights: NDArray[np.float64], tolerance: float
) -> NDArray[np.float64]:
    """Return the multipliers λ / Z, shape [rates, groups]."""
    from scipy.optimize import minimize

    share = weights / weights.sum()
    sizes = np.stack([share @ rate.chances for rate in rates])  # [rates, groups]
    scaled = [rate.chances / size for rate, size in zip(rates, sizes, strict=True)]
    unit = float(sizes.min())
    multipliers = np.zeros(sizes.size)
    for width in STAGES:

        def value(x: NDArray[np.float64], width: float = width) -> tuple[float, NDArray[np.float64]]:
            return _dual(x.reshape(sizes.shape) * unit, probabilities, rates, scaled, share, tolerance, width, unit)

        multipliers = minimize(value, multipliers, jac=True, method="L-BFGS-B", options=dict(_PATIENCE)).x
    centered = _centered(multipliers.reshape(sizes.shape) * unit)
    return np.asarray(centered / sizes)


def adjusted(
    probabilities: NDArray[np.float64], rates: Sequence[Rate], multipliers: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the terms whose largest is the decision, shape [n, classes]."""
    terms = probabilities.copy()
    for rate, own in zip(rates, multipliers, strict=True):
        terms[:, rate.target] -= rate.chances @ own
    return terms


def _centered(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(values - values.mean(axis=1, keepdims=True))


def _dual(
    raw: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    rates: Sequence[Rate],
    scaled: Sequence[NDArray[np.float64]],
    share: NDArray[np.float64],
    tolerance: float,
    width: float,
    unit: float,
) -> tuple[float, NDArray[np.float64]]:
    """Return the smoothed dual and its derivative by the multipliers in units of `unit`, flat."""
    multipliers = _centered(raw)
    terms = probabilities.copy()
    for rate, own, chances in zip(rates, multipliers, scaled, strict=True):
        terms[:, rate.target] -= chances @ own
    top = terms.max(axis=1, keepdims=True)
    mass = np.exp((terms - top) / width)
    total = mass.sum(axis=1, keepdims=True)
    mass *= share[:, None] / total
    value = float(share @ (top[:, 0] + width * np.log(total[:, 0])))
    slope = -np.stack([chances.T @ mass[:, rate.target] for rate, chances in zip(rates, scaled, strict=True)])
    round_off = 1e-3 * width * unit
    length = np.sqrt(multipliers**2 + round_off**2)
    value += 0.5 * tolerance * float(length.sum())
    slope += 0.5 * tolerance * multipliers / length
    return value, (_centered(slope) * unit).ravel()
