"""Metrics of rankings: functions of sums by query; queries are the independent units."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.limits.means import student
from fairkit.metrics import Estimate, Metric
from fairkit.statistics import Statistic
from fairkit_dependent import FEWEST, FEWEST_EFFECTIVE, Noise, effective_clusters, noise_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_rankings.queries import Queries

    Array = NDArray[np.float64]

_NORMAL = NormalDist()
_NONE = 1e-12


@dataclass(frozen=True, slots=True)
class OverQueries(Statistic):
    """Names the totals of queries."""

    key: str = "queries"  # `queries` for numbers of each group; `rankings` for those that only whole rankings have

    def collect(self, *_: Any) -> Any:
        """Refuse: the items of a query may be anywhere in the table (see `fairkit_rankings.items`)."""
        raise NotImplementedError("queries are summed when all of their items are there")

    def first_sums(self, *_: Any) -> Any:
        """Refuse, as `collect`."""
        return self.collect()


class QueryMetric(Metric):
    """A number about each group's items in rankings, with the noise of queries.

    A subclass says in `pulls` what the number is and how far each query moves it.
    """

    tasks: ClassVar[frozenset[Task]] = frozenset({"ranking"})
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    over: ClassVar[str] = "queries"

    @property
    def statistic(self) -> Statistic:
        """The sums by query."""
        return OverQueries(self.over)

    @abstractmethod
    def pulls(self, queries: Queries) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return the number in every group, how far each query pulls it, and which queries count in it."""

    def compute(self, sums: Array) -> Array:
        """Refuse: the number is no function of sums over rows."""
        raise NotImplementedError(f"{self.name} is made of queries: see `pulls`")

    def has(self, queries: Queries) -> bool:
        """Whether the sums are there that the number is made of."""
        return queries.relevance is not None or not self.outcome

    def estimate(self, totals: Queries, rng: np.random.Generator) -> Estimate:
        """Compute the number in every group with limits from the variance over queries."""
        values, influence, there = self.pulls(totals)
        noise = noise_of(influence, there)
        low, high = self.range

        def limits(z: float) -> tuple[Array, Array]:
            half = _half(noise, there, z, high - low)
            return np.clip(values - half, low, high), np.clip(values + half, low, high)

        return Estimate(
            values,
            limits,
            sizes=totals.rows.sum(axis=0),
            doubts=_doubts(there, totals.rows.T),
            correlation=noise.correlation,
        )


def _doubts(there: NDArray[np.bool_], sizes: Array) -> dict[int, str]:
    """Say which groups have too few queries, or queries of which a few have most of the rows, shapes [G, Q]."""
    doubts = {}
    effective = effective_clusters(np.where(there, sizes, 0.0))
    for group, (count, size) in enumerate(zip(there.sum(axis=1).tolist(), effective.tolist(), strict=True)):
        if count < FEWEST:
            doubts[group] = f"it is over {count} queries, and with fewer than {FEWEST} their noise cannot be known"
        elif size < FEWEST_EFFECTIVE:
            doubts[group] = (
                f"it is over {count} queries, of which a few have most of the rows: they count as about {size:.0f} of "
                f"one size, and with fewer than {FEWEST_EFFECTIVE} their noise cannot be known"
            )
    return doubts


def _half(noise: Noise, there: NDArray[np.bool_], z: float, span: float) -> Array:
    """Return half widths; where queries show no noise, what unseen ones could add."""
    error = np.sqrt(noise.variance)
    count = np.maximum(there.sum(axis=1), 1)
    unseen = span * -np.expm1(np.log(2 * _NORMAL.cdf(-z)) / count)
    return np.asarray(np.where(error > _NONE * min(span, 1.0), student(z, noise.degrees + 1) * error, unseen))
