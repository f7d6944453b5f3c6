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

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_fair_regression.learning import Constant
from fairkit_fair_regression.losses import Grid, best_levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit_fair_regression.learning import Learner, Member
    from fairkit_fair_regression.losses import Loss, Parity

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]
    Matrix = NDArray[np.float32]


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

    places: tuple[int, ...]  # its members as places in the pool
    weights: tuple[float, ...]  # their weights, of sum 1
    objective: float  # cost(Q)
    values: Array  # g(Q), shape [m]
    violation: float  # max(0, max_j (g_j(Q) - bounds_j))
    multipliers: Array  # the λ that prices the bounds, shape [m]: an increase of bounds_j by δ lowers the cost by λ_j δ
    gap: float  # the duality gap, never negative
    iterations: int  # of the solver
    calls: int  # best responses that this solution asked for
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


# The baseline SEO: least squares with the sensitive column, whose part is then dropped.


def fit_seo(
    matrix: NDArray[np.float32], labels: Array, groups: NDArray[np.int64], n_groups: int, weights: Array | None
) -> Any:
    """Fit labels to features and groups together, and let everybody have the average group's part.

    The features' coefficients are then those of comparisons within groups (Johnson, Foster & Stine 2016:
    substantive equality of opportunity); what the features tell about the group remains.
    """
    from sklearn.linear_model import Ridge

    indicators = np.equal.outer(groups, np.arange(1, n_groups)).astype(np.float64)
    both = np.hstack([matrix.astype(np.float64), indicators])
    model = Ridge(alpha=1e-3).fit(both, labels, sample_weight=weights)
    width = matrix.shape[1]
    model.intercept_ += float(np.average(indicators, axis=0, weights=weights) @ model.coef_[width:])
    model.coef_ = model.coef_[:width]
    model.n_features_in_ = width
    return model


# Best responses of the predictor: the Lagrangian as a learning problem without constraints.


OracleName = Literal["cs", "hinge", "ls", "loss"]
Targets = Literal["predictions", "labels"]

_FINER = 16


def default_oracle(loss: Loss, learner: Learner) -> OracleName:
    """Choose the oracle whose loss is the objective's, where the learner has it."""
    if loss.name == "logistic" and not learner.gives_chances:
        return "ls"
    if loss.name == "squared":
        return "ls" if learner.gives_numbers else "cs"
    return "loss"


def fit_loss(
    learner: Learner, loss: Loss, oracle: OracleName, matrix: Matrix, targets: Array, weights: Array | None
) -> Member:
    """Fit predictions in [0, 1] to targets in [0, 1] (Poisson: rates, also for oracle=ls), under the oracle's loss.

    With ``oracle=loss`` the fit is one whose gradient vanishes at the targets: for the logistic loss labels 1
    and 0 with weights p and 1 - p, where p is the probability that the target stands for.
    """
    if loss.rates is not None:
        return learner.fit_rates(matrix, targets, weights, loss.rates, squared=oracle == "ls")
    if oracle == "ls" or loss.name == "squared":
        return learner.fit_values(matrix, targets, weights)
    if loss.name == "logistic":
        return learner.fit_chances(matrix, targets, weights)
    quantile = 0.5 if loss.name == "absolute" else loss.quantile
    return learner.fit_quantile(matrix, targets, weights, quantile)


