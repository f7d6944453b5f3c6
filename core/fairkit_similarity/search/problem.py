"""A transport problem as the search for η sees it, wherever its support lies: it answers query classes at any η."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import numba
import numpy as np

from fairkit.errors import ParameterError
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit.support.timings import phase
from fairkit_similarity.search.tree import Floats, Ints

PILOT = 1_000
"""Queries on which η is found before all are asked; with fewer than four times as many all are asked at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """L(ε) with a lower bound, its multiplier, and where every row goes."""

    epsilon: float  # the budget, in units of the squared distance
    value: float  # M(η), never below L(ε)
    lower_bound: float  # the value of the plan that `share` describes, never above L(ε)
    eta: float  # η: what a unit of squared distance is worth
    evaluations: float  # evaluations of M that this took, in units of one answer for every query (the pilot's included)
    looks: int  # distances and box bounds that were computed
    bracket: Bracket  # the two answers of every query class
    share: Floats  # the part of each query class that goes to its far answer
    problem: Problem  # the problem that was solved

    @property
    def lines(self) -> Lines:
        """The answers at `eta`, of every query class."""
        return self.bracket.low if self.eta == self.bracket.eta_low else self.bracket.high

    def contributions(self) -> Floats:
        """φ_j(η) of every row that was asked, in the order of `rows`; their weighted mean plus η ε is `value`."""
        return self.lines.at(self.eta)[self.problem.query]


