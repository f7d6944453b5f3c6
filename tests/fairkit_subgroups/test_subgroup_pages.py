"""Groups that nobody named along a frontier, and on pages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.results.report import Report
from fairkit_cli.formats import screen as text_of
from fairkit_repair.frontiers.run import Choice, frontier
from fairkit_repair.frontiers.training import Sweep


def decided(rows=8000, seed=0):
    """The second model helps young people of region n, and harms those of job b in region s."""
    rng = np.random.default_rng(seed)
    age, job, region = rng.integers(18, 66, rows), rng.choice(["a", "b"], rows), rng.choice(["n", "s"], rows)
    young, other = (age < 30) & (region == "n"), (job == "b") & (region == "s")
    noise = rng.random(rows)
    first = (noise < np.where(young, 0.3, 0.6)).astype(int)
    second = (noise < np.where(other, 0.35, 0.6)).astype(int)
    outcome = (rng.random(rows) < 0.5).astype(int)
    return pa.table({"age": age, "job": job, "region": region, "one": first, "two": second, "outcome": outcome})


def data(table):
    return fairkit.load_data(table, label="outcome", favorable=1, sensitive=["region"], name="people")


def models():
    return [PredictedColumns(decision="one"), PredictedColumns(decision="two")]


SEARCHED = {"subgroups": {"columns": ["age", "job", "region"], "metrics": ["selection_rate"]}}


@pytest.mark.long
def test_a_frontier_is_drawn_against_the_groups_that_nobody_named():
    rng = np.random.default_rng(1)
    n = 3000
    sex, x = rng.choice(["f", "m"], n), rng.normal(size=n)
    label = (rng.random(n) < 1 / (1 + np.exp(-x - (sex == "m")))).astype(int)
    table = pa.table({"x": x + (sex == "m"), "sex": sex, "label": label})
    rows = fairkit.load_data(table, label="label", favorable=1, sensitive=["sex"], features=["x"], name="people")
    found = frontier(
        [Sweep(plugin="reweigh", vary={"strength": (1.0,)})],
        rows,
        disparity="subgroup_difference",
        parameters={"subgroups": {"metrics": ["selection_rate"], "least": 20}},
        learner="logistic",
        jobs=1,
        choice=Choice(limit=1.0),
    )
    assert found.disparity == "subgroup_difference"
    values = [point.measures["subgroup_difference"].value for point in found.points]
    assert len(values) == 2
    assert values[1] < values[0]
    assert found.test.find("subgroup_difference", auditor="subgroups").interval is not None


def report(**more):
    table = decided(3000)
    return fairkit.audit(models()[0], data(table), auditors=["subgroups"], parameters=SEARCHED, **more)


def test_the_terminal_says_groups_in_words_and_the_bound():
    text = " ".join(text_of(report(), terminal=False).split())
    assert "Groups that nobody named: selection rate" in text
    assert "aged" in text
    assert "No group of at least 1 % of the rows differs by more than" in text
    assert "95% for all" in text


@pytest.mark.long
def test_what_somebody_elses_report_holds_is_shown_as_text_or_left_out():
    record = report().to_dict()
    hostile = [
        {"conditions": [{"column": "<script>alert(1)</script>", "value": "\u202e"}], "share": "many", "rate": None},
        {"conditions": [3], "rank": "x", "share_curve": ["a", "b"], "covers": [1, 2, 3], "within": [{}]},
        {"conditions": "all", "share_curve": [0.1], "groups_searched": "a lot"},
    ]
    from fairkit_cli.formats import html as report_page

    pytest.importorskip("vl_convert")
    for change in hostile:
        findings = [{**one, "evidence": {**one["evidence"], **change}} for one in record["findings"]]
        read = Report.from_dict({**record, "findings": findings})
        assert "<script>alert" not in report_page(read)
        text_of(read, terminal=False)
