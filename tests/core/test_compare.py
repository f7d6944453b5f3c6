"""Paired comparisons: the values of the audits, intervals against row bootstraps, coverage, and what is noise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.changes import change, differences
from fairkit.comparing import compare
from fairkit.models import PredictedColumns
from fairkit.pairing import Paired, paired_areas


def table(rows: int, seed: int, *, groups: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=rows)
    truth = rng.random(rows)
    first = np.clip(truth + rng.normal(0, 0.25, rows) + 0.05 * group, 0, 1)
    second = np.clip(first + rng.normal(0, 0.1, rows) - 0.04 * group, 0, 1)
    return pa.table(
        {
            "g": [f"g{i}" for i in group],
            "y": (rng.random(rows) < truth).astype(int),
            "a": first,
            "b": second,
            "t": truth * 10,
            "w": rng.integers(1, 4, rows).astype(float),
        }
    )


def load(source: pa.Table, **more: object) -> fairkit.Dataset:
    return fairkit.load_data(source, label="y", favorable=1, sensitive=["g"], **more)


A, B = PredictedColumns(score="a"), PredictedColumns(score="b")


@pytest.mark.parametrize("weights", [None, "w"])
def test_the_values_are_those_of_the_audits(weights: str | None):
    data = load(table(1500, 0), weights=weights)
    result = compare([A, B], data)
    reports = [fairkit.audit(model, data) for model in (A, B)]
    compared = 0
    for one in result.changes[0]:
        if one.group is not None or one.before is None:
            continue
        values = [report.find(one.metric, one.sensitive).value for report in reports]
        assert (one.before, one.after) == pytest.approx(values, abs=1e-10), one.metric
        compared += 1
    assert compared >= 30
    assert result.find("selection_rate", "g", group="g1").before == pytest.approx(
        next(g.value for g in reports[0].find("selection_rate_difference", "g").groups if g.group == "g1")
    )


METRICS = (
    ("accuracy", None), ("balanced_accuracy", None), ("f1_score", None), ("roc_auc", None), ("log_loss", None),
    ("demographic_parity_difference", "g"), ("demographic_parity_ratio", "g"),
)  # fmt: skip


def test_intervals_are_as_wide_as_those_of_a_row_bootstrap():
    source = table(1500, 1, groups=2)
    result = compare([A, B], load(source))
    rng = np.random.default_rng(2)
    draws: dict[tuple[str, str | None], list[float]] = {key: [] for key in METRICS}
    for _ in range(80):
        sample = compare([A, B], load(source.take(rng.integers(0, 1500, 1500))))
        for key, values in draws.items():
            difference = sample.find(*key).difference
            assert difference is not None
            values.append(difference)
    for key, values in draws.items():
        found = result.find(*key)
        assert found.interval is not None
        width = found.interval[1] - found.interval[0]
        assert width == pytest.approx(2 * 1.96 * np.std(values), rel=0.28), (
            key
        )  # four standard errors of 80 draws


def test_pairing_narrows_the_interval():
    data = load(table(3000, 3))
    found = compare([A, B], data).find("roc_auc")
    single = fairkit.audit(A, data).find("roc_auc")
    assert found.interval is not None
    assert single.interval is not None
    assert found.interval[1] - found.interval[0] < 0.6 * (single.interval[1] - single.interval[0])


def test_a_model_beside_itself_is_within_noise_and_a_coin_is_worse():
    data = load(table(3000, 4).append_column("coin", pa.array(np.random.default_rng(0).random(3000))))
    result = compare([A, A, PredictedColumns(score="coin")], data)
    assert {one.outcome for one in result.changes[0]} == {"same"}
    assert result.find("accuracy").interval != (0.0, 0.0)
    assert result.find("accuracy", model=2).outcome == "worse"
    assert result.find("roc_auc", model=2).outcome == "worse"
    assert result.find("selection_rate", model=2).better == "none"


@pytest.mark.parametrize("groups", [2, 5])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("spread", [(0.0, 0.0), (0.1, 0.1), (0.1, 0.0)])
def test_intervals_of_changed_disparities_cover(groups: int, correlation: float, spread: tuple[float, float]):
    rng = np.random.default_rng(5)
    truth = np.zeros((2, groups))
    truth[:, 0] = spread
    covariance = 1e-4 * np.array([[1, correlation], [correlation, 1]])
    true = float(np.ptp(truth[1]) - np.ptp(truth[0]))
    hits, runs = 0, 1000
    for _ in range(runs):
        noise = rng.multivariate_normal([0, 0], covariance, size=groups).T
        numbers = Paired(truth + noise, np.repeat(covariance[None], groups, axis=0))
        seen = change(differences(numbers), numbers, 0.95)
        hits += seen.low - 1e-12 <= true <= seen.high + 1e-12
    assert hits / runs >= 0.935  # 0.95 less two standard errors of a thousand runs


def test_two_clearly_different_groups_have_the_usual_paired_interval():
    covariance = np.array([[[4.0, 1.0], [1.0, 2.0]], [[1.0, 0.5], [0.5, 3.0]]]) * 1e-6
    numbers = Paired(np.array([[0.5, 0.2], [0.45, 0.25]]), covariance)
    seen = change(differences(numbers), numbers, 0.95)
    error = np.sqrt(sum(c[0, 0] + c[1, 1] - 2 * c[0, 1] for c in covariance))
    assert seen.high - seen.low == pytest.approx(2 * 1.959964 * error, rel=1e-6)
    assert seen.second - seen.first == pytest.approx(-0.1)


def test_areas_agree_with_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(6)
    outcome, weights = rng.integers(0, 2, 400).astype(float), rng.random(400)
    scores = (np.round(rng.random(400), 1), rng.random(400))
    found = paired_areas(scores, outcome, weights, np.zeros(400, dtype=np.int64), 1)
    for model in (0, 1):
        assert found.values[model, 0] == pytest.approx(
            roc_auc_score(outcome, scores[model], sample_weight=weights)
        )


def test_regressions_and_classes():
    source = table(900, 7)
    data = fairkit.load_data(source, label="t", sensitive=["g"])
    result = compare([A, B], data)
    error = (source["a"].to_numpy() - source["t"].to_numpy()) ** 2
    assert result.find("mean_squared_error").before == pytest.approx(error.mean())
    assert result.find("mean_squared_error").interval is not None


def test_bad_input():
    data = load(table(300, 8))
    with pytest.raises(fairkit.ParameterError, match="two models"):
        compare([A], data)
    with pytest.raises(fairkit.ParameterError, match="confidence"):
        compare([A, B], data, confidence=95)
    unlabelled = fairkit.load_data(table(300, 8), sensitive=["g"])
    with pytest.raises(fairkit.ParameterError, match="--label"):
        compare([A, B], unlabelled)


def test_a_small_group_is_undecided():
    source = table(300, 9)
    few = pa.concat_tables([source, source.slice(0, 5).set_column(0, "g", pa.array(["few"] * 5))])
    result = compare([A, PredictedColumns(score="b")], load(few))
    assert result.find("accuracy", "g", group="few").outcome == "undecided"
    assert result.find("demographic_parity_difference", "g").outcome == "undecided"
