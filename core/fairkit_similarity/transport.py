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

from functools import cached_property
from typing import Protocol, Self

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import phase
from fairkit_similarity.search.descent import ABSOLUTE, LOSSES, SQUARED, lane_maxima, lane_ranges, search
from fairkit_similarity.search.problem import Lines, Problem, Solution, group_maxima, same_rows
from fairkit_similarity.search.tree import Floats, Ints, SupportTree, bounding_coordinates, build_tree

__all__ = ["Solution", "Support", "Transport"]


LARGEST = 1e15
"""Coordinates beyond this are refused: their squares have no room in single precision."""

KINDS = {"losses": LOSSES, "squared": SQUARED, "absolute": ABSOLUTE}


class Support:
    """The rows that mass can move to, and the distances between them."""

    @phase("search")
    def __init__(self, z: Floats) -> None:
        self.z: Floats = np.ascontiguousarray(z, dtype=np.float64)
        check_coordinates(self.z)
        self.group, self.first = same_rows(self.z)

    @phase("search")
    def part(self, rows: Ints) -> Self:
        """Return the support of some of the rows, by their numbers: what was found out about all is used again."""
        made = object.__new__(type(self))
        made.z = self.z[rows]
        numbers, first, group = np.unique(self.group[rows], return_index=True, return_inverse=True)
        appearing = np.argsort(first)
        made.group, made.first = np.argsort(appearing)[group], first[appearing]
        made.bounding = self.bounding[numbers[appearing]]
        return made

    @cached_property
    def places(self) -> Floats:
        """The distinct rows of z."""
        return self.z if len(self.first) == len(self.z) else self.z[self.first]

    @cached_property
    def bounding(self) -> Floats:
        """The coordinates of `places` that box bounds look at."""
        return bounding_coordinates(self.places)

    @phase("search")
    def losses(
        self,
        values: Floats,
        labels: Ints,
        *,
        rows: Ints | None = None,
        weights: Floats | None = None,
        eta: float | None = None,
    ) -> Transport:
        """Make the problem R_ij = v^{y_j}_i of a performance gap."""
        values = finite(np.atleast_2d(np.asarray(values, dtype=np.float64)), "loss")
        labels = np.asarray(labels, dtype=np.int64)
        if values.shape[1] != len(self.z) or labels.shape != (len(self.z),):
            raise DataError(
                f"losses of shape {values.shape} and labels of shape {labels.shape} do not fit {len(self.z)} rows"
            )
        # of equal rows only one with the largest loss can be an answer
        best, row = group_maxima(values, self.group, len(self.first))
        queries, mass = _asked(len(self.z), rows, weights)
        # queries of one label at one place have one answer: a class with their total weight
        code = labels[queries] * len(self.first) + self.group[queries]
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
            asked=queries,
            mass=mass,
            query=number[code],
            row=row,
            own=values[labels[queries], queries],
            eta=eta,
        )

    @phase("search")
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
        """Make the problem R_ij = mean_k (h_ik - t_jk)², or of absolute differences."""
        values = finite(np.ascontiguousarray(values, dtype=np.float64).reshape(len(values), -1), "output")
        target = values if targets is None else np.ascontiguousarray(targets, dtype=np.float64)
        target = finite(target.reshape(len(target), -1), "target")
        if values.shape != target.shape or len(values) != len(self.z):
            raise DataError(
                f"outputs of shape {values.shape} and targets of shape {target.shape} do not fit {len(self.z)} rows"
            )
        queries, mass = _asked(len(self.z), rows, weights)
        gap = np.abs(values[queries] - target[queries])
        if kind == "squared" and gap.max(initial=0.0) > _MOST_GAP:
            raise DataError(
                f"outputs and targets are up to {gap.max():.3g} apart, and no number holds the square; "
                "state the target in a larger unit"
            )
        return Transport(
            z=self.z,
            bounding=self.bounding if len(self.first) == len(self.z) else self.bounding[self.group],
            kind=KINDS[kind],
            values=values,
            where=queries,
            label=np.zeros(len(queries), np.int64),
            target=target[queries],
            weights=mass,
            asked=queries,
            mass=mass,
            query=np.arange(len(queries)),
            row=np.arange(len(self.z))[None, :],
            own=(gap**2 if kind == "squared" else gap).mean(axis=1),
            eta=eta,
        )


