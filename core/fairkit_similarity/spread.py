"""A support that is spread over workers: each has the tree of its part, the best answer is the best of the parts.

    max_i R_i - η C_ij = max over parts of max over rows i of the part,

so the certificate stays exact. The client drives the search for η (`fairkit_similarity.search.problem`); it holds the
queries, and of every query the best answers of the last evaluations. At a new η the best of them is a floor: a part
only looks for, and only sends, rows worth more. Trees are pure functions of their part and η: where a worker is lost,
its tree is built again elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import threads
from fairkit_similarity.search.descent import LOSSES, lane_maxima, lane_ranges, search
from fairkit_similarity.search.problem import Lines, Problem, group_maxima, same_rows
from fairkit_similarity.search.tree import Frame, SupportTree, build_tree, rounded
from fairkit_similarity.transport import check_coordinates, guess_scale

if TYPE_CHECKING:
    from fairkit.engines.base import Engine, Spread
    from fairkit_similarity.search.tree import Floats, Ints

REMEMBERED = 4
"""Evaluations whose answers are kept as floors of later ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queries:
    """The query classes, as every worker gets them."""

    z: Floats  # coordinates, shape (m, d)
    bounding: Floats  # bounding coordinates
    label: Ints  # shape (m,): each one's loss vector (losses)
    target: Floats  # shape (m, K): each one's target (outputs); otherwise of shape (m, 0)
    frame: Frame  # makes bounding coordinates
    kind: int  # of the rewards


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """One evaluation: which query classes, at which η, and what their answers must be worth more than."""

    eta: float
    chosen: Ints
    floor: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartAnswers:
    """The answers of one part that are worth more than the floor."""

    place: Ints  # numbers within `Ask.chosen`
    lines: Lines  # the answers: numbers of rows in the whole table
    looks: int  # distances and box bounds computed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartRows:
    """The rows of one part: distinct places under losses, as `fairkit_similarity.transport.Support` has them."""

    z: Floats  # shape (places, d)
    values: Floats  # losses: shape (K, places). Outputs: shape (places, K)
    row: Ints  # shape (K or 1, places): the number, in the whole table, of the row that stands for a place

    @classmethod
    def of(cls, z: Floats, values: Floats, kind: int, start: int) -> PartRows:
        """Make a part of rows whose first is number `start`."""
        check_coordinates(z)
        if kind != LOSSES:
            return cls(z=z, values=values, row=start + np.arange(len(z))[None, :])
        group, first = same_rows(z)
        best, row = group_maxima(values, group, len(first))
        return cls(z=z[first], values=best, row=start + row)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planted:
    """A part with its tree and the bounds of rewards in it."""

    part: PartRows
    tree: SupportTree
    low: Floats
    high: Floats


def plant(part: PartRows, queries: Queries, scale: float) -> Planted:
    """Build a part's tree for a value of η."""
    _use_threads()
    losses = queries.kind == LOSSES
    extra = part.values if losses else np.ascontiguousarray(part.values.T)
    reach = np.abs(queries.bounding).max(axis=0)
    tree = build_tree(part.z, queries.frame.bounding(part.z), extra, scale, reach)
    low = high = lane_maxima(part.values, tree.order, tree.first) if losses else np.empty((0, 0))
    if not losses:
        low, high = lane_ranges(part.values, tree.order, tree.first)
    return Planted(part=part, tree=tree, low=low, high=high)


def answer(planted: Planted, queries: Queries, ask: Ask) -> PartAnswers:
    """Find the rows of a part that are worth more than the floors."""
    _use_threads()
    tree, count = planted.tree, len(ask.chosen)
    position, reward, cost, looks = search(
        tree,
        queries.kind,
        planted.low,
        planted.high,
        ask.eta,
        queries.z,
        rounded(queries.bounding),
        ask.chosen,
        queries.label[ask.chosen],
        queries.target[ask.chosen],
        np.full((count, 2), -1),
        ask.floor,
    )
    better = np.flatnonzero(position >= 0)
    rows = planted.part.row[queries.label[ask.chosen[better]], tree.order[position[better]]]
    return PartAnswers(
        place=better, lines=Lines(answer=rows, reward=reward[better], cost=cost[better]), looks=int(looks)
    )


def nearest(part: PartRows, queries: Queries) -> PartAnswers:
    """Find each query class's best row at distance 0 in a part."""
    group, _ = same_rows(np.concatenate([part.z, queries.z]))
    group_of = group[len(part.z) :]
    here = np.flatnonzero(group_of < len(part.z))
    at, label = group_of[here], queries.label[here]
    lines = Lines(answer=part.row[label, at], reward=part.values[label, at], cost=np.zeros(len(here)))
    return PartAnswers(place=here, lines=lines, looks=0)


