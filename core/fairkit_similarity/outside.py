"""Distributional individual fairness when rows may move anywhere, by column generation with a gradient search.

    R(ε) = max over Π with marginal P_X, E d² ≤ ε, of E d_Y(h(X), h(X'))
         = min over λ ≥ 0 of λε + mean_j max_c [g_jc - λ c_jc]

where c runs over all x' (SenSeI theorem 2.4). The search finds some of them for every row, each with its gain
g = d_Y and its cost c = d². Over those that were found the problem is a small linear program, solved exactly; its
multiplier is where the search goes on. The result is the value of a feasible plan, hence a lower bound of R(ε).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import as_numpy
from fairkit.data.sources import open_source
from fairkit.errors import DataError, MissingExtraError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import phase
from fairkit_similarity.encode import Encoder
from fairkit_similarity.metric import FairMetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.ascent import Frame
    from fairkit_similarity.encode import Columns, Floats
    from fairkit_similarity.networks import Network
    from fairkit_similarity.search.tree import Ints
    from fairkit_similarity.transport import Solution


CHUNK = 8_192
"""So many rows are searched at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The best plan over given candidates."""

    value: float  # its mean gain, at a mean cost of at most ε
    multiplier: float  # λ
    contributions: Floats  # shape (n,): max_c [g - λ c]; their weighted mean plus λ ε is `value`
    place: NDArray[np.int64]  # shape (n,): which candidate attains it


def best_plan(gain: Floats, cost: Floats, weights: Floats, epsilon: float) -> Choice:
    """Minimise λ ε + Σ_j w_j max_c [g_cj - λ c_cj] over λ ≥ 0, to the last bit that matters."""

    def at(multiplier: float) -> tuple[float, float, NDArray[np.int64]]:
        chosen = (gain - multiplier * cost).argmax(axis=0)
        rows = np.arange(len(chosen))
        spent = float(weights @ cost[chosen, rows])
        return float(weights @ gain[chosen, rows]), spent, chosen

    if epsilon == 0.0:
        free = np.where(cost == 0.0, gain, -np.inf)
        candidate = free.argmax(axis=0)
        rows = np.arange(len(candidate))
        top = free[candidate, rows]
        return Choice(value=float(weights @ top), multiplier=np.inf, contributions=top, place=candidate)
    low, high = 0.0, max(1.0, 2.0 * float(gain.max(initial=0.0)) / epsilon)
    left, right = at(low), at(high)
    if left[1] <= epsilon:
        high = low
    while high > low:
        # where the tangents of the two ends meet: the minimum of what is known so far
        slope = left[1] - right[1]
        middle = (left[0] - right[0]) / slope if slope > 0 else 0.5 * (low + high)
        if not low < middle < high:
            break
        evaluation = at(middle)
        meet = left[0] - middle * left[1]
        # the dual touches the point where the tangents meet: a kink, hence its minimum
        if evaluation[0] - middle * evaluation[1] <= meet + 1e-14 * max(1.0, abs(meet)):
            low = high = middle
        elif evaluation[1] > epsilon:
            low, left = middle, evaluation
        else:
            high, right = middle, evaluation
    multiplier = high
    candidate = at(multiplier)[2]
    rows = np.arange(len(candidate))
    contributions = gain[candidate, rows] - multiplier * cost[candidate, rows]
    return Choice(
        value=float(weights @ contributions) + multiplier * epsilon,
        multiplier=multiplier,
        contributions=contributions,
        place=candidate,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outside:
    """What the search found."""

    choice: Choice  # the best plan over all candidates, the given ones too
    gain: Floats  # of each candidate, first the given ones, shape (C, n)
    cost: Floats  # the same shape
    moved: NDArray[Any]  # shape (C - given, n, d): x' of the candidates that were found
    given: int  # how many candidates were given


def search_outside(
    network: Network,
    x: Any,
    frame: Frame,
    epsilon: float,
    *,
    weights: Floats,
    start: tuple[Floats, Floats] | None = None,
    steps: int = 40,
    rounds: int = 8,
    tolerance: float = 1e-3,
) -> Outside:
    """Search rows' worst cases, and price them until the multiplier settles."""
    stay = np.zeros((1, len(x)))
    gains = [stay] if start is None else [stay, start[0]]
    costs = [stay] if start is None else [stay, start[1]]
    count = sum(len(part) for part in gains)
    moved: list[NDArray[Any]] = []
    searches = _Searches(network, x, frame, epsilon)
    _keep(searches.run(0.0, 0), gains, costs, moved)
    choice = best_plan(np.concatenate(gains), np.concatenate(costs), weights, epsilon)
    for _ in range(rounds if epsilon > 0.0 and len(frame.price) else 0):
        multiplier = choice.multiplier or 0.1 * max(choice.value, 1e-300) / epsilon
        _keep(searches.run(multiplier, steps), gains, costs, moved)
        before, choice = choice, best_plan(np.concatenate(gains), np.concatenate(costs), weights, epsilon)
        if before.multiplier > 0.0 and choice.value - before.value <= tolerance * choice.value:
            break
    return Outside(
        choice=choice, gain=np.concatenate(gains), cost=np.concatenate(costs), moved=np.stack(moved), given=count
    )