_MOST_GAP = 1e150


def check_coordinates(z: Floats) -> None:
    """Refuse coordinates that no distance can be taken of."""
    if z.ndim != 2 or not len(z):
        raise DataError(f"the support has the shape {z.shape}: at least one row of coordinates is needed")
    if not np.isfinite(z).all():
        row, column = np.argwhere(~np.isfinite(z))[0]
        raise DataError(f"coordinate {column} of row {row} is {z[row, column]}, not a finite number")
    if max(z.max(initial=0.0), -z.min(initial=0.0)) > LARGEST:
        column = int(np.abs(z).max(axis=0).argmax())
        raise DataError(f"coordinate {column} reaches beyond {LARGEST:g}: scale the column, or leave it out")


def finite(values: Floats, what: str) -> Floats:
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise DataError(f"{count} {what} value(s) are not finite numbers; clip or drop them")
    return values


def _asked(n: int, rows: Ints | None, weights: Floats | None) -> tuple[Ints, Floats]:
    queries = np.arange(n) if rows is None else np.asarray(rows, dtype=np.int64)
    if not len(queries):
        raise DataError("no row is asked: give at least one")
    mass = np.ones(len(queries)) if weights is None else np.asarray(weights, dtype=np.float64)
    if mass.shape != queries.shape or not (np.isfinite(mass).all() and (mass >= 0).all() and mass.sum() > 0):
        raise DataError("weights must be one nonnegative finite number for each row, not all zero")
    return queries, mass / mass.sum()


class PlaceLists(Protocol):
    """Lists of the places that are nearest to each query class."""

    def answers(self, transport: Transport, eta: float, queries: Ints, guess: Ints) -> Lines:
        """Answer what the lists settle, and the rest by `Transport.descend`."""


class Transport(Problem):
    """A reward on a support in memory. Made by `Support.losses` and `Support.outputs`."""

    lists: PlaceLists | None = None  # what is asked first at an η above 0

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
        self._fit(guess_scale(bounding, extra) if eta is None else eta)

    def _by_label(self) -> Floats:
        """The rewards in the shape (vectors, places)."""
        return self.values if self.kind == LOSSES else np.ascontiguousarray(self.values.T)

    def _fit(self, scale: float) -> None:
        """See `Problem._fit`."""
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
        """See `Problem.answers`; an answer is a place."""
        if self.lists is not None and eta > 0.0:
            return self.lists.answers(self, eta, queries, guess)
        return self.descend(eta, queries, guess, np.zeros(len(queries)))

    def descend(self, eta: float, queries: Ints, guess: Ints, least: Floats) -> Lines:
        """Search the tree; `least` is what any place but the guesses costs at least, η C."""
        order = np.argsort(self._rank[queries], kind="stable")
        chosen = queries[order]
        tree = self.tree
        positions = tree.place[self.where[chosen]]
        position, reward, cost, looks = search(
            tree,
            self.kind,
            self._low,
            self._high,
            float(eta),
            tree.z,
            tree.centre,
            positions,
            self.label[chosen],
            self.target[chosen],
            np.stack([positions, tree.place[guess[order]]], axis=1),
            np.full(len(positions), -np.inf),
            least[order],
        )
        self.looks += int(looks)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Lines(answer=tree.order[position][back], reward=reward[back], cost=cost[back])

    def row_of(self, label: Ints, answer: Ints) -> Ints:
        """Return the rows that answers stand for."""
        return self.row[label, answer]

    def staying(self) -> Lines:
        """See `Problem.staying`."""
        reward = self.values[self.label, self.where] if self.kind == LOSSES else self.own
        return Lines(answer=self.where, reward=reward, cost=np.zeros(len(self.where)))


def guess_scale(bounding: Floats, extra: Floats) -> float:
    """Guess η: the rewards' spread over the places' spread."""
    spread = float(bounding.var(axis=0).sum())
    return float(extra.std(axis=1).mean()) / spread if spread > 0.0 else 1.0


# The entropic plan: every row's mass spreads over all rows, in proportion to exp((R_ij - η C_ij) / γ).


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