class SpreadTransport(Problem):
    """The problem of `Support.losses` or `Support.outputs` on a support that lies on workers."""

    def __init__(
        self,
        engine: Engine,
        parts: Spread,
        *,
        kind: int,
        z: Floats,
        asked: Ints,
        values: Floats,
        label: Ints,
        target: Floats,
        own: Floats,
        weights: Floats | None = None,
    ) -> None:
        check_coordinates(z)
        self._engine, self._parts, self.looks = engine, parts, 0
        self.asked, self.own = asked, own
        mass = np.ones(len(asked)) if weights is None else weights
        self.mass = mass / mass.sum()
        first = np.arange(len(asked))
        self.query = first
        if kind == LOSSES:
            group, _ = same_rows(z)
            _, first, self.query = np.unique(label * len(z) + group, return_index=True, return_inverse=True)
        self.where = np.arange(len(first))
        self.label = label[first]
        self.weights = np.bincount(self.query, weights=self.mass).astype(np.float64)
        frame = Frame.of(z)
        self._queries = Queries(
            z=z[first],
            bounding=frame.bounding(z[first]),
            label=self.label,
            target=target[first],
            frame=frame,
            kind=kind,
        )
        self._shared = engine.share(self._queries)
        self._first_rows, self._first_own = asked[first], own[first]
        self._extra = np.ascontiguousarray(values[first].T)
        self._memory: list[Lines] = []
        self._fit(guess_scale(self._queries.bounding, self._extra))

    def _fit(self, scale: float) -> None:
        """See `Problem._fit`."""
        self.scale = scale
        self._trees = self._parts.derive(plant, self._shared, scale)
        positions = build_tree(self._queries.z, self._queries.bounding, self._extra, scale).place
        self._sequence = np.lexsort((positions, self.label))
        self._rank = np.empty_like(self._sequence)
        self._rank[self._sequence] = np.arange(len(self._sequence))

    def row_of(self, label: Ints, answer: Ints) -> Ints:
        """See `Problem.row_of`: an answer is a row's number."""
        return answer

    def staying(self) -> Lines:
        """See `Problem.staying`: under losses, the best row at distance 0."""
        stay = Lines(answer=self._first_rows, reward=self._first_own, cost=np.zeros(len(self.where)))
        if self._queries.kind == LOSSES:
            for part in self._parts.derive(nearest, self._shared).collect():
                stay = _better(stay, part, 0.0)
        return stay

    def answers(self, eta: float, queries: Ints, guess: Any = None) -> Lines:
        """See `Problem.answers`; the guess is not needed: earlier answers are remembered."""
        chosen = queries[np.argsort(self._rank[queries], kind="stable")]
        best = self._remembered(eta).take(chosen)
        floor = best.at(eta)
        ask = self._engine.share(Ask(eta=float(eta), chosen=chosen, floor=floor))
        for part in self._trees.derive(answer, self._shared, ask).collect():
            self.looks += part.looks
            best = _better(best, part, eta)
        self._remember(chosen, best)
        back = np.empty(len(self.where), np.int64)
        back[chosen] = np.arange(len(chosen))
        return best.take(back[queries])

    def _remembered(self, eta: float) -> Lines:
        """The best known answers at η, of every query class."""
        if not self._memory:
            self._memory = [self.staying()]
        best = self._memory[0]
        for lines in self._memory[1:]:
            higher = lines.at(eta) > best.at(eta)
            best = Lines(
                answer=np.where(higher, lines.answer, best.answer),
                reward=np.where(higher, lines.reward, best.reward),
                cost=np.where(higher, lines.cost, best.cost),
            )
        return best

    def _remember(self, chosen: Ints, lines: Lines) -> None:
        """Keep the answers: those of staying first, then those of the last evaluations."""
        self._memory = [self._memory[0], *self._memory[1:][-REMEMBERED + 1 :], self._memory[-1].put(chosen, lines)]


def _better(best: Lines, found: PartAnswers, eta: float) -> Lines:
    """Take over what a part found where it is worth more; of equals the earlier part's stays."""
    old = best.take(found.place)
    higher = found.lines.at(eta) > old.at(eta)
    return best.put(found.place[higher], found.lines.take(np.flatnonzero(higher)))


def _use_threads() -> None:
    """Let the kernels use the worker's threads, not all of the machine's."""
    most = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    numba.set_num_threads(max(1, min(threads() or most, most)))