def _keep(
    result: tuple[Floats, Floats, NDArray[Any]], gains: list[Floats], costs: list[Floats], moved: list[NDArray[Any]]
) -> None:
    gains.append(result[0][None])
    costs.append(result[1][None])
    moved.append(result[2])


class _Searches:
    """Searches of the same rows, some rows at a time; each starts from what the last one found, too."""

    def __init__(self, network: Network, x: Any, frame: Frame, epsilon: float) -> None:
        import torch

        from fairkit_similarity.ascent import Origin

        self.network, self.frame, self.epsilon = network, frame, epsilon
        self.parts = list(x.split(CHUNK))
        with torch.no_grad():
            self.origins = [Origin.of(network, rows) for rows in self.parts]
        self.last: list[tuple[Any, Any] | None] = [None] * len(self.parts)

    def run(self, multiplier: float, steps: int) -> tuple[Floats, Floats, NDArray[Any]]:
        """Search at one λ; gives gain, cost and x'."""
        import torch

        from fairkit_similarity.ascent import Disparity, output_directions, worst_case

        results: list[tuple[Any, Any, Any]] = []
        with torch.no_grad():
            for number, (rows, origin) in enumerate(zip(self.parts, self.origins, strict=True)):
                worst = worst_case(
                    self.network,
                    origin,
                    rows,
                    Disparity(origin.outputs, output_directions(origin.outputs)),
                    self.frame,
                    multiplier=multiplier,
                    epsilon=self.epsilon,
                    free_steps=10,
                    steps=steps,
                    start=self.last[number],
                )
                self.last[number] = (worst.s, worst.t)
                results.append((worst.reward, worst.cost, worst.moved(rows, self.frame)))
        gain, cost, moved = (torch.cat(list(part)).cpu().numpy() for part in zip(*results, strict=True))
        return gain.astype(np.float64), cost.astype(np.float64), moved


# How sure is L(ε)? A normal interval, and a one-sided bound that needs no argument about the optimum.


FEWEST = 30
"""Effective rows below which no interval is given."""

CHOOSERS = 2_500
"""Rows of one half that choose η for the other half: any η is valid, so a few are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A gap with its standard errors; intervals follow at any confidence."""

    gap: float  # L(ε) less the mean reward of staying
    error: float  # standard error of `gap`, from the standard deviation of φ_j(η*) - R_jj over the rows
    bound: float
    bound_error: float  # standard error of `bound`
    bound_skew: float
    rows: float  # effective number of rows, (Σ w)² / Σ w²

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Two-sided normal interval, cut at 0 where gaps begin; None with fewer than `FEWEST` effective rows."""
        if self.rows < FEWEST:
            return None
        reach = NormalDist().inv_cdf(0.5 + confidence / 2.0) * self.error
        return max(self.gap - reach, 0.0), self.gap + reach

    def upper_bound(self, confidence: float) -> float | None:
        """One-sided: below the population's gap with probability at most 1 - confidence; never below `gap`.

        The normal quantile is corrected for skewness (Hall 1983): z + γ (2 z² + 1) / 6, where a skewness
        γ > 0 means that a sample without the rare large gains looks safer than the population is.
        """
        if self.rows < FEWEST:
            return None
        z = NormalDist().inv_cdf(confidence)
        reach = z + max(self.bound_skew, 0.0) * (2.0 * z * z + 1.0) / 6.0
        return max(self.bound + reach * self.bound_error, self.gap)


def spread(solution: Solution, rng: np.random.Generator) -> Spread:
    """Measure how sure the gap of a solution is."""
    problem, epsilon = solution.problem, solution.epsilon
    excess = solution.contributions() - problem.own
    rows = 1.0 / float(problem.mass @ problem.mass)
    gap = max(solution.value - float(problem.mass @ problem.own), 0.0)
    if rows < FEWEST:
        return Spread(gap=gap, error=math.nan, bound=gap, bound_error=math.nan, bound_skew=math.nan, rows=rows)
    halves = np.array_split(rng.permutation(len(problem.asked)), 2)
    means, errors, thirds = [], [], []
    for chooser, judged in (halves, halves[::-1]):
        eta = _chosen_eta(solution, chooser[:CHOOSERS])
        mean, error, third = _mean(_excess_at(solution, judged, eta), problem.mass[judged])
        means.append(mean + eta * epsilon)
        errors.append(error)
        thirds.append(third)
    # the mean of two independent halves: Var = (e₁² + e₂²) / 4
    bound_error = math.hypot(*errors) / 2.0
    return Spread(
        gap=gap,
        error=_mean(excess, problem.mass)[1],
        bound=float(np.mean(means)),
        bound_error=bound_error,
        bound_skew=sum(thirds) / 8.0 / bound_error**3 if bound_error > 0.0 else 0.0,
        rows=rows,
    )


def _mean(values: Floats, mass: Floats) -> tuple[float, float, float]:
    """Weighted mean, its standard error, and its third central moment."""
    weight = mass / mass.sum()
    mean = float(weight @ values)
    # Bessel's correction for weights: Σ w² r² / (1 - Σ w²)
    scale = 1.0 - float(weight @ weight)
    error = math.sqrt(max(float(weight**2 @ (values - mean) ** 2), 0.0) / max(scale, 1e-12))
    return mean, error, float(weight**3 @ (values - mean) ** 3)


def _chosen_eta(solution: Solution, rows: Ints) -> float:
    """Minimise M over some rows only."""
    problem = solution.problem
    mass = np.bincount(problem.query[rows], weights=problem.mass[rows], minlength=len(problem.where))
    queries = np.flatnonzero(mass > 0.0)
    if not len(queries):
        return solution.eta
    weights = mass[queries] / mass[queries].sum()
    return problem.bracket(queries, weights, solution.epsilon, eta=solution.eta, tolerance=1e-7).eta


def _excess_at(solution: Solution, rows: Ints, eta: float) -> Floats:
    """φ_j(η) - R_jj of some rows."""
    problem = solution.problem
    queries, inverse = np.unique(problem.query[rows], return_inverse=True)
    lines = problem.answers_near(solution.bracket, eta, queries)
    return lines.at(eta)[inverse] - problem.own[rows]


# Other versions of rows, given as a table of their own: counterfactual rows.


_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class CounterfactualTable:
    """The table of counterfactual rows."""

    columns: Mapping[str, NDArray[Any]]  # what the model reads, each of shape [p]
    places: Mapping[Any, NDArray[np.int64]]  # for every original, its rows in `columns`

    def originals(self) -> NDArray[np.int64]:
        """Return a number of each row's original, shape [p], from 0."""
        codes = np.empty(sum(len(rows) for rows in self.places.values()), dtype=np.int64)
        for number, rows in enumerate(self.places.values()):
            codes[rows] = number
        return codes


