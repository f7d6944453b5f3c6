"""The randomized threshold rule, solved exactly.

For every group k the rule is h(x) = clip((f(x) - t_k)/γ, 0, 1), f in [-1, 1]. It minimises
E[γ/2 h² - f h] subject to |mean of h in group k - ρ| ≤ ε/2. The groups separate, and in each the mean of h is
continuous and does not increase in t, so that t_k is where it equals the unconstrained rate (that of t = 0)
brought into [ρ - ε/2, ρ + ε/2].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit_rto.ramps import SortedScores, Term, evaluate, middle_crossing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def ramp(margins: NDArray[np.floating], thresholds: NDArray[np.floating] | float, gamma: float) -> NDArray[np.float64]:
    """Return h = clip((f - t)/γ, 0, 1), the chance of the favorable decision."""
    return np.clip((np.asarray(margins, dtype=np.float64) - thresholds) / gamma, 0.0, 1.0)


def parity_thresholds(groups: Sequence[SortedScores], gamma: float, rhos: Array, epsilons: Array) -> Array:
    """Return thresholds for the rows of all the groups given, taken together as one population, for every rate."""
    terms = [Term(group) for group in groups]
    free = evaluate(terms, np.zeros(1), gamma)[0][0] / sum(group.total for group in groups)
    lowest = np.maximum(rhos - 0.5 * epsilons, 0.0)
    wanted = np.minimum(np.minimum(np.maximum(free, lowest), rhos + 0.5 * epsilons), 1.0)
    thresholds = np.zeros(len(rhos))
    moved = wanted != free
    if moved.any():
        thresholds[moved] = middle_crossing(terms, gamma, wanted[moved], (-1.0 - gamma, 1.0))
    return thresholds


def parity_threshold(groups: Sequence[SortedScores], gamma: float, rho: float, epsilon: float) -> float:
    """Return the threshold for one rate."""
    return float(parity_thresholds(groups, gamma, np.array([rho]), np.array([epsilon]))[0])


def covariance_multiplier(inside: SortedScores, outside: SortedScores, gamma: float, epsilon: float) -> float:
    """Return the multiplier t of the covariance variant (RTO, appendix E.1) in one subgroup.

    With z = 1_S - ρ, ρ the share of S in the subgroup, the constraint is |mean of z h| ≤ ε, that is
    |C(h, 1_S)| ≤ ε, and the rule h = clip((f - t z)/γ, 0, 1). The covariance is ρ(1 - ρ) times the
    difference of the two rates.
    """
    total = inside.total + outside.total
    share = inside.total / total
    terms = [Term(inside, 1.0 - share, 1.0 - share), Term(outside, -share, -share)]
    free = float(evaluate(terms, np.zeros(1), gamma)[0][0]) / total
    wanted = min(max(free, -epsilon), epsilon)
    if wanted == free:
        return 0.0
    reach = (1.0 + gamma) / min(share, 1.0 - share)
    return float(middle_crossing(terms, gamma, np.array([wanted]), (-reach, reach))[0])
