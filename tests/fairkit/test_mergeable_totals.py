"""Every registered metric and statistic: batches, their order and merging change nothing; weights are copies."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fairkit import plugins
from fairkit.metrics import Metric
from fairkit.statistics import Rows, Scores, ScoreTable, Statistic, Sums

# rankings are totals of whole queries, wherever their items are: tests/fairkit/rankings holds that
METRICS = [metric for metric in plugins.load("group").metrics if "ranking" not in metric.tasks]
STATISTICS: dict[str, Statistic] = {metric().statistic.key: metric().statistic for metric in METRICS}
GROUPS = 3
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


def _rng(metric: type[Metric]) -> np.random.Generator:
    return np.random.default_rng([*metric.name.encode()])


@st.composite
def tables(draw: st.DrawFn, weights: str = "maybe", fractional: bool = True) -> tuple[Rows, np.ndarray]:
    n = draw(st.integers(1, 40))
    chance = st.sampled_from([0.0, 1.0, 0.25, 0.7]) if fractional else st.sampled_from([0.0, 1.0])
    unit = st.integers(0, 16).map(lambda k: k / 16) | st.floats(0, 1)
    given_weights = None
    if weights == "integer":
        given_weights = draw(hnp.arrays(float, n, elements=st.integers(0, 4).map(float)))
    elif weights == "maybe" and draw(st.booleans()):
        given_weights = draw(hnp.arrays(float, n, elements=st.just(0.0) | st.floats(0.25, 4)))
    rows = Rows(
        outcome=draw(hnp.arrays(float, n, elements=st.sampled_from([0.0, 1.0]))),
        decision=draw(hnp.arrays(float, n, elements=chance)),
        score=draw(hnp.arrays(float, n, elements=unit)),
        weights=given_weights,
    )
    return rows, draw(hnp.arrays(np.int64, n, elements=st.integers(0, GROUPS - 1)))


def _take(rows: Rows, places: Any) -> Rows:
    return Rows(
        outcome=rows.outcome[places],
        decision=None if rows.decision is None else rows.decision[places],
        score=None if rows.score is None else rows.score[places],
        weights=None if rows.weights is None else rows.weights[places],
        origin=rows.origin,
    )


def _same(a: Any, b: Any) -> None:
    """Two totals are the same up to rounding."""
    if isinstance(a, Sums):
        for part in ("count", "first", "second"):
            np.testing.assert_allclose(getattr(a, part), getattr(b, part), **TOLERANCE)
        return
    assert isinstance(a, ScoreTable)
    assert a.exact == b.exact
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_allclose(a.mass, b.mass, **TOLERANCE)
    np.testing.assert_allclose(a.squares, b.squares, **TOLERANCE)


def _same_estimates(metric: type[Metric], a: Any, b: Any) -> None:
    one, two = metric().estimate(a, _rng(metric)), metric().estimate(b, _rng(metric))
    np.testing.assert_allclose(one.values, two.values, **TOLERANCE)


def test_the_metrics_of_the_contract_are_registered() -> None:
    names = {metric.name for metric in METRICS}
    assert names >= {
        "accuracy",
        "balanced_accuracy",
        "selection_rate",
        "true_positive_rate",
        "false_positive_rate",
        "true_negative_rate",
        "false_negative_rate",
        "precision",
        "log_loss",
        "brier_score",
        "roc_auc",
        "mean_absolute_error",
        "mean_squared_error",
        "r2_score",
        "mean_prediction",
    }
    offered = {metric for row in plugins.find() for metric in plugins.load(row.name).metrics}
    assert {metric for metric in offered if "ranking" not in metric.tasks} == set(METRICS)
    for metric in METRICS:
        assert metric.meaning, metric.name
        assert metric.better in ("lower", "higher", "none")
        assert metric.range[0] < metric.range[1]


def _merged(statistic: Statistic, rows: Rows, groups: np.ndarray, cuts: list[int], turn: list[int]) -> Any:
    """Collect in batches and add them up in the order of `turn`."""
    bounds = [0, *sorted(cut % (len(groups) + 1) for cut in cuts), len(groups)]
    parts = [
        statistic.collect(_take(rows, slice(a, b)), groups[a:b], GROUPS) for a, b in itertools.pairwise(bounds) if b > a
    ]
    order = sorted(range(len(parts)), key=lambda i: turn[i % len(turn)])
    total = parts[order[0]]
    for place in order[1:]:
        total = total + parts[place]
    return total


CUTS = st.lists(st.integers(0, 60), max_size=5)
TURNS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@pytest.mark.long
@pytest.mark.parametrize("key", sorted(STATISTICS))
@settings(max_examples=40, deadline=None)
@given(table=tables(), cuts=CUTS, turn=TURNS)
def test_batches_and_their_order_change_no_total(
    key: str, table: tuple[Rows, np.ndarray], cuts: list[int], turn: list[int]
) -> None:
    rows, groups = table
    whole = STATISTICS[key].collect(rows, groups, GROUPS)
    _same(_merged(STATISTICS[key], rows, groups, cuts, turn), whole)
    shuffled = np.random.default_rng(len(groups)).permutation(len(groups))
    _same(STATISTICS[key].collect(_take(rows, shuffled), groups[shuffled], GROUPS), whole)
    one = STATISTICS[key].collect(rows, np.zeros_like(groups), 1)
    _same(whole.pooled(), one)


@pytest.mark.long
@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
@settings(max_examples=25, deadline=None)
@given(table=tables(), cuts=CUTS, turn=TURNS)
def test_batches_and_their_order_change_no_metric(
    metric: type[Metric], table: tuple[Rows, np.ndarray], cuts: list[int], turn: list[int]
) -> None:
    rows, groups = table
    statistic = metric().statistic
    whole = statistic.collect(rows, groups, GROUPS)
    _same_estimates(metric, _merged(statistic, rows, groups, cuts, turn), whole)


@settings(max_examples=60, deadline=None)
@given(table=tables(), cuts=CUTS, turn=TURNS, limit=st.integers(1, 12))
def test_whether_scores_are_binned_does_not_depend_on_the_batches(
    table: tuple[Rows, np.ndarray], cuts: list[int], turn: list[int], limit: int
) -> None:
    rows, groups = table
    statistic = Scores(limit=limit)
    whole = statistic.collect(rows, groups, GROUPS)
    assert rows.score is not None
    assert whole.exact == (len(np.unique(rows.score)) <= limit)
    _same(_merged(statistic, rows, groups, cuts, turn), whole)
    assert whole.mass.sum() == pytest.approx(
        len(groups) if rows.weights is None else float(rows.weights.sum()), abs=1e-9
    )


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
@settings(max_examples=12, deadline=None)
@given(table=tables(weights="integer"))
def test_a_weight_of_k_is_k_copies(metric: type[Metric], table: tuple[Rows, np.ndarray]) -> None:
    rows, groups = table
    assert rows.weights is not None
    copies = np.repeat(np.arange(len(groups)), rows.weights.astype(int))
    plain = _take(rows, copies)
    statistic = metric().statistic
    weighted = statistic.collect(rows, groups, GROUPS)
    repeated = statistic.collect(
        Rows(outcome=plain.outcome, decision=plain.decision, score=plain.score), groups[copies], GROUPS
    )
    _same_estimates(metric, weighted, repeated)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_fractional_decisions_are_the_expectation_of_draws(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    chance = data.draw(hnp.arrays(float, n, elements=st.floats(0, 1)))
    outcome = data.draw(hnp.arrays(float, n, elements=st.sampled_from([0.0, 1.0])))
    groups = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, GROUPS - 1)))
    statistic = STATISTICS["confusion"]
    expected = np.zeros((GROUPS, 4))
    for draw in itertools.product([0.0, 1.0], repeat=n):
        decision = np.array(draw)
        probability = np.prod(np.where(decision == 1, chance, 1 - chance))
        expected += probability * statistic.collect(Rows(outcome=outcome, decision=decision), groups, GROUPS).first
    found = statistic.collect(Rows(outcome=outcome, decision=chance), groups, GROUPS).first
    np.testing.assert_allclose(found, expected, **TOLERANCE)


@settings(max_examples=60, deadline=None)
@given(table=tables())
def test_second_moments_are_sums_of_products(table: tuple[Rows, np.ndarray]) -> None:
    rows, groups = table
    assert rows.decision is not None
    h, y = rows.decision, rows.outcome
    w = np.ones_like(h) if rows.weights is None else rows.weights
    parts = np.column_stack([(1 - y) * (1 - h), (1 - y) * h, y * (1 - h), y * h])
    found = STATISTICS["confusion"].collect(rows, groups, GROUPS)
    for group in range(GROUPS):
        mine = groups == group
        np.testing.assert_allclose(found.first[group], w[mine] @ parts[mine], **TOLERANCE)
        second = (parts[mine] * w[mine, None] ** 2).T @ parts[mine]
        np.testing.assert_allclose(found.second[group], second, **TOLERANCE)
        assert found.count[group] == mine.sum()


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
@settings(max_examples=12, deadline=None)
@given(table=tables())
def test_values_lie_in_the_range_and_in_their_limits(metric: type[Metric], table: tuple[Rows, np.ndarray]) -> None:
    rows, groups = table
    estimate = metric().estimate(metric().statistic.collect(rows, groups, GROUPS), _rng(metric))
    known = np.isfinite(estimate.values)
    assert (estimate.values[known] >= metric.range[0] - 1e-9).all()
    assert (estimate.values[known] <= metric.range[1] + 1e-9).all()
    low, high = (part[known] for part in estimate.limits(1.96))
    shown = np.isfinite(low) & np.isfinite(high)
    values = estimate.values[known][shown]
    assert (low[shown] <= values + 1e-9).all()
    assert (high[shown] >= values - 1e-9).all()


def test_a_metric_without_contributions_says_so() -> None:
    class Empty(Metric):
        name = "empty"

        def compute(self, sums: np.ndarray) -> np.ndarray:
            return sums[..., 0]

    rows = Rows(outcome=np.ones(2), decision=np.ones(2))
    with pytest.raises(NotImplementedError, match="neither contributions nor a statistic"):
        Empty().statistic.collect(rows, np.zeros(2, dtype=np.int64), 1)


def test_threads_that_ask_for_a_score_table_at_once_get_the_same():
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(0)
    rows = Rows(outcome=rng.integers(0, 2, 20_000).astype(float), score=rng.random(20_000))
    groups = rng.integers(0, 3, 20_000)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            table = Scores().collect(rows, groups, 3) + Scores().collect(rows, groups, 3)
            asked = list(pool.map(lambda _, table=table: (table.mass.sum(), len(table.values)), range(8)))
            assert set(asked) == {(40_000.0, 20_000)}
