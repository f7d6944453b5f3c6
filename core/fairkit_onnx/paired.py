"""Rows decided or predicted twice, here and next to here: disparities of both, in the table and in draws of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit.metrics import ODDS, Mean, Rate
from fairkit.statistics import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric

    Array = NDArray[np.float64]
    Both = tuple[Array, Array]

DRAWS = 400
"""Draws of the bootstrap over pairs."""
DISTANCE = "statistical_parity_ks"
"""The largest distance of a group's distribution from that of all rows."""
SMALL = 30
"""Groups with fewer rows (of the outcome that a rate is over) are left out: draws of a few rows say little."""
_SUFFIXES = ("_difference", "_ratio", "_group_min", "_group_max")


class PairedDecisions:
    """Decisions about rows and about rows next to them, by group and outcome; and draws of such tables.

    The table counts rows by group, outcome, decision here and decision there, shape [G, 2, 2, 2]. Rows drawn with
    replacement give a multinomial table.
    """

    def __init__(
        self,
        outcome: NDArray[np.bool_],
        group: NDArray[np.int64],
        here: NDArray[np.bool_],
        there: NDArray[np.bool_],
        draws: Array | None,
        rng: np.random.Generator,
        rates: Mapping[str, Rate],
    ) -> None:
        self._rates = rates
        grouped = group >= 0
        cell = ((group * 2 + np.asarray(outcome, dtype=np.int64)) * 2 + here) * 2 + there
        groups = max(int(group.max(initial=0)) + 1, 1)
        table = np.bincount(cell[grouped], minlength=8 * groups)
        self.rows = int(table.sum())
        self.flips = int((here != there)[grouped].sum())
        if draws is None:
            drawn = rng.multinomial(self.rows, table / max(self.rows, 1), DRAWS) if self.rows else table[None]
            counts = np.concatenate([table[None], drawn])
        else:
            counts = draws[:, grouped] @ np.eye(8 * groups)[cell[grouped]]
        tables = counts.reshape(-1, groups, 2, 2, 2).astype(np.float64)
        self.here, self.there = (tables.sum(axis=axis).reshape(-1, groups, 4) for axis in (4, 3))
        rows = table.reshape(groups, 2, 2, 2)
        self._rows = [rows.sum(axis=axis).reshape(groups, 4) for axis in (3, 2)]

    def disparity(self, metric: str) -> Both | None:
        """Return a disparity here and there, first of the table, then of its draws; None for what is no rate's."""
        here, there = (disparity(metric, cells, self._rates, self._rows) for cells in (self.here, self.there))
        return None if here is None or there is None else (here, there)

    def small(self, metric: str) -> NDArray[np.bool_] | None:
        """Return the groups with too few rows for a disparity, shape [G]; None for what is no rate's."""
        parts = _parts(metric, self._rates)
        if parts is None:
            return None
        return np.asarray(np.any([~_enough(rate, self._rows) for rate in parts[0]], axis=0))


