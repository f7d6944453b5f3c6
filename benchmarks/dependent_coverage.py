"""Whether intervals of dependent rows cover the truth: the kernels behind `--cluster`, thousands of tables a setting.

    python benchmarks/dependent_coverage.py [RUNS]            # rates, means, F1: some milliseconds a table
    python benchmarks/dependent_coverage.py [RUNS] scores     # ROC-AUC, ECCE and the KS distance as well

Rows of a cluster have one chance of a favorable decision and outcome, from a beta distribution: the intra-cluster
correlation. `nested` clusters have rows of one group, `crossing` ones of both; in `informative` ones the number of rows
grows with the chance. Printed is the share of tables whose interval holds the truth, for the numbers of a group (their
truth from two million clusters) and for the differences between the groups, which are 0, or .1 in `apart`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fairkit.data.clusters import BUCKETS, buckets_of
from fairkit.dependent import SCORE_BUCKETS, by_bucket, clustered
from fairkit.intervals import own_quantile
from fairkit.statistics import Rows, Scores
from fairkit_group.between import comparisons
from fairkit_group.calibration import CalibrationInTheLarge, Ecce
from fairkit_group.errors import BrierScore, LogLoss, MeanPrediction
from fairkit_group.ranking import RocAuc, dependent_distances, distances
from fairkit_group.rates import F1Score, FalsePositiveRate, Precision, SelectionRate, TruePositiveRate

CONFIDENCE = 0.95
CHEAP = (SelectionRate, TruePositiveRate, FalsePositiveRate, Precision, F1Score, MeanPrediction, LogLoss, BrierScore,
         CalibrationInTheLarge)  # fmt: skip
OF_SCORES = (RocAuc, Ecce)

SETTINGS = [
    (clusters, rows, icc, kind, 0.3)
    for clusters, rows, icc, kind in itertools.product(
        (100, 400, 3000), (2, 10, 50), (0.05, 0.5), ("nested", "crossing")
    )
    if clusters * rows <= 30_000
] + [
    (100, 20, 0.5, "informative", 0.3),
    (400, 20, 0.5, "informative", 0.3),
    (400, 10, 0.3, "nested", 0.05),
    (400, 10, 0.3, "crossing", 0.05),
    (1000, 5, 0.5, "apart", 0.3),
    (200, 20, 0.5, "apart", 0.3),
]


def drawn(
    clusters: int, most: int, icc: float, kind: str, p: float, rng: np.random.Generator
) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Return rows, their groups and their clusters: 2 to `most` rows a cluster."""
    chance = rng.beta(p * (1 / icc - 1), (1 - p) * (1 / icc - 1), clusters)
    sizes = rng.integers(2, most + 1, clusters)
    if kind == "informative":
        sizes = 2 + rng.binomial(most - 2, 0.1 + 0.8 * chance)
    who = np.repeat(np.arange(clusters), sizes)
    group = rng.integers(0, 2, len(who)) if kind == "crossing" else who % 2
    own = chance[who]
    if kind == "apart":  # group 1 gets some more favorable decisions, .1 of the rows
        lifted = 0.1 / (1 - p)
    decision = (rng.random(len(who)) < own).astype(float)
    if kind == "apart":
        decision = np.maximum(decision, (rng.random(len(who)) < lifted) & (group == 1))
    outcome = (rng.random(len(who)) < own).astype(float)
    score = np.clip(own + rng.normal(0, 0.1, len(who)), 0.02, 0.98)
    return Rows(outcome=outcome, decision=decision, score=score), group, who


def estimates(
    metrics: tuple[type, ...], rows: Rows, group: np.ndarray, buckets: np.ndarray | None
) -> Iterator[Any]:
    """Return every metric with its estimate; without buckets that of independent rows."""
    groups = int(group.max()) + 1
    kept: dict[str, tuple[Any, Any]] = {}
    for cls in metrics:
        metric = cls()
        statistic = metric.statistic
        if statistic.key not in kept:
            totals = statistic.collect(rows, group, groups)
            sums = None
            if buckets is not None and isinstance(statistic, Scores):
                fewer = buckets // (BUCKETS // SCORE_BUCKETS)
                coarse = Scores(statistic.low, statistic.high, statistic.limit, 500_000)
                sums = coarse.collect(rows, group * SCORE_BUCKETS + fewer, groups * SCORE_BUCKETS)
            elif buckets is not None:
                sums = by_bucket(
                    statistic.first_sums(rows, group * BUCKETS + buckets, groups * BUCKETS), groups
                )
            kept[statistic.key] = totals, sums
        totals, sums = kept[statistic.key]
        plain = metric.estimate(totals, np.random.default_rng(0))
        yield metric, plain if sums is None else clustered(metric, totals, plain, sums), totals, sums


def hits(
    metrics: tuple[type, ...], setting: tuple, truth: dict[str, np.ndarray], rng: Any, key: int
) -> dict[str, bool]:
    """Return which intervals of one table hold the truth."""
    rows, group, who = drawn(*setting, rng)
    buckets = buckets_of(pa.array(who), np.arange(len(who)), key)
    found = {}
    for metric, estimate, totals, sums in estimates(metrics, rows, group, buckets):
        low, high = estimate.limits(own_quantile(CONFIDENCE, estimate.correlation))
        exact = truth[metric.name]
        found[metric.name] = bool(low[0] <= exact[0] <= high[0])
        spread = next(
            c.spread(CONFIDENCE)
            for c in comparisons(metric.name, metric.better, metric.between, estimate)
            if c.metric.endswith("_difference")
        )
        far = abs(exact[1] - exact[0]) if setting[3] == "apart" else 0.0
        found["Δ " + metric.name] = bool(spread.low <= far <= spread.high)
        if metric.name == "roc_auc":
            bent, _ = dependent_distances(distances(totals), sums)
            found["ks"] = bool(bent.limits(CONFIDENCE**0.5)[0].max() <= 0)
    return found


def true_numbers(metrics: tuple[type, ...], setting: tuple) -> dict[str, np.ndarray]:
    """Return the numbers of two million clusters."""
    rng = np.random.default_rng(99)
    total: dict[str, list] = {}
    for _ in range(10):
        rows, group, _ = drawn(200_000 if setting[1] <= 20 else 80_000, *setting[1:], rng)
        for metric, estimate, *_ in estimates(metrics, rows, group, None):
            total.setdefault(metric.name, []).append(estimate.values)
    return {name: np.mean(each, axis=0) for name, each in total.items()}


def main(runs: int, metrics: tuple[type, ...], chosen: list) -> None:
    """Print the study."""
    worst: list[tuple[float, str]] = []
    for setting in chosen:
        truth = true_numbers(metrics, setting)
        rng = np.random.default_rng(7)
        seen: dict[str, int] = {}
        for run in range(runs):
            for name, inside in hits(metrics, setting, truth, rng, run).items():
                seen[name] = seen.get(name, 0) + inside
        shares = {name: count / runs for name, count in seen.items()}
        print(setting, " ".join(f"{name} {share:.3f}" for name, share in shares.items()), flush=True)
        worst += [(share, f"{name} {setting}") for name, share in shares.items()]
    for share, name in sorted(worst)[:25]:
        print(f"{share:.3f} {name}")


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    if "scores" in sys.argv:
        main(runs, OF_SCORES, [s for s in SETTINGS if s[0] * s[1] <= 8000])
    else:
        main(runs, CHEAP, SETTINGS)
