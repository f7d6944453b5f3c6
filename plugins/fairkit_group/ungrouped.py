"""The rows without a sensitive value: a line of their own beside the groups, in no comparison."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fairkit.data.roles import MISSING_GROUP
from fairkit.intervals import own_quantile
from fairkit.metrics import Rate
from fairkit.results.values import GroupValue
from fairkit_group.totals import Failure, dependent, of_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from fairkit.metrics import Metric


def ungrouped(
    metric: Metric,
    without: Mapping[str, Any],
    buckets: Mapping[str, Any],
    rows: int,
    confidence: float,
    rng: np.random.Generator,
) -> GroupValue | None:
    """Return a metric of the rows without a group; None where there are none."""
    totals = of_metric(without, metric)
    if totals is None or isinstance(totals, Failure) or not rows:
        return None
    try:
        estimate = dependent(metric, totals, metric.estimate(totals, rng), of_metric(buckets, metric))
    except Exception:
        return None  # where these rows make a metric fail, the finding about the groups says so
    value = float(estimate.values[0])
    if not math.isfinite(value):
        return GroupValue(group=MISSING_GROUP, rows=rows, value=None)
    low, high = (float(end[0]) for end in estimate.limits(own_quantile(confidence, estimate.correlation)))
    size = None if estimate.sizes is None or not isinstance(metric, Rate) else float(estimate.sizes[0])
    return GroupValue(group=MISSING_GROUP, rows=rows, value=value, interval=(low, high), denominator=size)
