"""Intervals of dependent rows hold the truth as often as they say: the kernels, on hundreds of fixed tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import fairkit
from fairkit.data.hashing import BUCKETS, buckets_of
from fairkit.intervals import own_quantile
from fairkit.limits import student
from fairkit.statistics import Rows, Scores
from fairkit_dependent import SCORE_BUCKETS, by_bucket, clustered, jackknife, jackknife_pairs, ratio_noise
from fairkit_group.between import comparisons
from fairkit_group.calibration import CalibrationInTheLarge
from fairkit_group.errors import MeanPrediction
from fairkit_group.ranking import dependent_distances, distances
from fairkit_group.rates import SelectionRate, TruePositiveRate
from fairkit_group.strata import Strata
from fairkit_group.stratified import Pairs

RUNS = 120
LEAST = stats.binom.ppf(1e-4, RUNS, 0.94)
"""With a coverage of .94 so few hits come once in 10,000 times; the seeds are fixed."""
P = 0.3
METRICS: tuple[Any, ...] = (SelectionRate, TruePositiveRate, MeanPrediction)


def _drawn(people: int, most: int, icc: float, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    who = np.repeat(np.arange(people), rng.integers(2, most + 1, people))
    chance = rng.beta(P * (1 / icc - 1), (1 - P) * (1 / icc - 1), people)[who]
    decision, outcome = ((rng.random(len(who)) < chance) * 1.0 for _ in range(2))
    return Rows(outcome=outcome, decision=decision, score=chance), who


@pytest.mark.long
@pytest.mark.parametrize(
    ("people", "most", "icc", "crossing"),
    [(100, 50, 0.5, False), (150, 10, 0.5, True), (3000, 4, 0.5, False), (400, 2, 0.05, False)],
)
def test_groups_and_their_differences(people: int, most: int, icc: float, crossing: bool) -> None:
    rng = np.random.default_rng(people)
    truth = {"selection_rate": P, "true_positive_rate": P + icc * (1 - P), "mean_prediction": P}
    levels, differences, bare = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0), 0
    for run in range(RUNS):
        rows, who = _drawn(people, most, icc, rng)
        group = rng.integers(0, 2, len(who)) if crossing else who % 2
        buckets = buckets_of(pa.array(who), run)
        for cls in METRICS:
            metric = cls()
            totals = metric.statistic.collect(rows, group, 2)
            sums = by_bucket(metric.statistic.first_sums(rows, group * BUCKETS + buckets, 2 * BUCKETS), 2)
            plain = metric.estimate(totals, rng)
            found = clustered(metric, totals, plain, sums)
            low, high = found.limits(own_quantile(0.95, found.correlation))
            levels[cls.name] += bool(low[0] <= truth[cls.name] <= high[0])
            made = comparisons(cls.name, cls.better, cls.between, found)
            differences[cls.name] += next(c for c in made if c.metric.endswith("_difference")).spread(0.95).low <= 0
            low, high = plain.limits(1.96)
            bare += cls is SelectionRate and low[0] <= P <= high[0]
    assert min(levels.values()) >= LEAST, levels
    assert min(differences.values()) >= LEAST, differences
    if icc * most > 5:  # the rows taken for independent ones: far too sure
        assert bare < 0.85 * RUNS


@pytest.mark.long
@pytest.mark.parametrize(("people", "most", "icc"), [(100, 2, 0.5), (100, 10, 0.05)])
def test_the_distance_of_two_groups_that_score_alike(people: int, most: int, icc: float) -> None:
    """Few clusters, each in one group: the distance's lower end is above 0 in at most 5 % of tables."""
    rng = np.random.default_rng(11)
    hits = 0
    for run in range(RUNS):
        rows, who = _drawn(people, most, icc, rng)
        rows = Rows(outcome=rows.outcome, score=np.clip(rows.score + rng.normal(0, 0.1, len(who)), 0.02, 0.98))
        group = who % 2
        fewer = buckets_of(pa.array(who), run) // (BUCKETS // SCORE_BUCKETS)
        totals = Scores().collect(rows, group, 2)
        sums = Scores(limit=500_000).collect(rows, group * SCORE_BUCKETS + fewer, 2 * SCORE_BUCKETS)
        bent, _ = dependent_distances(distances(totals), sums)
        hits += bool(bent.limits(0.95**0.5)[0].max() <= 0)
    assert hits >= LEAST


