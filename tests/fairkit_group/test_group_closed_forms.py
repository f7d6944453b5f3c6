"""The group metrics that no other library has, against closed forms and slow twins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairkit
from fairkit.intervals import (
    kolmogorov_quantile,
    pairwise_quantile,
    share_limits,
    student,
    studentised_range,
    two_sided,
    wilson,
)
from fairkit.metrics import CONFUSION
from fairkit.statistics import Rows, Scores
from fairkit.totals.scores import CELLS
from fairkit_group.auditor import GroupAuditor
from fairkit_group.between import comparisons, odds
from fairkit_group.errors import MeanPrediction, MeanSquaredError
from fairkit_group.ranking import RocAuc, distances
from fairkit_group.rates import FalsePositiveRate, SelectionRate, TruePositiveRate

RNG = np.random.default_rng(0)


def _audit(columns: Mapping[str, object], **options: object) -> fairkit.Report:
    given = {"label": "y", "favorable": 1, "sensitive": ["g"], **options}
    return fairkit.audit(
        fairkit.PredictedColumns(decision="h" if "h" in columns else None, score="s" if "s" in columns else None),
        fairkit.load_data(dict(columns), **given),
    )


def _cells(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Rows with the given counts, shape [G, 2, 2]: group, outcome, decision."""
    g, y, h = (np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape))
    return {"g": g, "y": y, "h": h}


def test_gaps_are_those_of_the_rates() -> None:
    # TPR .8, .5, .6 and FPR .1, .2, .4: the largest pair is not the same for both
    counts = np.array([[[90, 10], [20, 80]], [[80, 20], [50, 50]], [[60, 40], [40, 60]]])
    report = _audit(_cells(counts))
    assert report.find("gap_max", "g").value == pytest.approx(0.3, abs=1e-12)
    pairs = [(0.3, 0.1), (0.2, 0.3), (0.1, 0.2)]
    rms = max(math.sqrt((a**2 + b**2) / 2) for a, b in pairs)
    assert report.find("gap_rms", "g").value == pytest.approx(rms, abs=1e-12)
    assert report.find("equalized_odds_difference", "g").value == pytest.approx(0.3, abs=1e-12)
    assert report.find("equal_opportunity_difference", "g").value == pytest.approx(0.3, abs=1e-12)
    assert report.find("true_positive_rate_group_min", "g").value == pytest.approx(0.5, abs=1e-12)


def test_two_groups_gap_is_budros() -> None:
    counts = np.array([[[30, 10], [20, 40]], [[45, 5], [40, 10]]])
    report = _audit(_cells(counts))
    gap1, gap0 = 40 / 60 - 10 / 50, 30 / 40 - 45 / 50
    assert report.find("gap_max", "g").value == pytest.approx(max(abs(gap1), abs(gap0)), abs=1e-12)
    assert report.find("gap_rms", "g").value == pytest.approx(math.sqrt((gap1**2 + gap0**2) / 2), abs=1e-12)


def test_distribution_distance_by_brute_force() -> None:
    n = 400
    columns = {"g": RNG.integers(0, 3, n), "y": RNG.integers(0, 2, n), "s": np.round(RNG.random(n) ** 1.3, 2)}
    finding = _audit(columns).find("statistical_parity_ks", "g")
    worst = 0.0
    for group, z in itertools.product(range(3), np.unique(columns["s"])):
        above = columns["s"] >= z
        worst = max(worst, abs(above[columns["g"] == group].mean() - above.mean()))
    assert finding.value == pytest.approx(worst, abs=1e-12)
    at, group = finding.evidence["at_score"], int(finding.evidence["group"])
    at_most = columns["s"] <= at
    assert abs(at_most[columns["g"] == group].mean() - at_most.mean()) == pytest.approx(worst, abs=1e-12)
    everybody = finding.evidence["histogram"]["groups"]
    assert sum(np.sum(mass) for mass in everybody.values()) == n


def test_a_distance_under_weights_is_that_of_repeated_rows() -> None:
    n = 300
    columns = {
        "g": RNG.integers(0, 2, n),
        "y": RNG.integers(0, 2, n),
        "s": np.round(RNG.random(n), 1),
        "w": RNG.integers(0, 5, n).astype(float),
    }
    finding = _audit(columns, weights="w").find("statistical_parity_ks", "g")
    repeated = np.repeat(np.arange(n), columns["w"].astype(int))
    copies = {name: values[repeated] for name, values in columns.items() if name != "w"}
    assert finding.value == pytest.approx(_audit(copies).find("statistical_parity_ks", "g").value, abs=1e-12)