@dataclass(slots=True, kw_only=True)
class ParityOracle:
    """Best responses under statistical parity (section 4.4)."""

    parity: Parity  # the rows as cells
    learner: Learner  # how to fit
    loss: Loss
    oracle: OracleName
    matrix: Matrix  # encoded rows, shape [n, d]
    labels: Array  # in [0, 1], shape [n]
    weights: Array | None  # of mean 1, shape [n]; None where all count the same
    targets: Targets
    expected: Codes | None = None

    def respond(self, multipliers: Array) -> Response:
        """Fit a predictor to multipliers [2 A N] and measure it."""
        if not multipliers.any():
            return self.unconstrained()
        curves = self.parity.curves(multipliers)
        if self._by_thresholds:
            return self.measure(self._classified(curves))
        levels = self._target_levels(curves)
        return self.measure(self._fitted(self.parity.grid.values[levels]))

    def unconstrained(self) -> Response:
        """Fit the labels themselves."""
        if self._by_thresholds:
            return self.measure(self._classified(self.parity.curves(np.zeros(2 * self._cells))))
        member = self._fit(self.labels)
        if self.expected is None:
            self.expected = self._expected_grid.levels(member.predict(self.matrix))
        return self.measure(member)

    def constant(self) -> Response:
        """Return the best of the predictors that say the same to everybody; every bound holds for it."""
        mass = np.bincount(self.parity.cells // len(self.parity.shares), self.parity.weights)
        best = int((mass @ self.parity.losses).argmin())
        return self.measure(Constant(float(self.parity.grid.values[best])))

    def measure(self, member: Member) -> Response:
        """Return a predictor with its discretised loss and constraint values."""
        cost, values = self.parity.measure(self.parity.grid.levels(member.predict(self.matrix)))
        return Response(cost, values, member)

    @property
    def _cells(self) -> int:
        return len(self.parity.shares) * self.parity.grid.size

    def _target_levels(self, curves: Array) -> Codes:
        groups = len(self.parity.shares)
        if self.targets == "labels" or self.expected is None:
            return best_levels(curves).ravel()[self.parity.cells]
        # the loss is linear in what E[Y | x] enters it by, so that the expected label stands for the label
        prices = curves[0] - self.parity.losses[0]
        table = best_levels(self._expected_losses()[:, None, :] + prices[None, :, :])
        return np.asarray(table.ravel()[self.expected * groups + self.parity.groups])

    @property
    def _expected_grid(self) -> Grid:
        """The levels of expected labels; a step of rates is a factor, which is coarse for a label."""
        size = self.parity.grid.size
        return Grid(size * _FINER) if self.loss.rates is not None else self.parity.grid

    def _expected_losses(self) -> Array:
        """E[ℓ(Y, level) | x] up to a constant, for each level that E[Y | x] may have: [M + 1, N + 1]."""
        values = self._expected_grid.values
        if self.loss.name != "logistic":
            return self.parity.grid.losses(self.loss, self.loss.to_target(values))
        chance = self.loss.to_target(values)[:, None]
        ends = self.parity.grid.losses(self.loss, np.array([0.0, 1.0]))
        return np.asarray(chance * ends[1] + (1 - chance) * ends[0])

    def _fitted(self, targets: Array) -> Member:
        if targets.min() == targets.max():
            return Constant(float(targets[0]))
        return self._fit(self.loss.to_target(targets) if self._by_meaning else targets)

    def _fit(self, targets: Array) -> Member:
        return fit_loss(self.learner, self.loss, self.oracle, self.matrix, targets, self.weights)

    @property
    def _by_meaning(self) -> bool:
        return self.loss.name == "poisson" or (self.oracle == "loss" and self.loss.name == "logistic")

    @property
    def _by_thresholds(self) -> bool:
        return self.oracle in ("cs", "hinge")

    def _classified(self, curves: Array) -> Member:
        costs = np.diff(curves, axis=2) * self.parity.grid.size
        rows = costs.reshape(-1, self.parity.grid.size)[self.parity.cells]
        if self.weights is not None:
            rows = rows * self.weights[:, None]
        if self.oracle == "hinge":
            return self.learner.fit_hinge(self.matrix, rows)
        return self.learner.fit_thresholds(self.matrix, rows, self.parity.grid.step)


@dataclass(slots=True, kw_only=True)
class GroupLossOracle:
    """Best responses under bounded group loss: one weighted fit (section 5)."""

    learner: Learner  # how to fit
    loss: Loss
    oracle: OracleName
    matrix: Matrix  # encoded rows, shape [n, d]
    labels: Array  # in [0, 1], shape [n]
    weights: Array | None  # of mean 1, shape [n]; None where all count the same
    groups: Codes  # of rows, shape [n]
    shares: Array  # the groups' shares p_a of the weight, shape [A]

    def respond(self, multipliers: Array) -> Response:
        """Fit with weights 1/n + λ_a / n_a, here times n: 1 + λ_a / p_a; multipliers [A]."""
        return self._weighted(1 + multipliers / self.shares, bool(multipliers.any()))

    def worst(self, multipliers: Array) -> Response:
        """Fit with weights λ_a / n_a alone: the response where only the groups' losses count."""
        return self._weighted(multipliers / self.shares, True)

    def _weighted(self, factors: Array, differ: bool) -> Response:
        rows = factors[self.groups] if differ else None
        if rows is not None:
            rows = rows if self.weights is None else rows * self.weights
            rows = rows / rows.mean()
        return self.measure(
            fit_loss(self.learner, self.loss, self.oracle, self.matrix, self.labels, rows if differ else self.weights)
        )

    def measure(self, member: Member) -> Response:
        """Return a predictor with its loss and the groups' losses."""
        losses = self.loss(self.labels, member.predict(self.matrix))
        rows = losses if self.weights is None else losses * self.weights
        means = np.bincount(self.groups, rows, len(self.shares)) / (self.shares * len(rows))
        return Response(float(means @ self.shares), means, member)


def check_cover(groups: Codes, names: tuple[str, ...], size: int, name: str) -> None:
    """Refuse groups with fewer rows than thresholds."""
    rows = np.bincount(groups, minlength=len(names))
    index = int(rows.argmin())
    if rows[index] < size:
        raise DataError(
            f"{name}: the group {names[index]!r} has {rows[index]} rows to learn from, fewer than the {size} "
            "thresholds that its predictions are compared at; merge it with another group, give more rows, or "
            f"use a coarser grid, such as the parameter `grid={max(2, int(rows[index]))}`"
        )


def check_targets(targets: Targets | None, loss: Loss, oracle: OracleName) -> None:
    """Refuse targets from predictions where the loss's expectation is no function of the expected label."""
    if targets == "predictions" and not loss.linear:
        raise ParameterError(
            f"fair-regression: targets=predictions goes with the losses squared, logistic and poisson; with "
            f"{loss.name} use targets=labels"
        )
    if targets == "predictions" and oracle in ("cs", "hinge"):
        raise ParameterError(
            f"fair-regression: oracle={oracle} charges each row by its own label: leave out targets=predictions"
        )


# Bounded group loss: solved, or shown to be out of reach.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far bounds of group losses are out of reach."""

    excess: float  # the smallest t for which losses of ζ_a + t can be reached in all groups at once
    group: int  # the group that keeps t from being smaller: the one with the largest multiplier
    gap: float  # how much smaller t might be, if a best response was missed


def solve_group_loss(
    pool: Pool,
    zeta: Array,
    oracle: GroupLossOracle,
    settings: SolverSettings,
    names: tuple[str, ...],
    watch: Callable[[Moment], None],
) -> Solution:
    """Find the mixture of least loss with E[ℓ | a] <= ζ_a (algorithm 2)."""
    result = solve(pool, zeta, oracle.respond, settings, watch=watch)
    if result.violation <= tolerance(zeta, settings):
        return result
    reach = smallest_excess(pool, zeta, oracle, settings)
    if reach.excess <= tolerance(zeta, settings):
        # within reach after all: the pool now holds the predictors that show it
        return solve(pool, zeta, oracle.respond, settings, watch=watch)
    raise DataError(_message(zeta, reach, names))


def tolerance(zeta: Array, settings: SolverSettings) -> float:
    """Return the violation that counts as none: (1 + 2ν) / B bounds it where the bounds can be met."""
    return max(1e-9, min(settings.nu, 1e-3 * float(zeta.min())) / 2)


def smallest_excess(pool: Pool, zeta: Array, oracle: GroupLossOracle, settings: SolverSettings) -> Reach:
    """Find the smallest t with E[ℓ | a] <= ζ_a + t for all groups: the game in which only groups count."""
    # predictors are shared; answers to multipliers without the loss itself are another problem's
    game = Pool(list(pool.responses), [], 0, pool.costs, pool.values)
    solution = solve(
        game,
        zeta,
        oracle.worst,
        SolverSettings(nu=settings.nu / 10, bound=1.0, iterations=settings.iterations, least=3, strength=0.0),
    )
    for response in game.responses:
        pool.add(response)
    return Reach(excess=solution.violation, group=int(solution.multipliers.argmax()), gap=solution.gap)


def _message(zeta: Array, reach: Reach, names: tuple[str, ...]) -> str:
    group = reach.group
    smallest = float(zeta[group] + reach.excess)
    # rounded up, so that the number that is named can be reached
    shown = np.ceil(smallest * 1e6) / 1e6
    advice = (
        f"the parameter `zeta={shown:.6f}`"
        if len(set(zeta.tolist())) == 1
        else f"the parameter `bounds.{names[group]}={shown:.6f}`"
    )
    return (
        f"fair-regression: the group {names[group]!r} cannot reach a loss of {zeta[group]:g} with this learner: the "
        f"smallest that can be reached while the other groups exceed their bounds by no more is {shown:.6f}. "
        f"Allow it ({advice}), or give more or better data about this group"
    )