class Problem(ABC):
    """A reward on a support, and the rows that are asked.

    A *query class* is what equal rows of one label share: they are asked once, with their summed weight.
    """

    asked: Ints  # the rows that are asked, shape (m,)
    mass: Floats  # their weights, of sum 1
    query: Ints  # shape (m,): the query class of each of them
    where: Ints  # where each query class is
    label: Ints  # its loss vector
    weights: Floats  # its weight
    own: Floats  # shape (m,): R_jj of each row that is asked
    looks: int  # distances and box bounds computed so far
    scale: float  # the η that the trees are fitted to
    _sequence: Ints
    """The query classes in an order in which neighbours are alike."""

    @abstractmethod
    def _fit(self, scale: float) -> None:
        """Build the tree, or trees, for a value of η, and put the queries in order."""

    @abstractmethod
    def answers(self, eta: float, queries: Ints, guess: Ints) -> Lines:
        """Find max_i R_i - η C_i for some query classes, exactly."""

    @abstractmethod
    def staying(self) -> Lines:
        """Return the answers when no row moves: what each query class is worth where it is."""

    @abstractmethod
    def row_of(self, label: Ints, answer: Ints) -> Ints:
        """Return the rows that answers stand for."""

    @phase("search")
    def solve(self, epsilon: float, *, eta: float | None = None, tolerance: float = 1e-9) -> Solution:
        """Find L(ε)."""
        if not (np.isfinite(epsilon) and epsilon >= 0.0):
            raise ParameterError(f"epsilon is {epsilon}: it must be a finite squared distance, 0 or larger")
        before = self.looks
        trials, work = self._pilot(epsilon, eta)
        if trials and not self.scale / 3.0 < trials[0] < self.scale * 3.0:
            self._fit(trials[0])
        everyone = np.arange(len(self.where))
        bracket = self.bracket(everyone, self.weights, epsilon, trials=trials, tolerance=tolerance)
        return Solution(
            epsilon=float(epsilon),
            value=bracket.value,
            lower_bound=min(model_minimum(self.weights, epsilon, bracket)[1], bracket.value),
            eta=bracket.eta,
            evaluations=bracket.evaluations + work,
            looks=self.looks - before,
            bracket=bracket,
            share=shares(self.weights, epsilon, bracket),
            problem=self,
        )

    def curve(self, epsilons: list[float], *, tolerance: float = 1e-9) -> list[Solution]:
        """Solve for several ε; each begins where the last ended. The result is in the order of `epsilons`."""
        solutions: dict[int, Solution] = {}
        last: Solution | None = None
        for index in np.argsort(np.asarray(epsilons, dtype=np.float64), kind="stable")[::-1]:
            last = self.solve(epsilons[index], eta=last.eta if last else None, tolerance=tolerance)
            solutions[int(index)] = last
        return [solutions[index] for index in range(len(epsilons))]

    def bracket(
        self,
        queries: Ints,
        weights: Floats,
        epsilon: float,
        *,
        eta: float | None = None,
        trials: list[float] | None = None,
        tolerance: float = 0.0,
    ) -> Bracket:
        """Minimise M over some query classes, with weights of sum 1."""

        def evaluate(at: float, chosen: Ints, guess: Ints) -> Lines:
            return self.answers(at, queries[chosen], guess)

        stay = self.staying().take(queries)
        low = self.answers(0.0, queries, stay.answer)
        free = np.flatnonzero(low.cost == 0.0)  # a larger reward at no distance: better than to stay
        high = stay.put(free, low.take(free))
        start = Bracket(
            eta_low=0.0,
            eta_high=np.inf,
            low=low,
            high=high,
            eta=0.0,
            value=float(weights @ low.reward),
            seen=((0.0, low), (np.inf, high)),
        )
        if trials is None:
            trials = _around(eta, 0.15) if eta else []
        return minimise(evaluate, weights, epsilon, start, tolerance=tolerance, trials=trials)

    def answers_near(self, bracket: Bracket, eta: float, queries: Ints) -> Lines:
        """Answer some query classes at an η near those at which all were answered; few have to be asked again."""
        lines, unsettled = bracket.known(eta, queries)
        if not len(unsettled):
            return lines
        return lines.put(unsettled, self.answers(eta, queries[unsettled], lines.answer[unsettled]))

    def _pilot(self, epsilon: float, eta: float | None) -> tuple[list[float], float]:
        """Find η on every k-th query of the tree's order; give values to try, nearest first, and the work."""
        m = len(self.where)
        if m < 4 * PILOT or epsilon == 0.0:
            return _around(eta, 0.1) if eta else [], 0.0
        step = min(m // PILOT, 32)
        sample = self._sequence[step // 2 :: step]
        weights = self.weights[sample] / self.weights[sample].sum()
        bracket = self.bracket(sample, weights, epsilon, eta=eta)
        work = bracket.evaluations * len(sample) / m
        if bracket.eta == 0.0:
            return [], work
        lines = bracket.low if bracket.eta == bracket.eta_low else bracket.high
        error = float(np.sqrt(weights @ (lines.cost - weights @ lines.cost) ** 2 / len(sample)))
        near = weights @ self.answers(bracket.eta / 1.1, sample, lines.answer).cost
        far = weights @ self.answers(bracket.eta * 1.1, sample, lines.answer).cost
        width = np.clip(4.0 * error * 0.2 / max(near - far, 1e-300), 0.003, 0.5)
        return _around(bracket.eta, float(width)), work + 2.0 * len(sample) / m


def _around(eta: float, width: float) -> list[float]:
    """Values just below and above η, then ever farther ones."""
    steps = width * 2.0 ** np.arange(8)
    return [float(t) for step in steps for t in (eta / (1.0 + step), eta * (1.0 + step))]


# The search for η: a convex piecewise linear function of one variable, minimised exactly.


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

    eta_low: float  # M does not increase here (∞ at first)
    eta_high: float  # and does not decrease here
    low: Lines  # the answers at `eta_low`
    high: Lines  # the answers at `eta_high`
    eta: float  # where M was smallest so far
    value: float  # M there: an upper bound by weak duality
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
    queries, kinks, spends = _exchanges(weights, bracket)
    left = epsilon - float(weights @ bracket.high.cost)
    # the model is convex, piecewise linear: its minimum is the kink where what is spent passes ε
    over = np.flatnonzero(np.cumsum(spends) > left)
    eta = float(kinks[over[0]]) if len(over) else bracket.eta_low
    share = _knapsack(len(weights), max(left, 0.0), queries, spends)
    gained = share * bracket.low.reward + (1.0 - share) * bracket.high.reward
    return eta, float(weights @ gained)


def shares(weights: Floats, epsilon: float, bracket: Bracket) -> Floats:
    """Return the part of each query's mass that goes to its far answer: 1, 0, and for one query between.

    The plan has <C, Π> = ε, or less where every query already has the largest reward there is. It is the
    best among all plans that use the two answers only (a fractional knapsack).
    """
    queries, _, spends = _exchanges(weights, bracket)
    return _knapsack(len(weights), max(epsilon - float(weights @ bracket.high.cost), 0.0), queries, spends)


def _knapsack(count: int, left: float, queries: Ints, spends: Floats) -> Floats:
    before = np.cumsum(spends) - spends
    out = np.zeros(count)
    # by falling gain per distance, the last in part (Dantzig 1957)
    out[queries] = np.clip((left - before) / np.where(spends > 0.0, spends, 1.0), 0.0, 1.0)
    return out


# Rows that the metric cannot tell apart: found once, so that the search sees each place once.


def same_rows(z: Floats) -> tuple[Ints, Ints]:
    """Number the distinct rows of z, in the order of their first appearance."""
    z = np.ascontiguousarray(z) + 0.0  # -0.0 becomes 0.0: equal values, equal bits
    return _number(z, _hash(z.view(np.uint64)))


@numba.njit(cache=True)
def _hash(bits: np.ndarray) -> np.ndarray:
    """Mix each row's bits into one 64-bit word."""
    out = np.empty(len(bits), np.uint64)
    for i in range(len(bits)):
        word = np.uint64(0x9E3779B97F4A7C15)
        for c in range(bits.shape[1]):
            # xor, multiply, shift: the steps of MurmurHash3's finaliser
            word ^= bits[i, c]
            word *= np.uint64(0xFF51AFD7ED558CCD)
            word ^= word >> np.uint64(32)
        out[i] = word
    return out


@numba.njit(cache=True)
def _equal(z: Floats, i: int, j: int) -> bool:
    for c in range(z.shape[1]):  # noqa: SIM110 -- numba compiles no generator
        if z[i, c] != z[j, c]:
            return False
    return True


@numba.njit(cache=True)
def _number(z: Floats, hashes: np.ndarray) -> tuple[Ints, Ints]:
    """Open addressing: a table of group numbers at twice the size, linear probing."""
    size = 2
    while size < 2 * len(z):
        size *= 2
    table = np.full(size, -1, np.int64)
    group, first = np.empty(len(z), np.int64), np.empty(len(z), np.int64)
    groups = 0
    for i in range(len(z)):
        at = np.int64(hashes[i] & np.uint64(size - 1))
        while table[at] >= 0 and not _equal(z, first[table[at]], i):
            # linear probing; at most half of the table is full
            at = (at + 1) % size
        if table[at] < 0:
            table[at] = groups
            first[groups] = i
            groups += 1
        group[i] = table[at]
    return group, first[:groups].copy()


@numba.njit(cache=True)
def group_maxima(values: Floats, group: Ints, groups: int) -> tuple[Floats, Ints]:
    """Return each group's largest value and the first row that has it.

    `values` has shape (K, n); both results have shape (K, groups).
    """
    best = np.full((values.shape[0], groups), -np.inf)
    row = np.zeros((values.shape[0], groups), np.int64)
    for k in range(values.shape[0]):
        for i in range(len(group)):
            if values[k, i] > best[k, group[i]]:
                best[k, group[i]] = values[k, i]
                row[k, group[i]] = i
    return best, row
