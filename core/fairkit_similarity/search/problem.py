"""A transport problem as the search for η sees it, wherever its support lies: it answers query classes at any η."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ParameterError
from fairkit.support.timings import phase
from fairkit_similarity.search.dual import Bracket, Lines, minimise, model_minimum, shares

if TYPE_CHECKING:
    from fairkit_similarity.search.tree import Floats, Ints

PILOT = 1_000
"""Queries on which η is found before all are asked; with fewer than four times as many all are asked at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """L(ε) with a lower bound, its multiplier, and where every row goes."""

    epsilon: float  # the budget, in units of the squared distance
    value: float  # M(η), never below L(ε), and the value of the plan that `share` describes, never above it
    lower_bound: float  # M(η), never below L(ε), and the value of the plan that `share` describes, never above it
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

    asked: Ints  # shape (m,): the rows that are asked and their weights, of sum 1
    mass: Floats  # shape (m,): the rows that are asked and their weights, of sum 1
    query: Ints  # shape (m,): the query class of each of them
    where: Ints  # of each query class: where it is, its loss vector, its weight
    label: Ints  # of each query class: where it is, its loss vector, its weight
    weights: Floats  # of each query class: where it is, its loss vector, its weight
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