class PairedNumbers:
    """Predicted numbers of rows and of rows next to them, by group; and draws of such tables."""

    def __init__(
        self,
        outcome: Array,
        group: NDArray[np.int64],
        here: Array,
        there: Array,
        draws: Array | None,
        rng: np.random.Generator,
        means: Mapping[str, Mean],
    ) -> None:
        grouped = group >= 0
        self.rows, self.flips = int(grouped.sum()), int((here != there)[grouped].sum())
        if draws is None:
            some = rng.multinomial(self.rows, np.full(self.rows, 1 / max(self.rows, 1)), DRAWS)
            self._times = np.concatenate([np.ones((1, self.rows)), some])
        else:
            self._times = draws[:, grouped]
        codes = group[grouped]
        members = np.eye(int(codes.max(initial=0)) + 1)[codes]
        self._small: NDArray[np.bool_] = members.sum(axis=0) < SMALL
        self._members = members[:, ~self._small]
        self._predictions = [Rows(outcome=outcome[grouped], score=values[grouped]) for values in (here, there)]
        self._means = means

    def disparity(self, metric: str) -> Both | None:
        """Return a disparity here and there, first of the table, then of its draws; None for what is no mean's."""
        if metric == DISTANCE:
            here, there = (self._distance(rows) for rows in self._predictions)
            return here, there
        for suffix in _SUFFIXES:
            mean = self._means.get(metric.removesuffix(suffix))
            if metric.endswith(suffix) and mean is not None:
                here, there = (_between(self._by_group(mean.per_row(rows)), suffix) for rows in self._predictions)
                return here, there
        return None

    def small(self, metric: str) -> NDArray[np.bool_] | None:
        """Return the groups with too few rows, shape [G]; None for what is no mean's."""
        known = metric == DISTANCE or any(metric.removesuffix(one) in self._means for one in _SUFFIXES)
        return self._small if known else None

    def _by_group(self, values: Array) -> Array:
        return np.asarray((self._times @ (self._members * values[:, None])) / (self._times @ self._members))

    def _distance(self, rows: Rows) -> Array:
        """Return the largest distance between the distribution functions of a group and of all rows, shape [1 + D]."""
        scores = np.asarray(rows.score)
        order = np.argsort(scores, kind="stable")
        last = np.append(np.diff(scores[order]) > 0, True)
        times, members = self._times[:, order], self._members[order]
        below = np.cumsum(times, axis=1)
        all_rows = below[:, last] / below[:, -1:]
        far = np.zeros(len(times))
        for place in range(members.shape[1]):
            own = np.cumsum(times * members[:, place], axis=1)
            far = np.fmax(far, np.abs(own[:, last] / own[:, -1:] - all_rows).max(axis=1))
        return far


def rates_of(metrics: Sequence[type[Metric]]) -> dict[str, Rate]:
    """Return the metrics that are rates, by name and alias."""
    found = [metric for metric in metrics if issubclass(metric, Rate)]
    return {name: metric() for metric in found for name in (metric.name, metric.alias) if name}


def means_of(metrics: Sequence[type[Metric]]) -> dict[str, Mean]:
    """Return the metrics of predicted numbers that are means over rows, by name and alias."""
    found = [metric for metric in metrics if issubclass(metric, Mean) and "regression" in metric.tasks]
    return {name: metric() for metric in found for name in (metric.name, metric.alias) if name}


def disparity(metric: str, cells: Array, rates: Mapping[str, Rate], rows: Sequence[Array]) -> Array | None:
    """Return a disparity of rates of several tables."""
    parts = _parts(metric, rates)
    if parts is None:
        return None
    found, suffix = parts
    each = [_between(rate.compute(cells[:, _enough(rate, rows)]), suffix) for rate in found]
    return np.asarray((np.fmax if suffix == "_difference" else np.fmin).reduce(each))


def _parts(metric: str, rates: Mapping[str, Rate]) -> tuple[list[Rate], str] | None:
    """Return the rates that a disparity compares, and how; None for what is no disparity of rates."""
    if metric in ("equalized_odds_difference", "equalized_odds_ratio"):
        suffix = metric.removeprefix("equalized_odds")
        return ([rates[name] for name in ODDS], suffix) if set(ODDS) <= set(rates) else None
    for suffix in _SUFFIXES:
        rate = rates.get(metric.removesuffix(suffix))
        if metric.endswith(suffix) and rate is not None:
            return [rate], suffix
    return None


def _enough(rate: Rate, rows: Sequence[Array]) -> NDArray[np.bool_]:
    """Return the groups with enough rows for a rate, shape [G]."""
    over = np.array(rate.over, float)
    return np.asarray(np.min([counts @ over for counts in rows], axis=0) >= SMALL)


def _between(values: Array, suffix: str) -> Array:
    """Compare groups, the last axis; those without a number do not count, and one alone is compared with none."""
    if values.shape[-1] < (1 if suffix.startswith("_group") else 2):
        return np.full(values.shape[:-1], np.nan)
    low, high = np.fmin.reduce(values, axis=-1), np.fmax.reduce(values, axis=-1)
    if suffix == "_difference":
        return np.asarray(high - low)
    if suffix == "_ratio":
        return np.asarray(low / high)
    return np.asarray(low if suffix == "_group_min" else high)
