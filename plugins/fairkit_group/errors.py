"""Errors of scores and predicted values: means over rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.limits.shares import clopper_pearson
from fairkit.metrics import Headline, Mean, Metric, Term
from fairkit_group.determination import R2Score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.metrics import Estimate
    from fairkit.results.values import Better
    from fairkit.statistics import MomentSums, Rows

    Array = NDArray[np.float64]

_SCORE = frozenset({"score"})
_REGRESSION: frozenset[Task] = frozenset({"regression"})
_SMALLEST = float(np.finfo(np.float64).eps)
_FACTORS = 16


def _score(rows: Rows) -> Array:
    if rows.score is None:
        raise ValueError("this metric needs scores")
    return rows.score


class LogLoss(Mean):
    """The mean of -log of the probability given to the outcome, clipped at the smallest double step.

    A probability of 0 or 1, as rounding gives it, costs 36 where it is wrong, and a sample may hold none of the rows
    where it is: the upper end has as many of them as such rows could hide (Clopper & Pearson 1934).
    """

    name: ClassVar[str] = "log_loss"
    term: ClassVar[Term | None] = Term(
        "error of the probabilities (log loss)",
        "How far the predicted probabilities are from the outcomes; confident errors weigh most, and 0 is perfect.",
    )
    headline: ClassVar[Headline] = Headline(performance=4)
    better: ClassVar[Better] = "lower"
    range: ClassVar[tuple[float, float]] = (0.0, -float(np.log(_SMALLEST)))
    meaning: ClassVar[str] = "0: every outcome was given probability 1; 0.69: no better than a coin."
    needs: ClassVar[frozenset[str]] = _SCORE
    by_outcome: ClassVar[bool] = True

    def per_row(self, rows: Rows) -> Array:
        """Return the loss."""
        given = _given(_score(rows), rows.outcome > 0.5)
        return np.asarray(np.negative(np.log(given, out=given), out=given))

    @staticmethod
    def certain(rows: Rows) -> Array | None:
        """Return which rows were given the probability 0 or 1, and which of them were given 0 for their outcome.

        None where there are no such rows.
        """
        score = _score(rows)
        sure = (score <= _SMALLEST) | (score >= 1 - _SMALLEST)
        if not sure.any():
            return None
        wrong = sure & ((score > 0.5) != (rows.outcome > 0.5))
        return np.stack([sure, wrong], axis=1).astype(np.float64)

    def estimate_from(self, totals: MomentSums, n: Array, error: Array, skewness: Array) -> Estimate:
        """Compute the mean in every group; see the class for the upper end."""
        estimate = super().estimate_from(totals, n, error, skewness)
        sure, wrong = totals.certain.T
        if not sure.any():
            return estimate
        with np.errstate(all="ignore"):
            share = sure / totals.powers[:, 0]
            seen = np.where(sure > 0, wrong / np.maximum(sure, 1e-300), 0.0)

        def limits(z: float) -> tuple[Array, Array]:
            low, high = estimate.limits(z)
            with np.errstate(all="ignore"):
                hidden = clopper_pearson(seen, share * n, z)[1] - seen
                cost = np.where(sure > 0, share * hidden * self.range[1], 0.0)
            return low, np.minimum(high + cost, self.range[1])

        return replace(estimate, limits=limits)

    def flipped_sum(self, rows: Rows) -> float:
        """Return the sum of the losses at the other outcomes; of rows that count the same from few logarithms."""
        if rows.weights is not None or rows.members is not None:
            return super().flipped_sum(rows)
        return -_sum_of_logs(_given(_score(rows), rows.outcome <= 0.5))


def _given(score: Array, favorable: NDArray[np.bool_]) -> Array:
    """Return the probability given to each outcome, clipped."""
    given = np.abs(score - ~favorable)  # score, or 1 - score
    return np.asarray(np.clip(given, _SMALLEST, 1 - _SMALLEST, out=given))


def _sum_of_logs(given: Array) -> float:
    """Return Σ log of numbers in [2^-52, 1]: the logarithms of products of 16, which are at least 2^-832."""
    whole = len(given) - len(given) % _FACTORS
    products = given[:whole].reshape(_FACTORS, -1).prod(axis=0)
    return float(np.log(products).sum() + np.log(given[whole:]).sum())


class BrierScore(Mean):
    """The mean squared difference of probability and outcome."""

    name: ClassVar[str] = "brier_score"
    term: ClassVar[Term | None] = Term(
        "error of the probabilities (Brier)",
        "The mean squared distance of predicted probability and outcome; 0 is perfect.",
    )
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
    term: ClassVar[Term | None] = Term("mean score", "The mean of the scores, or of the predicted values.")
    headline: ClassVar[Headline] = Headline(between=6, column=6, tasks=frozenset({"regression"}))
    meaning: ClassVar[str] = "In the unit of the score; a difference of 0 between groups is parity of means."
    needs: ClassVar[frozenset[str]] = _SCORE
    outcome: ClassVar[bool] = False
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "regression"})
    centred: ClassVar[bool] = True

    def per_row(self, rows: Rows) -> Array:
        """Return the score."""
        return _score(rows)


class MeanAbsoluteError(Mean):
    """The mean absolute difference of prediction and target."""

    name: ClassVar[str] = "mean_absolute_error"
    term: ClassVar[Term | None] = Term(
        "mean error", "How far a prediction is from the outcome on average, in the outcome's unit."
    )
    headline: ClassVar[Headline] = Headline(performance=5, between=7, column=7, sentence=True)
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
    term: ClassVar[Term | None] = Term(
        "mean squared error", "The mean of the squared errors: large errors weigh more than small ones."
    )
    headline: ClassVar[Headline] = Headline(performance=6, column=8)
    better: ClassVar[Better] = "lower"
    range: ClassVar[tuple[float, float]] = (0.0, np.inf)
    meaning: ClassVar[str] = "0: every prediction is right; in the squared unit of the target."
    needs: ClassVar[frozenset[str]] = _SCORE
    tasks: ClassVar[frozenset[Task]] = _REGRESSION

    def per_row(self, rows: Rows) -> Array:
        """Return the squared error."""
        return np.asarray((_score(rows) - rows.outcome) ** 2)


ERRORS: list[type[Metric]] = [LogLoss, BrierScore, MeanPrediction, MeanAbsoluteError, MeanSquaredError, R2Score]
