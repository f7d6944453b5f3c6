"""What a repair keeps and what it makes best: the selection rate, accuracy, a cost, or a value for each person."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Literal, Self, get_args

import numpy as np

from fairkit.errors import ParameterError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.table import Table

    Array = NDArray[np.float64]

Kind = Literal["rate", "accuracy", "balanced_accuracy", "cost", "value"]
KEPT = 0.01
"""How far a repaired model's selection rate may be from the one to keep, on the rows that it is learned from."""
_LABELS = {"rate": "precision", "cost": "net gain", "value": "value per person"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBound:
    """A policy's rule on a rate of decisions: a linear inequality in the shares of TN, FP, FN, TP."""

    metric: str
    counted: tuple[int, ...]  # the cells that the rate counts
    over: tuple[int, ...]  # the cells that it is a share of
    limit: float
    upper: bool
    split: str | None = None  # the column whose groups all keep it; None: all people together
    error: float = 0.0  # the standard error of the rate on the test rows

    def tightened(self, margin: float) -> float:
        """Return the limit, so many standard errors further inside."""
        return self.limit - margin * self.error if self.upper else self.limit + margin * self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a repair keeps and makes best; every search and every choice of thresholds reads this one."""

    # ``rate``: keep the selection rate, and approve as many people with a good outcome as that allows. ``accuracy``,
    # ``balanced_accuracy``: make it best. ``cost``: least cost of false approvals and false refusals. ``value``: the
    # largest sum of a column over the approved
    kind: Kind = "accuracy"
    # Of ``cost``: a false approval's and a false refusal's; None where a cutoff of the model implies them
    costs: tuple[float, float] | None = None
    column: str | None = None  # of ``value``: the column that holds what approving a person brings
    rate: float | None = None  # of ``rate``: the selection rate to keep; None until the model before is known
    bounds: tuple[RateBound, ...] = ()  # rules of the policy on rates, which come before the rest

    @classmethod
    def parse(cls, text: str | None, value: str | None = None, *, given: bool = False) -> Self:
        """Read ``rate``, ``accuracy``, ``balanced_accuracy``, ``cost``, ``cost=5:1`` or a column of values."""
        if value is not None and text not in (None, "value"):
            raise ParameterError(f"objective={text} and a column of values exclude each other: leave one of them out")
        if value is not None:
            return cls(kind="value", column=value)
        if text is None:
            return cls(kind="rate" if given else "accuracy")
        kind, _, costs = text.partition("=")
        if kind not in get_args(Kind) or (costs and kind != "cost"):
            hint = did_you_mean(kind, get_args(Kind), what="objectives")
            raise ParameterError(f"the objective {text!r} is not understood. {hint} A cost is written cost=5:1")
        if kind == "value":
            raise ParameterError("the objective `value` needs the column that holds it: name it with `value`")
        return cls(kind=kind, costs=_costs(costs) if costs else None)  # type: ignore[arg-type]

    @property
    def label(self) -> str:
        """What is made best, as a number that is better when it is higher."""
        return _LABELS.get(self.kind, self.kind)

    @property
    def is_plain(self) -> bool:
        """Whether a model that is trained for accuracy decides by it as it is."""
        return self.kind == "accuracy" and not self.bounds

    def told(self) -> str:
        """Return the objective as it is typed."""
        if self.kind == "cost" and self.costs is not None:
            return f"cost={self.costs[0]:g}:{self.costs[1]:g}"
        return f"value={self.column}" if self.kind == "value" else self.kind

    def on(self, decisions: Array, scores: Array, weights: Array) -> Self:
        """Return the objective with what the model before implies: the rate to keep, or the costs of its cutoff."""
        if self.kind == "rate" and self.rate is None:
            return dataclasses.replace(self, rate=float(np.average(decisions, weights=weights)))
        if self.kind == "cost" and self.costs is None:
            return dataclasses.replace(self, costs=_implied(decisions, scores))
        return self

    def keeps(self, rate: float) -> bool:
        """Return whether a selection rate is the one to keep, or none is to be kept."""
        return self.rate is None or bool(self.bounds) or abs(rate - self.rate) <= KEPT

    def gains(self, table: Table) -> Array:
        """Return what selecting each row brings, [n]: b y - a (1 - y), or the row's value."""
        if self.kind == "value":
            assert table.value is not None  # noqa: S101 -- read before the search
            return table.value
        good, bad = self.factors(table.target, table.row_weights())
        return np.where(table.target > 0, good, -bad)

    def factors(self, target: Array, weights: Array) -> tuple[float, float]:
        """Return what a right approval brings, and what a false one costs."""
        if self.kind == "cost" and self.costs is not None:
            return self.costs[1], self.costs[0]
        if self.kind == "balanced_accuracy":
            share = float(np.average(target, weights=weights))
            return (0.5 / share, 0.5 / (1 - share)) if 0 < share < 1 else (1.0, 1.0)
        return 1.0, 1.0

    def measure(self, table: Table, chance: Array) -> tuple[float, Array]:
        """Return the objective's value for chances of approval, [n], and each row's influence on it.

        The value's standard error is that of the weighted mean of the influence (delta method), and so for differences.
        """
        y, w = table.target, table.row_weights() / table.row_weights().sum()
        if self.kind == "rate":
            return _ratio(y * chance, chance, w)
        if self.kind == "balanced_accuracy":
            first, pull = _ratio(y * chance, y, w)
            second, other_pull = _ratio((1 - y) * (1 - chance), 1 - y, w)
            return 0.5 * (first + second), 0.5 * (pull + other_pull)
        each = np.where(y > 0, chance, 1 - chance) if self.kind == "accuracy" else chance * self.gains(table)
        mean = float(w @ each)
        return mean, each - mean


def _ratio(top: Array, bottom: Array, shares: Array) -> tuple[float, Array]:
    """Return Σ top / Σ bottom with its influence, (top - R bottom) / mean bottom."""
    mean = float(shares @ bottom)
    if mean <= 0:
        return 0.0, np.zeros(len(top))
    value = float(shares @ top) / mean
    return value, (top - value * bottom) / mean


def _costs(text: str) -> tuple[float, float]:
    first, _, second = text.partition(":")
    try:
        costs = float(first), float(second)
    except ValueError:
        costs = math.nan, math.nan
    if not all(math.isfinite(cost) and cost >= 0 for cost in costs) or sum(costs) == 0:
        raise ParameterError(f"cost={text} is not understood: write the cost of a false approval and that of a false "
                             "refusal, as in cost=5:1")  # fmt: skip
    return costs


def _implied(decisions: Array, scores: Array) -> tuple[float, float]:
    """Return t : 1 - t for the cutoff t that the decisions follow."""
    yes, no = scores[decisions > 0], scores[decisions <= 0]
    if not len(yes) or not len(no) or no.max() > yes.min() or not 0 <= yes.min() <= 1:
        raise ParameterError(
            "the model's decisions follow no cutoff of its scores that would imply costs: write them, as in cost=5:1"
        )
    cutoff = float(0.5 * (no.max() + yes.min()))
    return cutoff, 1 - cutoff
