"""What pairs of models that scored the same rows leave behind: joint sums, and rows for what needs ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing.views import views
from fairkit.data.clusters import BUCKETS
from fairkit.engines.base import add
from fairkit.statistics import Rows, Scores, Sums
from fairkit_comparing.joint import contributions, joint_buckets, joint_sums
from fairkit_comparing.records import DrawnScores
from fairkit_rankings.items import Items, items_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions, Scorer

    Array = NDArray[np.float64]

KNOWN = " of known outcome"
"""Ends the key of sums over the rows that have a label, where some have none."""

Class = str | None
"""A class of a multi-class task, against the others; None for all of them, and in other tasks."""


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows with two models' scores."""

    scores: tuple[DrawnScores, DrawnScores]  # of the two models
    outcome: Array  # shape [n]; no weights where all count the same
    weights: Array | None  # shape [n]; no weights where all count the same
    groups: dict[str | None, NDArray[np.int64]]  # by sensitive column, each row's group, shape [n]; under None zeros
    clusters: NDArray[np.int64] | None = None  # the bucket of each row's cluster, shape [n]; None: rows are independent

    @classmethod
    def joined(cls, parts: Sequence[RankedRows]) -> RankedRows:
        """Put batches together."""
        weights = [part.weights for part in parts if part.weights is not None]
        clusters = [part.clusters for part in parts if part.clusters is not None]
        first, second = (
            DrawnScores(np.concatenate([part.scores[model].values for part in parts]), parts[0].scores[model].shares)
            for model in (0, 1)
        )
        return cls(
            (first, second),
            np.concatenate([part.outcome for part in parts]),
            np.concatenate(weights) if weights else None,
            {name: np.concatenate([part.groups[name] for part in parts]) for name in parts[0].groups},
            np.concatenate(clusters) if clusters else None,
        )


@dataclass(slots=True)
class PairTotals:
    """What two models leave behind."""

    sums: dict[tuple[Class, str | None, str], Sums] = field(default_factory=dict)
    buckets: dict[tuple[Class, str | None, str], Array] = field(default_factory=dict)
    ranked: dict[tuple[Class, str], list[RankedRows]] = field(default_factory=dict)  # the rows, a part for each batch

    def __add__(self, right: PairTotals) -> PairTotals:
        return PairTotals(
            _sum(self.sums, right.sums), _sum(self.buckets, right.buckets), _sum(self.ranked, right.ranked)
        )

    def sums_of(self, label: Class, sensitive: str | None, metric: Metric) -> tuple[Sums | None, Array | None]:
        """Return a metric's joint sums, also by bucket: of the rows with a label where it needs one, else of all."""
        key = label, sensitive, metric.statistic.key
        known = (*key[:2], key[2] + KNOWN)
        key = known if metric.outcome and known in self.sums else key
        return self.sums.get(key), self.buckets.get(key)

    def ranked_of(self, label: Class, *, outcome: bool) -> RankedRows | None:
        """Return the rows with scores, those that have an outcome or all of them."""
        parts = (self.ranked.get((label, KNOWN)) if outcome else None) or self.ranked.get((label, ""))
        return RankedRows.joined(parts) if parts else None

    def classes(self) -> list[Class]:
        """Return the classes in order, None first."""
        return list(dict.fromkeys([None, *(label for label, _, _ in self.sums)]))


