"""The losses of fair regression: 1-Lipschitz in predictions u in [0, 1], which may stand for probabilities or rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import FairkitError
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_onnx.write.graph import GraphBuilder

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]


LossName = Literal["squared", "logistic", "absolute", "quantile", "poisson"]

STEEPNESS = 5.0
"""C of the logistic loss: predictions u in [0, 1] stand for probabilities in [1 / (1 + e^C), 1 / (1 + e^-C)]."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates μ that predictions u in [0, 1] of the Poisson loss stand for: log μ = log low + u log(high / low)."""

    low: float  # the smallest rate, above 0, in the label's unit
    high: float  # the largest
    mean: float  # the mean label: labels are covered to a share of it (`to_cover`)
    largest: float  # the largest label

    @property
    def span(self) -> float:
        """L = log(high / low)."""
        return float(np.log(self.high / self.low))

    @property
    def divisor(self) -> float:
        """K = H log(H / low) for H = max(high, largest label): half the deviance over K is 1-Lipschitz, at most 1.

        In u its derivative is (μ - y) L / K, and L <= log(H / low). It is convex in y and in u, so that it is largest
        at ends: 0 against μ = H costs H / K, and y = H against low less than H log(H / low) / K.
        """
        top = max(self.high, self.largest)
        return float(top * np.log(top / self.low))

    def to_rate(self, u: Array) -> Array:
        """Return the rates, in [low, high]."""
        return np.asarray(self.low * np.exp(self.span * np.clip(u, 0.0, 1.0)))

    def from_log(self, logs: Array) -> Array:
        """Return the predictions that stand for logarithms of rates; they may leave [0, 1]."""
        return np.asarray((logs - np.log(self.low)) / self.span)

    def to_cover(self, labels: Array) -> Array:
        """Return labels on a scale whose steps are shares of the mean label, and above it of the label itself.

        A label within s on this scale is within s max(mean, label) (1 + s) of the other one.
        """
        ratio = labels / self.mean
        return np.where(ratio <= 1, ratio, 1 + np.log(np.maximum(ratio, 1.0)))


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss ℓ(y, u) for predictions u in [0, 1] (Agarwal, Dudík & Wu 2019, section 2); labels are in [0, 1], too.

    - squared: (y - u)² / 2
    - logistic: log(1 + exp(-C (2y - 1)(2u - 1))) / (2 log(1 + e^C)), for labels 0 and 1
    - absolute: |y - u|
    - quantile: max(τ (y - u), (τ - 1)(y - u))
    - poisson: (μ - y - y log(μ / y)) / K for the rate μ that u stands for (`Rates`): half the deviance, for labels
      y >= 0 in their own unit
    """

    name: LossName  # which of them
    quantile: float = 0.5  # τ in (0, 1)
    rates: Rates | None = None  # what predictions of the Poisson loss stand for; None with the others

    def __call__(self, y: Array, u: Array) -> Array:
        """Return ℓ(y, u), of the shape that y and u broadcast to; 0 is a perfect prediction (not logistic)."""
        y, u = np.asarray(y, dtype=np.float64), np.clip(u, 0.0, 1.0)
        if self.name == "squared":
            return np.asarray((y - u) ** 2 / 2)
        if self.name == "absolute":
            return np.abs(y - u)
        if self.name == "quantile":
            return np.maximum(self.quantile * (y - u), (self.quantile - 1) * (y - u))
        if self.rates is not None:
            rate = self.rates.to_rate(u)
            logs = y * np.log(np.maximum(y, np.finfo(np.float64).tiny) / rate)
            return np.asarray(np.maximum(rate - y + logs, 0.0) / self.rates.divisor)
        margin = STEEPNESS * (2 * y - 1) * (2 * u - 1)
        return np.asarray(np.logaddexp(0.0, -margin) / (2 * np.logaddexp(0.0, STEEPNESS)))

    @property
    def unit(self) -> float:
        """What a loss is divided by to be the usual one: squared error, log-loss, absolute error, pinball, deviance."""
        if self.rates is not None:
            return 0.5 / self.rates.divisor
        if self.name == "squared":
            return 0.5
        return float(1 / (2 * np.logaddexp(0.0, STEEPNESS))) if self.name == "logistic" else 1.0

    @property
    def power(self) -> int:
        """The power of the label's unit that the loss is measured in."""
        return {"squared": 2, "logistic": 0, "absolute": 1, "quantile": 1, "poisson": 1}[self.name]

    @property
    def linear(self) -> bool:
        """Whether the loss is linear in the label but for a term without the prediction."""
        return self.name in ("squared", "logistic", "poisson")

    def to_target(self, u: Array) -> Array:
        """Convert predictions to the target's scale: probabilities, rates, or unchanged."""
        if self.rates is not None:
            return self.rates.to_rate(u)
        return to_probability(u) if self.name == "logistic" else np.asarray(u)