def read_given(path: str, of: str, wanted: Sequence[str]) -> CounterfactualTable:
    """Read a table of counterfactual rows."""
    source = open_source(path)
    for name in (of, *wanted):
        if name not in source.columns:
            hint = did_you_mean(name, source.columns, what="columns")
            use = "that names each row's original" if name == of else "that the model reads"
            raise DataError(f"{source.name} has no column {name!r}, {use}. {hint}")
    batches = list(source.batches([of, *wanted], _ROWS))
    if not sum(batch.num_rows for batch in batches):
        raise DataError(f"{source.name} has no counterfactual rows")
    names = [name for batch in batches for name in batch.column(of).to_pylist()]
    empty = sum(name is None or name != name for name in names)  # noqa: PLR0124 -- not NaN
    if empty:
        raise DataError(f"{source.name}: {empty} of {len(names)} rows have no value in {of!r}: name their originals")
    places: dict[Any, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(name, []).append(index)
    columns = {name: np.concatenate([as_numpy(batch.column(name)) for batch in batches]) for name in wanted}
    return CounterfactualTable(columns, {name: np.array(rows, dtype=np.int64) for name, rows in places.items()})


# Subspace metrics as fairkit learned them before: so that certificates that were made with them can be recomputed.


STRENGTH = 0.1
"""The l2 penalty, weighed against the summed loss."""


@phase("learn metric")
def former_subspace(columns: Columns, sensitive: Sequence[str]) -> FairMetric:
    """Learn what `fairkit_similarity.learn.subspace` learned before: by scikit-learn's L-BFGS, to its tolerance."""
    try:
        from sklearn.linear_model import LogisticRegression, RidgeCV
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error
    encoder = Encoder.learn(columns)
    features = encoder.encode(columns)
    directions = [np.eye(features.shape[1])[encoder.places(sensitive)]]
    names = list(dict.fromkeys(sensitive))
    for name in names:
        encoding = next(column for column in encoder.columns if column.name == name)
        positions = encoder.places([name])
        others = features.copy()
        others[:, positions] = 0.0
        raw = np.asarray(columns[name])
        keys = raw.astype(str) if encoding.kind == "category" else raw.astype(np.float64)
        values, code = np.unique(keys, return_inverse=True)
        if encoding.kind == "number" and len(values) > 2:
            model = RidgeCV(alphas=np.logspace(-3, 3, 7)).fit(others, features[:, positions[0]])
            coefficients = np.array(np.atleast_2d(model.coef_), dtype=np.float64)
        else:
            targets = [code == k for k in range(len(values))] if len(values) > 2 else [code == 1]
            model = LogisticRegression(C=1.0 / STRENGTH, max_iter=1_000, tol=1e-6)
            coefficients = np.array([model.fit(others, target).coef_[0] for target in targets])
        coefficients[:, positions] = 0.0
        directions.append(coefficients)
    description = {"kind": "subspace", "sensitive": names, "strength": STRENGTH}
    return FairMetric.projecting(encoder, np.concatenate(directions), description)
