"""What wrong group labels or wrong outcomes could do: bounds over all errors up to a given share.

Without an assumption, at most a share e of the rows that are recorded in a group belong to another one (or have
another outcome), and nothing is said about which (Horowitz & Manski 1995). A rate is largest when only rows that do
not count leave the group and only rows that count enter it. With errors that do not depend on decision and outcome
given the true group, recorded rates are mixtures of the true ones, and a true difference D is recorded as at least
(1 - 2e) D.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import ParameterError
from fairkit.metrics import Rate
from fairkit_group.boxes import Box
from fairkit_group.rates import BalancedAccuracy, F1Score, TrueNegativeRate, TruePositiveRate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.metrics import Metric
    from fairkit.statistics import Sums

    Array = NDArray[np.float64]

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
        column, equals, told = text.rpartition("=")
        number, colon, assumed = told.partition(":")
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
        parts = [of_rates(one, bounds) for one in (TruePositiveRate(), TrueNegativeRate())]
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
            known = ", ".join([*columns, *([label] if label else [])])
            raise ParameterError(
                f"the label error of {error.column!r}: no sensitive column and not the label; there are: {known}"
            )
        if error.independent and error.column == label:
            raise ParameterError(f"wrong outcomes have no independent form; write {error.column}={error.share:g}")
        by_column[error.column] = error
    return by_column
