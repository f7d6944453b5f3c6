"""The single checks of a statement, each with one number changed; `test_identities` has whole statements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fairkit
from fairkit.results.report import Report
from fairkit_registry.evidence.consistency.counts import _own_intervals
from fairkit_registry.evidence.consistency.numbers import about
from fairkit_registry.evidence.consistency.recount import _sizes, check_chart, check_odds, check_rows
from fairkit_registry.evidence.consistency.statement import _left_out


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(1)
    rows = 600
    table = {
        "sex": np.array(["f", "m"])[rng.integers(0, 2, rows)],
        "race": np.array(["a", "b"])[rng.integers(0, 2, rows)],
        "y": rng.integers(0, 2, rows),
        "s": rng.random(rows),
    }
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex", "race"], predictions={"score": "s"})
    return Report.from_dict(fairkit.audit(None, data).to_dict())


def changed(report, metric, change):
    return replace(report, findings=tuple(change(f) if f.metric == metric else f for f in report.findings))


def test_numbers_are_the_same_but_for_rounding():
    assert about(1e-12, 3e-12)
    assert about(0.0, 1e-10)
    assert about(1e6, 1e6 + 1e-4)
    assert not about(0.2, 0.2 + 1e-8)
    assert about(0.2, 0.2 + 0.9e-9)
    assert not about(0.2, 0.2 + 1.1e-9)
    assert not about(0.2 + 1.1e-9, 0.2)
    assert not about(1e6, 1e6 + 1e-2)


@pytest.mark.parametrize("metric", ["equalized_odds_difference", "equalized_odds_ratio", "gap_max", "gap_rms"])
def test_a_joint_disparity_follows_from_its_rates(report, metric):
    assert list(check_odds(report)) == []
    low = changed(report, metric, lambda f: replace(f, value=f.value * 0.9))
    assert len(list(check_odds(low))) == 2  # of both columns


def test_a_chart_has_the_rows_of_its_groups(report):
    plain = next(f for f in report.findings if f.metric == "demographic_parity_difference")

    def charted(counts, **changes):
        return replace(plain, evidence={"score_counts": counts}, **changes)

    rows = [group.rows for group in plain.groups]
    honest = [rows[0] - 10, 10, 0, rows[1]]
    assert list(check_chart(charted(honest), weighted=False)) == []
    more = charted([honest[0] + 9, *honest[1:]])
    (text,) = check_chart(more, weighted=False)
    assert text == f"its chart has {rows[0] + 9} rows of group {plain.groups[0].group}, which has {rows[0]}"
    assert list(check_chart(more, weighted=True)) == []
    assert list(check_chart(charted(honest[1:]), weighted=False)) == [
        "its chart has not the same number of bins for every group"
    ]
    for unread in (replace(more, groups=()), replace(more, auditor="watch"), charted("600"), plain):
        assert list(check_chart(unread, weighted=False)) == []


def test_a_groups_own_interval_follows_from_its_count(report):
    finding = next(
        f for f in report.findings if f.metric == "selection_rate_difference" or f.metric.startswith("demographic")
    )
    confidence = report.confidence
    assert all(group.interval is not None and group.denominator for group in finding.groups)
    assert list(_own_intervals("it", finding.groups, confidence)) == []
    low, high = finding.groups[0].interval
    wider = (replace(finding.groups[0], interval=(low - 0.01, high)), *finding.groups[1:])
    assert len(list(_own_intervals("it", wider, confidence))) == 1
    for unknown in ({"interval": None}, {"value": None}, {"denominator": None}, {"denominator": 0.0}):
        assert list(_own_intervals("it", (replace(wider[0], **unknown),), confidence)) == []


def test_a_disparity_of_one_column_is_one_of_every_column(report):
    assert list(_left_out(report)) == []
    for metric in ("demographic_parity_difference", "equalized_odds_difference", "statistical_parity_ks"):
        gone = [f for f in report.findings if not (f.metric == metric and f.sensitive == "sex")]
        assert len(gone) < len(report.findings)
        assert len(list(_left_out(replace(report, findings=tuple(gone))))) == 1


def test_groups_and_rows_without_a_group_are_the_rows(report):
    assert list(check_rows(report)) == []
    sizes = report.data.groups["sex"]
    more = {**report.data.groups, "sex": {**sizes, "f": sizes["f"] + 1}}
    (text,) = check_rows(replace(report, data=replace(report.data, groups=more)))
    assert text == "the groups of sex have 601 rows together, the data have 600"
    (text,) = check_rows(replace(report, data=replace(report.data, missing={"sex": 1_000})))
    assert text == ("the groups of sex have 1,600 rows together with 1,000 rows without a group, the data have 600")
    assert _sizes({"m": 1_200, "f": 3}) == "f 3, m 1,200"
    assert _sizes({}) == "none"
