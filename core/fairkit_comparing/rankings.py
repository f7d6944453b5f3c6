"""Changes between rankings: every number of both models over the same queries, and its paired difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit_comparing.levels import disparity_changes, level_changes
from fairkit_comparing.records import Paired
from fairkit_dependent import noise_of
from fairkit_rankings.metric import QueryMetric
from fairkit_rankings.queries import TOP, queries_of

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.metrics import Metric
    from fairkit.results.comparisons import Change
    from fairkit_rankings.items import Items
    from fairkit_rankings.queries import Queries


def changes_of_rankings(
    items: Items, models: int, data: Dataset, metrics: Sequence[Metric], confidence: float
) -> Iterator[list[Change]]:
    """Compare each model with the first."""
    whole = items.whole()
    splits: list[tuple[str | None, int]] = [(None, 1)]
    splits += [(name, len(data.group_names(name))) for name in data.profile.groups]
    each = [queries_of(whole, TOP, splits, model) for model in range(models)]
    chosen = [one for one in metrics if isinstance(one, QueryMetric) and one.has(each[0][0])]
    for other in each[1:]:
        yield list(_changes(each[0], other, splits, data, chosen, confidence))


def _changes(
    before: list[Queries],
    after: list[Queries],
    splits: list[tuple[str | None, int]],
    data: Dataset,
    metrics: Sequence[QueryMetric],
    confidence: float,
) -> Iterator[Change]:
    for (sensitive, _), old, new in zip(splits, before, after, strict=True):
        if sensitive is None:
            for metric in metrics:
                if metric.over != "groups of queries":
                    sizes = {"all": data.profile.rows}
                    yield from level_changes(metric, paired(metric, old, new), None, sizes, confidence)
            continue
        sized = {name: data.profile.groups[sensitive][name] for name in data.group_names(sensitive)}
        grouped = [(metric, paired(metric, old, new)) for metric in metrics if metric.over != "rankings"]
        for metric, found in grouped:
            yield from disparity_changes(metric, found, sensitive, min(sized.values()), confidence)
        for metric, found in grouped:
            yield from level_changes(metric, found, sensitive, sized, confidence)


def paired(metric: QueryMetric, one: Queries, two: Queries) -> Paired:
    """Return a number of two models in every group, with how far each query pulls both."""
    parts = [metric.pulls(queries) for queries in (one, two)]
    pull = np.stack([noise_of(influence, there).influence for _, influence, there in parts])
    return Paired(
        np.stack([values for values, _, _ in parts]), np.einsum("asq,bsq->sab", pull, pull), np.nan_to_num(pull)
    )
