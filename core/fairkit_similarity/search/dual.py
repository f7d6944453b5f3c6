"""The search for η: a convex piecewise linear function of one variable, minimised exactly.

    M(η) = η ε + Σ_j w_j φ_j(η),      φ_j(η) = max_i R_ij - η C_ij          (BuDRO eq. B.14)

Every answer i of query j is a line R_ij - η C_ij below φ_j. The search keeps two lines for each query,
the answers at the bracket's ends, and takes the next η where the sum of the larger of the two is smallest.
A query whose two lines are the same is settled for good, since φ_j is convex and touches the line at both
ends: only the others are asked again. When the evaluated M meets the model, η is a kink of M and optimal.

The model's minimum is the value of a feasible transport plan (each query goes to one of its two answers, and
one query is split so that <C, Π> = ε): upper and lower bound are both attained, not estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from fairkit_similarity.search.tree import Floats, Ints

MAX_EVALUATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lines:
    """One answer of every query: where it goes, what it gains, how far it is. Arrays of shape (m,)."""

    answer: Ints
    reward: Floats
    cost: Floats

    def at(self, eta: float) -> Floats:
        """Return R - η C; at η = ∞ only lines of cost 0 are finite."""
        if np.isinf(eta):
            return np.where(self.cost > 0.0, -np.inf, self.reward)
        return self.reward - eta * self.cost

    def take(self, queries: Ints) -> Lines:
        """Keep some of the queries."""
        return Lines(answer=self.answer[queries], reward=self.reward[queries], cost=self.cost[queries])

    def put(self, queries: Ints, other: Lines) -> Lines:
        """Return the lines with those of `queries` replaced."""
        answer, reward, cost = self.answer.copy(), self.reward.copy(), self.cost.copy()
        answer[queries], reward[queries], cost[queries] = other.answer, other.reward, other.cost
        return Lines(answer=answer, reward=reward, cost=cost)


Evaluate = Callable[[float, Ints, Ints], Lines]
"""(η, queries, guessed answers) -> the best answers of these queries."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bracket:
    """What is known: exact answers at two values of η around the minimum, and the best value seen."""

    eta_low: float  # M does not increase at `eta_low` and does not decrease at `eta_high` (∞ at first)
    eta_high: float  # M does not increase at `eta_low` and does not decrease at `eta_high` (∞ at first)
    low: Lines  # the answers there
    high: Lines  # the answers there
    eta: float  # where M was smallest so far, and M there: an upper bound by weak duality
    value: float  # where M was smallest so far, and M there: an upper bound by weak duality
    evaluations: float = 0.0  # queries answered, over all evaluations, divided by the number of queries
    seen: tuple[tuple[float, Lines], ...] = ()  # every η that was evaluated, with the answers of all queries there

    def known(self, eta: float, queries: Ints) -> tuple[Lines, Ints]:
        """Return the answers to some queries at any η that follow from the evaluations."""
        below = max((each for each in self.seen if each[0] <= eta), key=lambda each: each[0], default=None)
        above = min((each for each in self.seen if each[0] >= eta), key=lambda each: each[0], default=None)
        if below is None or above is None:
            return self.low.take(queries), np.arange(len(queries))
        low, high = below[1].take(queries), above[1].take(queries)
        better = np.flatnonzero(high.at(eta) > low.at(eta))
        return low.put(better, high.take(better)), np.flatnonzero(low.cost != high.cost)


