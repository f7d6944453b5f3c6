"""The auditor: it finds a planted group, is silent where there is none, and says what it cannot do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper
from tests.commands import checked

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.results.report import Report
from fairkit.results.rules import Rule
from fairkit.settings import ModelOptions
from fairkit_cli.formats import screen as text_of
from fairkit_repair.frontiers.run import Choice, frontier
from fairkit_repair.frontiers.training import Sweep

MODEL = PredictedColumns(score="score", decision="decision")


def people(rows=6000, *, harm=0.0, seed=0, **more):
    """Scores that are the chances of the outcome, but for one group, whose chances are higher by `harm`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    age, job = rng.integers(18, 80, rows), rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    score = np.round(1 / (1 + np.exp(-x)), 6)
    planted = (age >= 26) & (age <= 49) & (job == "b")
    outcome = (rng.random(rows) < np.clip(score + harm * planted, 0, 1)).astype(int)
    columns = {
        "x": x.astype(np.float32), "age": age, "job": job, "region": rng.choice(["n", "s", None], rows),
        "score": score, "decision": (score >= 0.5).astype(int), "outcome": outcome,
    }  # fmt: skip
    return pa.table({name: pa.array(one, from_pandas=True) for name, one in (columns | more).items()})


def audit(table, *, policy=(), sensitive=("job",), weights=None, label="outcome", engine=None, **parameters):
    favorable = None if label is None else 1
    data = fairkit.load_data(
        table, label=label, favorable=favorable, sensitive=list(sensitive), weights=weights, name="people"
    )
    settings = {"columns": "age,job,region", "metrics": "calibration_residual"} | parameters
    model = MODEL if label else PredictedColumns(decision="decision")
    return fairkit.audit(
        model,
        data,
        auditors=["subgroups"],
        parameters={"subgroups": settings},
        policy=policy,
        engine=engine,
        options=ModelOptions(task="binary"),
    )


def listed(report):
    return [finding for finding in report.findings if finding.metric == "subgroup_gap"]