@pytest.mark.long
@pytest.mark.parametrize(("strata", "rows", "people"), [(4, 100, 0), (60, 4, 0), (5, 0, 150)])
def test_differences_inside_strata(strata: int, rows: int, people: int) -> None:
    """Few large strata, many small ones, and people with rows in all of them."""
    rng = np.random.default_rng(strata)
    hits, metric = 0, SelectionRate()
    for run in range(RUNS):
        level = rng.uniform(0.15, 0.7, strata)
        if people:
            found, who = _drawn(people, 12, 0.4, rng)
            place, group = rng.integers(0, strata, len(who)), who % 2
        else:
            place = np.repeat(np.arange(strata), rows)
            group, who = rng.integers(0, 2, len(place)), np.arange(len(place))
            found = Rows(outcome=np.zeros(len(place)), decision=(rng.random(len(place)) < level[place]) * 1.0)
        cells = place * 2 + group
        totals = {metric.statistic.key: metric.statistic.collect(found, cells, 2 * strata)}
        known = Strata([str(s) for s in range(strata)], 2, totals, {})
        made = known.cells(metric, rng)
        assert made is not None
        noise = None
        if people:
            buckets = buckets_of(pa.array(who), run)
            sums = metric.statistic.first_sums(found, cells * BUCKETS + buckets, 2 * strata * BUCKETS)
            shaped = sums.reshape(strata, 2, BUCKETS, -1)
            noise = jackknife_pairs(metric.compute, shaped)
        low, high = Pairs(made, np.array([[0], [1]]), noise).difference_limits(1.96)
        hits += low[0] <= 0 <= high[0]
    assert hits >= LEAST


def test_clusters_of_which_a_few_hold_most_rows_count_as_few():
    """65 clusters, five of which have nine tenths of the rows: their noise cannot be known, and the note says so."""
    rng = np.random.default_rng(0)
    sizes = np.r_[np.full(5, 360), np.full(60, 3)]
    cluster = np.repeat(np.arange(65), sizes)
    rows = len(cluster)
    level = rng.normal(0, 0.3, 65)[cluster]
    table = {
        "g": np.array(["a", "b"])[rng.integers(0, 2, rows)],
        "c": cluster,
        "s": np.clip(0.5 + level + rng.normal(0, 0.1, rows), 0, 1),
        "y": rng.integers(0, 2, rows),
    }
    roles = {"label": "y", "favorable": 1, "sensitive": ["g"], "cluster": "c", "predictions": {"score": "s"}}
    report = fairkit.audit(None, fairkit.load_data(table, **roles))
    names = ("statistical_parity_ks", "selection_rate_difference", "accuracy_group_min", "brier_score_difference")
    for name in names:
        assert "a few of them have most of the rows" in (report.find(name, "g").inconclusive or ""), name
    even = {**table, "c": np.arange(rows) % 65}
    report = fairkit.audit(None, fairkit.load_data(even, **roles))
    assert report.find("statistical_parity_ks", "g").inconclusive is None


# Clusters of unequal sizes: CR2 variances with Satterthwaite's degrees of freedom, and what a few large ones do.
if TYPE_CHECKING:
    from fairkit.metrics import Metric

SIZES = np.r_[np.full(5, 60), np.full(40, 8)]


def test_equal_clusters_have_the_jackknife_and_one_degree_less() -> None:
    top = np.random.default_rng(0).binomial(10, 0.3, (3, 40)).astype(float)
    base = np.full((3, 40), 10.0)
    closed = ratio_noise(top, base)
    plain = jackknife(lambda sums: sums[..., 1] / sums.sum(axis=-1), np.stack([base - top, top], axis=2))
    assert closed.variance == pytest.approx(plain.variance, rel=1e-9)
    assert closed.degrees.max() == pytest.approx(39.0)  # fewer where a few residuals are most of the variance
    assert closed.degrees == pytest.approx(plain.degrees)


