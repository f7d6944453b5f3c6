"""Statistical parity as costs and constraint values of predictors on the grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_fair_regression.grid import Grid, cover_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_fair_regression.losses import Loss

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]


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
    own = mass / mass.sum(axis=1, keepdims=True)
    every = mass.sum(axis=0) / mass.sum()
    return np.asarray(np.cumsum((own - every)[:, ::-1], axis=1)[:, ::-1][:, 1:])


def netted(multipliers: Array) -> Array:
    """Return λ⁺ and λ⁻ without what they have in common: the same response, for a smaller price of the bounds."""
    up, down = multipliers.reshape(2, -1)
    return np.concatenate([np.maximum(up - down, 0.0), np.maximum(down - up, 0.0)])


def best_levels(curves: Array) -> Codes:
    """Return U = argmin over levels of g for every covered label and group, shape [Y, A]."""
    return np.asarray(curves.argmin(axis=2), dtype=np.int64)
