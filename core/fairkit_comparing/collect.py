"""What pairs of models that scored the same rows leave behind: joint sums, and rows for what needs ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit import plugins
from fairkit.auditing.measure import score_once, views
from fairkit.auditing.prepare import LoadedAuditors, prepared
from fairkit.auditors import ComparesTables
from fairkit.data.hashing import BUCKETS
from fairkit.engines.base import add
from fairkit.engines.local import opened
from fairkit.intervals import student
from fairkit.metrics import Rate
from fairkit.models.scorer import bound
from fairkit.progress import no_progress
from fairkit.statistics import Confusion, Rows, Scores, Sums
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit_rankings import Items, items_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions, Scorer
    from fairkit.progress import Progress
    from fairkit.results.policy import Change
    from fairkit.settings import AuditSettings

    Array = NDArray[np.float64]


KNOWN = " of known outcome"
"""Ends the key of sums over the rows that have a label, where some have none."""

Class = str | None
"""A class of a multi-class task, against the others; None for all of them, and in other tasks."""


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows with two models' scores."""

    scores: tuple[DrawnScores, DrawnScores]  # of the two models
    outcome: Array  # shape [n]
    weights: Array | None  # shape [n]; None where all count the same
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
        key_of_known = (*key[:2], key[2] + KNOWN)
        key = key_of_known if metric.outcome and key_of_known in self.sums else key
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
        pairs = tuple(pair + two for pair, two in zip(self.pairs, right.pairs, strict=True))
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
            known = [sums.take(keep) for sums in said]
            self._add(totals, chosen, known, [metric for metric in self.metrics if metric.outcome], KNOWN)
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
        for total, totals_of in zip(totals, each[1:], strict=True):
            for label, rows in each[0].items():
                if label in totals_of:
                    alone = first.task == "multiclass" and label is None
                    chosen = [metric for metric in metrics if "multiclass" in metric.tasks] if alone else metrics
                    _add(total, label, (rows, totals_of[label]), batch, data, chosen, of)


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
    is_known = codes >= 0
    cells = codes[is_known] * BUCKETS + buckets[is_known]
    weights_known = None if weights is None else weights[is_known]
    return joint_buckets(parts[0][is_known], parts[1][is_known], weights_known, cells, n_groups * BUCKETS)


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


# Two models on the same rows: joint totals, and what they say about the difference of their numbers.


def contributions(metric: Metric, rows: Rows) -> Array:
    """Return each row's contributions to a metric's sums, shape [n, m]."""
    if isinstance(metric.statistic, Confusion):
        assert rows.decision is not None  # noqa: S101 -- asked only where there are decisions
        favorable = rows.outcome > 0.5
        no, yes = 1 - rows.decision, rows.decision
        return np.column_stack([~favorable * no, ~favorable * yes, favorable * no, favorable * yes])
    parts = rows.expected(metric.contributions)
    return parts[:, None] if parts.ndim == 1 else parts


def joint_sums(first: Array, second: Array, weights: Array | None, groups: NDArray[np.int64], n_groups: int) -> Sums:
    """Total the contributions of two models to the same rows."""
    parts = np.hstack([first, second])
    weighted = parts if weights is None else parts * weights[:, None]
    width = parts.shape[1]
    order = np.argsort(groups, kind="stable")
    ends = np.searchsorted(groups[order], np.arange(n_groups + 1))
    totals, squares = np.zeros((n_groups, width)), np.zeros((n_groups, width, width))
    for g in range(n_groups):
        mine = weighted[order[ends[g] : ends[g + 1]]]
        totals[g], squares[g] = mine.sum(axis=0), mine.T @ mine
    return Sums(np.diff(ends).astype(np.float64), totals, squares)


def paired(metric: Metric, sums: Sums, z: float) -> Paired:
    """Turn joint sums into both models' numbers in every group, with their covariance.

    Where the models agree on every row of a rate, the plain covariance says that the difference is exactly 0.
    As Bonett & Price (2012) do for paired proportions, one row each way is added to the disagreements.
    """
    width = sums.first.shape[1] // 2
    values = np.empty((2, len(sums.count)))
    slopes = np.zeros((2, *sums.first.shape))
    for model in (0, 1):
        part = slice(model * width, (model + 1) * width)
        values[model], slopes[model, :, part] = _gradient(metric, sums.first[:, part], sums.second[:, part, part])
    covariance = np.einsum("agi,gij,bgj->gab", slopes, sums.second, slopes)
    if isinstance(metric, Rate):
        over = np.array(metric.over, dtype=np.float64)
        with np.errstate(divide="ignore"):
            extra = [1 / (sums.first[:, m * width : (m + 1) * width] @ over) ** 2 for m in (0, 1)]
        covariance[:, 0, 0] += extra[0]
        covariance[:, 1, 1] += extra[1]
    else:
        covariance *= ((student(z, sums.count) / z) ** 2)[:, None, None]
    return Paired(values, covariance)


