"""Groups that nobody named in two models, along a frontier, on a cluster, and on pages."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.results.report import Report
from fairkit_cli.formats import screen as text_of
from fairkit_cli.main import app
from fairkit_comparing.run import compare
from fairkit_repair.frontiers.choice import Choice
from fairkit_repair.frontiers.run import frontier
from fairkit_repair.frontiers.sweeps import Sweep


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


def test_a_repair_mends_one_group_and_harms_another():
    found = compare(models(), data(decided()), auditors=["subgroups"], parameters=SEARCHED)
    groups = {
        one.group: one for one in found.changes[0] if one.metric == "subgroup_gap" and "conditions" in one.parameters
    }
    mended = next(one for one in groups.values() if one.parameters["named_in"] == "first")
    harmed = next(one for one in groups.values() if one.parameters["named_in"] == "second")
    assert mended.outcome == "better"
    assert mended.interval[0] > 0
    assert harmed.outcome == "worse"
    assert harmed.parameters["differs"] == {"first": False, "second": True}
    assert {one["column"] for one in harmed.parameters["conditions"]} == {"job", "region"}
    for one in groups.values():
        assert one.interval[0] <= one.difference <= one.interval[1]
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.long
def test_the_intervals_of_changes_hold_for_all_groups_at_once():
    missed = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        table = decided(1500, seed)
        same = (rng.random(1500) < 0.5).astype(int)
        flips = rng.random(1500) < 0.1  # both models decide by the same chance everywhere: no group changes
        table = table.set_column(3, "one", pa.array(same)).set_column(
            4, "two", pa.array(np.where(flips, 1 - same, same))
        )
        settings = {"subgroups": {**SEARCHED["subgroups"], "depth": 2}}
        found = compare(models(), data(table), auditors=["subgroups"], parameters=settings)
        gaps = [one for one in found.changes[0] if one.metric == "subgroup_gap"]
        missed += any(not one.interval[0] <= 0 <= one.interval[1] for one in gaps)
    assert missed <= 1


def test_an_auditor_that_does_not_compare_is_refused():
    with pytest.raises(fairkit.ParameterError, match="'consistency' does not compare models"):
        compare(models(), data(decided(500)), auditors=["consistency"])


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


def test_the_command_compares_groups(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    pq.write_table(decided(4000), "people.parquet")
    words = ["compare", "--predictions", "decision=one", "--predictions", "decision=two", "--data", "people.parquet"]
    words += [
        "--label",
        "outcome",
        "--favorable",
        "1",
        "--sensitive",
        "region",
        "--set",
        "subgroups.columns=age,job,region",
    ]
    words += ["--set", "subgroups.metrics=selection_rate"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "the second" in " ".join(shown.output.split())
    page = CliRunner().invoke(app, [*words, "--format", "html", "--output", "page.html"])
    assert page.exit_code == 0, page.output
    assert "Groups that nobody named" in (tmp_path / "page.html").read_text("utf-8")
