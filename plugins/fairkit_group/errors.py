"""Errors of scores and predicted values: means over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.metrics import Headline, Mean, Metric
from fairkit_group.determination import R2Score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.results.findings import Better
    from fairkit.statistics import Rows

    Array = NDArray[np.float64]

_SCORE = frozenset({"score"})
_REGRESSION: frozenset[Task] = frozenset({"regression"})
_SMALLEST = float(np.finfo(np.float64).eps)


def _score(rows: Rows) -> Array:
    if rows.score is None:
        raise ValueError("this metric needs scores")
    return rows.score


class LogLoss(Mean):
    """The mean of -log of the probability given to the outcome, clipped at the smallest double step."""

    name: ClassVar[str] = "log_loss"
    headline: ClassVar[Headline] = Headline(performance=4)
    better: ClassVar[Better] = "lower"
    range: ClassVar[tuple[float, float]] = (0.0, -float(np.log(_SMALLEST)))
    meaning: ClassVar[str] = "0: every outcome was given probability 1; 0.69: no better than a coin."
    needs: ClassVar[frozenset[str]] = _SCORE
    by_outcome: ClassVar[bool] = True

    def per_row(self, rows: Rows) -> Array:
        """Return the loss."""
        given = np.abs(_score(rows) - (rows.outcome <= 0.5))  # score, or 1 - score
        return np.asarray(-np.log(np.clip(given, _SMALLEST, 1 - _SMALLEST, out=given), out=given))


class BrierScore(Mean):
    """The mean squared difference of probability and outcome."""

    name: ClassVar[str] = "brier_score"
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "lower"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0: perfect probabilities; 0.25: no better than a coin."
    needs: ClassVar[frozenset[str]] = _SCORE

    def per_row(self, rows: Rows) -> Array:
        """Return the squared error."""
        return np.asarray((_score(rows) - rows.outcome) ** 2)


class MeanPrediction(Mean):
    """The mean score or predicted value."""

    name: ClassVar[str] = "mean_prediction"
    headline: ClassVar[Headline] = Headline(between=6, column=6, tasks=frozenset({"regression"}))
    meaning: ClassVar[str] = "In the unit of the score; a difference of 0 between groups is parity of means."
    needs: ClassVar[frozenset[str]] = _SCORE
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "regression"})
    centred: ClassVar[bool] = True

    def per_row(self, rows: Rows) -> Array:
        """Return the score."""
        return _score(rows)


class MeanAbsoluteError(Mean):
    """The mean absolute difference of prediction and target."""

    name: ClassVar[str] = "mean_absolute_error"
    headline: ClassVar[Headline] = Headline(performance=5, between=7, column=7)
    better: ClassVar[Better] = "lower"
    range: ClassVar[tuple[float, float]] = (0.0, np.inf)
    meaning: ClassVar[str] = "0: every prediction is right; in the unit of the target."
    needs: ClassVar[frozenset[str]] = _SCORE
    tasks: ClassVar[frozenset[Task]] = _REGRESSION

    def per_row(self, rows: Rows) -> Array:
        """Return the absolute error."""
        return np.abs(_score(rows) - rows.outcome)


class MeanSquaredError(Mean):
    """The mean squared difference of prediction and target."""

    name: ClassVar[str] = "mean_squared_error"
    headline: ClassVar[Headline] = Headline(performance=6, column=8)
    better: ClassVar[Better] = "lower"
    range: ClassVar[tuple[float, float]] = (0.0, np.inf)
    meaning: ClassVar[str] = "0: every prediction is right; in the squared unit of the target."
    needs: ClassVar[frozenset[str]] = _SCORE
    tasks: ClassVar[frozenset[Task]] = _REGRESSION

    def per_row(self, rows: Rows) -> Array:
        """Return the squared error."""
        return np.asarray((_score(rows) - rows.outcome) ** 2)


ERRORS: list[type[Metric]] = [
    LogLoss,
    BrierScore,
    MeanPrediction,
    MeanAbsoluteError,
    MeanSquaredError,
    R2Score,
]
