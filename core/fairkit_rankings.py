"""Rankings: items ordered by score within queries, and numbers over queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.errors import DataError, ModelError
from fairkit.limits import student
from fairkit.metrics import Estimate, Metric
from fairkit.statistics import Statistic
from fairkit.support.lazy_dataclass import dataclass
from fairkit_dependent import FEWEST, FEWEST_EFFECTIVE, Noise, effective_clusters, noise_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.models.scorer import Predictions

    Array = NDArray[np.float64]
    Pulls = tuple[Array, Array, NDArray[np.bool_]]
    """Each group's number, how far each query pulls it, and which queries count in it: [G], [G, Q], [G, Q]."""
    Places = NDArray[np.int64]


# Metrics of rankings: functions of sums by query; queries are the independent units.


_NORMAL = NormalDist()
_NONE = 1e-12


@dataclass(frozen=True, slots=True)
class OverQueries(Statistic):
    """Names the totals of queries."""

    key: str = "queries"  # `queries` for numbers of each group; `rankings` for those that only whole rankings have

    def collect(self, *_: Any) -> Any:
        """Refuse: the items of a query may be anywhere in the table (see `fairkit_rankings`)."""
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


# Scored items of rankings: all that is kept of the rows until the items of every query are together.


GRADES = 50.0
"""The largest relevance: gains are powers of two."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Items of one batch."""

    query: NDArray[np.uint64]  # a number for each item's query, shape [n], uint64
    scores: Array  # of each model, shape [M, n]
    relevance: Array | None  # shape [n]; None without a label
    groups: Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Items:
    """Items of rankings, in pieces that add up with ``+`` in any order: about 40 bytes a row."""

    chunks: tuple[Chunk, ...]

    def __add__(self, right: Items) -> Items:
        return Items(self.chunks + right.chunks)

    def whole(self) -> Chunk:
        """Return all items in one order whatever the pieces were: by query, then as their numbers say."""
        first = self.chunks[0]
        query = np.concatenate([chunk.query for chunk in self.chunks])
        scores = np.concatenate([chunk.scores for chunk in self.chunks], axis=1)
        relevance = None
        if first.relevance is not None:
            relevance = np.concatenate([chunk.relevance for chunk in self.chunks if chunk.relevance is not None])
        groups = {name: np.concatenate([chunk.groups[name] for chunk in self.chunks]) for name in first.groups}
        keys = [*groups.values(), *([] if relevance is None else [relevance]), *scores, query]
        order = np.lexsort(keys)
        return Chunk(
            query[order],
            scores[:, order],
            None if relevance is None else relevance[order],
            {name: codes[order] for name, codes in groups.items()},
        )


def items_of(batch: Batch, said: Sequence[Predictions], dataset: Dataset) -> Items:
    """Keep what rankings need of a batch."""
    if batch.queries is None:
        raise DataError("a ranking needs the column of queries; name it with `query`")
    if batch.labelled is not None:
        raise DataError(
            f"{int((~batch.labelled).sum()):,} items have no label, and places in the rankings; give each one a "
            "label, or leave `label` out: what needs none is then measured"
        )
    scores = []
    for predictions in said:
        if predictions.score is None:
            raise ModelError("a ranking needs scores, and this model gives none")
        if predictions.members is not None:
            raise ModelError("this model draws its scores by chance, and a ranking is made from one score an item")
        scores.append(predictions.score)
    return Items((Chunk(batch.queries, np.stack(scores), relevance_of(batch, dataset), dict(batch.groups)),))


def relevance_of(batch: Batch, dataset: Dataset) -> Array | None:
    """Return each item's relevance, shape [n]: 1 for the favorable label, where one is named, else the label."""
    name = dataset.roles.label
    if name is None:
        return None
    if batch.favorable is not None:
        return batch.favorable.astype(np.float64)
    assert batch.label is not None  # noqa: S101 -- there is a label
    grades = batch.label.astype(np.float64)
    if len(grades) and (grades.min() < 0 or grades.max() > GRADES):
        raise DataError(
            f"the label {name!r} reaches {grades.min():g} and {grades.max():g}; relevance is a grade between 0 and "
            f"{GRADES:g} (0: not relevant); rescale it, or name the relevant value with `favorable`"
        )
    return grades


