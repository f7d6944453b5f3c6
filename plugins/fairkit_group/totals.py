"""Totals of the auditor `group`: by sensitive column, class and statistic; a pass over the rows adds them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from fairkit.data.clusters import BUCKETS
from fairkit.statistics import ScoreTable
from fairkit_dependent import SCORE_BUCKETS, by_bucket, clustered

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairkit.metrics import Estimate, Metric
    from fairkit.statistics import Rows, Statistic

EVERYBODY = " of everybody"
"""Ends the key of a statistic that was collected from all rows, where some of them have no label."""

Key = tuple[str | None, str | None, str]
StratumKey = tuple[str, str, str | None, str]


@dataclass(frozen=True, slots=True)
class Failure:
    """What takes the place of totals that could not be made; it stays whatever is added."""

    error: Exception

    def __add__(self, other: Any) -> Failure:
        return self

    def pooled(self) -> Failure:
        """Stay."""
        return self


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """Totals by (sensitive column, class, statistic); adding two merges the rows behind them."""

    parts: Mapping[Key, Any]  # by group
    missing: Mapping[Key, Any] = field(default_factory=dict)
    clusters: Mapping[Key, Any] = field(default_factory=dict)
    missing_clusters: Mapping[Key, Any] = field(default_factory=dict)
    strata: Mapping[StratumKey, Any] = field(default_factory=dict)
    strata_clusters: Mapping[StratumKey, Any] = field(default_factory=dict)  # by stratum, group and bucket
    strata_missing: Mapping[StratumKey, Any] = field(default_factory=dict)  # confusion cells by stratum
    proxies: Mapping[tuple[str, str | None, str], Any] = field(default_factory=dict)
    labels: Mapping[str | None, Any] = field(default_factory=dict)  # by column, None as one group: see `labelled`

    def __add__(self, other: GroupTotals) -> GroupTotals:
        names = [each.name for each in fields(self)]
        return GroupTotals(**{name: _merged(getattr(self, name), getattr(other, name)) for name in names})

    def of(self, sensitive: str | None, label: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the totals by group of one column and class, and those of the rows without a group."""
        return _chosen(self.parts, sensitive, label), _chosen(self.missing, sensitive, label)

    def buckets(self, sensitive: str | None, label: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the totals by group and bucket as `of` does."""
        return _chosen(self.clusters, sensitive, label), _chosen(self.missing_clusters, sensitive, label)

    def everybody(self, sensitive: str | None, label: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the totals of all rows as one group, those without a group included, and those by bucket."""
        parts, without = self.of(sensitive, label)
        whole = {
            key: added(part.pooled(), without[key]) if key in without else part.pooled() for key, part in parts.items()
        }
        buckets, gone = self.buckets(sensitive, label)
        return whole, {
            key: added(one_group(part), gone[key]) if key in gone else one_group(part) for key, part in buckets.items()
        }

    def inside(self, within: str, sensitive: str, label: str | None) -> list[dict[str, Any]]:
        """Return the totals by stratum and group, by stratum, group and bucket, and by stratum without a group."""
        return [
            {key: part for (w, s, c, key), part in parts.items() if (w, s, c) == (within, sensitive, label)}
            for parts in (self.strata, self.strata_clusters, self.strata_missing)
        ]


def of_key(parts: Mapping[str, Any], key: str) -> Any:
    """Return a statistic that needs no label: of all rows, where the labelled ones are kept apart."""
    return parts.get(key + EVERYBODY, parts.get(key))


def of_metric(parts: Mapping[str, Any], metric: Metric) -> Any:
    """Return what a metric is a function of: of the labelled rows where it needs labels, else of all; None: nothing."""
    key = metric.statistic.key
    return parts.get(key) if metric.outcome else of_key(parts, key)


def _chosen(parts: Mapping[Key, Any], sensitive: str | None, label: str | None) -> dict[str, Any]:
    return {key: part for (s, c, key), part in parts.items() if (s, c) == (sensitive, label)}


def _merged(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    return {**other, **{key: added(part, other[key]) if key in other else part for key, part in one.items()}}


def one_group(part: Any) -> Any:
    """Return totals by group and bucket as those of one group."""
    if isinstance(part, ScoreTable):
        return part.regrouped(SCORE_BUCKETS)
    return part if isinstance(part, Failure) else part.reshape(-1, BUCKETS, part.shape[-1]).sum(axis=0)


def added(part: Any, other: Any) -> Any:
    """Add two totals; a failure stays."""
    return other if isinstance(other, Failure) else part + other


def collected(statistic: Statistic, rows: Rows, codes: NDArray[np.int64], n_groups: int) -> Any:
    """Total rows; what a metric of a plugin raises becomes a `Failure`."""
    try:
        return statistic.collect(rows, codes, n_groups)
    except Exception as error:
        return Failure(error)  # a metric must not end the audit


def summed(statistic: Statistic, rows: Rows, codes: NDArray[np.int64], n_groups: int) -> Any:
    """Sum what rows contribute to many small groups, shape [n_groups, m]; errors as in `collected`."""
    try:
        return statistic.first_sums(rows, codes, n_groups)
    except Exception as error:
        return Failure(error)  # a metric must not end the audit


def dependent(metric: Metric, totals: Any, estimate: Estimate, sums: Any) -> Estimate:
    """Widen the limits where rows of one cluster depend on each other."""
    if sums is None:
        return estimate
    if isinstance(sums, Failure):
        raise sums.error
    shaped = sums if isinstance(sums, ScoreTable) else by_bucket(sums, len(estimate.values))
    return clustered(metric, totals, estimate, shaped)