def test_area_under_the_curve_with_weights_and_ties() -> None:
    import sklearn.metrics as skm

    n = 500
    scores, outcome = np.round(RNG.random(n), 1), RNG.integers(0, 2, n).astype(float)
    weights, groups = RNG.random(n) * 3, RNG.integers(0, 2, n)
    table = Scores().collect(Rows(outcome=outcome, score=scores, weights=weights), groups, 2)
    found = RocAuc().estimate(table, RNG).values
    for group in (0, 1):
        rows = groups == group
        true = skm.roc_auc_score(outcome[rows], scores[rows], sample_weight=weights[rows])
        assert found[group] == pytest.approx(true, abs=1e-12)


def test_delongs_variance_by_a_double_loop() -> None:
    n = 80
    scores, outcome = np.round(RNG.random(n), 1), RNG.integers(0, 2, n)
    table = Scores().collect(Rows(outcome=outcome.astype(float), score=scores), np.zeros(n, dtype=np.int64), 1)
    estimate = RocAuc().estimate(table, RNG)
    positive, negative = scores[outcome == 1], scores[outcome == 0]
    wins = [[1.0 if p > q else 0.5 if p == q else 0.0 for q in negative] for p in positive]
    kernel = np.array(wins)
    variance = kernel.mean(axis=1).var(ddof=1) / len(positive) + kernel.mean(axis=0).var(ddof=1) / len(negative)
    area = kernel.mean()
    fewest = min(len(positive), len(negative))
    z = two_sided(0.95)
    effective = np.array([area * (1 - area) / variance * (z / student(z, np.array([fewest]))[0]) ** 2])
    inner = [end[0] for end in share_limits(np.array([area]), effective, z)]
    share = 1 - 0.025 ** (1 / fewest)
    down = ((area - inner[0]) ** 4 + (share * area) ** 4) ** 0.25
    up = ((inner[1] - area) ** 4 + (share * (1 - area)) ** 4) ** 0.25
    widest = [end[0] for end in share_limits(np.array([area]), np.array([float(fewest)]), z)]
    low, high = estimate.limits(z)
    assert fewest >= 30
    assert estimate.values[0] == pytest.approx(area, abs=1e-12)
    assert low[0] == pytest.approx(max(area - down, widest[0]), abs=1e-12)
    assert high[0] == pytest.approx(min(area + up, widest[1]), abs=1e-12)


def test_binned_scores_stay_within_the_bound() -> None:
    n = 20_000
    groups, outcome = RNG.integers(0, 2, n), RNG.integers(0, 2, n).astype(float)
    rows = Rows(outcome=outcome, score=RNG.random(n) ** (1 + outcome * 0.2))
    exact = Scores(limit=n).collect(rows, groups, 2)
    coarse = Scores(limit=1_000).collect(rows, groups, 2)
    assert exact.exact
    assert not coarse.exact
    assert CELLS / 4 < len(coarse.values) <= CELLS
    area = abs(RocAuc().compute(exact.mass) - RocAuc().compute(coarse.mass))
    assert 0 < area.max() <= RocAuc.bound(coarse) < 1e-3
    assert RocAuc.bound(exact) == 0
    near, far = distances(exact), distances(coarse)
    assert abs(near.values - far.values).max() <= far.bound
    assert (far.values <= near.values + 1e-15).all()


def test_the_worst_groups_loss() -> None:
    columns = {"g": np.array([0, 0, 1, 1]), "y": np.array([1, 0, 1, 0]), "s": np.array([0.9, 0.2, 0.6, 0.7])}
    data = fairkit.load_data(dict(columns), label="y", favorable=1, sensitive=["g"])
    model = fairkit.PredictedColumns(score="s")
    for loss, true in (
        ("logistic", -(math.log(0.6) + math.log(0.3)) / 2),
        ("squared", (0.16 + 0.49) / 2),
        ("zero_one", 0.5),
    ):
        report = fairkit.audit(model, data, parameters={"group": {"loss": loss}})
        finding = report.find("worst_group_loss", "g")
        assert finding.value == pytest.approx(true, abs=1e-12)
        assert finding.evidence["highest_group"] == "1"
        assert finding.parameters["loss"] == loss


