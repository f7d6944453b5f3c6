"""Training up to a certified gap: how unfair has the model become on validation rows?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit_budro.boosting import class_losses
from fairkit_similarity.outside import FEWEST, spread
from fairkit_similarity.transport import Support

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.search.tree import Floats, Ints

STEP = 5
"""Rounds between two looks; once the target is passed the rounds since the last look are looked at, newest first."""

CONFIDENCE = 0.95


@dataclass(kw_only=True, eq=False)
class GapWatch:
    """Certifies the gap of every few rounds on validation rows, and says when the target is passed.

    A model that knows nothing has no gap; it grows as the trees learn to tell people apart.
    """

    matrix: NDArray[np.float32]  # the validation rows, encoded
    z: Floats  # under the fair metric
    labels: Ints  # their labels
    weights: Floats  # their weights
    epsilon: float  # the budget
    target: float  # the largest upper confidence bound (95 %, one-sided) that is accepted
    seed: int  # splits the rows in halves for the bound
    bounds: dict[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        effective = self.weights.sum() ** 2 / (self.weights**2).sum()
        if effective < FEWEST:
            raise DataError(
                f"budro: {effective:.0f} effective validation rows are too few to certify a gap ({FEWEST} are needed); "
                "give more rows, or a larger validation_share"
            )
        self._support = Support(self.z)
        self._eta: float | None = None

    def __call__(self, booster: Any, trees: int) -> int | None:
        """Look, if it is time; return the number of trees to keep where the target is passed."""
        if trees % STEP != 1 or self.gap(booster, trees)[1] <= self.target:
            return None
        for fewer in range(trees - 1, max(trees - STEP, 0), -1):
            if self.gap(booster, fewer)[1] <= self.target:
                return fewer
        return max(trees - STEP, 1)

    def gap(self, booster: Any, trees: int) -> tuple[float, float]:
        """Return the gap after so many rounds, and its upper confidence bound."""
        import xgboost

        data = xgboost.DMatrix(self.matrix)
        margins = booster.predict(data, output_margin=True, iteration_range=(0, trees))
        values = class_losses(np.asarray(margins, dtype=np.float64))
        problem = self._support.losses(values, self.labels, weights=self.weights, eta=self._eta)
        solution = problem.solve(self.epsilon, eta=self._eta, tolerance=1e-6)
        self._eta = solution.eta if np.isfinite(solution.eta) and solution.eta > 0.0 else None
        sure = spread(solution, np.random.default_rng(self.seed))
        bound = sure.upper_bound(CONFIDENCE)
        self.bounds[trees] = (sure.gap, sure.gap if bound is None else bound)
        return self.bounds[trees]

    def record(self) -> dict[str, Any]:
        """Return the observed gaps and their upper confidence bounds, by number of rounds."""
        seen = sorted(self.bounds)
        return {
            "epsilon": self.epsilon,
            "target_gap": self.target,
            "rounds": seen,
            "gap": [self.bounds[trees][0] for trees in seen],
            "upper_confidence_bound": [self.bounds[trees][1] for trees in seen],
        }

    def notes(self) -> tuple[str, ...]:
        """Say whether the target was met."""
        first = min(self.bounds)
        if self.bounds[first][1] > self.target:
            return (
                f"The certified gap is {self.bounds[first][1]:.3g} after one round already, above target_gap = "
                f"{self.target:g}: the model is that one round.",
            )
        last = max(self.bounds)
        if self.bounds[last][1] <= self.target:
            return (
                f"The certified gap reached {self.bounds[last][1]:.3g} of target_gap = {self.target:g} in all rounds.",
            )
        return ()