# Numbers of groups in rankings from sums by query, and how far every query pulls them.


def compared(queries: Queries) -> NDArray[np.bool_]:
    """Return which groups have items in which queries with at least two groups, shape [G, Q]."""
    there = queries.rows.T > 0
    return np.asarray(there & (there.sum(axis=0) > 1))


def _shares(part: Array, queries: Queries) -> Array:
    """Return the mean of a group's items in a query, shape [G, Q]; 0 where it has none."""
    rows = queries.rows.T
    return np.asarray(part.T / np.where(rows > 0, rows, 1.0))


def adjusted(part: Array, queries: Queries) -> Pulls:
    """Return the groups' means of a part without what queries differ in; see the module."""
    there = compared(queries)
    used: NDArray[np.bool_] = np.asarray(there.any(axis=0))
    with np.errstate(all="ignore"):
        everybody = part.sum(axis=1) / queries.rows.sum(axis=1)
    apart, pull = mean_of(_shares(part, queries) - np.where(used, everybody, 0.0), there)
    level, common = mean_of(everybody[None], used[None])
    return apart + level, pull + common, there


def per_relevance(part: Array, queries: Queries) -> Pulls:
    """Return the sum over queries of a group's mean part over that of its mean relevance."""
    assert queries.relevance is not None  # noqa: S101 -- asked of labelled rankings only
    there = compared(queries)
    top, bottom = (np.where(there, _shares(ranks, queries), 0.0) for ranks in (part, queries.relevance))
    ratio, pull = ratio_of(top, bottom)
    return ratio, pull, there


def mean_of(values: Array, there: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return means over the queries that count, shape [G], and how far each query pulls them, shape [G, Q]."""
    count = there.sum(axis=1)
    with np.errstate(all="ignore"):
        means = np.where(there, values, 0.0).sum(axis=1) / count
        pull = np.where(there, values - means[:, None], 0.0) / count[:, None]
    return means, pull


def ratio_of(top: Array, bottom: Array) -> tuple[Array, Array]:
    """Return ratios of sums over queries, shape [G], and how far each query pulls them; arguments of shape [G, Q]."""
    with np.errstate(all="ignore"):
        total = bottom.sum(axis=1)
        ratio = np.where(total > 0, top.sum(axis=1) / total, np.nan)
        pull = (top - ratio[:, None] * bottom) / total[:, None]
    return ratio, pull


# Positions in rankings and what they are worth; items with equal scores share their positions evenly.


MOST_GRADES = 64
"""With more distinct relevances in a query's items pairs are not counted."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Where items stand in their queries' rankings."""

    query: Places  # each item's query, shape [n], from 0, not decreasing
    before: Places  # how many items of its query have a larger score, shape [n]
    tied: Places  # how many have the same score, itself included, shape [n]

    @classmethod
    def of(cls, query: Places, scores: Array) -> Positions:
        """Rank items by decreasing score within queries; `query` does not decrease."""
        order = np.lexsort((-scores, query))
        sorted_query, sorted_scores = query[order], scores[order]
        starts = np.flatnonzero(np.r_[True, sorted_query[1:] != sorted_query[:-1]])
        first = np.repeat(starts, np.diff(np.r_[starts, len(query)]))
        fresh = np.r_[True, (sorted_query[1:] != sorted_query[:-1]) | (sorted_scores[1:] != sorted_scores[:-1])]
        blocks = np.flatnonzero(fresh)
        sizes = np.diff(np.r_[blocks, len(query)])
        before, tied = np.empty_like(query), np.empty_like(query)
        before[order] = np.repeat(blocks, sizes) - first
        tied[order] = np.repeat(sizes, sizes)
        return cls(query, before, tied)

    def worth(self, values: Array) -> Array:
        """Return the mean worth of each item's positions, shape [n]."""
        total = np.r_[0.0, np.cumsum(values)]
        last = len(values)
        start, end = np.minimum(self.before, last), np.minimum(self.before + self.tied, last)
        return np.asarray((total[end] - total[start]) / self.tied)

    def longest(self) -> int:
        """Return the number of items of the longest ranking."""
        return int(np.bincount(self.query).max()) if len(self.query) else 0

    def exposure(self) -> Array:
        """Return each item's exposure 1 / log2(1 + position), shape [n], in (0, 1] (Singh and Joachims 2018)."""
        return self.worth(discounts(self.longest()))

    def in_top(self, k: int) -> Array:
        """Return each item's chance of a place among the first k of its query, shape [n]."""
        return self.worth(np.ones(k))


def discounts(count: int) -> Array:
    """Return 1 / log2(1 + j) for the positions j = 1..count."""
    return np.asarray(1 / np.log2(np.arange(count) + 2.0))


def ndcg(positions: Positions, relevance: Array, k: int) -> Array:
    """Return NDCG@k of every query, shape [Q]: gains 2^relevance - 1; NaN where nothing is relevant."""
    values, gains = discounts(k), 2.0**relevance - 1
    best = Positions.of(positions.query, relevance)
    # equal relevances share positions and gains alike, so that the best order needs no other rule for them
    reached, ideal = (np.bincount(positions.query, gains * ranks.worth(values)) for ranks in (positions, best))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(ideal > 0, reached / np.where(ideal > 0, ideal, 1.0), np.nan))


