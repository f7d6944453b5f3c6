"""Whether intervals of dependent rows cover the truth: the kernels behind `--cluster`, thousands of tables a setting.

    python benchmarks/dependent_coverage.py [RUNS]            # rates, means, F1: some milliseconds a table
    python benchmarks/dependent_coverage.py [RUNS] scores     # ROC-AUC, ECCE and the KS distance as well
    python benchmarks/dependent_coverage.py [RUNS] strata [SEED]   # differences of ECCE pooled over strata

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
from scipy import special

from fairkit.data.hashing import BUCKETS, buckets_of
from fairkit.intervals import Spread, own_quantile
from fairkit.statistics import Rows, Scores
from fairkit_dependent import SCORE_BUCKETS, STRATA_BUCKETS, by_bucket, clustered
from fairkit_group.between import comparisons
from fairkit_group.calibration import CalibrationInTheLarge, Ecce
from fairkit_group.errors import BrierScore, LogLoss, MeanPrediction
from fairkit_group.ranking import RocAuc, dependent_distances, distances
from fairkit_group.rates import F1Score, FalsePositiveRate, Precision, SelectionRate, TruePositiveRate
from fairkit_group.simultaneous import largest_difference
from fairkit_group.strata import Strata

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


def estimates(metrics: tuple[type, ...], rows: Rows, group: np.ndarray, buckets: np.ndarray | None) -> Iterator[Any]:
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
                sums = by_bucket(statistic.first_sums(rows, group * BUCKETS + buckets, groups * BUCKETS), groups)
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


WITHIN = [
    (clusters, rows, strata, kind, alike, factors)
    for clusters, rows, strata, kind in (
        (200, 10, 12, "inside"),
        (200, 10, 12, "crossing strata"),
        (200, 10, 12, "crossing"),
        (200, 40, 12, "crossing"),
        (200, 10, 4, "crossing strata"),
        (800, 10, 12, "inside"),
        (800, 10, 12, "crossing"),
        (200, 10, 1, "inside"),
    )
    for alike, factors in ((0.5, (1.0, 1.0)), (0.5, (1.4, 1.0)), (0.1, (1.0, 1.0)))
]
"""Clusters, most rows of one, strata, how clusters lie, correlation of the normal numbers behind outcomes, factors."""


def apart(factor: float) -> float:
    """Return the ECCE of outcome rates so many times the score, of scores in hundredths."""
    grid = np.arange(101) / 100
    ends = np.clip(np.array([grid - 0.005, grid + 0.005]), 0, 1)
    chance = np.diff(special.betainc(2, 4, ends), axis=0)[0]
    return float(np.abs(np.cumsum(chance * (np.clip(factor * grid, 0, 1) - grid))).max())


def inside(setting: tuple, rng: np.random.Generator, key: int) -> Spread:
    """Return the pooled interval of one table: the first group is four times the second one."""
    clusters, most, strata, kind, alike, factors = setting
    who = np.repeat(np.arange(clusters), rng.integers(2, most + 1, clusters))
    group = (rng.random(len(who)) < 0.2) * 1 if kind == "crossing" else (who % 5 == 0) * 1
    stratum = who // 5 % strata if kind == "inside" else rng.integers(0, strata, len(who))
    score = np.round(rng.beta(2, 4, len(who)), 2)
    normal = np.sqrt(alike) * rng.standard_normal(clusters)[who]
    normal = normal + np.sqrt(1 - alike) * rng.standard_normal(len(who))
    outcome = (special.ndtr(normal) < np.clip(np.array(factors)[group] * score, 0, 1)) * 1.0
    rows, cells = Rows(outcome=outcome, score=score), stratum * 2 + group
    bucket = buckets_of(pa.array(who), np.arange(len(who)), key) // (BUCKETS // STRATA_BUCKETS)
    metric = Ecce()
    totals = metric.statistic.collect(rows, cells, 2 * strata)
    parts = metric.statistic.collect(rows, cells * STRATA_BUCKETS + bucket, 2 * strata * STRATA_BUCKETS)
    names, name = [str(place) for place in range(strata)], metric.statistic.key
    pooled = Strata(names, 2, {name: totals}, {name: parts})
    return largest_difference(pooled.pairs(metric, pooled.cells(metric, rng)), CONFIDENCE)


def within(runs: int, seed: int) -> None:
    """Print how often pooled intervals of ECCE hold the truth, and how often they end below it."""
    print("clusters rows strata kind              alike factors      holds  below  width")
    for place, setting in enumerate(WITHIN):
        truth = abs(apart(setting[5][0]) - apart(setting[5][1]))
        found = [inside(setting, np.random.default_rng((seed, place, run)), run) for run in range(runs)]
        holds = np.mean([one.low <= truth <= one.high for one in found])
        below, width = (np.mean([one.high < truth for one in found]), np.mean([one.high - one.low for one in found]))
        clusters, rows, strata, kind, alike, factors = setting
        print(f"{clusters:8} {rows:4} {strata:6} {kind:17} {alike:5} {factors!s:11} {holds:6.3f} {below:6.3f} "
              f"{width:6.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    if "strata" in sys.argv:
        within(runs, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    elif "scores" in sys.argv:
        main(runs, OF_SCORES, [s for s in SETTINGS if s[0] * s[1] <= 8000])
    else:
        main(runs, CHEAP, SETTINGS)