@pytest.mark.parametrize("alike", [False, True])
def test_degrees_are_those_of_the_matrices(alike: bool) -> None:
    """Satterthwaite's formula from the covariance matrix of the residuals, under both working models."""
    share = SIZES / SIZES.sum()
    count = len(SIZES)
    residual = np.eye(count) - np.tile(share, (count, 1))  # of cluster means, from their mean by size
    covariance = residual @ np.diag(np.ones(count) if alike else 1 / SIZES) @ residual.T
    scale = share / np.sqrt(1 - share)
    matrix = scale[:, None] * covariance * scale
    expected = np.trace(matrix) ** 2 / (matrix**2).sum()
    w, even = share, (share**2).sum()
    q = w**2 / (1 - w)
    if alike:
        trace = (q * (1 - 2 * w + even)).sum()
        square = (q[:, None] * q * (np.eye(count) - w[:, None] - w + even) ** 2).sum()
        assert trace**2 / square == pytest.approx(expected)
        found = ratio_noise(np.random.default_rng(1).binomial(SIZES, 0.3)[None].astype(float), SIZES[None] * 1.0)
        assert found.degrees[0] <= expected + 1e-9
        assert found.degrees[0] == pytest.approx(expected)
    else:
        assert 1 / (even + q.sum() ** 2 - (q**2).sum()) == pytest.approx(expected)


@pytest.mark.parametrize("correlation", [0.05, 0.5])
def test_limits_of_unequal_clusters_cover(correlation: float) -> None:
    rng, scale = np.random.default_rng(2), 1 / correlation - 1
    chance = rng.beta(0.3 * scale, 0.7 * scale, (2_000, len(SIZES)))
    top, base = rng.binomial(SIZES, chance).astype(float), np.tile(SIZES * 1.0, (2_000, 1))
    noise = ratio_noise(top, base)
    half = student(1.96, noise.degrees + 1) * np.sqrt(noise.variance)
    covers = np.abs(top.sum(axis=1) / base.sum(axis=1) - 0.3) <= half
    assert covers.mean() >= 0.925  # the jackknife: .9125 at a correlation of one half


@pytest.mark.long
@pytest.mark.parametrize("metric", [SelectionRate, CalibrationInTheLarge])
def test_a_few_large_clusters_are_named_inside_strata_too(metric: type[Metric]) -> None:
    rng = np.random.default_rng(3)
    sizes = np.r_[np.full(4, 300), np.full(60, 4)]
    who = np.repeat(np.arange(64), sizes)
    n = len(who)
    table = {
        "y": rng.integers(0, 2, n),
        "d": rng.integers(0, 2, n).astype(float),
        "s": rng.random(n),
        "sex": np.array(["f", "m"], dtype=object)[rng.integers(0, 2, n)],
        "place": np.array(["a", "b"], dtype=object)[rng.integers(0, 2, n)],
        "who": who,
    }
    data = fairkit.load_data(table, label="y", favorable=1, sensitive="sex", within="place", cluster="who")
    report = fairkit.audit(fairkit.PredictedColumns("d", "s"), data)
    for within in ("", "place"):
        finding = report.find(f"{metric.name}_difference", "sex", within=within)
        assert finding.inconclusive is not None
        assert "a few of them have most of the rows" in finding.inconclusive


@pytest.mark.parametrize(
    ("weights", "words"),
    [(0.0, "every weight in column 'w' is 0"), (1e-200, "multiply the column by a constant"), (1e200, "1e-90")],
)
def test_weights_that_add_up_to_nothing_are_refused(weights: float, words: str) -> None:
    table = {"y": [0, 1] * 20, "d": [0.0, 1.0] * 20, "sex": ["f", "f", "m", "m"] * 10, "w": [weights] * 40}
    data = fairkit.load_data(table, label="y", favorable=1, sensitive="sex", weights="w")
    with pytest.raises(fairkit.DataError, match=words):
        fairkit.audit(fairkit.PredictedColumns("d"), data)