def to_probability(u: Array) -> Array:
    """Return the probability that a prediction of the logistic loss stands for: σ(C (2u - 1))."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * STEEPNESS * (2 * np.asarray(u) - 1))))


def from_probability(p: Array) -> Array:
    """Return the prediction that stands for a probability, in [0, 1]: (logit(p) / C + 1) / 2, clipped."""
    tiny = np.finfo(np.float64).tiny
    p = np.asarray(p, dtype=np.float64)
    logit = np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))
    return np.clip((logit / STEEPNESS + 1) / 2, 0.0, 1.0)


# Statistical parity as costs and constraint values of predictors on the grid.


@dataclass(frozen=True, slots=True)
class Parity:
    """The rows as cells of (covered label, group), and what predictors on the grid cost there."""

    grid: Grid  # the thresholds z
    labels: Array  # the cover of the labels, shape [Y]
    losses: Array  # ℓ(y, level), shape [Y, N + 1]
    cells: Codes  # for each row: label code · A + group, shape [n]
    groups: Codes  # for each row its group, shape [n]
    shares: Array  # p_a, the groups' shares of the weight, shape [A]
    weights: Array  # rows' weights adding up to 1, shape [n]

    def measure(self, levels: Codes) -> tuple[float, Array]:
        """Return a predictor's discretised loss and its constraint values."""
        size = self.grid.size + 1
        mass = np.bincount(self.cells * size + levels, self.weights, self.losses.size * len(self.shares))
        mass = mass.reshape(len(self.labels), len(self.shares), size)
        gamma = disparities(mass.sum(axis=0))
        loss = float((mass.sum(axis=1) * self.losses).sum())
        return loss, np.concatenate([gamma.ravel(), -gamma.ravel()])

    def curves(self, multipliers: Array) -> Array:
        """Return g_λ(y, a, level) = Σ_{z <= level} c_λ(y, a, z) / N + ℓ(y, 0), shape [Y, A, N + 1].

        c_λ(y, a, z) = c(y, z) + N λ_{a,z} / p_a - Σ_a' N λ_{a',z} with λ = λ⁺ - λ⁻ (eq. 12); the mean of
        g over the rows is the Lagrangian without its bounds, loss + λ·values.
        """
        both = multipliers.reshape(2, len(self.shares), self.grid.size)
        signed = both[0] - both[1]
        prices = np.zeros((len(self.shares), self.grid.size + 1))
        prices[:, 1:] = np.cumsum(signed / self.shares[:, None] - signed.sum(axis=0), axis=1)
        return np.asarray(self.losses[:, None, :] + prices[None, :, :])

    def bounds(self, epsilon: Array) -> Array:
        """Return the bounds of the constraint values for one ε per group [A], shape [2 A N]."""
        return np.tile(np.repeat(epsilon, self.grid.size), 2)


def make_parity(
    grid: Grid, loss: Loss, labels: Array, groups: Codes, n_groups: int, weights: Array | None = None
) -> Parity:
    """Prepare the rows."""
    shares = np.full(len(labels), 1 / len(labels)) if weights is None else weights / weights.sum()
    cover = cover_labels(labels, grid.step, loss)
    return Parity(
        grid=grid,
        labels=cover.labels,
        losses=grid.losses(loss, cover.labels),
        cells=cover.codes * n_groups + groups,
        groups=groups,
        shares=np.bincount(groups, shares, n_groups).astype(np.float64),
        weights=shares,
    )


def disparities(mass: Array) -> Array:
    """Return γ_{a,z} = P[f >= z | a] - P[f >= z] from masses of groups and levels [A, N + 1], shape [A, N]."""
    shares = mass / mass.sum(axis=1, keepdims=True)
    every = mass.sum(axis=0) / mass.sum()
    return np.asarray(np.cumsum((shares - every)[:, ::-1], axis=1)[:, ::-1][:, 1:])


