"""Plain functions as metrics: their numbers are those of the function, their intervals cover, bad ones are refused."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import fairkit
from fairkit.functions import DRAWS, KEPT, metrics_of
from fairkit.statistics import Rows


def _table(rows=800, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(rows)
    return {
        "sex": rng.choice(["f", "m"], rows).astype(object),
        "p": p,
        "y": (rng.random(rows) < p).astype(int),
        "d": (p > 0.5).astype(int),
        "w": rng.random(rows),
        "id": rng.integers(0, 90, rows),
    }


def _audit(table, metrics, **more):
    roles = {name: more.pop(name) for name in ("weights", "cluster") if name in more}
    data = fairkit.load_data(table, label="y", favorable=1, sensitive="sex", **roles)
    return fairkit.audit(fairkit.PredictedColumns(decision="d", score="p"), data, metrics=metrics, **more)


@pytest.mark.long
def test_the_functions_numbers_in_every_group():
    from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

    table = _table()
    functions = {"mcc": matthews_corrcoef, "auc": roc_auc_score, "f1_of_bad": partial(f1_score, pos_label=0)}
    report = _audit(table, functions)
    for name, function in functions.items():
        said = table["p"] if name == "auc" else table["d"]
        assert report.find(name).value == pytest.approx(function(table["y"], said))
        gap = report.find(f"{name}_difference", "sex")
        each = {group: function(table["y"][table["sex"] == group], said[table["sex"] == group]) for group in ("f", "m")}
        assert gap.value == pytest.approx(abs(each["f"] - each["m"]))
        assert {one.group: one.value for one in gap.groups} == pytest.approx(each)
        assert gap.interval is not None
        assert any(f"a bootstrap ({DRAWS} draws" in note for note in gap.notes)
    # beside the closed form of the same number
    mine, theirs = report.find("auc").interval, report.find("roc_auc").interval
    assert mine == pytest.approx(theirs, abs=0.006)


@pytest.mark.long
def test_weights_and_chance_go_to_the_function():
    from sklearn.metrics import matthews_corrcoef

    table = _table()
    report = _audit(table, {"mcc": matthews_corrcoef}, weights="w")
    expected = matthews_corrcoef(table["y"], table["d"], sample_weight=table["w"])
    assert report.find("mcc").value == pytest.approx(expected)
    report = _audit(table, {"hits": lambda y, d: float((y == d).mean())}, weights="w")
    assert "takes no sample_weight" in report.find("hits").inconclusive
    share = {"share": lambda y, d, sample_weight: float(sample_weight @ d / sample_weight.sum())}
    data = fairkit.load_data(_table() | {"d": np.full(800, 0.25)}, label="y", favorable=1, sensitive="sex")
    report = fairkit.audit(fairkit.PredictedColumns(decision_probability="d"), data, metrics=share)
    assert report.find("share").value == pytest.approx(0.25)


def test_numbers_of_a_regression():
    from sklearn.metrics import mean_absolute_error

    table = _table()
    data = fairkit.load_data(table, label="p", sensitive="sex")
    report = fairkit.audit(fairkit.PredictedColumns(prediction="w"), data, metrics={"mae": mean_absolute_error})
    assert report.find("mae").value == pytest.approx(report.find("mean_absolute_error").value)


@pytest.mark.long
def test_a_rule_on_a_function_and_what_is_refused():
    from sklearn.metrics import matthews_corrcoef

    table = _table()
    rule = fairkit.Rule(metric="mcc_difference", sensitive="sex", max=0.5)
    assert _audit(table, {"mcc": matthews_corrcoef}, policy=[rule]).verdict == "pass"
    assert (
        "bootstrap of single rows" in _audit(table, {"mcc": matthews_corrcoef}, cluster="id").find("mcc").inconclusive
    )
    for metrics, message in (
        ({"accuracy": matthews_corrcoef}, "there is a metric 'accuracy' already"),
        ({"MCC": matthews_corrcoef}, "cannot be called 'MCC'"),
        ({"mcc_difference": matthews_corrcoef}, "cannot be called"),
        ({"mcc": 3}, "is no function: 3"),
    ):
        with pytest.raises(fairkit.ParameterError, match=message):
            _audit(table, metrics)


def test_one_row_that_makes_a_function_fail_is_no_end_of_the_audit():
    def broken(y, d):
        raise ValueError("no luck")

    report = _audit(_table(), {"broken": broken})
    assert "ValueError: no luck" in report.find("broken").inconclusive
    assert report.find("accuracy").value is not None


@pytest.mark.long
def test_the_intervals_cover():
    """Of a share, whose true value is known."""
    (hits,) = metrics_of({"hits": lambda y, d: float((y == d).mean())})
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        p = rng.random(150)
        rows = Rows(outcome=(rng.random(150) < p).astype(float), decision=(p > 0.5).astype(float))
        low, high = hits().estimate(KEPT.collect(rows, np.zeros(150, dtype=np.int64), 1), rng).limits(1.96)
        covered += bool(low[0] <= 0.75 <= high[0])
    assert 181 <= covered <= 198