def test_regressions_r2_against_the_definition() -> None:
    n = 300
    columns = {"g": RNG.integers(0, 2, n), "y": RNG.standard_normal(n) * 3 + 7, "s": RNG.standard_normal(n) + 7}
    report = fairkit.audit(fairkit.PredictedColumns(score="s"), fairkit.load_data(columns, label="y", sensitive=["g"]))
    for group in report.find("r2_score_difference", "g").groups:
        rows = columns["g"] == int(group.group)
        y, s = columns["y"][rows], columns["s"][rows]
        assert group.value == pytest.approx(1 - ((y - s) ** 2).sum() / ((y - y.mean()) ** 2).sum(), abs=1e-10)
        assert group.interval is not None
        assert group.interval[0] < group.value < group.interval[1] <= 1


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_r2_keeps_its_digits_far_from_zero(offset: float) -> None:
    import sklearn.metrics as skm

    n = 2_000
    rng = np.random.default_rng(7)
    y = offset + rng.standard_normal(n)
    columns = {"g": np.arange(n) % 2, "y": y, "s": y + 0.5 * rng.standard_normal(n)}
    report = fairkit.audit(fairkit.PredictedColumns(score="s"), fairkit.load_data(columns, label="y", sensitive=["g"]))
    for group in report.find("r2_score_difference", "g").groups:
        rows = columns["g"] == int(group.group)
        assert group.value == pytest.approx(skm.r2_score(y[rows], columns["s"][rows]), abs=1e-12)


def test_wilson_by_its_definition() -> None:
    from scipy import stats

    for k, n, z in ((3, 10, 1.96), (0, 7, 2.5), (7, 7, 2.5), (50, 1000, 1.0)):
        low, high = wilson(np.array([k / n]), np.array([float(n)]), z)
        true = stats.binomtest(k, n).proportion_ci(2 * stats.norm.cdf(z) - 1, method="wilson")
        assert low[0] == pytest.approx(true.low, abs=1e-12)
        assert high[0] == pytest.approx(true.high, abs=1e-12)


def test_quantiles_equal_scipys() -> None:
    from scipy import stats

    for groups in (3, 10, 40):
        assert studentised_range(groups, 0.95) == pytest.approx(
            stats.studentized_range.ppf(0.95, groups, 1e6), abs=1e-3
        )
    assert pairwise_quantile(2, 0.95) == pytest.approx(stats.norm.ppf(0.975), abs=1e-12)
    for confidence in (0.5, 0.9, 0.95, 0.999):
        assert kolmogorov_quantile(confidence) == pytest.approx(stats.kstwobign.ppf(confidence), abs=1e-9)
    for rows in (5.0, 30.0, 1000.0):
        exact = stats.t.ppf(0.975, rows - 1)
        assert student(two_sided(0.95), np.array([rows]))[0] == pytest.approx(exact, rel=0.02)


def test_studentised_range_for_two_is_the_normal() -> None:
    from scipy import stats

    assert studentised_range(2, 0.95) / math.sqrt(2) == pytest.approx(stats.norm.ppf(0.975), abs=1e-5)


def _spread(counts: np.ndarray, metric: type) -> dict[str, tuple[float, float, float]]:
    columns = _cells(counts)
    rows = Rows(outcome=columns["y"].astype(float), decision=columns["h"].astype(float))
    estimate = metric().estimate(CONFUSION.collect(rows, columns["g"], len(counts)), RNG)
    found = comparisons(metric.name, metric.better, metric.between, estimate)
    return {c.metric: (s := c.spread(0.95)).__class__ and (s.value, s.low, s.high) for c in found}


def test_two_groups_interval_is_newcombes() -> None:
    from scipy import stats

    counts = np.array([[[44, 56], [0, 0]], [[52, 48], [0, 0]]])
    value, low, high = _spread(counts, SelectionRate)["selection_rate_difference"]
    z = stats.norm.ppf(0.98)  # α is taken a fifth smaller
    l1, u1 = (x[0] for x in share_limits(np.array([0.56]), np.array([100.0]), z))
    l2, u2 = (x[0] for x in share_limits(np.array([0.48]), np.array([100.0]), z))
    lower, upper = 0.08 - math.hypot(0.56 - l1, u2 - 0.48), 0.08 + math.hypot(u1 - 0.56, 0.48 - l2)
    assert value == pytest.approx(0.08, abs=1e-12)
    assert lower < 0
    assert (low, high) == pytest.approx((0.0, max(upper, -lower)), abs=1e-12)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 40)] * 4), min_size=2, max_size=5), st.sampled_from([0.5, 0.95, 0.999]))
def test_every_interval_holds_its_value_and_stays_in_range(cells: list[tuple[int, ...]], confidence: float) -> None:
    counts = np.array(cells).reshape(-1, 2, 2)
    if counts.sum() == 0:
        return
    columns = _cells(counts)
    rows = Rows(outcome=columns["y"].astype(float), decision=columns["h"].astype(float))
    totals = CONFUSION.collect(rows, columns["g"], len(counts))
    found = []
    for metric in (SelectionRate, TruePositiveRate, FalsePositiveRate):
        found += comparisons(metric.name, metric.better, metric.between, metric().estimate(totals, RNG))
    found += odds(TruePositiveRate().estimate(totals, RNG), FalsePositiveRate().estimate(totals, RNG))
    for comparison in found:
        spread = comparison.spread(confidence)
        if math.isfinite(spread.value):
            assert 0 <= spread.low <= spread.value + 1e-12
            assert spread.value - 1e-12 <= spread.high <= 1 + 1e-9, comparison.metric


