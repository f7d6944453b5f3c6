"""One batch of rows, totalled: by group, and where it is asked for by stratum, by bucket of clusters, by proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.clusters import BUCKETS
from fairkit.data.proxies import known_groups, proxies
from fairkit.metrics import CONFUSION
from fairkit.statistics import Scores
from fairkit_dependent import SCORE_BUCKETS, STRATA_BUCKETS
from fairkit_group.proxy_totals import proxy_totals
from fairkit_group.totals import GroupTotals, Key, StratumKey, collected, summed
from fairkit_group.unknowns import some_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.statistics import Rows, Statistic

MOST_CELLS = 1_000
"""With more strata times groups scores are not kept by bucket: memory must not grow with them."""

SCORE_CELLS = 500_000
"""Scores by bucket say how much rows of a cluster add up; they need not be as fine as those by group."""


class Collecting:
    """Adds one batch up."""

    def __init__(self, batch: Batch, dataset: Dataset) -> None:
        self.batch, self.dataset = batch, dataset
        self.parts: dict[Key, Any] = {}
        self.missing: dict[Key, Any] = {}
        self.clusters: dict[Key, Any] = {}
        self.missing_clusters: dict[Key, Any] = {}
        self.strata: dict[StratumKey, Any] = {}
        self.strata_clusters: dict[StratumKey, Any] = {}
        self.strata_missing: dict[StratumKey, Any] = {}
        self.proxies: dict[tuple[str, str | None, str], Any] = {}

    def totals(self) -> GroupTotals:
        """Return the totals of all batches that were added."""
        return GroupTotals(
            parts=self.parts,
            missing=self.missing,
            clusters=self.clusters,
            missing_clusters=self.missing_clusters,
            strata=self.strata,
            strata_clusters=self.strata_clusters,
            strata_missing=self.strata_missing,
            proxies=self.proxies,
        )

    def add(self, label: str | None, rows: Rows, statistics: Mapping[str, Statistic], of: str = "") -> None:
        """Add the rows as one class sees them; `of` ends the keys, where not all have a label."""
        statistics = {key + of: statistic for key, statistic in statistics.items()}
        for sensitive, found, n_groups in self._splits():
            has_group, codes, whole, buckets = found >= 0, found, rows, self.batch.clusters
            if not has_group.all():
                key, rest = CONFUSION.key + of, some_rows(rows, ~has_group)
                for within, strata in self.batch.strata.items() if key in statistics else ():
                    part = collected(CONFUSION, rest, strata[~has_group], len(self.dataset.stratum_names(within)))
                    self.strata_missing[within, str(sensitive), label, key] = part
                self._add_missing(sensitive, label, rows, statistics, ~has_group)
                whole, codes = some_rows(rows, has_group), found[has_group]
                buckets = None if buckets is None else buckets[has_group]
            for key, statistic in statistics.items():
                self.parts[sensitive, label, key] = collected(statistic, whole, codes, n_groups)
                if buckets is not None:
                    self.clusters[sensitive, label, key] = _by_bucket(statistic, whole, codes, buckets, n_groups)
            if sensitive is not None:
                self._add_strata(sensitive, label, whole, statistics, codes, n_groups, has_group)
        for name, shares in self.batch.probabilities.items():
            roles, known = self.dataset.roles, None
            if name in roles.known:
                known = known_groups(self.batch.column(name), proxies(roles)[name])
            self.proxies[name, label, of] = proxy_totals(rows, shares, self.batch.clusters, known)

    def _splits(self) -> Iterator[tuple[str | None, NDArray[np.int64], int]]:
        if not self.batch.groups:
            yield None, np.zeros(len(self.batch), dtype=np.int64), 1
        for sensitive, codes in self.batch.groups.items():
            yield sensitive, codes, len(self.dataset.group_names(sensitive))

    def _add_missing(
        self,
        sensitive: str | None,
        label: str | None,
        rows: Rows,
        statistics: Mapping[str, Statistic],
        gone: NDArray[np.bool_],
    ) -> None:
        rest = some_rows(rows, gone)
        none = np.zeros(len(rest.outcome), dtype=np.int64)
        for key, statistic in statistics.items():
            self.missing[sensitive, label, key] = collected(statistic, rest, none, 1)
            if self.batch.clusters is not None:
                buckets = self.batch.clusters[gone]
                self.missing_clusters[sensitive, label, key] = _by_bucket(statistic, rest, none, buckets, 1)

    def _add_strata(
        self,
        sensitive: str,
        label: str | None,
        rows: Rows,
        statistics: Mapping[str, Statistic],
        codes: NDArray[np.int64],
        n_groups: int,
        has_group: NDArray[np.bool_],
    ) -> None:
        for within, strata in self.batch.strata.items():
            count = len(self.dataset.stratum_names(within)) * n_groups
            cells = (strata if has_group.all() else strata[has_group]) * n_groups + codes
            for key, statistic in statistics.items():
                slot = (within, sensitive, label, key)
                if self.batch.clusters is None:
                    self.strata[slot] = collected(statistic, rows, cells, count)
                    continue
                if isinstance(statistic, Scores) and count > MOST_CELLS:
                    continue  # `fairkit_group.within` says so
                buckets = self.batch.clusters if has_group.all() else self.batch.clusters[has_group]
                self.strata[slot] = collected(statistic, rows, cells, count)
                if isinstance(statistic, Scores):
                    self.strata_clusters[slot] = _scores_by_bucket(
                        statistic, rows, cells, buckets, count, STRATA_BUCKETS
                    )
                else:
                    self.strata_clusters[slot] = summed(statistic, rows, cells * BUCKETS + buckets, count * BUCKETS)


def _by_bucket(
    statistic: Statistic, rows: Rows, codes: NDArray[np.int64], buckets: NDArray[np.int64], n_groups: int
) -> Any:
    if isinstance(statistic, Scores):
        return _scores_by_bucket(statistic, rows, codes, buckets, n_groups, SCORE_BUCKETS)
    return summed(statistic, rows, codes * BUCKETS + buckets, n_groups * BUCKETS)


def _scores_by_bucket(
    statistic: Scores, rows: Rows, codes: NDArray[np.int64], buckets: NDArray[np.int64], n_groups: int, many: int
) -> Any:
    """Total scores by group and `many` buckets, in coarse cells."""
    fewer = buckets // (BUCKETS // many)
    coarse = Scores(statistic.low, statistic.high, statistic.limit, SCORE_CELLS)
    return collected(coarse, rows, codes * many + fewer, n_groups * many)
