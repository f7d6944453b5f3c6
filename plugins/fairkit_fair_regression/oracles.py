"""Best responses of the predictor: the Lagrangian as a learning problem without constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairkit.errors import ParameterError
from fairkit_fair_regression.grid import Grid
from fairkit_fair_regression.members import Constant
from fairkit_fair_regression.parity import best_levels
from fairkit_fair_regression.solver import Response

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_fair_regression.learning import Learner
    from fairkit_fair_regression.losses import Loss
    from fairkit_fair_regression.members import Member
    from fairkit_fair_regression.parity import Parity

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]
    Matrix = NDArray[np.float32]

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
    loss: Loss  # how to fit
    oracle: OracleName  # how to fit
    matrix: Matrix  # encoded rows [n, d], labels in [0, 1] [n], sample weights [n] of mean 1 or None
    labels: Array  # encoded rows [n, d], labels in [0, 1] [n], sample weights [n] of mean 1 or None
    weights: Array | None  # encoded rows [n, d], labels in [0, 1] [n], sample weights [n] of mean 1 or None
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
    loss: Loss  # how to fit
    oracle: OracleName  # how to fit
    matrix: Matrix  # encoded rows [n, d], labels in [0, 1] [n], sample weights [n] of mean 1 or None
    labels: Array  # encoded rows [n, d], labels in [0, 1] [n], sample weights [n] of mean 1 or None
    weights: Array | None  # encoded rows [n, d], labels in [0, 1] [n], sample weights [n] of mean 1 or None
    groups: Codes  # rows' groups [n], and the groups' shares p_a of the weight [A]
    shares: Array  # rows' groups [n], and the groups' shares p_a of the weight [A]

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
    from fairkit.errors import DataError

    rows = np.bincount(groups, minlength=len(names))
    place = int(rows.argmin())
    if rows[place] < size:
        raise DataError(
            f"{name}: the group {names[place]!r} has {rows[place]} rows to learn from, fewer than the {size} "
            "thresholds that its predictions are compared at; merge it with another group, give more rows, or "
            f"use a coarser grid, such as the parameter `grid={max(2, int(rows[place]))}`"
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