def test_a_group_without_positives_is_left_out_and_said() -> None:
    counts = np.array([[[40, 10], [10, 40]], [[30, 20], [25, 25]], [[30, 20], [0, 0]]])
    report = _audit(_cells(counts))
    finding = report.find("true_positive_rate_difference", "g")
    assert finding.value == pytest.approx(0.3, abs=1e-12)
    assert finding.groups[2].value is None
    assert "left out of the comparison: 2" in " ".join(finding.notes)
    assert finding.inconclusive is not None
    assert report.find("demographic_parity_difference", "g").inconclusive is None
    none = _audit(_cells(np.array([[[40, 10], [10, 40]], [[30, 20], [0, 0]]])))
    lone = none.find("equal_opportunity_difference", "g")
    assert lone.value is None
    assert lone.interval is None
    assert "not defined" in " ".join(lone.notes)


def test_small_groups_make_findings_inconclusive() -> None:
    counts = np.array([[[40, 10], [10, 40]], [[7, 7], [7, 8]]])
    report = _audit(_cells(counts))
    finding = report.find("demographic_parity_difference", "g")
    assert finding.value is not None
    assert "1 (29)" in str(finding.inconclusive)
    data = fairkit.load_data(_cells(counts), label="y", favorable=1, sensitive=["g"])
    relaxed = fairkit.audit(fairkit.PredictedColumns(decision="h"), data, parameters={"group": {"min_group": 29}})
    assert relaxed.find("demographic_parity_difference", "g").inconclusive is None


def test_multi_class_is_one_against_the_rest() -> None:
    n = 900
    label = np.array(["a", "b", "c"], dtype=object)[RNG.integers(0, 3, n)]
    group = RNG.integers(0, 2, n)
    x = np.column_stack([RNG.standard_normal(n) + (label == v) for v in "abc"])

    class Rule:
        classes_ = np.array(["a", "b", "c"], dtype=object)

        def predict_proba(self, matrix: np.ndarray) -> np.ndarray:
            shifted = np.exp(matrix)
            return shifted / shifted.sum(axis=1, keepdims=True)

        def predict(self, matrix: np.ndarray) -> np.ndarray:
            return self.classes_[matrix.argmax(axis=1)]

    columns = {"g": group, "y": label, "x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2]}
    data = fairkit.load_data(columns, label="y", sensitive=["g"], features=["x0", "x1", "x2"])
    report = fairkit.audit(Rule(), data)
    assert report.model.task == "multiclass"
    predicted = Rule().predict(x)
    assert report.find("accuracy").value == pytest.approx((predicted == label).mean(), abs=1e-12)
    named = [f for f in report.findings if f.metric == "demographic_parity_difference"]
    assert [f.parameters["class"] for f in named] == ["a", "b", "c"]
    for finding in named:
        rates = [(predicted == finding.parameters["class"])[group == g].mean() for g in (0, 1)]
        assert finding.value == pytest.approx(abs(rates[0] - rates[1]), abs=1e-12)


def test_a_failing_metric_is_a_finding_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, sums: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(MeanSquaredError, "compute", broken)
    n = 100
    columns = {"g": np.arange(n) % 2, "y": RNG.random(n), "s": RNG.random(n)}
    report = fairkit.audit(fairkit.PredictedColumns(score="s"), fairkit.load_data(columns, label="y", sensitive=["g"]))
    failed = [f for f in report.findings if f.metric == "mean_squared_error"]
    assert failed
    assert all("ZeroDivisionError: no" in str(f.inconclusive) for f in failed)
    assert report.find("mean_absolute_error_difference", "g").value is not None


def test_a_metric_that_fails_on_one_batch_is_a_finding_too(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 100_000  # two batches; the second has the number that the metric cannot stand

    def picky(self: object, rows: Rows) -> np.ndarray:
        if rows.score is not None and rows.score.max() > 5:
            raise ValueError("too large")
        return np.asarray(rows.score)

    monkeypatch.setattr(MeanPrediction, "per_row", picky)
    score = RNG.random(n)
    score[-1] = 9
    columns = {"g": np.arange(n) % 2, "y": RNG.random(n), "s": score}
    report = fairkit.audit(fairkit.PredictedColumns(score="s"), fairkit.load_data(columns, label="y", sensitive=["g"]))
    assert "ValueError: too large" in str(report.find("mean_prediction").inconclusive)
    assert report.find("mean_absolute_error_difference", "g").value is not None


def test_small_groups_begin_at_30_rows() -> None:
    assert GroupAuditor().parameters.min_group == 30