def minimise(
    evaluate: Evaluate,
    weights: Floats,
    epsilon: float,
    bracket: Bracket,
    *,
    tolerance: float,
    trials: Iterable[float] = (),
) -> Bracket:
    """Narrow the bracket until upper and lower bound differ by at most `tolerance`."""
    hints = iter(trials)
    start = (bracket.eta_low, bracket.eta_high)
    for _ in range(MAX_EVALUATIONS):
        eta, lower = model_minimum(weights, epsilon, bracket)
        if bracket.value - lower <= max(tolerance, 1e-14 * abs(lower)):
            break
        if bracket.eta_low == start[0] or bracket.eta_high == start[1]:
            eta = next((t for t in hints if bracket.eta_low < t < bracket.eta_high), eta)
        if not bracket.eta_low < eta < bracket.eta_high:
            break  # the model's kink is an end of the bracket: nothing finer can be represented
        bracket = _step(evaluate, weights, epsilon, bracket, eta)
    return bracket


def _step(evaluate: Evaluate, weights: Floats, epsilon: float, bracket: Bracket, eta: float) -> Bracket:
    """Answer the unsettled queries at η and move one end of the bracket there."""
    open_queries = np.flatnonzero(bracket.low.cost != bracket.high.cost)
    low, high = bracket.low.take(open_queries), bracket.high.take(open_queries)
    guess = np.where(high.at(eta) > low.at(eta), high.answer, low.answer)
    lines = bracket.low.put(open_queries, evaluate(eta, open_queries, guess))
    # weak duality: M(η) is an upper bound at every η >= 0
    value = eta * epsilon + float(weights @ lines.at(eta))
    # a subgradient of M: ε - Σ_j w_j C_j
    slope = epsilon - float(weights @ lines.cost)
    work = bracket.evaluations + len(open_queries) / max(len(weights), 1)
    seen = (*bracket.seen, (eta, lines))
    if value < bracket.value:
        bracket = replace(bracket, eta=eta, value=value)
    if slope >= 0.0:
        return replace(bracket, eta_high=eta, high=lines, evaluations=work, seen=seen)
    return replace(bracket, eta_low=eta, low=lines, evaluations=work, seen=seen)


def _exchanges(weights: Floats, bracket: Bracket) -> tuple[Ints, Floats, Floats]:
    """Order the queries with two answers by the η at which they change from the far to the near one."""
    low, high = bracket.low, bracket.high
    queries = np.flatnonzero((low.cost > high.cost) & (weights > 0.0))
    saved = low.cost[queries] - high.cost[queries]
    # two lines R - η C meet at η = (R_far - R_near) / (C_far - C_near)
    kinks = (low.reward[queries] - high.reward[queries]) / saved
    kinks = np.clip(kinks, bracket.eta_low, bracket.eta_high)
    order = np.argsort(-kinks, kind="stable")
    return queries[order], kinks[order], (weights[queries] * saved)[order]


def model_minimum(weights: Floats, epsilon: float, bracket: Bracket) -> tuple[float, float]:
    """Minimise η ε + Σ_j w_j max(two lines of j) over the bracket."""
    _, kinks, spends = _exchanges(weights, bracket)
    left = epsilon - float(weights @ bracket.high.cost)
    # the model is convex, piecewise linear: its minimum is the kink where what is spent passes ε
    over = np.flatnonzero(np.cumsum(spends) > left)
    eta = float(kinks[over[0]]) if len(over) else bracket.eta_low
    share = shares(weights, epsilon, bracket)
    gained = share * bracket.low.reward + (1.0 - share) * bracket.high.reward
    return eta, float(weights @ gained)


def shares(weights: Floats, epsilon: float, bracket: Bracket) -> Floats:
    """Return the part of each query's mass that goes to its far answer: 1, 0, and for one query between.

    The plan has <C, Π> = ε, or less where every query already has the largest reward there is. It is the
    best among all plans that use the two answers only (a fractional knapsack).
    """
    queries, _, spends = _exchanges(weights, bracket)
    left = max(epsilon - float(weights @ bracket.high.cost), 0.0)
    before = np.cumsum(spends) - spends
    out = np.zeros(len(weights))
    # by falling gain per distance, the last in part (Dantzig 1957)
    out[queries] = np.clip((left - before) / np.where(spends > 0.0, spends, 1.0), 0.0, 1.0)
    return out