def joint_buckets(first: Array, second: Array, weights: Array | None, cells: NDArray[np.int64], n_cells: int) -> Array:
    """Sum the contributions of two models by group and bucket of clusters, shape [n_cells, 2m]."""
    parts = np.hstack([first, second])
    weighted = parts if weights is None else parts * weights[:, None]
    return np.stack([np.bincount(cells, column, n_cells) for column in weighted.T], axis=1)


def dependent(metric: Metric, sums: Sums, buckets: Array, z: float) -> Paired:
    """Turn joint sums into both models' numbers, with the noise of buckets of clusters."""
    plain = paired(metric, sums, z)
    width = sums.first.shape[1] // 2
    pull = np.empty((2, *buckets.shape[:2]))
    for model in (0, 1):
        part = slice(model * width, (model + 1) * width)
        _, slopes = _gradient(metric, sums.first[:, part], sums.second[:, part, part])
        pull[model] = np.einsum("gi,gbi->gb", slopes, buckets[:, :, part])
    count = (buckets != 0).any(axis=2).sum(axis=1).astype(np.float64)
    factor = np.sqrt(count / np.maximum(count - 1, 1)) * student(z, count) / z
    return Paired(plain.values, plain.covariance, pull * factor[:, None])


def _gradient(metric: Metric, first: Array, second: Array) -> tuple[Array, Array]:
    """Return the value and its slopes in the sums, by central differences of a thousandth of their noise."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = np.asarray(metric.compute(first), dtype=np.float64)
        slopes = np.zeros_like(first)
        for i in range(first.shape[1]):
            step = 1e-3 * np.sqrt(np.maximum(second[:, i, i], 1e-300))
            step = np.where(step > 1e-12 * np.abs(first[:, i]), step, 1e-6 * np.abs(first[:, i]) + 1e-12)
            up, down = first.copy(), first.copy()
            up[:, i] += step
            down[:, i] -= step
            slopes[:, i] = (metric.compute(up) - metric.compute(down)) / (2 * step)
    return value, slopes


def paired_areas(
    scores: tuple[DrawnScores, DrawnScores],
    outcome: Array,
    weights: Array | None,
    groups: NDArray[np.int64],
    n_groups: int,
    clusters: NDArray[np.int64] | None = None,
) -> Paired:
    """Return both models' areas under the ROC curve in every group, with DeLong's covariance.

    References
    ----------
    DeLong, DeLong & Clarke-Pearson (1988), Biometrics 44(3).
    """
    values, covariance = np.full((2, n_groups), np.nan), np.full((n_groups, 2, 2), np.nan)
    every = np.ones_like(outcome) if weights is None else weights
    pull = None if clusters is None else np.full((2, n_groups, BUCKETS), np.nan)
    for g in range(n_groups):
        mine = groups == g
        good, weight = outcome[mine] > 0.5, every[mine]
        if not (good.any() and (~good).any()):
            continue
        influence = np.empty((2, int(mine.sum())))
        for model in (0, 1):
            scores_here = scores[model]
            values[model, g], influence[model] = _area(scores_here.values[mine], scores_here.shares, good, weight)
        covariance[g] = influence @ influence.T
        if pull is not None and clusters is not None:
            pull[:, g] = [np.bincount(clusters[mine], column, BUCKETS) for column in influence]
    return Paired(values, covariance, pull)


def _area(score: Array, shares: Array, good: NDArray[np.bool_], weight: Array) -> tuple[float, Array]:
    """Return the area, and how far each row pulls it (placement less area, over its outcome's weight).

    A row whose score is drawn stands at each of its scores, as often as it is drawn.
    """
    levels, level = np.unique(score, return_inverse=True)
    level = level.reshape(score.shape)
    below = [
        sum(share * np.bincount(level[:, k], weight * side, len(levels)) for k, share in enumerate(shares))
        for side in (~good, good)
    ]
    totals = [float((weight * side).sum()) for side in (~good, good)]
    rank = [(np.cumsum(side) - side / 2) / total for side, total in zip(below, totals, strict=True)]
    placement = np.where(good[:, None], rank[0][level], 1 - rank[1][level]) @ shares
    area = float((weight * good * placement).sum() / totals[1])
    rows = [max(int(side.sum()), 2) for side in (~good, good)]
    small = np.where(good, np.sqrt(rows[1] / (rows[1] - 1)), np.sqrt(rows[0] / (rows[0] - 1)))
    return area, small * weight * (placement - area) / np.where(good, totals[1], totals[0])


# What a comparison of two models passes on: numbers with covariance, scores that may be drawn, a difference.


@dataclass(frozen=True, slots=True)
class Paired:
    """One number of two models in independent places (groups)."""

    values: Array  # shape [2, S]: first model, second model; NaN where the number is not defined
    covariance: Array  # shape [S, 2, 2], of the two values in each place; places are independent
    pull: Array | None = None

    def chosen(self, keep: NDArray[Any]) -> Paired:
        """Return some of the places."""
        pull = None if self.pull is None else self.pull[:, keep]
        return Paired(self.values[:, keep], self.covariance[keep], pull)

    def variance(self, first: Array, second: Array) -> Array:
        """Return the variance of forms of both models' values, shape [P]."""
        if self.pull is not None:
            return np.asarray(((first @ self.pull[0] + second @ self.pull[1]) ** 2).sum(axis=-1))
        c = self.covariance
        mixed = 2 * (first * second) @ c[:, 0, 1]
        return np.asarray(np.maximum((first**2) @ c[:, 0, 0] + mixed + (second**2) @ c[:, 1, 1], 0))

    def known(self) -> Paired:
        """Leave out the places where either number is not defined."""
        keep = np.isfinite(self.values).all(axis=0) & np.isfinite(self.covariance).all(axis=(1, 2))
        return self.chosen(np.asarray(keep))

    def known_with(self, other: Paired) -> Paired:
        """Leave out the places where a number of either kind is not defined."""
        keep = np.ones(self.values.shape[1], dtype=bool)
        for sums in (self, other):
            keep &= np.isfinite(sums.values).all(axis=0) & np.isfinite(sums.covariance).all(axis=(1, 2))
        return self.chosen(keep)

    def negative(self) -> Paired:
        """Turn the sign."""
        return Paired(-self.values, self.covariance, None if self.pull is None else -self.pull)

    def beside(self, other: Paired) -> Paired:
        """Put two numbers' places side by side; they must be over different rows."""
        pulls = [sums.pull for sums in (self, other) if sums.pull is not None]
        return Paired(
            np.concatenate([self.values, other.values], axis=1),
            np.concatenate([self.covariance, other.covariance]),
            np.concatenate(pulls, axis=1) if len(pulls) == 2 else None,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """Two models' numbers and the interval of second minus first."""

    first: float
    second: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class DrawnScores:
    """Scores of one model: each row's is one of K, drawn with the same chances."""

    values: Array  # shape [n, K]
    shares: Array  # shape [K], adding up to 1

    def some(self, keep: NDArray[np.bool_]) -> DrawnScores:
        """Return the rows where `keep`, shape [n], is true."""
        return DrawnScores(self.values[keep], self.shares)


# Two tables, such as two months: what auditors say about how a number changed from one to the other.


def changes_between(
    models: Sequence[Any],
    tables: tuple[Dataset, Dataset],
    settings: AuditSettings,
    *,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
) -> list[Change]:
    """Return the changes by auditors that compare tables; every model scores both tables."""
    loaded = LoadedAuditors.of(settings)
    able = tuple(auditor for auditor in loaded.auditors if isinstance(auditor, ComparesTables))
    if not able:
        return []
    loaded, audits, totals = replace(loaded, auditors=able), [], []
    with opened(engine, scheduler) as running:
        for data in tables:
            subjects = prepared(models, data, running.total)
            scorers = [bound(model, data, settings.options) for model in subjects]
            running.check(*plugins.needs_of(loaded.used))
            audits.append(
                [loaded.about(scorer, data, running, progress, index=index) for index, scorer in enumerate(scorers)]
            )
            readers = [reader for audit in audits[-1] for reader in audit.readers]
            totals.append(score_once(running, data, scorers, readers, progress))
    many, changes = len(audits[0][0].readers), []
    for position, first in enumerate(audits[0][0].watching):
        auditor = first.auditor
        assert isinstance(auditor, ComparesTables)  # noqa: S101 -- `able` are
        each = [[total[model * many + position] for model in range(len(models))] for total in totals]
        contexts = [[audit.context for audit in row] for row in audits]
        with plugins.blame(first.owner, f"the auditor {auditor.name!r} compared tables"):
            changes += auditor.table_changes(each, contexts)
    return changes
