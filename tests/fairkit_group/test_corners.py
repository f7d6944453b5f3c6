"""Intervals in the corners: a part of benchmarks/coverage_study.py, and confident wrong verdicts that were found."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import fairkit
from fairkit.intervals import clopper_pearson, share_limits, two_sided
from fairkit.results.rules import Rule
from fairkit.statistics import Rows, Scores
from fairkit.totals.scores import CELLS, keys_of, scores_of, shift_for
from fairkit_group.errors import LogLoss
from fairkit_group.ranking import RocAuc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("coverage_study")


@pytest.mark.long
@pytest.mark.parametrize("family", ["rate", "r2", "weights", "randomized"])
def test_the_intervals_of_a_family_cover(study: ModuleType, family: str) -> None:
    ours = study.load(study.OURS)
    chosen = study.chosen_populations([family], every=2)
    found = [study.coverage_of(ours, one, 300, 0, enumerated=True) for one in chosen]
    assert {one.population.name: (one.covers, one.false_pass) for one in found if not one.holds} == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "difference, 30 and 30 rows, 0.05 and 0.15",
        "ratio, 30 and 30 rows, 0.05 and 0.05",
        "group_max of 10 groups of 30 at 0.01",
        "group_min of 10 groups of 200 at 0.05",
        "F1, low, 100 rows",
        "F1 difference, rare, 1000 and 200 rows",
        "ROC-AUC 0.8, two kinds, 3 of 500 favorable",
        "ROC-AUC 0.9, normal, 30 of 500 favorable",
        "mean_squared_error, errors Student, 3 degrees, 100 rows",
        "mean_absolute_error, errors 1 in n is 20, 100 rows",
        "log_loss, wrong 1 in n, 100 rows",
        "equalized odds, 40 rows of each outcome at 0.02",
    ],
)
def test_the_intervals_of_a_population_cover(study: ModuleType, name: str) -> None:
    (population,) = [one for one in study.chosen_populations([]) if one.name == name]
    found = study.coverage_of(study.load(study.OURS), population, 300, 1, enumerated=True)
    assert found.holds, found


def test_the_gate_sees_a_bad_interval(study: ModuleType) -> None:
    ours = study.load(study.OURS)

    def upper_half(*asked: object) -> tuple[float, float, bool]:
        low, high, noted = ours(*asked)
        return (low + high) / 2, high, noted

    (population,) = [one for one in study.chosen_populations(["rate"]) if one.name == "one rate, n 100, n p 3"]
    assert study.coverage_of(ours, population, 0, 0, enumerated=True).holds
    assert not study.coverage_of(upper_half, population, 0, 0, enumerated=True).holds


def test_exact_limits_equal_scipys() -> None:
    from scipy import stats

    z = two_sided(0.95)
    for n in (1, 2, 7, 30, 400, 10**6):
        yes = np.unique(np.clip([0, 1, 2, 9, n // 2, n - 1, n], 0, min(n, 25)))
        for count in (yes, n - yes):
            low, high = clopper_pearson(count / n, np.full(len(count), float(n)), z)
            for k, a, b in zip(count.tolist(), low, high, strict=True):
                true = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
                assert (a, b) == pytest.approx((true.low, true.high), rel=1e-9, abs=1e-12)


def test_limits_of_a_share_grow_with_it_and_hold_it() -> None:
    for n in (5.0, 49.0, 50.0, 51.0, 73.5, 400.0):
        rate = np.linspace(0, 1, 1_001)
        low, high = share_limits(rate, np.full(1_001, n), 1.96)
        assert (low <= rate).all()
        assert (high >= rate).all()
        assert (high - low).min() > 0
        at = np.round(np.arange(0, np.floor(n) + 1)) / n
        for end in share_limits(at, np.full(len(at), n), 1.96):
            assert (np.diff(end) > 0).all(), n


def _audit(columns: dict[str, object], model: fairkit.PredictedColumns, **options: object) -> fairkit.Report:
    data = fairkit.load_data(columns, label="y", sensitive=["g"], **options)
    return fairkit.audit(model, data, parameters={"group": {"exact_scores": 1_000}})


def test_rare_events_keep_their_ranking() -> None:
    """All scores below 1e-3, more distinct ones than are kept: equal bins saw a gap of .03 where it was .36."""
    import sklearn.metrics as skm

    rng = np.random.default_rng(0)
    n = 20_000
    group, y = np.arange(n) % 2, (rng.random(n) < 0.05).astype(int)
    score = 1e-5 * np.exp(rng.standard_normal(n) + y * np.where(group == 0, 1.8, 0.2))
    report = _audit({"g": group, "y": y, "s": score}, fairkit.PredictedColumns(score="s"), favorable=1)
    finding = report.find("roc_auc_difference", "g")
    true = [skm.roc_auc_score(y[group == g], score[group == g]) for g in (0, 1)]
    assert finding.value == pytest.approx(abs(true[0] - true[1]), abs=2e-3)
    assert finding.interval is not None
    assert finding.interval[0] > 0.2
    assert finding.evidence["discretisation_bound"] < 1e-3


def test_what_cells_hide_is_inside_the_interval() -> None:
    """Scores that differ in their last bits only: nothing is known of their order, and the interval says so."""
    import sklearn.metrics as skm

    n = 400
    y = np.arange(n) % 2
    score = 0.3 + (np.arange(n) + n * y) * 6e-17
    table = Scores(limit=100).collect(Rows(outcome=y.astype(float), score=score), np.zeros(n, dtype=np.int64), 1)
    estimate = RocAuc().estimate(table, np.random.default_rng(0))
    true = skm.roc_auc_score(y, score)
    assert RocAuc.bound(table) > 0.2
    low, high = estimate.limits(1.96)
    assert low[0] <= min(true, 1 - true) <= max(true, 1 - true) <= high[0]


def test_keys_grow_with_scores_and_give_them_back() -> None:
    rng = np.random.default_rng(0)
    scores = np.unique(
        np.concatenate([[0, 0.5, 1], rng.random(500), 10.0 ** -rng.uniform(0, 300, 500), [1 - 2.0**-53]])
    )
    keys = keys_of(scores, unit=True)
    assert (np.diff(keys) > 0).all()
    np.testing.assert_array_equal(scores_of(keys, unit=True), scores)
    numbers = np.unique(np.concatenate([-scores, 1e9 * scores, [-0.0]]))
    keys = keys_of(numbers, unit=False)
    assert (np.diff(keys) > 0).all()
    np.testing.assert_array_equal(scores_of(keys, unit=False), numbers)
    many = np.sort(keys_of(rng.random(200_000), unit=True))
    shift = shift_for(many, CELLS)
    assert len(np.unique(many >> shift)) <= CELLS < len(np.unique(many >> (shift - 1)))


def test_losses_at_the_other_outcomes_add_up() -> None:
    """From products of probabilities, also of 0 and 1, as from one logarithm for each row."""
    rng = np.random.default_rng(4)
    for n in (0, 1, 16, 1_000, 5_003):
        outcome = rng.integers(0, 2, n).astype(float)
        score = np.where(rng.random(n) < 0.2, outcome, rng.random(n) ** 30)
        plain = LogLoss().flipped_sum(Rows(outcome=outcome, score=score))
        weighted = LogLoss().flipped_sum(Rows(outcome=outcome, score=score, weights=np.ones(n)))
        rows = Rows(outcome=1 - outcome, score=score)
        assert plain == pytest.approx(float(LogLoss().per_row(rows).sum()), rel=1e-12)
        assert plain == pytest.approx(weighted, rel=1e-12)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_a_table_is_exact_up_to_its_limit_and_0_is_one_score(limit: int) -> None:
    score = np.array([0.0, -0.0, 0.5, 0.5, 1.0] * 10)
    rows = Rows(outcome=np.ones(50), score=score)
    table = Scores(limit=limit).collect(rows, np.zeros(50, dtype=np.int64), 1)
    assert table.exact == (limit >= 3)
    assert table.mass.sum() == 50


def test_equal_models_with_one_favorable_outcome_do_not_fail() -> None:
    rng = np.random.default_rng(1)
    n = 1_000
    group = np.arange(n) % 2
    y = (rng.random(n) < 0.5).astype(int)
    y[group == 1] = 0
    y[1] = 1
    report = fairkit.audit(
        fairkit.PredictedColumns(score="s"),
        fairkit.load_data({"g": group, "y": y, "s": rng.random(n)}, label="y", favorable=1, sensitive=["g"]),
        policy=[Rule(metric="roc_auc_difference", sensitive="g", max=0.1)],
    )
    finding = report.find("roc_auc_difference", "g")
    assert report.verdict == "inconclusive"
    assert "1 (1 of 500)" in str(finding.inconclusive)
    assert finding.interval is not None
    assert finding.interval[1] > 0.4


def test_no_errors_seen_is_no_certainty() -> None:
    n = 200
    columns = {"g": np.arange(n) % 2, "y": np.arange(n) * 1.0, "s": np.arange(n) * 1.0}
    rule = [Rule(metric="mean_absolute_error_difference", sensitive="g", max=5.0)]
    data = fairkit.load_data(columns, label="y", sensitive=["g"])
    report = fairkit.audit(fairkit.PredictedColumns(score="s"), data, policy=rule)
    finding = report.find("mean_absolute_error_difference", "g")
    assert report.verdict == "inconclusive"
    assert "same value" in str(finding.inconclusive)
    assert "-0" not in str(finding)
    columns["s"] = columns["s"] + 20 * (np.arange(n) == 4)  # one group's single error
    again = fairkit.audit(
        fairkit.PredictedColumns(score="s"), fairkit.load_data(columns, label="y", sensitive=["g"]), policy=rule
    )
    without = again.find("mean_absolute_error_difference", "g").groups[1]
    assert without.value == 0
    assert without.interval is not None
    assert without.interval[0] == 0
    assert without.interval[1] == pytest.approx(20 * (1 - 0.025 ** (1 / 100)), rel=1e-6)  # the rule of three
    assert again.verdict == "inconclusive"


def test_denominators_count_not_rows() -> None:
    n = 400
    group, y = np.arange(n) % 2, np.zeros(n, dtype=int)
    y[:200] = 1
    y[(group == 1) & (np.arange(n) > 40)] = 0  # 20 favorable outcomes of 200 rows
    columns = {"g": group, "y": y, "h": np.arange(n) % 3 == 0}
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"])
    report = fairkit.audit(fairkit.PredictedColumns(decision="h"), data)
    assert "1 (20 of 200)" in str(report.find("true_positive_rate_difference", "g").inconclusive)
    assert report.find("demographic_parity_difference", "g").inconclusive is None


def test_effective_rows_count_under_weights() -> None:
    rng = np.random.default_rng(2)
    n = 400
    weights = np.where(np.arange(n) % 20 < 2, 100.0, 1.0)
    columns = {"g": np.arange(n) % 2, "y": rng.integers(0, 2, n), "h": rng.random(n) < 0.5, "w": weights}
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], weights="w")
    report = fairkit.audit(fairkit.PredictedColumns(decision="h"), data)
    assert "effective" in str(report.find("demographic_parity_difference", "g").inconclusive)


def test_a_roc_band_holds_the_curve() -> None:
    from scipy import stats

    rng = np.random.default_rng(3)
    held, simulations, n = 0, 200, 300
    grid = np.linspace(-4, 4, 400)
    true = np.column_stack([stats.norm.sf(grid), stats.norm.sf(grid - 1)])
    for _ in range(simulations):
        from fairkit_group.calibration import roc_bands

        y = np.repeat([0.0, 1.0], n // 2)
        score = rng.standard_normal(n) + y
        table = Scores(-9, 9).collect(Rows(outcome=y, score=score), np.zeros(n, dtype=np.int64), 1)
        half = roc_bands(table, 0.95)
        seen = np.column_stack([(score[y == side][:, None] > grid).mean(axis=0) for side in (0, 1)])
        held += bool((np.abs(seen - true) <= half).all())
    assert held >= 0.93 * simulations
