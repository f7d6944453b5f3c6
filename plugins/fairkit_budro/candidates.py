"""Where each person may go, kept short: the nearest rows, and the last answers of exact searches.

A plan over the candidates is a plan over all rows: feasible, with <C, Π> = ε. Only its value may be a little
below L(ε), since the best row may be missing. How much is measured whenever all rows are searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from fairkit_similarity.search.descent import LOSSES
from fairkit_similarity.search.dual import Lines
from fairkit_similarity.search.nearest import nearest
from fairkit_similarity.transport import Transport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.search.tree import Floats, Ints, Singles
    from fairkit_similarity.transport import Support

NEAREST = 256
"""Nearest places of every place."""

MOST_ENTRIES = 1 << 26
"""Lists hold at most so many entries (eight bytes each); with more places they get shorter."""

REMEMBERED = 16
"""Answers of exact searches that are remembered for every query."""


class Candidates:
    """The candidate lists of all query classes of a support."""

    def __init__(self, support: Support, where: Ints) -> None:
        places = support.places
        count = min(NEAREST, len(places), max(MOST_ENTRIES // len(places), 16))
        self.places, self.where = places, where
        self.near, self.distance = nearest(places, count)
        self.known = np.full((len(where), REMEMBERED), -1, np.int32)
        self.known_distance = np.zeros((len(where), REMEMBERED))
        self._next = 0

    def remember(self, lines: Lines) -> None:
        """Keep the answers of an exact search, in place of the oldest ones."""
        slot = self._next % REMEMBERED
        self.known[:, slot] = lines.answer
        self.known_distance[:, slot] = lines.cost
        self._next += 1

    def best(self, eta: float, queries: Ints, label: Ints, values: Floats) -> Lines:
        """Find the best candidate of some query classes at η; the staying place is always one."""
        answer, reward, cost = _best(
            float(eta),
            queries,
            self.where,
            label,
            values,
            values.max(axis=1),
            self.places,
            self.near,
            self.distance,
            self.known,
            self.known_distance,
        )
        return Lines(answer=answer, reward=reward, cost=cost)


@numba.njit(cache=True, parallel=True, error_model="numpy")
def _best(
    eta: float,
    queries: Ints,
    where: Ints,
    label: Ints,
    values: Floats,
    largest: Floats,
    places: Floats,
    near: NDArray[np.int32],
    distance: Singles,
    candidates: NDArray[np.int32],
    known_distance: Floats,
) -> tuple[Ints, Floats, Floats]:
    """Scan the lists; stop where even the largest reward would not pay for the distance."""
    m = len(queries)
    answer, reward, cost = np.empty(m, np.int64), np.empty(m), np.empty(m)
    for r in numba.prange(m):
        q = queries[r]
        here, k = where[q], label[q]
        worth, far, target = values[k, here], 0.0, here
        best = worth
        for t in range(candidates.shape[1]):
            i = candidates[q, t]
            if i >= 0 and values[k, i] - eta * known_distance[q, t] > best:
                worth, far, target = values[k, i], known_distance[q, t], np.int64(i)
                best = worth - eta * far
        chosen = -1
        for t in range(near.shape[1]):
            # lists rise in distance: from here on even the label's largest loss does not pay
            if largest[k] - eta * distance[here, t] <= best:
                break
            i = near[here, t]
            if values[k, i] - eta * distance[here, t] > best:
                chosen = t
                best = values[k, i] - eta * distance[here, t]
        if chosen >= 0:
            target = np.int64(near[here, chosen])
            worth, far = values[k, target], 0.0
            # the list's distances are in single precision: the winner's is computed anew
            for c in range(places.shape[1]):
                far += (places[target, c] - places[here, c]) ** 2
        answer[r], reward[r], cost[r] = target, worth, far
    return answer, reward, cost


class NearTransport(Transport):
    """A `Transport` whose answers are the best candidates; it builds no tree."""

    def __init__(self, exact: Transport, candidates: Candidates, values: Floats, row: Ints, own_values: Floats) -> None:
        self.candidates = candidates
        super().__init__(
            z=exact.z,
            bounding=exact.bounding,
            kind=LOSSES,
            values=values,
            where=exact.where,
            label=exact.label,
            target=exact.target,
            weights=exact.weights,
            asked=exact.asked,
            mass=exact.mass,
            query=exact.query,
            row=row,
            own=own_values,
            eta=1.0,
        )

    def _fit(self, scale: float) -> None:
        self.scale = scale

    def answers(self, eta: float, queries: Ints, guess: Any = None) -> Lines:
        """Find the best candidate of some query classes."""
        return self.candidates.best(eta, queries, self.label, self.values)
