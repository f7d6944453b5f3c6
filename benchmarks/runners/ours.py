"""A runner of `coverage_study.py`: fairkit's own intervals, from its metrics without the audit around them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from fairkit import plugins
from fairkit.data.hashing import BUCKETS, buckets_of
from fairkit.intervals import own_quantile
from fairkit.statistics import Rows, Scores
from fairkit_dependent import SCORE_BUCKETS, by_bucket, clustered
from fairkit_group.between import comparisons, odds
from fairkit_group.ranking import distances

Answer = tuple[float | None, float | None, bool]
METRICS = {metric.name: metric() for metric in plugins.load("group").metrics}


def answer(metric: str, comparison: str, confidence: float, columns: dict[str, Any]) -> Answer | None:
    group = columns.get("group", np.zeros(len(columns["outcome"]))).astype(np.int64)
    groups = int(group.max()) + 1
    rows = Rows(
        outcome=columns["outcome"],
        decision=columns.get("decision"),
        score=columns.get("score"),
        weights=columns.get("weight"),
    )
    if comparison == "distance":
        found = distances(Scores().collect(rows, group, groups))
        low, high = found.limits(confidence ** (1 / groups))[0].max(), found.limits(confidence)[1].max()
        return float(low), float(high), False
    names = ("true_positive_rate", "false_positive_rate") if metric == "equalized_odds" else (metric,)
    estimates = []
    for one in names:
        measure = METRICS[one]
        statistic = Scores(limit=int(columns["kept"][0])) if "kept" in columns else measure.statistic
        totals = statistic.collect(rows, group, groups)
        estimate = measure.estimate(totals, np.random.default_rng(0))
        if "cluster" in columns:
            buckets = buckets_of(pa.array(columns["cluster"].astype(np.int64)), np.arange(len(group)), 0)
            if isinstance(measure.statistic, Scores):
                place = group * SCORE_BUCKETS + buckets // (BUCKETS // SCORE_BUCKETS)
                sums: Any = measure.statistic.collect(rows, place, groups * SCORE_BUCKETS)
            else:
                place = group * BUCKETS + buckets
                sums = by_bucket(measure.statistic.first_sums(rows, place, groups * BUCKETS), groups)
            estimate = clustered(measure, totals, estimate, sums)
        estimates.append(estimate)
    noted = any(len(e.doubts) > 0 or (e.sizes is not None and bool((e.sizes < 30 - 1e-6).any())) for e in estimates)
    if comparison == "level":
        low, high = estimates[0].limits(own_quantile(confidence, estimates[0].correlation))
        return ends(float(low[0]), float(high[0]), noted or not math.isfinite(estimates[0].values[0]))
    spreads = odds(*estimates) if metric == "equalized_odds" else comparisons(
        metric, METRICS[metric].better, frozenset({"difference", "ratio", "extreme"}), estimates[0]
    )  # fmt: skip
    spread = next(one for one in spreads if one.metric == f"{metric}_{comparison}").spread(confidence)
    return ends(spread.low, spread.high, noted or not math.isfinite(spread.value))


def ends(low: float, high: float, noted: bool) -> Answer:
    return low if math.isfinite(low) else None, high if math.isfinite(high) else None, noted
