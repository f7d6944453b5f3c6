"""The entropic plan: every row's mass spreads over all rows, in proportion to exp((R_ij - η C_ij) / γ).

For few or many tied rows (BuDRO appendix B.2): the plan is smooth in the losses where the exact one jumps
between ties. It is feasible, so its value is at most L(ε), and tends to L(ε) as γ falls to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ParameterError
from fairkit_similarity.search.duplicates import same_rows

if TYPE_CHECKING:
    from fairkit_similarity.search.tree import Floats, Ints

BLOCK = 1 << 22
"""Entries of Π that are held at a time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EntropicSolution:
    """The entropic plan's value Σ R Π, its <C, Π>, η, and the mass that arrives at each row under each label."""

    value: float
    cost: float
    eta: float
    label_weights: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Classes:
    """Equal rows taken together: places with losses and counts, and queries with masses."""

    z: Floats
    values: Floats
    count: Floats
    where: Ints
    label: Ints
    mass: Floats


def entropic_plan(
    z: Floats,
    values: Floats,
    labels: Ints,
    epsilon: float,
    gamma: float,
    *,
    weights: Floats | None = None,
    eta: float | None = None,
    precision: float = 1e-10,
) -> EntropicSolution:
    """Find η with <C, Π(η)> = ε by bisection, from the feasible side.

    Time is O(u²) for each of about 40 values of η, where u counts distinct rows of (z, losses); memory is O(u).
    """
    if not (np.isfinite(gamma) and gamma > 0.0):
        raise ParameterError(f"gamma is {gamma}: it must be a positive number in units of the loss")
    if not (np.isfinite(epsilon) and epsilon > 0.0):
        raise ParameterError(f"epsilon is {epsilon}: the entropic plan needs a positive budget; use the exact plan")
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    group, first = same_rows(np.column_stack([z, values.T]))
    code, inverse = np.unique(labels * len(first) + group, return_inverse=True)
    mass = np.full(len(z), 1.0 / len(z)) if weights is None else weights / weights.sum()
    classes = _Classes(
        z=np.asarray(z, dtype=np.float64)[first],
        values=values[:, first],
        count=np.bincount(group).astype(np.float64),
        where=code % len(first),
        label=code // len(first),
        mass=np.bincount(inverse, weights=mass).astype(np.float64),
    )
    high = _root(classes, epsilon, gamma, eta, precision)
    value, cost, arrived = _evaluate(classes, high, gamma)
    weights = (arrived / classes.count)[:, group].T
    return EntropicSolution(value=value, cost=cost, eta=high, label_weights=np.ascontiguousarray(weights))


def _root(classes: _Classes, epsilon: float, gamma: float, eta: float | None, precision: float) -> float:
    """Return the smallest η, to `precision`, whose plan costs at most ε."""
    if _evaluate(classes, 0.0, gamma)[1] <= epsilon:
        return 0.0
    low, high = 0.0, eta or 1.0
    while _evaluate(classes, high, gamma)[1] > epsilon:
        low, high = high, 2.0 * high
        if not np.isfinite(high):
            raise ParameterError(f"no plan spends as little as epsilon = {epsilon}; use the exact plan")
    # <C, Π(η)> falls in η: bisection, `high` stays feasible
    while high - low > precision * high:
        middle = 0.5 * (low + high)
        if _evaluate(classes, middle, gamma)[1] > epsilon:
            low = middle
        else:
            high = middle
    return high


def _evaluate(classes: _Classes, eta: float, gamma: float) -> tuple[float, float, Floats]:
    """Value, cost, and arrivals (K, places) of the plan at η; each column is shifted by its maximum before exp."""
    value, cost = 0.0, 0.0
    arrived = np.zeros_like(classes.values)
    square = np.einsum("ij,ij->i", classes.z, classes.z)
    step = max(BLOCK // len(classes.z), 1)
    for start in range(0, len(classes.where), step):
        part = slice(start, start + step)
        here = classes.z[classes.where[part]]
        # ‖x - y‖² = ‖x‖² + ‖y‖² - 2 x·y; cancellation may leave it below 0
        far = np.maximum(square + np.einsum("ij,ij->i", here, here)[:, None] - 2.0 * here @ classes.z.T, 0.0)
        far[np.arange(len(here)), classes.where[part]] = 0.0
        reward = classes.values[classes.label[part]]
        # Π_ij = w_j exp((R_ij - η C_ij) / γ) / Σ_i' exp(...)
        plan = (reward - eta * far) / gamma
        plan = classes.count * np.exp(plan - plan.max(axis=1, keepdims=True))
        plan *= (classes.mass[part] / plan.sum(axis=1))[:, None]
        value += float(np.einsum("ij,ij->", plan, reward))
        cost += float(np.einsum("ij,ij->", plan, far))
        np.add.at(arrived, classes.label[part], plan)
    return value, cost, arrived
