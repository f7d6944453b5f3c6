"""Rows without a sensitive value: a line of their own with their numbers, in no comparison, in every form."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit import PredictedColumns
from fairkit.intervals import share_limits, two_sided
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