def sigmoid_file(path):
    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["score"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def test_a_planted_group_is_found_and_described_and_a_bound_fails_the_rule():
    report = audit(people(harm=0.35), policy=[Rule.parse("subgroup_difference=0.05", "max")])
    assert report.verdict == "fail"
    first = listed(report)[0]
    told = {one["column"]: one for one in first.evidence["conditions"]}
    assert told.keys() == {"age", "job"}
    assert told["job"]["value"] == "b"
    assert 22 <= told["age"]["low"] <= 34
    assert 40 <= told["age"]["high"] <= 57
    assert first.interval[0] > 0.05
    assert first.interval[0] <= first.value <= first.interval[1]
    assert first.evidence["groups_searched"] > 200
    assert first.evidence["critical"] > 3.5
    assert "aged" in first.parameters["group"]
    assert len(listed(report)) == 1  # its neighbours are the same people
    whole = report.find("subgroup_difference")
    assert whole.interval[0] == pytest.approx(max(one.interval[0] for one in listed(report)))
    assert whole.interval == report.find("worst_subgroup_gap").interval
    curve = report.find("calibration_residual_subgroup_difference").evidence["share_curve"]
    assert curve[1] == pytest.approx(whole.interval[1])
    assert curve[1::2] == sorted(curve[1::2], reverse=True)


def test_nothing_is_found_where_there_is_nothing_and_the_bound_passes_the_rule():
    rule = [Rule.parse("subgroup_difference=0.4", "max")]
    for seed in range(4):
        report = audit(people(seed=seed), policy=rule, metrics="calibration_residual,error_rate,selection_rate")
        assert listed(report) == []
        assert report.find("subgroup_difference").interval[0] == 0
        assert report.verdict == "pass"


@pytest.mark.long
def test_a_model_file_is_certified_promoted_on_the_bound_and_verified_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sigmoid_file("model.onnx")
    pq.write_table(people(), "people.parquet")

    roles = ("--data", "people.parquet", "--label", "outcome", "--favorable", "1", "--sensitive", "job")
    searched = ("--features", "x", "--auditor", "subgroups", "--set", "subgroups.columns=age,job,region")
    searched += ("--set", "subgroups.metrics=calibration_residual")
    found = checked("audit", "model.onnx", *roles, *searched, "--max", "subgroup_difference=0.4")
    assert "No group was found whose disadvantage is certain" in found.output
    checked("key", "new", "key")
    checked(
        "certify", "model.onnx", *roles, *searched, "--max", "subgroup_difference=0.4", "--key", "key",
        "--output", "cert.json",
    )  # fmt: skip
    again = checked(
        "verify", "cert.json", "--model", "model.onnx", "--key", "key.pub", "--data", "people.parquet", "--recompute"
    )
    assert "computed again" in again.output
    checked("registry", "add", "credit", "model.onnx", "--certificate", "cert.json")
    Path("alias.toml").write_text(
        'like = "cert.json"\nkeys = ["key.pub"]\ndata = ["people.parquet"]\n'
        'rules = [{ metric = "subgroup_difference", max = 0.4 }]\n'
    )
    checked("registry", "alias", "credit", "production", "--policy", "alias.toml")
    checked("registry", "promote", "credit@1", "production")


def test_a_certificate_keeps_the_conditions_and_not_the_rows(tmp_path, monkeypatch):
    from fairkit_registry.evidence.predicate import without_rows

    report = audit(people(harm=0.35))
    kept = without_rows(listed(report)[0].to_dict())
    assert kept["evidence"]["conditions"] == listed(report)[0].evidence["conditions"]
    assert kept["notes"] == []
    hostile = {"conditions": [{"column": "age", "value": 3, "secret": "Ada"}], "within": [{"name": "Ada"}]}
    cut = without_rows({"evidence": hostile, "notes": []})
    assert "Ada" not in json.dumps(cut["evidence"])


def same(one, other):
    keep = [replace(f, interval_at=None, upper_at=None) for f in one.findings]
    assert keep == [replace(f, interval_at=None, upper_at=None) for f in other.findings]


@pytest.mark.parametrize("extra", [{}, {"weights": "w"}, {"within": "region"}])
def test_the_order_of_the_rows_and_the_cuts_of_the_table_change_nothing(extra):
    rng = np.random.default_rng(5)
    table = people(3000, harm=0.3, w=rng.random(3000))
    parameters = {"metrics": "calibration_residual,true_positive_rate,mean_loss", "columns": "age,job", **extra}
    whole = audit(table, **parameters)
    mixed = audit(table.take(pa.array(rng.permutation(3000))), **parameters)
    same(whole, mixed)


def test_halves_of_the_rows_find_and_test():
    report = audit(people(12_000, harm=0.35), validate="half")
    first = listed(report)[0]
    assert first.evidence["critical"] < 3
    assert first.interval[0] > 0
    whole = report.find("subgroup_difference")
    assert whole.interval[1] == 1.0
    assert "no bound for all groups" in " ".join(whole.notes)
    quiet = audit(people(12_000, seed=3), validate="half", policy=[Rule.parse("subgroup_difference=0.9", "max")])
    assert listed(quiet) == []
    assert quiet.verdict == "inconclusive"


def test_the_bootstrap_is_no_wider_than_exact_tails():
    table = people(3000, harm=0.3)
    exact, drawn = audit(table), audit(table, simultaneous="bootstrap")
    wide, narrow = (one.find("subgroup_difference").interval for one in (exact, drawn))
    assert wide[0] <= narrow[0] < narrow[1] <= wide[1]
    key = "critical"
    first = [one.find("calibration_residual_subgroup_difference").evidence[key] for one in (exact, drawn)]
    assert 0.85 * first[0] < first[1] < first[0]


def test_groups_are_compared_inside_strata():
    rng = np.random.default_rng(2)
    n = 8000
    dept, sex = rng.choice(["d", "e"], n), rng.choice(["f", "m"], n)
    chance = np.where(dept == "d", 0.7, 0.3) - 0.25 * ((dept == "e") & (sex == "f"))
    decision = (rng.random(n) < chance).astype(int)
    table = pa.table({"dept": dept, "sex": sex, "decision": decision, "score": chance, "outcome": decision})
    report = audit(table, sensitive=["sex"], columns="sex", metrics="selection_rate", within="dept")
    (only,) = listed(report)
    assert only.evidence["within"] == [{"column": "dept", "value": "e"}]
    assert only.evidence["conditions"] == [{"column": "sex", "value": "f"}]
    assert only.parameters["group"] == "sex = f (within dept = e)"
    assert only.evidence["rate"] == pytest.approx(0.05, abs=0.03)
    assert only.evidence["rest"] == pytest.approx(0.3, abs=0.03)


def test_a_small_group_is_never_shown():
    table = people(3000, harm=0.0)
    tiny = np.zeros(3000, dtype=bool)
    tiny[:49] = True
    job = np.where(tiny, "tiny", table["job"].to_numpy(zero_copy_only=False))
    decision = np.where(tiny, 0, 1)
    table = table.set_column(2, "job", pa.array(job)).set_column(5, "decision", pa.array(decision))
    report = audit(table, sensitive=["region"], metrics="selection_rate", columns="job")
    assert "tiny" not in json.dumps([finding.to_dict() for finding in report.findings])
    shown = audit(table, sensitive=["region"], metrics="selection_rate", columns="job", least=49)
    assert [one.evidence["rows"] for one in listed(shown)] == [49]


@pytest.mark.parametrize(
    ("parameters", "table", "said"),
    [
        ({"columns": "agge"}, {}, "no column 'agge'"),
        ({"columns": "same"}, {"same": ["s"] * 6000}, "it has one value only"),
        ({"columns": "id"}, {"id": [f"p{i}" for i in range(6000)]}, "none of its 6,000 values has 0.01"),
        ({"least": 4000}, {}, "no group has 0.01 of the rows and 4000"),
        ({"metrics": "selection_rates"}, {}, "selection_rate"),
        ({"within": "x"}, {}, "more than 200 values"),
        ({"within": "nowhere"}, {}, "no column 'nowhere'"),
        ({"label": None, "metrics": "error_rate"}, {}, "needs the outcome"),
        ({"columns": "wide", "share": 0.001}, {"wide": [f"v{i % 300}" for i in range(6000)]}, "more than 250"),
        ({"columns": "age", "within": "age"}, {}, "in `within` too"),
        ({"weights": "w"}, {"w": [0.0] * 6000}, "weight"),
    ],
)
def test_bad_input_is_one_message(parameters, table, said):
    with pytest.raises(fairkit.FairkitError, match=said):
        audit(people(**table), **parameters)


def test_tables_beyond_the_memory_are_refused_with_what_to_cut():
    rng = np.random.default_rng(0)
    wide = {f"c{i}": rng.choice([f"v{j}" for j in range(60)], 6000) for i in range(20)}
    with pytest.raises(fairkit.DataError, match=r"1140|MiB, more than 256: search fewer columns.*c0 \(60 cells\)"):
        audit(people(**wide), columns=",".join(wide))


def test_rows_without_weight_count_for_nothing():
    table = people(4000, harm=0.3)
    some = np.arange(4000) % 2
    weighted = audit(table.append_column("w", pa.array(some.astype(float))), weights="w")
    half = audit(table.filter(pa.array(some.astype(bool))))
    one, other = (listed(report)[0].evidence for report in (weighted, half))
    assert one["groups_searched"] == other["groups_searched"]
    assert weighted.find("subgroup_difference").interval == pytest.approx(
        half.find("subgroup_difference").interval, abs=0.02
    )


def test_without_a_label_decisions_are_searched():
    report = audit(people(), label=None, metrics="")
    assert [f.metric for f in report.findings if "rate" in f.metric] == ["selection_rate_subgroup_difference"]


def test_a_regression_is_searched_for_its_errors_in_the_unit_of_the_label():
    rng = np.random.default_rng(4)
    n = 4000
    job, truth = rng.choice(["a", "b"], n), rng.uniform(0, 1000, n)
    error = np.where(job == "b", 200.0, 20.0)
    table = pa.table({"job": job, "truth": truth, "guess": truth + error * rng.choice([-1, 1], n)})
    data = fairkit.load_data(table, label="truth", sensitive=["job"], name="people")
    report = fairkit.audit(PredictedColumns(score="guess"), data, auditors=["subgroups"])
    (only,) = listed(report)
    assert only.parameters["group"] == "job = b"
    assert only.value == pytest.approx(180, rel=0.05)
    low, high = report.find("subgroup_difference").interval
    assert 100 < low < 180 < high < 260


# Groups that nobody named along a frontier, and on pages.
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
