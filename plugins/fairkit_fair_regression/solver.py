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
    """A predictor with its cost and constraint values."""

    cost: float  # cost(h)
    values: Array  # g(h), shape [m]
    member: Any  # the predictor; the solver only keeps it


@dataclass(slots=True)
class Pool:
    """Predictors found so far and multipliers answered so far: what several problems share.

    Costs and constraint values do not depend on the bounds, so that a whole frontier re-uses them.
    """

    responses: list[Response] = field(default_factory=list)  # predictors, no two with the same cost and values
    answered: list[Array] = field(default_factory=list)
    calls: int = 0  # how many best responses were asked for
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
    """How to solve."""

    nu: float  # stop at a duality gap of this
    bound: float = 100.0  # B, the most that all multipliers may add up to
    iterations: int = 50  # the most iterations, of two best responses each
    least: int = 5  # iterations before the gap is believed: the best responses may be heuristics
    step: float = 2.0  # the learning rate of the exponentiated gradient, over B
    strength: float = 1.0  # what costs are multiplied by: 0 asks for the least violation alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state after an iteration: best responses asked for so far, value P(Q), gap, violation."""

    calls: int
    value: float
    gap: float
    violation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The mixture found."""

    places: tuple[int, ...]  # its members as places in the pool, and their weights, adding up to 1
    weights: tuple[float, ...]  # its members as places in the pool, and their weights, adding up to 1
    objective: float  # cost(Q), g(Q) of shape [m], and max(0, max_j (g_j(Q) - bounds_j))
    values: Array  # cost(Q), g(Q) of shape [m], and max(0, max_j (g_j(Q) - bounds_j))
    violation: float  # cost(Q), g(Q) of shape [m], and max(0, max_j (g_j(Q) - bounds_j))
    multipliers: Array  # the λ that prices the bounds, shape [m]: an increase of bounds_j by δ lowers the cost by λ_j δ
    gap: float  # the duality gap, never negative
    iterations: int  # iterations, and best responses that this solution asked for
    calls: int  # iterations, and best responses that this solution asked for
    converged: bool  # whether the gap reached ν
    history: tuple[Moment, ...]  # one entry for each iteration, the first before any


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
    """Solve min strength · cost·Q + B ξ over distributions Q on the pool and ξ >= 0 with g(Q) - bounds <= ξ."""
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
