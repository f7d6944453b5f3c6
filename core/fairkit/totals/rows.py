"""The rows that totals are made from, and the interface of a statistic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


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

    @property
    @abstractmethod
    def key(self) -> str:
        """What tells this statistic from others."""

    @abstractmethod
    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Any:
        """Total the rows by group; the result has ``+`` and ``pooled()``."""

    def first_sums(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> NDArray[np.float64]:
        """Sum what the rows contribute, by group, shape [n_groups, m]: of many small groups that is all that is kept.

        By default the attribute `first` of what `collect` returns.
        """
        return np.asarray(self.collect(rows, groups, n_groups).first, dtype=np.float64)