def _sum(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what both have by key, added up where both have it."""
    return {**one, **{key: one[key] + more if key in one else more for key, more in other.items()}}


@dataclass(frozen=True, slots=True)
class AllPairs:
    """What each model but the first leaves behind, beside the first; of rankings, all items with every score."""

    pairs: tuple[PairTotals, ...]
    items: Items | None = None

    def __add__(self, right: AllPairs) -> AllPairs:
        pairs = tuple(one + two for one, two in zip(self.pairs, right.pairs, strict=True))
        return AllPairs(pairs, add(self.items, right.items))


@dataclass(frozen=True)
class Pairing:
    """Adds up each model jointly with the first (see `fairkit.auditing.measure.Reader`).

    On its way to a worker it leaves the rows behind.
    """

    scorers: tuple[Scorer, ...]  # the models
    dataset: Dataset  # knows groups and labels
    metrics: tuple[Metric, ...]  # what is compared
    columns: tuple[str, ...] = ()
    spread: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"dataset": self.dataset.without_rows()}

    def measure(self, batch: Batch, said: Sequence[Predictions]) -> AllPairs:
        """Add up one batch."""
        data, first = self.dataset, self.scorers[0]
        if first.task == "ranking":
            return AllPairs(tuple(PairTotals() for _ in self.scorers[1:]), items_of(batch, said, data))
        totals = tuple(PairTotals() for _ in self.scorers[1:])
        if batch.labelled is None:
            self._add(totals, batch, said, self.metrics)
            return AllPairs(totals)
        self._add(totals, batch, said, [metric for metric in self.metrics if not metric.outcome])
        design = data.roles.labelled
        keep, chosen = (batch.labelled, batch.take(batch.labelled)) if design is None else design.known(batch)
        if keep.any():
            known = [one.take(keep) for one in said]
            self._add(totals, chosen, known, [one for one in self.metrics if one.outcome], KNOWN)
        return AllPairs(totals)

    def _add(
        self,
        totals: Sequence[PairTotals],
        batch: Batch,
        said: Sequence[Predictions],
        metrics: Sequence[Metric],
        of: str = "",
    ) -> None:
        data, first = self.dataset, self.scorers[0]
        each = [dict(views(batch, p, s, data)) for p, s in zip(said, self.scorers, strict=True)]
        for total, other in zip(totals, each[1:], strict=True):
            for label, rows in each[0].items():
                if label in other:
                    alone = first.task == "multiclass" and label is None
                    chosen = _of_all_classes(metrics) if alone else metrics
                    _add(total, label, (rows, other[label]), batch, data, chosen, of)


def _of_all_classes(metrics: Sequence[Metric]) -> list[Metric]:
    return [metric for metric in metrics if "multiclass" in metric.tasks]


def _has(metric: Metric, views: Iterable[Rows]) -> bool:
    return all(getattr(rows, need) is not None for need in metric.needs for rows in views)


def _add(
    total: PairTotals,
    label: Class,
    views: tuple[Rows, Rows],
    batch: Batch,
    data: Dataset,
    metrics: Iterable[Metric],
    of: str,
) -> None:
    first, second = views
    splits = dict(_splits(batch, data))
    known: set[str] = set()
    for metric in metrics:
        key = metric.statistic.key + of
        if isinstance(metric.statistic, Scores) or key in known or not _has(metric, views):
            continue
        known.add(key)
        parts = contributions(metric, first), contributions(metric, second)
        for sensitive, (codes, n_groups) in splits.items():
            total.sums[label, sensitive, key] = joint_sums(*parts, first.weights, codes, n_groups)
            if batch.clusters is not None:
                key_of = label, sensitive, key
                total.buckets[key_of] = _by_bucket(parts, first.weights, codes, batch.clusters, n_groups)
    scores = _scores(first), _scores(second)
    if scores[0] is not None and scores[1] is not None:
        groups = {sensitive: codes for sensitive, (codes, _) in splits.items()}
        pair = scores[0], scores[1]
        rows = RankedRows(pair, first.outcome, first.weights, groups, batch.clusters)
        total.ranked[label, of] = [rows]


def _by_bucket(
    parts: tuple[Array, Array],
    weights: Array | None,
    codes: NDArray[np.int64],
    buckets: NDArray[np.int64],
    n_groups: int,
) -> Array:
    """Sum by group and bucket the rows that have a group."""
    known = codes >= 0
    cells = codes[known] * BUCKETS + buckets[known]
    kept = None if weights is None else weights[known]
    return joint_buckets(parts[0][known], parts[1][known], kept, cells, n_groups * BUCKETS)


def _scores(rows: Rows) -> DrawnScores | None:
    if rows.members is not None and rows.shares is not None:
        return DrawnScores(rows.members, rows.shares)
    return None if rows.score is None else DrawnScores(rows.score[:, None], np.ones(1))


def _splits(batch: Batch, data: Dataset) -> Iterator[tuple[str | None, tuple[NDArray[np.int64], int]]]:
    yield None, (np.zeros(len(batch), dtype=np.int64), 1)
    for sensitive, codes in batch.groups.items():
        groups = len(data.group_names(sensitive))
        yield sensitive, (codes, groups)
        for within, strata in batch.strata.items():
            cells = np.where(codes >= 0, strata * groups + codes, -1)
            yield inside(sensitive, within), (cells, len(data.stratum_names(within)) * groups)


def inside(sensitive: str, within: str) -> str:
    """Name the sums of a sensitive column inside strata."""
    return f"{sensitive} | {within}"
