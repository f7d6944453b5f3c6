"""Rows without a sensitive value: a line of their own with their numbers, in no comparison, in every form."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit import PredictedColumns
from fairkit.auditing.measure import views
from fairkit.data.loading import load_data
from fairkit.intervals import share_limits, two_sided
from fairkit.metrics import Headline, Rate, field_names
from fairkit.models.scorer import Predictions
from fairkit.plugins import installed_metrics
from fairkit.reading import Headlines, headlines
from fairkit.results.report import validate_report
from fairkit_cli.formats import html as report_page
from fairkit_cli.formats import screen as table


def _columns(seed: int = 3, rows: int = 3000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows).astype(object)
    sex[rng.random(rows) < 0.2] = None
    score = rng.random(rows).round(3)
    return {
        "sex": sex,
        "s": score,
        "h": (score > 0.4).astype(int),
        "y": (rng.random(rows) < score).astype(int),
        "who": rng.integers(0, rows // 6, rows),
    }


def _audit(columns: dict[str, np.ndarray], **options: object) -> fairkit.Report:
    data = fairkit.load_data(dict(columns), label="y", favorable=1, sensitive=["sex"], **options)
    return fairkit.audit(PredictedColumns(decision="h", score="s"), data)


def test_the_line_has_the_rows_and_their_numbers() -> None:
    columns = _columns()
    report = _audit(columns)
    gone = columns["sex"] == None  # noqa: E711 -- an array is compared
    rest = {name: values[gone] for name, values in columns.items()}
    found = report.find("selection_rate_difference", "sex")
    assert [group.group for group in found.groups] == ["f", "m"]
    line = found.missing
    assert line is not None
    assert line.rows == gone.sum()
    assert line.value == pytest.approx(rest["h"].mean(), abs=1e-12)
    low, high = share_limits(np.array([rest["h"].mean()]), np.array([gone.sum()]), two_sided(0.95))
    assert line.interval == pytest.approx((low[0], high[0]), abs=1e-12)
    for metric, value in (
        ("mean_prediction", rest["s"].mean()),
        ("true_positive_rate", rest["h"][rest["y"] == 1].mean()),
        ("accuracy", (rest["h"] == rest["y"]).mean()),
    ):
        one = report.find(f"{metric}_difference", "sex").missing
        assert one is not None
        assert one.value == pytest.approx(value, abs=1e-9)
        assert one.interval is not None
        assert one.interval[0] < value < one.interval[1]
    alone = _audit(rest | {"sex": np.where(np.arange(gone.sum()) % 2, "f", "m")})
    line = report.find("roc_auc_difference", "sex").missing
    assert line is not None
    assert line.value == pytest.approx(alone.find("roc_auc").value, abs=1e-9)


def test_rows_of_one_person_widen_it() -> None:
    columns = _columns()
    columns["h"] = (np.random.default_rng(1).random(600) < 0.4).astype(int)[columns["who"]]
    wide, narrow = (
        _audit(columns, **options).find("selection_rate_difference", "sex").missing
        for options in ({"cluster": "who"}, {})
    )
    assert wide is not None
    assert narrow is not None
    assert wide.value == narrow.value
    assert wide.interval is not None
    assert narrow.interval is not None
    assert wide.interval[1] - wide.interval[0] > 1.05 * (narrow.interval[1] - narrow.interval[0])


@pytest.mark.long
def test_it_is_in_text_page_and_json() -> None:
    report = _audit(_columns())
    record = json.loads(json.dumps(report.to_dict()))
    validate_report(record)
    assert fairkit.Report.from_dict(record).to_dict() == report.to_dict()
    line = report.find("selection_rate_difference", "sex").missing
    assert line is not None
    shown = " ".join(table(report, terminal=False).split())
    assert f"(no value) {line.rows} {line.value:.3f}" in shown
    assert f"in no comparison; 95% intervals: selection rate {line.value:.3f} [" in shown
    page = report_page(report)
    assert "(no value)" in page
    assert f'<span class="value">{line.value:.3f}</span>' in page


def test_without_missing_values_there_is_no_line() -> None:
    columns = _columns()
    columns["sex"] = np.where(np.arange(3000) % 2, "f", "m")
    report = _audit(columns)
    assert all(finding.missing is None for finding in report.findings)
    assert "(no value)" not in table(report, terminal=False)


@pytest.mark.long
def test_conditional_numbers_pass_nothing_where_many_groups_are_missing() -> None:
    """A rule holds for every way to put them into groups, inside strata and against a reference, too."""
    columns = _columns() | {"d": np.random.default_rng(2).choice(["x", "y"], 3000)}
    texts = ("=0.3", "|d=0.2")
    rules = [fairkit.Rule.parse(f"demographic_parity_difference:sex{more}", "max") for more in texts]
    chosen, of_m, unknown = columns["h"] == 1, columns["sex"] == "m", columns["sex"] == None  # noqa: E711
    rate = (chosen & (of_m | unknown)).sum() / (of_m | (unknown & chosen)).sum()
    worst = (chosen & ~of_m & ~unknown).sum() / (~of_m & ~(unknown & chosen)).sum() / rate
    seen = (chosen & ~of_m & ~unknown).sum() / (~of_m & ~unknown).sum() / (chosen & of_m).sum() * of_m.sum()
    assert 0.2 < _worst_inside(columns) < 0.3
    assert worst < 0.85
    assert seen > 0.95  # rows without a sex decide whether the ratio is so large
    rules += [fairkit.Rule.parse(f"impact_ratio:sex={limit}", "min") for limit in (0.9, worst - 0.1)]
    conditions = {"within": ["d"], "reference": ["sex=m"]}
    data = fairkit.load_data(dict(columns), label="y", favorable=1, sensitive=["sex"], **conditions)
    report = fairkit.audit(PredictedColumns(decision="h", score="s"), data, policy=rules)
    assert [rule.verdict for rule in report.policy] == ["pass", "inconclusive", "inconclusive", "pass"]
    assert all("have no value of sex" in rule.reason for rule in report.policy[1:3])
    loose = [fairkit.Rule.parse("demographic_parity_difference:sex|d=0.3", "max")]
    assert fairkit.audit(PredictedColumns(decision="h", score="s"), data, policy=loose).verdict == "pass"
    whole = columns | {"sex": np.where(np.arange(3000) % 2, "f", "m")}
    data = fairkit.load_data(dict(whole), label="y", favorable=1, sensitive=["sex"], **conditions)
    report = fairkit.audit(PredictedColumns(decision="h", score="s"), data, policy=rules)
    assert [rule.verdict for rule in report.policy] == ["pass", "pass", "pass", "pass"]


def _worst_inside(columns) -> float:
    """The largest pooled difference inside d, where all without a sex are put to widen it one way or the other."""
    chosen, sex, strata = columns["h"] == 1, np.array(columns["sex"], dtype=object), columns["d"]
    unknown = sex == None  # noqa: E711
    found = []
    for good, bad in (("m", "f"), ("f", "m")):
        group = np.where(unknown, np.where(chosen, good, bad), sex)
        parts = [[(group == name) & (strata == one) for name in ("m", "f")] for one in ("x", "y")]
        weights = np.array([a.sum() * b.sum() / (a.sum() + b.sum()) for a, b in parts])
        gaps = np.array([chosen[a].mean() - chosen[b].mean() for a, b in parts])
        found.append(abs(float(weights @ gaps / weights.sum())))
    return max(found)


def test_metrics_that_need_a_condition_say_which() -> None:
    columns = _columns()
    for rule, words in (("impact_ratio:sex=0.8", "`reference`"), ("odds_ratio:sex=0.8", "`within`")):
        data = fairkit.load_data(dict(columns), label="y", favorable=1, sensitive=["sex"])
        with pytest.raises(fairkit.PolicyError, match=words):
            fairkit.audit(PredictedColumns(decision="h"), data, policy=[fairkit.Rule.parse(rule, "min")])


# What views show first is what metrics and auditors declare.
class Own(Rate):
    name = "own_rate"
    over = (1, 1, 1, 1)
    counted = (0, 1, 0, 1)
    alias = "own_parity"
    headline = Headline(performance=2, between=1, tasks=frozenset({"binary"}))


def test_the_installed_ones_are_in_the_order_that_they_declare():
    shown = headlines()
    assert shown.performance() == [
        *("accuracy", "balanced_accuracy", "roc_auc", "log_loss"),
        *("mean_absolute_error", "mean_squared_error", "r2_score"),
        *("ndcg", "pairwise_accuracy"),
    ]
    assert shown.between("regression") == [
        *("demographic_parity_difference", "equal_opportunity_difference", "false_positive_rate_difference"),
        *("equalized_odds_difference", "accuracy_difference", "mean_prediction_difference"),
        *("mean_absolute_error_difference", "statistical_parity_ks", "worst_group_loss"),
        *("exposure_difference", "top_k_rate_difference", "pairwise_accuracy_difference"),
    ]
    assert "mean_prediction_difference" not in shown.between("binary")
    assert shown.columns("binary")[:5] == [
        *("selection_rate", "true_positive_rate", "false_positive_rate", "precision", "accuracy")
    ]
    assert "mean_prediction" in shown.columns("regression")


def test_none_is_listed_twice_under_two_names():
    shown = headlines()
    same = ("selection_rate_difference", "true_positive_rate_difference", "false_negative_rate_difference")
    assert not any(shown.lists(name, "binary") for name in (*same, "gap_max", "equalized_odds_difference"))
    assert all(shown.lists(name, "binary") for name in ("demographic_parity_difference", "statistical_parity_ks"))
    assert shown.lists("mean_prediction_difference", "regression")
    assert not shown.lists("mean_prediction_difference", "binary")
    assert shown.lists("somebody_elses_difference", "binary")
    assert not shown.lists("selection_rate_ratio", "binary")


def test_a_metric_of_ones_own_declares_its_place_and_its_name():
    shown = Headlines({"own_rate": Own}, {"other": Headline(between=2)})
    assert shown.between("binary") == ["own_parity_difference", "other"]
    assert shown.between("regression") == ["other"]
    assert shown.decides({"own_parity_difference"})
    assert field_names([Own]) == {"own_rate_difference": "own_parity_difference", "own_rate_ratio": "own_parity_ratio"}
    assert field_names(installed_metrics()[0])["selection_rate_ratio"] == "demographic_parity_ratio"


class Three:
    task = "multiclass"
    classes = ("a", "b", "c")


def test_of_several_classes_each_is_seen_against_the_others():
    labels = np.array(["a", "b", "c", "b"], dtype=object)
    data = load_data({"x": np.arange(4), "y": labels}, label="y")
    batch = next(iter(data.batches([])))
    said = Predictions(
        decision=None, score=None, predicted=np.array([0, 1, 1, 2]), probabilities=np.full((4, 3), 1 / 3)
    )
    found = dict(views(batch, said, Three(), data))
    assert list(found) == [None, "a", "b", "c"]
    assert found[None].decision.tolist() == [1, 1, 0, 0]  # right or wrong
    assert found["b"].outcome.tolist() == [0, 1, 0, 1]
    assert found["b"].decision.tolist() == [0, 1, 1, 0]
