"""Changes of one metric: over all rows or in a group, and of the disparities between groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fairkit.metrics import field_names
from fairkit.results.comparisons import Change, outcome_of
from fairkit_comparing.disparities import change, differences, levels, mirrored, ratios
from fairkit_comparing.records import Difference, Paired

if TYPE_CHECKING:
    from fairkit.metrics import Metric
    from fairkit.results.values import Better

FEWEST = 30
"""A group with fewer rows leaves a difference undecided."""


def level_changes(
    metric: Metric, values: Paired, sensitive: str | None, sizes: Mapping[str, int], confidence: float
) -> Iterator[Change]:
    """Return how the numbers of groups (or of all rows) differ."""
    for place, (name, rows) in enumerate(sizes.items()):
        group_values = values.chosen(np.array([place])).known()
        group = None if sensitive is None else name
        if group_values.values.shape[1] == 0:
            yield Change(
                metric=metric.name, sensitive=sensitive, group=group, better=metric.better,
                before=None, after=None, interval=None, outcome="undecided",
            )  # fmt: skip
            continue
        seen = change(levels(group_values), group_values, confidence)
        yield written(metric.name, metric.better, seen, sensitive, rows, group=group)


def disparity_changes(
    metric: Metric, found: Paired, sensitive: str, smallest: int, confidence: float
) -> Iterator[Change]:
    """Return how the disparities of one metric differ."""
    defined, names = found.known(), field_names([metric])
    groups = defined.values.shape[1]
    if "extreme" in metric.between and groups:
        if metric.better != "lower":
            seen = mirrored(change(levels(defined.negative()), defined.negative(), confidence))
            yield written(f"{metric.name}_group_min", metric.better, seen, sensitive, smallest)
        if metric.better != "higher":
            seen = change(levels(defined), defined, confidence)
            yield written(f"{metric.name}_group_max", metric.better, seen, sensitive, smallest)
    if groups < 2:
        return
    if "difference" in metric.between:
        name = f"{metric.name}_difference"
        seen = change(differences(defined), defined, confidence)
        yield written(names.get(name, name), "lower", seen, sensitive, smallest)
    if "ratio" in metric.between and bool((defined.values > 0).all()):
        name = f"{metric.name}_ratio"
        seen = within_one(mirrored(change(ratios(defined), defined, confidence)))
        yield written(names.get(name, name), "higher", seen, sensitive, smallest)


def within_one(found: Difference) -> Difference:
    """Cut the interval of a difference of ratios to what ratios in [0, 1] can differ by."""
    return Difference(found.first, found.second, max(found.low, -1.0), min(found.high, 1.0))


def written(
    metric: str,
    better: Better,
    seen: Difference,
    sensitive: str | None,
    rows: int,
    *,
    group: str | None = None,
    reference: str | None = None,
    within: tuple[str, ...] = (),
) -> Change:
    """Write a difference down as a change of some metric."""
    return Change(
        metric=metric,
        sensitive=sensitive,
        group=group,
        reference=reference,
        within=within,
        before=seen.first,
        after=seen.second,
        interval=(seen.low, seen.high),
        better=better,
        outcome="undecided" if rows < FEWEST else outcome_of(seen.low, seen.high, better),
    )