def netted(multipliers: Array) -> Array:
    """Return λ⁺ and λ⁻ without what they have in common: the same response, for a smaller price of the bounds."""
    up, down = multipliers.reshape(2, -1)
    return np.concatenate([np.maximum(up - down, 0.0), np.maximum(down - up, 0.0)])


def best_levels(curves: Array) -> Codes:
    """Return U = argmin over levels of g for every covered label and group, shape [Y, A]."""
    return np.asarray(curves.argmin(axis=2), dtype=np.int64)


# The cost-sensitive oracle in its hinge form: a linear model by one linear program.


PIECES = 400_000
"""The most rows times thresholds: 10,000 rows at 40 thresholds."""

LIMIT = 1.0
"""The most that a coefficient may be, in absolute value; the intercept is free."""


def hinge_slopes(costs: Array) -> Array:
    """Return the slopes of φ(f) = Σ_z |c(z)| max(0, α/2 - s_z (f - z)), where s_z is 1 for c(z) <= 0 and else -1.

    The hinge loss of the classifiers 1[f >= z] (appendix G). Its kinks are the N + 1 middles between thresholds,
    α/2, 3α/2, ..., 1 + α/2, so that it is linear on N + 2 pieces; it is convex.
    """
    raised, lowered = np.maximum(-costs, 0.0), np.maximum(costs, 0.0)
    slopes = np.zeros((len(costs), costs.shape[1] + 2))
    # below the kink z + α/2 a threshold to reach still pulls up; above z - α/2 one to miss pulls down
    slopes[:, 1:] += np.cumsum(np.pad(lowered, ((0, 0), (0, 1))), axis=1)
    slopes[:, :-1] -= np.cumsum(np.pad(raised, ((0, 0), (1, 0)))[:, ::-1], axis=1)[:, ::-1]
    return slopes


def fit_hinge(matrix: NDArray[np.float32], costs: Array) -> Any:
    """Minimise Σ_i φ_i(β·x_i + b) over |β_j| <= 1 (appendix G), by the solver HiGHS."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack
    from sklearn.linear_model import LinearRegression

    rows, step = len(costs), 1 / costs.shape[1]
    slopes = hinge_slopes(costs)
    slopes /= max(float(np.abs(slopes).max()), 1e-300)
    # f = α/2 - first + the other pieces, each of them filled from the steepest descent to the steepest ascent
    width = matrix.shape[1]
    signs = np.ones(slopes.shape[1])
    signs[0] = -1.0
    places = np.repeat(np.arange(rows), len(signs))
    pieces = csr_matrix((np.tile(-signs, rows), (places, np.arange(len(places)))), (rows, len(places)))
    features = csr_matrix(np.column_stack([matrix.astype(np.float64), np.ones(rows)]))
    ends = np.full(len(signs), step)
    ends[[0, -1]] = np.inf
    bounds = np.zeros((width + 1 + len(places), 2))
    bounds[:width] = (-LIMIT, LIMIT)
    bounds[width] = (-np.inf, np.inf)
    bounds[width + 1 :, 1] = np.tile(ends, rows)
    solution = linprog(
        np.concatenate([np.zeros(width + 1), (slopes * signs).ravel()]),
        A_eq=hstack([features, pieces], format="csc"),
        b_eq=np.full(rows, step / 2),
        bounds=bounds,
        method="highs",
    )
    if solution.x is None or solution.status != 0:
        raise FairkitError(
            f"fair-regression: the linear program of oracle=hinge has no optimum ({solution.message}); use oracle=ls"
        )
    model = LinearRegression()
    model.coef_, model.intercept_ = solution.x[:width], float(solution.x[width])
    model.n_features_in_ = width
    return model


# The grid of predictions, the cover of labels, and the costs between them.


@dataclass(frozen=True, slots=True)
class Grid:
    """The thresholds Z = {1/N, 2/N, ..., 1}; a prediction's level is how many of them it reaches."""

    size: int  # N

    @property
    def step(self) -> float:
        """α = 1/N."""
        return 1.0 / self.size

    @property
    def values(self) -> Array:
        """What the levels 0 to N stand for: rounded down to the grid plus α/2, at most 1. Shape [N + 1]."""
        return np.asarray(np.minimum((np.arange(self.size + 1) + 0.5) * self.step, 1.0))

    def levels(self, predictions: NDArray[np.floating]) -> Codes:
        """Return each prediction's level, 0 to N; in float32, as the exported graph computes it."""
        scaled = np.clip(predictions, 0, 1).astype(np.float32) * np.float32(self.size)
        return np.asarray(np.clip(np.floor(scaled), 0, self.size), dtype=np.int64)

    def losses(self, loss: Loss, labels: Array) -> Array:
        """Return the discretised loss ℓ(y, level) for labels [Y], shape [Y, N + 1]."""
        return loss(labels[:, None], self.values[None, :])

    def costs(self, loss: Loss, labels: Array) -> Array:
        """Return c(y, z) = N (ℓ(y, z + α/2) - ℓ(y, z - α/2)) for labels [Y], shape [Y, N] (eq. 9)."""
        return np.asarray(np.diff(self.losses(loss, labels), axis=1) * self.size)