def pairs(positions: Positions, relevance: Array) -> tuple[Array, Array] | None:
    """Return for each item how many less relevant ones stand below it, and how many there are, both of shape [n].

    Equal scores count half (Beutel et al. 2019, pairwise accuracy). None where there are too many grades.
    """
    grades = np.unique(relevance)
    if len(grades) > MOST_GRADES:
        return None
    right, all_of = np.zeros(len(relevance)), np.zeros(len(relevance))
    order = np.lexsort((positions.before, positions.query))
    query = positions.query[order]
    starts = np.searchsorted(query, np.arange(query[-1] + 1 if len(query) else 0))
    base = starts[positions.query]
    for grade in grades[1:]:
        total = np.r_[0.0, np.cumsum(relevance[order] < grade)]
        in_grade = relevance == grade
        low, high = base + positions.before, base + positions.before + positions.tied
        whole = np.r_[starts, len(query)][positions.query + 1]
        right[in_grade] = (total[whole] - total[high] + 0.5 * (total[high] - total[low]))[in_grade]
        all_of[in_grade] = (total[whole] - total[base])[in_grade]
    return right, all_of


# Sums over the items of each query and group: what numbers about rankings are made of.


TOP = 10
"""How many places are the top, unless another number is given."""


@dataclass(frozen=True, slots=True)
class Queries:
    """Sums by query and group, shape [Q, G] each."""

    rows: Array  # items
    exposure: Array  # the sum of their exposures
    top: Array  # the places that they have among the first k
    relevance: Array | None = None  # the sum of relevance; None without a label
    clicks: Array | None = None  # the sum of exposure times relevance; None without a label
    right: Array | None = None
    pairs: Array | None = None
    ndcg: Array | None = None  # of each query, shape [Q]; None without a label


def queries_of(items: Chunk, k: int, groups: list[tuple[str | None, int]], model: int = 0) -> list[Queries]:
    """Sum the items of a model's rankings, by every one of several ways to split them."""
    query = np.unique(items.query, return_inverse=True)[1].ravel().astype(np.int64)
    positions = Positions.of(query, items.scores[model])
    count = int(query[-1]) + 1 if len(query) else 0
    exposure = positions.exposure()
    parts: dict[str, Array] = {"rows": np.ones(len(query)), "exposure": exposure, "top": positions.in_top(k)}
    quality = None
    if items.relevance is not None:
        parts |= {"relevance": items.relevance, "clicks": exposure * items.relevance}
        counted = pairs(positions, items.relevance)
        if counted is not None:
            parts |= {"right": counted[0], "pairs": counted[1]}
        quality = ndcg(positions, items.relevance, k)
    queries = []
    for sensitive, size in groups:
        codes = np.zeros(len(query), np.int64) if sensitive is None else items.groups[sensitive]
        is_known = codes >= 0  # an item without a group has a place, and counts in no group
        cells = query[is_known] * size + codes[is_known]
        sums = {
            name: np.bincount(cells, values[is_known], count * size).astype(np.float64).reshape(count, size)
            for name, values in parts.items()
        }
        queries.append(Queries(ndcg=quality, **sums))
    return queries
