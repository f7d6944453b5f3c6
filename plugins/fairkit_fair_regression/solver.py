"""Exponentiated gradient with linear programming: the cheapest mixture under bounds, by best responses.

The problem: over distributions Q on predictors h with a cost and constraint values g(h) in R^m,

    min cost(Q)  subject to  g(Q) <= bounds,

with predictors that only a best response can name: given multipliers λ >= 0, ‖λ‖₁ <= B, a predictor that
minimises cost(h) + λ·g(h). Against a λ-player who answers with violation times B this is

    P(Q) = cost(Q) + B max(0, max_j (g_j(Q) - bounds_j)),

and every λ gives the lower bound D(λ) = min_h cost(h) + λ·(g(h) - bounds). The duality gap P(Q) - max D(λ)
is what Q may be away from the best mixture, in cost and, divided by B, in violation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_EQUAL = 1e-10


class Response(NamedTuple):
    """A predictor with its cost and constraint values.

    Attributes
    ----------
    cost
        cost(h).
    values
        g(h), shape [m].
    member
        The predictor; the solver only keeps it.
    """

    cost: float
    values: Array
    member: Any


@dataclass(slots=True)
class Pool:
    """Predictors found so far and multipliers answered so far: what several problems share.

    Costs and constraint values do not depend on the bounds, so that a whole frontier re-uses them.

    Attributes
    ----------
    responses
        Predictors, no two with the same cost and values.
    answered
        Multipliers that a best response was asked for, each of shape [m].
    calls
        How many best responses were asked for.
    """

    responses: list[Response] = field(default_factory=list)
    answered: list[Array] = field(default_factory=list)
    calls: int = 0
    costs: Array = field(default_factory=lambda: np.empty(0))
    values: Array = field(default_factory=lambda: np.empty((0, 0)))

    def add(self, response: Response) -> int:
        """Keep a predictor and return its place; one that is equal to another is that one."""
        if self.responses:
            equal = np.abs(self.costs - response.cost) <= _EQUAL
            equal &= np.abs(self.values - response.values).max(axis=1, initial=0.0) <= _EQUAL
            if equal.any():
                return int(equal.argmax())
        self.responses.append(response)
        self.costs = np.append(self.costs, response.cost)
        self.values = np.vstack([self.values.reshape(-1, len(response.values)), response.values])
        return len(self.responses) - 1

    def dual(self, bounds: Array, strength: float = 1.0) -> float:
        """Return max over the answered λ of D(λ), with the predictors found since; -inf without any."""
        if not self.answered:
            return -np.inf
        multipliers = np.array(self.answered)
        lagrangian = strength * self.costs[:, None] + (self.values - bounds) @ multipliers.T
        return float(lagrangian.min(axis=0).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverSettings:
    """How to solve.

    Attributes
    ----------
    nu
        Stop at a duality gap of this.
    bound
        B, the most that all multipliers may add up to.
    iterations
        The most iterations, of two best responses each.
    least
        Iterations before the gap is believed: the best responses may be heuristics.
    step
        The learning rate of the exponentiated gradient, over B.
    strength
        What costs are multiplied by: 0 asks for the least violation alone.
    """

    nu: float
    bound: float = 100.0
    iterations: int = 50
    least: int = 5
    step: float = 2.0
    strength: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state after an iteration: best responses asked for so far, value P(Q), gap, violation."""

    calls: int
    value: float
    gap: float
    violation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The mixture found.

    Attributes
    ----------
    places, weights
        Its members as places in the pool, and their weights, adding up to 1.
    objective, values, violation
        cost(Q), g(Q) of shape [m], and max(0, max_j (g_j(Q) - bounds_j)).
    multipliers
        The λ that prices the bounds, shape [m]: an increase of bounds_j by δ lowers the cost by λ_j δ.
    gap
        The duality gap, never negative.
    iterations, calls
        Iterations, and best responses that this solution asked for.
    converged
        Whether the gap reached ν.
    history
        One entry for each iteration, the first before any.
    """

    places: tuple[int, ...]
    weights: tuple[float, ...]
    objective: float
    values: Array
    violation: float
    multipliers: Array
    gap: float
    iterations: int
    calls: int
    converged: bool
    history: tuple[Moment, ...]


class Mixture(NamedTuple):
    """The best mixture of the pool: weights over it [K], P(Q), violation, and the multipliers [m]."""

    weights: Array
    value: float
    violation: float
    multipliers: Array


def _same(multipliers: Array) -> Array:
    return multipliers


def _nothing(moment: Moment) -> None:
    return None


def solve(
    pool: Pool,
    bounds: Array,
    respond: Callable[[Array], Response],
    settings: SolverSettings,
    *,
    simplify: Callable[[Array], Array] = _same,
    watch: Callable[[Moment], None] = _nothing,
) -> Solution:
    """Find the cheapest mixture under the bounds.

    Every iteration asks for two best responses: one to the multipliers of the linear program over all
    predictors so far, which prices the bounds as the best mixture sees them, and one to the multipliers of
    the exponentiated gradient, which remember all earlier answers and keep the first from jumping. The
    linear program's mixture is never worse than the average of the answers, which is one of those that it
    chooses from.

    Parameters
    ----------
    pool
        Predictors to begin with; gets the new ones.
    bounds
        Shape [m].
    respond
        From multipliers [m] to a predictor with a small cost + λ·g. It may be a heuristic: then the gap is
        measured against the best of its answers.
    settings
        See `SolverSettings`.
    simplify
        From multipliers to others with the same best response that price the bounds no higher: where γ and
        -γ are both bounded, the difference of their multipliers is all that counts.
    watch
        Told the state after every iteration.

    Returns
    -------
    Solution
        With at most as many members as there are tight bounds, plus one.
    """
    before = pool.calls
    theta = np.zeros(len(bounds))
    if not pool.answered and settings.strength > 0:
        _ask(pool, np.zeros(len(bounds)), respond, settings.strength)
    mixture = best_mixture(pool, bounds, settings.bound, strength=settings.strength)
    history = [_moment(pool, mixture, bounds, before, settings.strength)]
    while _goes_on(history, settings):
        _ask(pool, simplify(mixture.multipliers), respond, settings.strength)
        soft = simplify(_softened(theta, settings.bound))
        answer = _ask(pool, soft, respond, settings.strength)
        theta = theta + settings.step / settings.bound * (answer.values - bounds)
        mixture = best_mixture(pool, bounds, settings.bound, strength=settings.strength)
        history.append(_moment(pool, mixture, bounds, before, settings.strength))
        watch(history[-1])
    return _solution(pool, mixture, history, settings)


def best_mixture(pool: Pool, bounds: Array, bound: float, *, strength: float = 1.0) -> Mixture:
    """Solve min strength · cost·Q + B ξ over distributions Q on the pool and ξ >= 0 with g(Q) - bounds <= ξ.

    Returns
    -------
    Mixture
        A vertex: its support is no larger than the number of tight bounds plus one.
    """
    from scipy.optimize import linprog

    count, m = len(pool.responses), len(bounds)
    scale = strength * pool.costs
    result = linprog(
        np.append(scale, bound),
        A_ub=np.hstack([pool.values.T, -np.ones((m, 1))]),
        b_ub=bounds,
        A_eq=np.append(np.ones(count), 0.0)[None, :],
        b_eq=[1.0],
        bounds=(0, None),
        method="highs-ds",
    )
    weights = np.where(result.x[:count] > 1e-9, result.x[:count], 0.0)
    weights /= weights.sum()
    violation = max(0.0, float((weights @ pool.values - bounds).max(initial=0.0)))
    multipliers = np.maximum(-result.ineqlin.marginals, 0.0)
    return Mixture(weights, float(scale @ weights + bound * violation), violation, multipliers)


def _goes_on(history: list[Moment], settings: SolverSettings) -> bool:
    done = len(history) - 1
    return done < settings.iterations and (done < settings.least or history[-1].gap > settings.nu)


def _ask(pool: Pool, multipliers: Array, respond: Callable[[Array], Response], strength: float) -> Response:
    if any(np.array_equal(multipliers, known) for known in pool.answered):
        lagrangian = strength * pool.costs + pool.values @ multipliers
        return pool.responses[int(lagrangian.argmin())]
    response = respond(multipliers)
    pool.calls += 1
    pool.answered.append(multipliers)
    return pool.responses[pool.add(response)]


def _softened(theta: Array, bound: float) -> Array:
    """Return λ_j = B exp(θ_j) / (1 + Σ exp θ) (algorithm 1)."""
    top = max(0.0, float(theta.max()))
    grown = np.exp(theta - top)
    return np.asarray(bound * grown / (np.exp(-top) + grown.sum()))


def _moment(pool: Pool, mixture: Mixture, bounds: Array, before: int, strength: float) -> Moment:
    gap = mixture.value - pool.dual(bounds, strength)
    return Moment(calls=pool.calls - before, value=mixture.value, gap=max(0.0, gap), violation=mixture.violation)


def _solution(pool: Pool, mixture: Mixture, history: list[Moment], settings: SolverSettings) -> Solution:
    places = np.flatnonzero(mixture.weights)
    return Solution(
        places=tuple(places.tolist()),
        weights=tuple(mixture.weights[places].tolist()),
        objective=float(mixture.weights @ pool.costs),
        values=mixture.weights @ pool.values,
        violation=mixture.violation,
        multipliers=mixture.multipliers,
        gap=history[-1].gap,
        iterations=len(history) - 1,
        calls=history[-1].calls,
        converged=history[-1].gap <= settings.nu,
        history=tuple(history),
    )
