"""The rows that totals are made from, and the interface of a statistic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairkit.support.lazy_dataclass import dataclass, fields, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What statistics are made from: n rows of outcomes and predictions.

    Attributes
    ----------
    outcome
        Shape [n]. Binary: 1 where the label is favorable, else 0. Regression: the target.
    decision
        The probability of the favorable decision, in [0, 1], shape [n]; None where there is none.
    score
        The probability of the favorable label in [0, 1], or the predicted value, shape [n]; None without scores.
    weights
        Sample weights, shape [n]; None where all are 1.
    origin
        A number amid the targets, the same for all rows of a table: sums of squares of ``outcome - origin``
        keep the digits that those of the outcome would lose.
    members, shares
        Where each row's score is drawn from K predictions: those, shape [n, K], and the chances, shape [K];
        `score` is their mean. Sums of contributions are then expectations over the draw, exactly.
    """

    outcome: NDArray[np.float64]
    decision: NDArray[np.float64] | None = None
    score: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None
    origin: float = 0.0
    members: NDArray[np.float64] | None = None
    shares: NDArray[np.float64] | None = None

    def expected(self, function: Callable[[Rows], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return a function of the rows, shape [n] or [n, m], as its expectation over the draw of a member."""
        if self.members is None or self.shares is None:
            return np.asarray(function(self), dtype=np.float64)
        total: Any = 0.0
        for share, scores in zip(self.shares.tolist(), self.members.T, strict=True):
            drawn = replace(self, score=scores, members=None, shares=None)
            total = total + share * np.asarray(function(drawn), dtype=np.float64)
        return np.asarray(total)


class Statistic(ABC):
    """A way to turn rows into totals that add up. Two metrics with one statistic share its totals."""

    keeps_rows: ClassVar[bool] = False

    key: str
    """What tells this statistic from others."""

    @abstractmethod
    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Any:
        """Total the rows by group; the result has ``+`` and ``pooled()``."""

    def first_sums(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> NDArray[np.float64]:
        """Sum what the rows contribute, by group, shape [n_groups, m]: of many small groups that is all that is kept.

        By default the attribute `first` of what `collect` returns.
        """
        return np.asarray(self.collect(rows, groups, n_groups).first, dtype=np.float64)


# Sums of per-row contributions, group by group.


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of per-row contributions, group by group; adding two is merging two sets of rows.

    `count`: rows, shape [G]; `first`: Σ w s, shape [G, m], for per-row contributions s in R^m and weights w; `second`:
    Σ w² s sᵀ, shape [G, m, m]: the covariance of `first` when rows are resampled (Poisson bootstrap).
    """

    count: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]

    def __add__(self, right: Sums) -> Sums:
        kind = type(self) if isinstance(right, type(self)) else Sums
        joins: dict[str, Any] = {"least": np.minimum, "most": np.maximum}
        names = [each.name for each in fields(kind)]
        return kind(*(joins.get(name, np.add)(getattr(self, name), getattr(right, name)) for name in names))

    def pooled(self) -> Self:
        """All groups as one, shape [1, ...]."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(
            self, **{name: part.sum(axis=0, keepdims=True) for name, part in parts.items() if name not in _OF_ALL}
        )


_OF_ALL = ("least", "most", "reach")
"""Parts of sums that are not by group."""


@dataclass(frozen=True, slots=True)
class CellSums(Sums):
    """Sums of soft confusion cells, with what the skewness of a rate is made from.

    `cubes`: Σ w³ (1, h, h², h³) for decision probabilities h, by group and outcome, shape [G, 2, 4].
    """

    cubes: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MomentSums(Sums):
    """Sums of one number per row and of its powers, with the range seen in all groups together.

    `powers`: of y = number - origin: Σ w (1, y), Σ w² (1, y, y²), Σ w³ (1, y, y², y³), shape [G, 9]; `least`, `most`:
    the smallest and the largest number of any row, shape [1]; `reach`: Σ w of what the rows' numbers would be at the
    other outcome, over all groups, and Σ w, shape [2]; zeros where that is not known; `certain`: Σ w of the rows whose
    outcome was given the probability 0 or 1, and of those of them that it was 0 for, shape [G, 2]; zeros where the
    number is no such loss.
    """

    powers: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    reach: NDArray[np.float64]
    certain: NDArray[np.float64]
