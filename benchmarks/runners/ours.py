"""A runner of `coverage.py`: fairkit's own intervals, from its metrics without the audit around them."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from fairkit import plugins
from fairkit.data.clusters import BUCKETS, buckets_of
from fairkit.intervals import own_quantile
from fairkit.statistics import Rows, Scores
from fairkit_dependent import SCORE_BUCKETS, by_bucket, clustered
from fairkit_group.between import comparisons, odds
from fairkit_group.ranking import distances

METRICS = {metric.name: metric() for metric in plugins.load("group").metrics}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    columns = {name: np.asarray(values, float) for name, values in request["columns"].items()}
    group = columns.get("group", np.zeros(len(columns["outcome"]))).astype(np.int64)
    groups, confidence = int(group.max()) + 1, request["confidence"]
    rows = Rows(
        outcome=columns["outcome"],
        decision=columns.get("decision"),
        score=columns.get("score"),
        weights=columns.get("weight"),
    )
    name, kind = request["metric"], request["comparison"]
    if kind == "distance":
        found = distances(Scores().collect(rows, group, groups))
        low, high = found.limits(confidence ** (1 / groups))[0].max(), found.limits(confidence)[1].max()
        return {"low": float(low), "high": float(high)}
    names = ("true_positive_rate", "false_positive_rate") if name == "equalized_odds" else (name,)
    estimates = []
    for one in names:
        metric = METRICS[one]
        totals = metric.statistic.collect(rows, group, groups)
        estimate = metric.estimate(totals, np.random.default_rng(0))
        if "cluster" in columns:
            buckets = buckets_of(pa.array(columns["cluster"].astype(np.int64)), np.arange(len(group)), 0)
            if isinstance(metric.statistic, Scores):
                place = group * SCORE_BUCKETS + buckets // (BUCKETS // SCORE_BUCKETS)
                sums: Any = metric.statistic.collect(rows, place, groups * SCORE_BUCKETS)
            else:
                place = group * BUCKETS + buckets
                sums = by_bucket(metric.statistic.first_sums(rows, place, groups * BUCKETS), groups)
            estimate = clustered(metric, totals, estimate, sums)
        estimates.append(estimate)
    noted = any(len(e.doubts) > 0 or (e.sizes is not None and bool((e.sizes < 30 - 1e-6).any())) for e in estimates)
    if kind == "level":
        low, high = estimates[0].limits(own_quantile(confidence, estimates[0].correlation))
        return ends(float(low[0]), float(high[0]), noted or not math.isfinite(estimates[0].values[0]))
    spreads = odds(*estimates) if name == "equalized_odds" else comparisons(
        name, METRICS[name].better, frozenset({"difference", "ratio", "extreme"}), estimates[0]
    )  # fmt: skip
    spread = next(one for one in spreads if one.metric == f"{name}_{kind}").spread(confidence)
    return ends(spread.low, spread.high, noted or not math.isfinite(spread.value))


def ends(low: float, high: float, noted: bool) -> dict[str, Any]:
    told = {name: end if math.isfinite(end) else None for name, end in (("low", low), ("high", high))}
    return told | {"noted": noted}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"id": asked["id"], **answer(asked)}), flush=True)
