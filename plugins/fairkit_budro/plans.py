"""The worst case of a round: which labels arrive at which rows when mass may move a distance ε.

    Π = argmax over Π ≥ 0, Πᵀ1 = w, <C, Π> ≤ ε of Σ_ij ℓ(f_i, y_j) Π_ij,      w(i, k) = Σ_j Π_ij 1[y_j = k]

(BuDRO eq. 2.8 and Algorithm 1, line 5). Three ways to find it; each is made once and called with every round's
losses, and remembers what helps the next round.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numba
import numpy as np

from fairkit.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass
from fairkit_similarity.encode import Encoder
from fairkit_similarity.learn import subspace, transport_plan
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.search.descent import LOSSES, nearest, squared_gap
from fairkit_similarity.search.problem import Bracket, Lines, group_maxima, model_minimum, shares
from fairkit_similarity.search.starting import check_memory
from fairkit_similarity.training import feature_columns, named_directions, sensitive_columns
from fairkit_similarity.transport import Solution, Support, Transport, entropic_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Table
    from fairkit_similarity.search.tree import Floats, Ints, Singles


# Where each person may go, kept short: the nearest rows, and the last answers of exact searches.


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

    def answers(self, transport: Transport, eta: float, queries: Ints, guess: Ints) -> Lines:
        """Find the exact answers: a place that is not in a list is farther than all that are."""
        lines = self.best(eta, queries, transport.label, transport.values, guess)
        # rounded down, as the list's distances are in single precision
        least = eta * (1.0 - 2.0**-22) * self.distance[self.where[queries], -1].astype(np.float64)
        largest = transport.values.max(axis=1)[transport.label[queries]]
        unsettled = np.flatnonzero(largest - least > lines.at(eta))
        answers = transport.descend(eta, queries[unsettled], lines.answer[unsettled], least[unsettled])
        return lines.put(unsettled, answers)

    def best(self, eta: float, queries: Ints, label: Ints, values: Floats, guess: Ints | None = None) -> Lines:
        """Find the best candidate of some query classes at η; the staying place is always one.

        With guesses, which win ties, it is the best to double precision.
        """
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
            self.where[queries] if guess is None else guess,
            guess is not None,
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
    guess: Ints,
    exact: bool,
) -> tuple[Ints, Floats, Floats]:
    """Scan the lists; stop where even the largest reward would not pay for the distance.

    The lists' distances are in single precision: where not `exact`, only the winner's is computed anew.
    """
    m = len(queries)
    answer, reward, cost = np.empty(m, np.int64), np.empty(m), np.empty(m)
    rounding = 1.0 - 2.0**-22 if exact else 1.0
    for r in numba.prange(m):
        q = queries[r]
        here, k = where[q], label[q]
        worth, far, target = values[k, here], 0.0, here
        best = worth
        if values[k, guess[r]] > best:
            gap = squared_gap(places, guess[r], places, here)
            if values[k, guess[r]] - eta * gap > best:
                worth, far, target = values[k, guess[r]], gap, guess[r]
                best = worth - eta * far
        for t in range(candidates.shape[1]):
            i = candidates[q, t]
            if i >= 0 and values[k, i] - eta * known_distance[q, t] > best:
                worth, far, target = values[k, i], known_distance[q, t], np.int64(i)
                best = worth - eta * far
        chosen = -1
        for t in range(near.shape[1]):
            # lists rise in distance: from here on even the label's largest loss does not pay
            price = eta * distance[here, t] * rounding
            if largest[k] - price <= best:
                break
            i = near[here, t]
            if values[k, i] - price > best:
                if exact:
                    gap = squared_gap(places, int(i), places, here)
                    if values[k, i] - eta * gap > best:
                        worth, far, target = values[k, i], gap, np.int64(i)
                        best = worth - eta * far
                else:
                    chosen, best = t, values[k, i] - price
        if chosen >= 0:
            target = np.int64(near[here, chosen])
            worth, far = values[k, target], squared_gap(places, int(target), places, here)
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


Searched = Literal["all", "near"]

TOLERANCE = 1e-6
"""Of the inner maximum, in units of the loss, where all rows are searched."""

FEW_PLACES = 16 * NEAREST
"""With at most so many distinct rows all are searched in every round."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorstCase:
    """The worst case of one round."""

    weights: Floats  # shape (n, K): the mass that arrives at each row under each label, of sum 1
    value: float  # Σ R Π of the plan, the inner maximum
    upper: float | None  # what no plan exceeds (weak duality); None where not all rows were searched
    cost: float  # <C, Π>
    eta: float  # η: what a unit of squared distance is worth
    searched: Searched = "all"
    shortfall: float | None = None