@dataclass(frozen=True, slots=True)
class Cover:
    """Labels that stand for all labels: every label has one within α/2, and no two are that near."""

    labels: Array  # increasing, shape [Y], at most 2N
    codes: Codes  # for each row the place of the smallest label within α/2, shape [n]


def cover_labels(labels: Array, step: float, loss: Loss | None = None) -> Cover:
    """Choose a cover from the labels themselves, from the smallest up (section 4.1)."""
    values, inverse = np.unique(labels, return_inverse=True)
    distinct = values if loss is None or loss.rates is None else loss.rates.to_cover(values)
    half = step / 2 * (1 + 1e-12)
    chosen: list[int] = []
    index = 0
    while index < len(distinct):
        farthest = int(np.searchsorted(distinct, distinct[index] + half, side="right")) - 1
        chosen.append(farthest)
        index = int(np.searchsorted(distinct, distinct[farthest] + half, side="right"))
    codes = np.searchsorted(distinct[chosen], distinct - half, side="left")
    return Cover(values[chosen], codes[inverse.ravel()].astype(np.int64))


# Predictions in [0, 1] and the label's unit: rounding to the grid and scaling, in numpy and in a graph.


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From predictions in [0, 1] to the label's unit and back."""

    low: float  # the label's range
    high: float
    chances: bool  # whether predictions stand for probabilities (logistic loss)
    grid: Grid | None  # where predictions are rounded down to the grid plus α/2; None where they are only clipped
    rates: Rates | None = None

    def to_unit(self, labels: Array) -> Array:
        """Return labels in [0, 1]."""
        return np.asarray((labels - self.low) / (self.high - self.low))

    def snapped(self, predictions: Array) -> Array:
        """Round down to the grid plus α/2, or clip; any shape."""
        if self.grid is None:
            return np.clip(predictions, 0.0, 1.0)
        return np.asarray(self.grid.values[self.grid.levels(predictions)])

    def to_label(self, predictions: Array) -> Array:
        """Return rounded predictions in the label's unit."""
        if self.rates is not None:
            return self.rates.to_rate(predictions)
        linked = to_probability(predictions) if self.chances else predictions
        return np.asarray(self.low + (self.high - self.low) * linked)

    def add_to(self, graph: GraphBuilder, predictions: str) -> str:
        """Round and scale predictions [rows, k] in a graph."""
        low, high = graph.constant([[0.0]]), graph.constant([[1.0]])
        clipped = graph.node("Min", [graph.node("Max", [predictions, low]), high])
        if self.grid is not None:
            steps = graph.node("Mul", [clipped, self.grid.size])
            level = graph.node("Cast", [graph.node("Floor", [steps])], to=7)
            return graph.node("Gather", [graph.constant(self.to_label(self.grid.values)), level], axis=0)
        if self.rates is not None:
            span, start = graph.constant([[self.rates.span]]), graph.constant([[self.rates.low]])
            return graph.node("Mul", [graph.node("Exp", [graph.node("Mul", [clipped, span])]), start])
        if self.chances:
            centred = graph.node("Sub", [clipped, 0.5])
            clipped = graph.node("Sigmoid", [graph.node("Mul", [centred, 2 * STEEPNESS])])
        if (self.low, self.high) == (0.0, 1.0):
            return clipped
        scaled = graph.node("Mul", [clipped, self.high - self.low])
        return graph.node("Add", [scaled, self.low])
