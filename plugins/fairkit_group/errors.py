"""Errors of scores and predicted values: means over rows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairkit.errors import ParameterError
from fairkit.limits import clopper_pearson
from fairkit.metrics import Headline, Mean, Metric, Rate, Term
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_group.calibration import R2Score, score_of
from fairkit_group.rates import BalancedAccuracy, Box, F1Score, TrueNegativeRate, TruePositiveRate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.metrics import Estimate
    from fairkit.results.findings import Better
    from fairkit.statistics import MomentSums, Rows, Sums

    Array = NDArray[np.float64]


_SCORE = frozenset({"score"})
_REGRESSION: frozenset[Task] = frozenset({"regression"})
_SMALLEST = float(np.finfo(np.float64).eps)
_FACTORS = 16


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
        probability = _given(score_of(rows), rows.outcome > 0.5)
        return np.asarray(np.negative(np.log(probability, out=probability), out=probability))

    @staticmethod
    def certain(rows: Rows) -> Array | None:
        """Return which rows were given the probability 0 or 1, and which of them were given 0 for their outcome.

        None where there are no such rows.
        """
        score = score_of(rows)
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
        return -_sum_of_logs(_given(score_of(rows), rows.outcome <= 0.5))


def _given(score: Array, favorable: NDArray[np.bool_]) -> Array:
    """Return the probability given to each outcome, clipped."""
    probability = np.abs(score - ~favorable)  # score, or 1 - score
    return np.asarray(np.clip(probability, _SMALLEST, 1 - _SMALLEST, out=probability))


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
        return np.asarray((score_of(rows) - rows.outcome) ** 2)


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
        return score_of(rows)


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
        return np.abs(score_of(rows) - rows.outcome)


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
        return np.asarray((score_of(rows) - rows.outcome) ** 2)


ERRORS: list[type[Metric]] = [LogLoss, BrierScore, MeanPrediction, MeanAbsoluteError, MeanSquaredError, R2Score]


# What wrong group labels or wrong outcomes could do: bounds over all errors up to a given share.


INDEPENDENT = "independent"
_MOVES = ((0, 2), (2, 0), (1, 3), (3, 1))
"""Between confusion cells when an outcome was wrong: the decision stays."""


@dataclass(frozen=True, slots=True)
class LabelError:
    """The largest share of wrong values in a column."""

    column: str  # a sensitive column, or the label
    share: float  # in (0, 0.5)
    independent: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``COLUMN=SHARE`` or ``COLUMN=SHARE:independent``."""
        column, equals, rate = text.rpartition("=")
        number, colon, assumed = rate.partition(":")
        try:
            share = float(number)
        except ValueError:
            share = np.nan
        if not (equals and column and 0 < share < 0.5) or (colon and assumed != INDEPENDENT):
            raise ParameterError(
                f"the label error {text!r} is not understood; write COLUMN=SHARE with a share above 0 and below 0.5, "
                f"as in `label_error=sex=0.1`, or sex=0.1:{INDEPENDENT} for errors that do not depend on decisions"
            )
        return cls(column, share, bool(colon))


def wrong_groups(metric: Metric, totals: Any, share: float) -> Box | None:
    """Return the bounds on a metric in every group when up to a share of each group's rows belong elsewhere."""
    return of_rates(metric, lambda over, counted: _regrouped(over, counted, totals, share))


def wrong_outcomes(metric: Metric, totals: Any, share: float) -> Box | None:
    """Return the bounds on a metric in every group when up to a share of its rows have the other outcome."""
    return of_rates(metric, lambda over, counted: _flipped(over, counted, totals, share))


def of_rates(metric: Metric, bounds: Callable[[Array, Array], Box]) -> Box | None:
    """Return bounds on a share of cells for what is one, or follows from one or two."""
    if isinstance(metric, Rate):
        return bounds(np.array(metric.over, float), np.array(metric.counted, float))
    if isinstance(metric, F1Score):
        box = bounds(np.array((0.0, 1, 1, 1)), np.array((0.0, 0, 0, 1)))
        # F1 = 2 J / (1 + J) rises with J = TP / (TP + FP + FN)
        return Box(2 * box.low / (1 + box.low), 2 * box.high / (1 + box.high))
    if isinstance(metric, BalancedAccuracy):
        parts = [of_rates(rate, bounds) for rate in (TruePositiveRate(), TrueNegativeRate())]
        return Box(*(sum(getattr(p, side) for p in parts) / 2 for side in ("low", "high")))
    return None


def _regrouped(over: Array, counted: Array, totals: Sums, share: float) -> Box:
    budget = share * totals.first.sum(axis=1)
    good, bad = totals.first @ counted, totals.first @ (over - counted)

    def best(upward: Array, downward: Array) -> Array:
        """Return the largest share of `upward`: others' rows enter, own `downward` rows leave."""
        offered = np.minimum(upward, budget)
        entered = offered.sum() - offered
        left = np.minimum(downward, budget)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((upward + entered) / (upward + entered + downward - left))

    return Box(1 - best(bad, good), best(good, bad))


def _flipped(over: Array, counted: Array, totals: Sums, share: float) -> Box:
    """Look at every vertex: moves between cells made one after the other, each as far as it goes."""
    values = []
    for order in itertools.permutations(_MOVES):
        cells, left = totals.first.copy(), share * totals.first.sum(axis=1)
        start = totals.first.copy()
        for source, target in order:
            moved = np.minimum(start[:, source], left)
            cells[:, source] -= moved
            cells[:, target] += moved
            left = left - moved
            with np.errstate(divide="ignore", invalid="ignore"):
                values.append((cells @ counted) / (cells @ over))
    with np.errstate(divide="ignore", invalid="ignore"):
        values.append((totals.first @ counted) / (totals.first @ over))
    return Box(np.nanmin(values, axis=0), np.nanmax(values, axis=0))


def independent_boxes(values: Array, share: float) -> Box:
    """Return the bounds on rates in every group when errors do not depend on decision and outcome.

    With the largest recorded rate M and the smallest m, the true extremes lie between those and
    ((1 - e) M - e m) / (1 - 2 e), ((1 - e) m - e M) / (1 - 2 e).
    """
    top, bottom = float(np.nanmax(values)), float(np.nanmin(values))
    highest = min(((1 - share) * top - share * bottom) / (1 - 2 * share), 1.0)
    lowest = max(((1 - share) * bottom - share * top) / (1 - 2 * share), 0.0)
    # recorded = (1 - e) true + e · rate of those who belong elsewhere, at its extremes
    low = np.minimum(values, np.clip((values - share * highest) / (1 - share), 0, 1))
    high = np.maximum(values, np.clip((values - share * lowest) / (1 - share), 0, 1))
    return Box(low, high)


def told(errors: Sequence[str], columns: Sequence[str], label: str | None) -> dict[str, LabelError]:
    """Return the stated label errors, by column."""
    by_column: dict[str, LabelError] = {}
    for text in errors:
        error = LabelError.parse(text)
        if error.column in by_column:
            raise ParameterError(f"the label error of {error.column!r} is given twice; give it once")
        if error.column not in (*columns, label):
            columns_text = ", ".join([*columns, *([label] if label else [])])
            raise ParameterError(
                f"the label error of {error.column!r}: no sensitive column and not the label; there are: {columns_text}"
            )
        if error.independent and error.column == label:
            raise ParameterError(f"wrong outcomes have no independent form; write {error.column}={error.share:g}")
        by_column[error.column] = error
    return by_column
