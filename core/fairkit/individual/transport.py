"""Exact restricted transport: how much larger can the mean reward get when people may move a distance ε?

    L(ε) = max over Π ≥ 0, Πᵀ1 = w, <C, Π> ≤ ε  of  Σ_ij R_ij Π_ij,      C_ij = ‖z_i - z_j‖²       (BuDRO eq. 2.8)

`Support` is the geometry: made once for the rows' coordinates. `Support.losses` and `Support.outputs` put a
reward on it and give a `Transport`, whose `solve` and `curve` answer for one or several ε. Memory is O(n d).

    support = Support(metric.transform(columns))
    for losses in boosting_rounds:                       # (K, n): the loss of each row under each label
        problem = support.losses(losses, labels, eta=eta)
        solution = problem.solve(0.4, eta=eta)
        eta = solution.eta                               # a warm start; the answer is exact with any
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.individual.dual import Bracket, Lines, minimise, model_minimum, shares
from fairkit.individual.duplicates import group_maxima, same_rows
from fairkit.individual.search import ABSOLUTE, LOSSES, SQUARED, lane_maxima, lane_ranges, search
from fairkit.individual.tree import Floats, Ints, SupportTree, bounding_coordinates, build_tree

PILOT = 1_000
"""Queries on which η is found before all are asked; with fewer than four times as many all are asked at once."""

LARGEST = 1e15
"""Coordinates beyond this are refused: their squares have no room in single precision."""

KINDS = {"squared": SQUARED, "absolute": ABSOLUTE}


class Support:
    """The rows that mass can move to, and the distances between them.

    Parameters
    ----------
    z
        Shape (n, d), finite: coordinates whose squared Euclidean distance is the fair distance.

    Raises
    ------
    DataError
        z has no rows, or a number in it is not finite.
    """

    def __init__(self, z: Floats) -> None:
        self.z: Floats = np.ascontiguousarray(z, dtype=np.float64)
        if self.z.ndim != 2 or not len(self.z):
            raise DataError(
                f"the support has the shape {self.z.shape}: at least one row of coordinates is needed"
            )
        if not np.isfinite(self.z).all():
            row, column = np.argwhere(~np.isfinite(self.z))[0]
            raise DataError(f"coordinate {column} of row {row} is {self.z[row, column]}, not a finite number")
        if np.abs(self.z).max(initial=0.0) > LARGEST:
            column = int(np.abs(self.z).max(axis=0).argmax())
            raise DataError(
                f"coordinate {column} reaches beyond {LARGEST:g}: scale the column, or leave it out"
            )
        self.group, self.first = same_rows(self.z)

    @cached_property
    def places(self) -> Floats:
        """The distinct rows of z."""
        return self.z if len(self.first) == len(self.z) else self.z[self.first]

    @cached_property
    def bounding(self) -> Floats:
        """The coordinates of `places` that box bounds look at."""
        return bounding_coordinates(self.places)

    def losses(
        self,
        values: Floats,
        labels: Ints,
        *,
        rows: Ints | None = None,
        weights: Floats | None = None,
        eta: float | None = None,
    ) -> Transport:
        """Make the problem R_ij = v^{y_j}_i of a performance gap.

        Parameters
        ----------
        values
            Shape (K, n), finite: the loss of each row under each label.
        labels
            Shape (n,): each row's own label, 0 ... K - 1.
        rows
            Shape (m,): the rows j that are asked, repeats allowed; all by default. The support stays whole.
        weights
            Shape (m,): nonnegative weights of these rows; equal by default. They are scaled to sum 1.
        eta
            About which η to expect: the tree is fitted to it. The answer does not depend on it.
        """
        values = _finite(np.atleast_2d(np.asarray(values, dtype=np.float64)), "loss")
        labels = np.asarray(labels, dtype=np.int64)
        if values.shape[1] != len(self.z) or labels.shape != (len(self.z),):
            raise DataError(
                f"losses of shape {values.shape} and labels of shape {labels.shape} do not fit {len(self.z)} rows"
            )
        best, row = group_maxima(values, self.group, len(self.first))
        asked, mass = _asked(len(self.z), rows, weights)
        code = labels[asked] * len(self.first) + self.group[asked]
        weight: Floats = np.bincount(code, weights=mass, minlength=best.size).astype(np.float64)
        present = np.bincount(code, minlength=best.size) > 0
        number = np.cumsum(present) - 1
        classes = np.flatnonzero(present)
        return Transport(
            z=self.places,
            bounding=self.bounding,
            kind=LOSSES,
            values=best,
            where=classes % len(self.first),
            label=classes // len(self.first),
            target=np.zeros((len(classes), 0)),
            weights=weight[classes],
            asked=asked,
            mass=mass,
            query=number[code],
            row=row,
            own=values[labels[asked], asked],
            eta=eta,
        )

    def outputs(
        self,
        values: Floats,
        targets: Floats | None = None,
        *,
        kind: str = "squared",
        rows: Ints | None = None,
        weights: Floats | None = None,
        eta: float | None = None,
    ) -> Transport:
        """Make the problem R_ij = mean_k (h_ik - t_jk)², or of absolute differences.

        Parameters
        ----------
        values
            Shape (n, K), finite: the outputs h of each row.
        targets
            Shape (n, K): what row j's outputs are compared with: the true values (a regression's performance
            gap), or by default the row's own outputs (distributional individual fairness).
        kind
            ``squared`` or ``absolute``.
        rows, weights, eta
            As for `losses`.
        """
        values = _finite(np.ascontiguousarray(values, dtype=np.float64).reshape(len(values), -1), "output")
        target = values if targets is None else np.ascontiguousarray(targets, dtype=np.float64)
        target = _finite(target.reshape(len(target), -1), "target")
        if values.shape != target.shape or len(values) != len(self.z):
            raise DataError(
                f"outputs of shape {values.shape} and targets of shape {target.shape} do not fit {len(self.z)} rows"
            )
        asked, mass = _asked(len(self.z), rows, weights)
        gap = np.abs(values[asked] - target[asked])
        return Transport(
            z=self.z,
            bounding=self.bounding if len(self.first) == len(self.z) else bounding_coordinates(self.z),
            kind=KINDS[kind],
            values=values,
            where=asked,
            label=np.zeros(len(asked), np.int64),
            target=target[asked],
            weights=mass,
            asked=asked,
            mass=mass,
            query=np.arange(len(asked)),
            row=np.arange(len(self.z))[None, :],
            own=(gap**2 if kind == "squared" else gap).mean(axis=1),
            eta=eta,
        )


def _finite(values: Floats, what: str) -> Floats:
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise DataError(f"{count} {what} value(s) are not finite numbers; clip or drop them")
    return values


def _asked(n: int, rows: Ints | None, weights: Floats | None) -> tuple[Ints, Floats]:
    asked = np.arange(n) if rows is None else np.asarray(rows, dtype=np.int64)
    if not len(asked):
        raise DataError("no row is asked: give at least one")
    mass = np.ones(len(asked)) if weights is None else np.asarray(weights, dtype=np.float64)
    if mass.shape != asked.shape or not (np.isfinite(mass).all() and (mass >= 0).all() and mass.sum() > 0):
        raise DataError("weights must be one nonnegative finite number for each row, not all zero")
    return asked, mass / mass.sum()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """L(ε) with a lower bound, its multiplier, and where every row goes.

    Attributes
    ----------
    epsilon
        The budget, in units of the squared distance.
    value, lower_bound
        M(η), never below L(ε), and the value of the plan that `share` describes, never above it.
    eta
        η: what a unit of squared distance is worth.
    evaluations
        Evaluations of M that this took, in units of one answer for every query (the pilot's included).
    looks
        Distances and box bounds that were computed.
    bracket
        The two answers of every query class.
    share
        The part of each query class that goes to its far answer.
    problem
        The problem that was solved.
    """

    epsilon: float
    value: float
    lower_bound: float
    eta: float
    evaluations: float
    looks: int
    bracket: Bracket
    share: Floats
    problem: Transport

    @property
    def lines(self) -> Lines:
        """The answers at `eta`, of every query class."""
        return self.bracket.low if self.eta == self.bracket.eta_low else self.bracket.high

    def contributions(self) -> Floats:
        """φ_j(η) of every row that was asked, in the order of `rows`; their weighted mean plus η ε is `value`."""
        return self.lines.at(self.eta)[self.problem.query]


class Transport:
    """A reward on a support, and the rows that are asked. Made by `Support.losses` and `Support.outputs`.

    A *query class* is what equal rows of one label share: they are asked once, with their summed weight.

    Attributes
    ----------
    asked, mass
        Shape (m,): the rows that are asked and their weights, of sum 1.
    query
        Shape (m,): the query class of each of them.
    where, label, target, weights
        Of each query class: its place, its loss vector, its targets, its weight.
    row
        Shape (K, places): the row that stands for a place under a label, the first with the largest loss.
    own
        Shape (m,): R_jj of each row that is asked.
    """

    def __init__(
        self,
        *,
        z: Floats,
        bounding: Floats,
        kind: int,
        values: Floats,
        where: Ints,
        label: Ints,
        target: Floats,
        weights: Floats,
        asked: Ints,
        mass: Floats,
        query: Ints,
        row: Ints,
        own: Floats,
        eta: float | None,
    ) -> None:
        self.z, self.bounding, self.kind, self.values = z, bounding, kind, values
        self.where, self.label, self.target, self.weights = where, label, target, weights
        self.asked, self.mass, self.query, self.row, self.own = asked, mass, query, row, own
        self.looks = 0
        extra = self._by_label()
        self._fit(_guess_scale(bounding, extra) if eta is None else eta)

    def _by_label(self) -> Floats:
        """The rewards in the shape (vectors, places)."""
        return self.values if self.kind == LOSSES else np.ascontiguousarray(self.values.T)

    def _fit(self, scale: float) -> None:
        """Build the tree for a value of η, and put the queries in its order."""
        self.scale = scale
        self.tree: SupportTree = build_tree(self.z, self.bounding, self._by_label(), scale)
        order, first = self.tree.order, self.tree.first
        if self.kind == LOSSES:
            self._low = self._high = lane_maxima(self.values, order, first)
        else:
            self._low, self._high = lane_ranges(self.values, order, first)
        self._sequence = np.lexsort((self.tree.place[self.where], self.label))
        self._rank = np.empty_like(self._sequence)
        self._rank[self._sequence] = np.arange(len(self._sequence))

    def answers(self, eta: float, queries: Ints, guess: Ints) -> Lines:
        """Find max_i R_i - η C_i for some query classes, exactly.

        Parameters
        ----------
        eta
            η ≥ 0.
        queries
            Numbers of query classes.
        guess
            A place for each that is likely the answer.
        """
        order = np.argsort(self._rank[queries], kind="stable")
        chosen = queries[order]
        tree = self.tree
        own = tree.place[self.where[chosen]]
        place, reward, cost, looks = search(
            tree.z,
            tree.centre,
            tree.half,
            tree.slack,
            tree.first,
            tree.shrink,
            self.kind,
            self._low,
            self._high,
            float(eta),
            tree.z,
            tree.centre,
            own,
            self.label[chosen],
            self.target[chosen],
            np.stack([own, tree.place[guess[order]]], axis=1),
            np.full(len(own), -np.inf),
        )
        self.looks += int(looks)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Lines(answer=tree.order[place][back], reward=reward[back], cost=cost[back])

    def staying(self) -> Lines:
        """Give the answers when no row moves: what each query class is worth where it is."""
        reward = self.values[self.label, self.where] if self.kind == LOSSES else self.own
        return Lines(answer=self.where, reward=reward, cost=np.zeros(len(self.where)))

    def solve(
        self,
        epsilon: float,
        *,
        eta: float | None = None,
        tolerance: float = 1e-9,
    ) -> Solution:
        """Find L(ε).

        Parameters
        ----------
        epsilon
            ε ≥ 0, in units of the squared distance.
        eta
            About which η to expect; saves evaluations.
        tolerance
            `value` and `lower_bound` differ by at most this (absolute, in units of the reward).

        Raises
        ------
        ParameterError
            ε is negative or not finite.
        """
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
        """Minimise M over some query classes, with weights of sum 1.

        Parameters
        ----------
        queries, weights
            Numbers of query classes, shape (q,), and their weights.
        epsilon
            ε ≥ 0.
        eta, trials
            About which η to expect, or which values to try first.
        tolerance
            See `fairkit.individual.dual.minimise`.
        """

        def evaluate(at: float, chosen: Ints, guess: Ints) -> Lines:
            return self.answers(at, queries[chosen], guess)

        stay = self.staying().take(queries)
        low = self.answers(0.0, queries, stay.answer)
        free = np.flatnonzero(low.cost == 0.0)  # a larger reward at no distance: better than to stay
        start = Bracket(
            eta_low=0.0,
            eta_high=np.inf,
            low=low,
            high=stay.put(free, low.take(free)),
            eta=0.0,
            value=float(weights @ low.reward),
        )
        if trials is None:
            trials = _around(eta, 0.15) if eta else []
        return minimise(evaluate, weights, epsilon, start, tolerance=tolerance, trials=trials)

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
        width = np.clip(2.0 * error * 0.2 / max(near - far, 1e-300), 0.003, 0.5)
        return _around(bracket.eta, float(width)), work + 2.0 * len(sample) / m


def _around(eta: float, width: float) -> list[float]:
    """Values just below and above η, then ever farther ones."""
    steps = width * 2.0 ** np.arange(8)
    return [float(t) for step in steps for t in (eta / (1.0 + step), eta * (1.0 + step))]


def _guess_scale(bounding: Floats, extra: Floats) -> float:
    """Guess η: the rewards' spread over the places' spread."""
    spread = float(bounding.var(axis=0).sum())
    return float(extra.std(axis=1).mean()) / spread if spread > 0.0 else 1.0