class Plan(Protocol):
    """From the losses of a round, shape (K, n), to its worst case."""

    def __call__(self, values: Floats) -> WorstCase:
        """Find the worst case."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fixed:
    """What does not change over the rounds."""

    support: Support  # the rows' coordinates under the fair metric
    labels: Ints  # shape (n,): 0 ... K - 1
    mass: Floats  # shape (n,): the rows' weights, of sum 1
    epsilon: float  # the budget, in units of the squared distance
    classes: int  # K


class ExactPlan:
    """The exact plan, in every round or in every k-th.

    With more than `FEW_PLACES` distinct rows and ``every`` above 1, all rows are searched in the rounds 0, 1, 2, 4,
    8, ... below k and in every k-th. Between them each query looks at its `NEAREST` nearest rows and at the answers of
    the last exact searches. Such a plan is feasible, with <C, Π> = ε; its value is a lower bound of the inner maximum.
    In each exact round the plan over the candidates is found too, and its shortfall is told.
    """

    def __init__(self, problem: Fixed, every: int = 10) -> None:
        self.problem, self.every = problem, every
        self.rounds = 0
        self.eta: float | None = None
        self.exact: Transport | None = None
        self.candidates: Candidates | None = None

    def __call__(self, values: Floats) -> WorstCase:
        """Find the worst case; see `Plan`."""
        near = self._near(values)
        near_plan = None if near is None else self._solve_near(near)
        self.rounds += 1
        if near_plan is not None and not self._is_due(self.rounds - 1):
            self._keep(near_plan.eta)
            return self._worst(near_plan, "near", None)
        problem = self.problem
        transport = problem.support.losses(values, problem.labels, weights=problem.mass, eta=self.eta)
        self._learn(transport)
        transport.lists = self.candidates
        best = self._solve_all(transport, self.eta if near_plan is None else _finite(near_plan.eta))
        if self.candidates is not None:
            self.candidates.remember(best.bracket.high)
            self.candidates.remember(best.bracket.low)
        self._keep(best.eta)
        short = None if near_plan is None else max(best.lower_bound - near_plan.lower_bound, 0.0) / best.lower_bound
        return self._worst(best, "all", short)

    def _is_due(self, number: int) -> bool:
        # 0 and the powers of two, while the losses change most
        early = number < self.every and number & (number - 1) == 0
        return early or number % self.every == 0

    def _keep(self, eta: float) -> None:
        self.eta = _finite(eta)

    def _learn(self, transport: Transport) -> None:
        """Make the candidate lists in the first round, where they are worth it."""
        if self.exact is None:
            self.exact = transport
            if self.every > 1 and len(transport.z) > FEW_PLACES:
                self.candidates = Candidates(self.problem.support, transport.where)

    def _near(self, values: Floats) -> NearTransport | None:
        """Put the losses on the candidates."""
        if self.exact is None or self.candidates is None:
            return None
        support = self.problem.support
        best, row = group_maxima(values, support.group, len(support.first))
        own_scores = values[self.problem.labels, np.arange(values.shape[1])]
        return NearTransport(self.exact, self.candidates, best, row, own_scores)

    def _solve_near(self, near: NearTransport) -> Solution:
        everyone = np.arange(len(near.where))
        steps = 0.03 * 2.0 ** np.arange(8)
        trials = [] if self.eta is None else [self.eta * f for s in steps for f in (1.0 / (1.0 + s), 1.0 + s)]
        bracket = near.bracket(everyone, near.weights, self.problem.epsilon, trials=trials, tolerance=TOLERANCE)
        return _solution(near, self.problem.epsilon, bracket)

    def _solve_all(self, transport: Transport, eta: float | None) -> Solution:
        return transport.solve(self.problem.epsilon, eta=eta, tolerance=TOLERANCE)

    def _worst(self, solution: Solution, searched: Searched, shortfall: float | None) -> WorstCase:
        plan = transport_plan(solution)
        rows = len(self.problem.labels)
        return WorstCase(
            weights=plan.label_weights(self.problem.labels, rows, self.problem.classes),
            value=solution.lower_bound,
            upper=solution.value if searched == "all" else None,
            cost=plan.cost,
            eta=solution.eta,
            searched=searched,
            shortfall=shortfall,
        )


class SampledPlan(ExactPlan):
    """η from some rows, drawn anew in every round; then every row goes to its best answer at that η.

    BuDRO Algorithm 2 in its sample-average form: the sampled dual is minimised exactly, instead of by stochastic
    gradient steps, whose size and number would be parameters. No row is split, so <C, Π> = ε only on average.
    """

    def __init__(self, problem: Fixed, every: int, sample: int, rng: np.random.Generator) -> None:
        super().__init__(problem, every)
        self.sample, self.rng = sample, rng
        self._drawn: Ints | None = None

    def __call__(self, values: Floats) -> WorstCase:
        """Find the worst case; see `Plan`."""
        self._drawn = None
        return super().__call__(values)

    def _sampled(self, transport: Transport, eta: float | None) -> Solution:
        if self._drawn is None:
            self._drawn = self.rng.multinomial(self.sample, transport.weights / transport.weights.sum())
        queries = np.flatnonzero(self._drawn)
        weights = self._drawn[queries] / self.sample
        epsilon = self.problem.epsilon
        bracket = transport.bracket(queries, weights, epsilon, eta=eta, tolerance=TOLERANCE)
        lines = transport.answers(bracket.eta, np.arange(len(transport.where)), transport.where)
        value = bracket.eta * epsilon + float(transport.weights @ lines.at(bracket.eta))
        at = Bracket(eta_low=bracket.eta, eta_high=bracket.eta, low=lines, high=lines, eta=bracket.eta, value=value)
        reached = float(transport.weights @ lines.reward)
        return _solution(transport, epsilon, at, value=reached)

    def _solve_near(self, near: NearTransport) -> Solution:
        return self._sampled(near, self.eta)

    def _solve_all(self, transport: Transport, eta: float | None) -> Solution:
        return self._sampled(transport, eta)


class EntropicPlan:
    """The plan with an entropy term of strength γ: smooth where ties make the exact one jump (BuDRO B.1)."""

    def __init__(self, problem: Fixed, gamma: float) -> None:
        self.problem, self.gamma = problem, gamma
        self.eta: float | None = None

    def __call__(self, values: Floats) -> WorstCase:
        """Find the worst case; see `Plan`."""
        problem = self.problem
        plan = entropic_plan(
            problem.support.z,
            values,
            problem.labels,
            problem.epsilon,
            self.gamma,
            weights=problem.mass,
            eta=self.eta,
            precision=1e-6,
        )
        self.eta = _finite(plan.eta)
        return WorstCase(weights=plan.label_weights, value=plan.value, upper=None, cost=plan.cost, eta=plan.eta)


def _solution(transport: Transport, epsilon: float, bracket: Bracket, *, value: float | None = None) -> Solution:
    """Bring a bracket into the form that a plan is read from."""
    lower = model_minimum(transport.weights, epsilon, bracket)[1] if value is None else value
    return Solution(
        epsilon=epsilon,
        value=bracket.value,
        lower_bound=min(lower, bracket.value) if value is None else lower,
        eta=bracket.eta,
        evaluations=bracket.evaluations,
        looks=0,
        bracket=bracket,
        share=shares(transport.weights, epsilon, bracket),
        problem=transport,
    )


def _finite(eta: float) -> float | None:
    """Return an η that is worth starting from."""
    return float(eta) if np.isfinite(eta) and eta > 0.0 else None


# The fair metric of training: learned from the training rows, or read from a file.


SUBSPACE = "subspace"


class Geometry(NamedTuple):
    """The metric, the raw columns that it reads of training rows, and whether an audit can read them too."""

    metric: FairMetric
    columns: Mapping[str, NDArray[Any]]
    audited: bool


def find_geometry(
    table: Table, metric: str, strength: float, directions: Sequence[str] | None = None
) -> Geometry | None:
    """Learn or load the metric; None where there is nothing to learn it from: no groups, or one only."""
    columns, sensitive = raw_columns(table)
    if metric != SUBSPACE:
        if not Path(metric).exists():
            hint = did_you_mean(metric, [SUBSPACE])
            raise ParameterError(f"budro: the metric {metric!r} is neither {SUBSPACE!r} nor a file. {hint}")
        loaded = FairMetric.load(metric)
        absent = [name for name in loaded.columns if name not in columns]
        if absent:
            hint = did_you_mean(absent[0], columns, what="columns")
            raise DataError(
                f"the fair metric {metric!r} reads the column {absent[0]!r}, which {table.name} does not have among "
                f"its features and sensitive columns. {hint}"
            )
        check_memory(len(table), len(loaded.encoder.features), len(table.classes))
        return Geometry(loaded, columns, True)
    if not sensitive:
        return None
    check_memory(len(table), len(Encoder.learn(columns).features), len(table.classes))
    try:
        learned = subspace(columns, sensitive, strength=strength, directions=named_directions(table, directions))
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "budro") from error
    return Geometry(learned, columns, all(name in table.columns for name in sensitive))


def raw_columns(table: Table) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the features and the sensitive columns, and the latter's names."""
    sensitive = sensitive_columns(table, constant=True)
    return feature_columns(table) | sensitive, list(sensitive)
