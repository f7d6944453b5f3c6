"""What a rule's number is made of: rates of groups, and how they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairkit.errors import PolicyError, did_you_mean
from fairkit.intervals import MANY, Spread, differences, extreme, spread_difference, spread_ratio, two_sided
from fairkit.metrics import ODDS, Rate
from fairkit.statistics import Sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.metrics import Estimate, Metric

    Array = NDArray[np.float64]

Kind = Literal["difference", "ratio", "largest", "smallest", "level"]

_SUFFIXES: Mapping[str, Kind] = {
    "_difference": "difference",
    "_ratio": "ratio",
    "_group_max": "largest",
    "_group_min": "smallest",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A rule's number as a function of one or two rates in each group."""

    metric: str  # as the rule names it
    rates: tuple[type[Rate], ...]  # the rates, over different rows where there are two
    kind: Kind  # the largest difference, the smallest ratio, the largest or smallest rate, or the rate itself

    def value(self, rates: Array) -> float:
        """Return the number for known rates, shape [K, G]."""
        if self.kind == "difference":
            return float(np.ptp(rates, axis=1).max())
        if self.kind == "ratio":
            with np.errstate(divide="ignore", invalid="ignore"):
                return float((rates.min(axis=1) / rates.max(axis=1)).min())
        return float(rates.min() if self.kind == "smallest" else rates.max())

    def ends(self, estimates: Sequence[Estimate], draws: int, confidence: float) -> tuple[Array, Array] | None:
        """Return both ends of `interval` for many drawn audits at once, [D] each; None where each is made by itself.

        Estimates are of all groups of the first draw, then of the second, ...
        """
        groups = len(estimates[0].values) // draws
        if self.kind != "difference" or not 2 <= groups < MANY:
            return None

        def of(estimate: Estimate, confidence: float) -> tuple[Array, Array]:
            def limits(z: float) -> tuple[Array, Array]:
                low, high = estimate.limits(z)
                return low.reshape(-1, groups), high.reshape(-1, groups)

            return differences(estimate.values.reshape(-1, groups), limits, confidence)

        each = [of(estimate, confidence) for estimate in estimates]
        if len(each) == 1:
            return each[0]
        joint = [of(estimate, confidence**0.5) for estimate in estimates]
        return np.max([low for low, _ in joint], axis=0), np.max([high for _, high in each], axis=0)

    def interval(self, estimates: Sequence[Estimate], confidence: float) -> tuple[float, float]:
        """Return the interval that an audit makes from these estimates."""
        intervals = [self._one(estimate, confidence) for estimate in estimates]
        if len(intervals) == 1:
            return intervals[0].low, intervals[0].high
        joint = [self._one(estimate, confidence**0.5) for estimate in estimates]
        if self.kind == "ratio":
            return min(p.low for p in intervals), min(p.high for p in joint)
        return max(p.low for p in joint), max(p.high for p in intervals)

    def _one(self, estimate: Estimate, confidence: float) -> Spread:
        values, limits = estimate.values, estimate.limits
        if self.kind == "level":
            low, high = limits(two_sided(confidence))
            return Spread(float(values[0]), float(np.min(low)), float(np.max(high)))  # every group keeps the limit
        if self.kind in ("largest", "smallest"):
            return extreme(values, limits, confidence, largest=self.kind == "largest")
        make = spread_difference if self.kind == "difference" else spread_ratio
        return make(values, limits, confidence)


def target_of(metric: str, metrics: Sequence[type[Metric]]) -> Target:
    """Return the target of a rule on `metric`: its rates, and how they are compared."""
    rates = {cls.name: cls for cls in metrics if issubclass(cls, Rate)}
    name, kind = metric, "level"
    for suffix, of in _SUFFIXES.items():
        if metric.endswith(suffix):
            name, kind = metric.removesuffix(suffix), of
    if metric == "gap_max":
        name, kind = "equalized_odds", "difference"
    aliases = {"equalized_odds": ODDS} | {cls.alias: (cls.name,) for cls in rates.values() if cls.alias}
    parts = aliases.get(name, (name,))
    if any(part not in rates for part in parts):
        known = [*rates, *(f"{r}{s}" for r in (*rates, *aliases) for s in ("_difference", "_ratio"))]
        raise PolicyError(
            f"{metric!r} is not made of rates, so that it is planned only from a pilot report that has it. "
            f"{did_you_mean(metric, known, what='metrics')}"
        )
    return Target(metric, tuple(rates[part] for part in parts), kind)  # type: ignore[arg-type]


def sums_of(rate: type[Rate], rows: Array, denominators: Array, counted: Array) -> Sums:
    """Return totals whose rate is `counted` / `denominators`; arrays of one shape, flattened."""
    over, inside = np.array(rate.over, bool), np.array(rate.counted, bool)
    first = np.zeros((rows.size, 4))
    first[:, np.flatnonzero(inside)[0]] = counted.ravel()
    first[:, np.flatnonzero(over & ~inside)[0]] = (denominators - counted).ravel()
    if not over.all():
        first[:, np.flatnonzero(~over)[0]] = (rows - denominators).ravel()
    return Sums(rows.ravel().astype(np.float64), first, first[:, :, None] * np.eye(4))
