"""`fairkit audit` as a person and as a script would use it: real files, real processes, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from fairkit.results.report import validate_report

AUDIT = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


def _report(result):
    record = json.loads(result.stdout)
    validate_report(record)
    return record


def _find(record, metric, sensitive):
    return next(f for f in record["findings"] if (f["metric"], f["sensitive"]) == (metric, sensitive))


def test_the_json_report_is_of_its_schema_and_names_model_and_data(run, loans_model):
    result = run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, "--format", "json")
    assert result.exit_code == 0
    record = _report(result)
    assert record["verdict"] is None
    assert record["data"]["rows"] == 4000
    assert sum(record["data"]["groups"]["sex"].values()) == 4000
    import hashlib

    assert record["model"]["sha256"] == hashlib.sha256(loans_model.path.read_bytes()).hexdigest()
    finding = _find(record, "demographic_parity_difference", "sex")
    rates = [group["value"] for group in finding["groups"]]
    assert finding["value"] == pytest.approx(max(rates) - min(rates), abs=1e-15)
    assert finding["interval"][0] < finding["value"] < finding["interval"][1]


@pytest.mark.long
def test_equal_inputs_give_equal_bytes(run, loans_model):
    first, second = (
        run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, "--format", "json") for _ in range(2)
    )
    assert first.stdout_bytes == second.stdout_bytes


@pytest.mark.parametrize(("limit", "code", "verdict"), [("0.9", 0, "pass"), ("0.001", 1, "fail")])
def test_exit_codes_tell_the_verdict(run, loans_model, limit, code, verdict):
    rule = f"demographic_parity_difference:sex={limit}"
    result = run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, "--max", rule, "--format", "json")
    assert result.exit_code == code
    record = _report(result)
    assert record["verdict"] == verdict
    assert record["policy"][0]["max"] == float(limit)


def test_a_limit_inside_the_interval_is_inconclusive(run, loans_model):
    plain = _report(run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, "--format", "json"))
    value = _find(plain, "demographic_parity_difference", "sex")["value"]
    rule = f"demographic_parity_difference:sex={value}"
    result = run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, "--max", rule)
    assert result.exit_code == 3
    assert result.stdout.startswith("? INCONCLUSIVE")


def test_the_table_begins_with_the_verdict_then_disparities_then_groups(run, loans_model):
    rule = ("--max", "demographic_parity_difference:sex=0.001")
    result = run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, *rule)
    text = result.stdout
    assert text.startswith("✗ FAIL: 1 of 1 policy rule broken")
    assert text.index("FAIL") < text.index("Groups of sex") < text.index("●") < text.index("Notes")
    assert re.search(
        r"  ✗ Of 100 people of group female, \d+ are approved; of 100 of group male, \d+: \S+ to \S+\s+fewer", text
    )
    assert "demographic_parity_difference for sex is 0." in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_junit_has_a_case_for_each_rule(run, loans_model):
    rules = ("--max", "demographic_parity_difference:sex=0.001", "--min", "accuracy=0.2")
    result = run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, *rules, "--format", "junit")
    suite = ET.fromstring(result.stdout)
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert [len(case.findall("failure")) for case in suite] == [1, 0]
    assert "0.001" in suite[0].find("failure").get("message")


@pytest.mark.long
def test_csv_and_parquet_give_the_same_findings(run, loans_model, tmp_path):
    pacsv.write_csv(pq.read_table(loans_model.data), tmp_path / "loans.csv")
    records = [
        _report(run("audit", loans_model.path, "--data", file, *AUDIT, "--format", "json"))
        for file in (loans_model.data, tmp_path / "loans.csv")
    ]
    assert records[0]["findings"] == records[1]["findings"]
    assert records[0]["data"]["sha256"] == records[1]["data"]["sha256"]


def test_settings_come_from_the_nearest_fairkit_toml_and_options_win(run, loans_model, tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / "fairkit.toml").write_text(
        f"""
[data]
path = "{loans_model.data}"
label = "decision"
favorable = "approved"
sensitive = ["ethnicity"]

[audit]
auditors = ["group", "consistency"]
confidence = 0.9

[audit.consistency]
sensitive = ["sex"]

[[policy]]
metric = "demographic_parity_difference"
sensitive = "ethnicity"
max = 0.9
""",
        encoding="utf-8",
    )
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    record = _report(run("audit", loans_model.path, "--format", "json"))
    assert record["confidence"] == 0.9
    assert record["verdict"] == "pass"
    assert _find(record, "consistency", "sex")["value"] <= 1
    record = _report(run("audit", loans_model.path, "--confidence", "0.99", "--format", "json"))
    assert record["confidence"] == 0.99


def test_output_goes_to_a_file_whole(run, loans_model, tmp_path):
    target = tmp_path / "report.json"
    run("audit", loans_model.path, "--data", loans_model.data, *AUDIT, "--format", "json", "--output", target)
    validate_report(json.loads(target.read_text("utf-8")))
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_consistency_sees_a_model_that_uses_the_flipped_column(run, loans_model):
    result = run(
        "audit", loans_model.path, "--data", loans_model.data, *AUDIT,
        "--set", "consistency.sensitive=sex", "--format", "json",
    )  # fmt: skip
    finding = _find(_report(result), "consistency", "sex")
    assert 0.5 < finding["value"] < 1
    assert finding["parameters"]["values"] == [{"sex": "female"}, {"sex": "male"}]


def _bad(text):
    return pytest.param(*text[1:], id=text[0])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        _bad(("missing model", {"model": "nowhere.onnx"}, "there is no model file 'nowhere.onnx'")),
        _bad(("missing data", {"--data": "nowhere.csv"}, "there is no data file 'nowhere.csv'")),
        _bad(("no data", {"--data": None}, "Give --data FILE")),
        _bad(("wrong label", {"--label": "decison"}, "Did you mean 'decision'")),
        _bad(("wrong favorable", {"--favorable": "aproved"}, "Did you mean 'approved'?")),
        _bad(("no favorable", {"--favorable": None}, "--favorable")),
        _bad(("wrong sensitive", {"--sensitive": "sexe"}, "Did you mean 'sex'?")),
        _bad(("wrong bins", {"--sensitive": "age:60:25"}, "must be finite and increase")),
        _bad(("empty bin", {"--sensitive": "age:25:900"}, "'>= 900'")),
        _bad(("label is sensitive", {"--sensitive": "decision"}, "cannot be the label and a sensitive column")),
        _bad(("unknown auditor", {"--auditor": "grup"}, "Did you mean 'group'")),
        _bad(("unknown parameter", {"--set": "group.min_grp=3"}, "Did you mean 'min_group'?")),
        _bad(("parameter without owner", {"--set": "epsilon=3"}, "AUDITOR.KEY=VALUE")),
        _bad(("rule without number", {"--max": "accuracy"}, "METRIC:COLUMN=NUMBER")),
        _bad(("rule on unknown metric", {"--max": "demografic_parity_difference=1"}, "demographic_parity_difference")),
        _bad(("rule on unaudited column", {"--max": "demographic_parity_difference:race=1"}, "was not audited")),
        _bad(("confidence", {"--confidence": "95"}, "between 0 and 1")),
        _bad(("format", {"--format": "jsn"}, "Did you mean 'json'?")),
        _bad(("adjustment", {"--set": "audit.adjust=bonferoni"}, "bonferroni")),
        _bad(("threshold", {"--threshold": "7"}, "[0, 1]")),
        _bad(("score output", {"--set": "model.score_output=probs"}, "has no output 'probs'")),
        _bad(("unknown key", {"--set": "data.weigths=w"}, "Did you mean 'data.weights'")),
        _bad(("an option that went", {"--weights": "w"}, "--weights is given as --set data.weights=VALUE")),
        _bad(("key of the wrong type", {"--set": "sandbox.timeout=long"}, "it takes a number")),
        _bad(("an option and its key", {"--set": "data.label=sex"}, "data.label is given twice")),
        _bad(("output folder", {"--output": "no/such/report.json"}, "does not exist")),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(run, loans_model, tmp_path, change, told):
    options = {"model": loans_model.path, "--data": loans_model.data, "--label": "decision",
               "--favorable": "approved", "--sensitive": "sex", **change}  # fmt: skip
    model = options.pop("model")
    arguments = [part for key, value in options.items() if value is not None for part in (key, value)]
    result = run("audit", model, *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["truncated", "text", "empty"])
def test_a_damaged_model_is_refused(run, loans_model, tmp_path, damage):
    content = loans_model.path.read_bytes()
    broken = {"truncated": content[: len(content) // 2], "text": b"not a model", "empty": b""}[damage]
    (tmp_path / "broken.onnx").write_bytes(broken)
    result = run("audit", "broken.onnx", "--data", loans_model.data, *AUDIT)
    assert result.exit_code == 2
    assert "broken.onnx" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_model_input_that_is_not_in_the_data_is_named_with_near_names(run, loans_model, tmp_path):
    table = pq.read_table(loans_model.data)
    names = ["incomes" if name == "income" else name for name in table.column_names]
    pq.write_table(table.rename_columns(names), tmp_path / "renamed.parquet")
    result = run("audit", loans_model.path, "--data", tmp_path / "renamed.parquet", *AUDIT)
    assert result.exit_code == 2
    assert "no column for the model's input 'income'" in result.stderr
    assert "Did you mean 'incomes'?" in result.stderr


def test_a_ragged_csv_is_refused(run, loans_model, tmp_path):
    (tmp_path / "ragged.csv").write_text("sex,decision\nmale,approved\nfemale,denied,extra\n", encoding="utf-8")
    result = run("audit", loans_model.path, "--data", "ragged.csv", *AUDIT)
    assert result.exit_code == 2
    assert "ragged.csv" in result.stderr
    assert "Expected 2 columns, got 3" in result.stderr


def test_a_group_without_positives_is_said_and_the_rest_goes_on(run, loans_model, tmp_path):
    import numpy as np

    table = pq.read_table(loans_model.data).to_pandas()
    table.loc[table["ethnicity"] == "C", "decision"] = "denied"
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), tmp_path / "none.parquet")
    result = run(
        "audit", loans_model.path, "--data", "none.parquet", "--label", "decision", "--favorable", "approved",
        "--sensitive", "ethnicity", "--max", "equal_opportunity_difference=0.9", "--format", "json",
    )  # fmt: skip
    assert result.exit_code == 3
    record = _report(result)
    finding = _find(record, "equal_opportunity_difference", "ethnicity")
    assert [group["value"] is None for group in finding["groups"]] == [False, False, True]
    assert any("C" in note for note in finding["notes"])
    assert _find(record, "demographic_parity_difference", "ethnicity")["value"] is not None
    assert np.isfinite(finding["value"])


def test_an_unknown_key_in_the_configuration_is_named(run, loans_model, tmp_path):
    (tmp_path / "fairkit.toml").write_text("[audit]\nconfidense = 0.9\n", encoding="utf-8")
    result = run("audit", loans_model.path, "--data", loans_model.data, *AUDIT)
    assert result.exit_code == 2
    assert "no key 'confidense'. Did you mean 'confidence'" in result.stderr


def test_init_writes_settings_that_audit_runs_on(run, loans_model, tmp_path):
    assert run("init", loans_model.data).exit_code == 0
    text = (tmp_path / "fairkit.toml").read_text("utf-8")
    assert 'label = "decision"' in text
    assert 'favorable = "approved"' in text
    assert run("init", loans_model.data).exit_code == 2
    result = run("audit", loans_model.path, "--format", "json")
    assert result.exit_code in (0, 1, 3)
    assert _report(result)["policy"][0]["metric"] == "equal_opportunity_difference"
    assert _report(result)["about"]["metric"].startswith("equal_opportunity_difference. Of those who qualify")


def test_plugins_are_listed_and_shown(run):
    rows = json.loads(run("plugins", "list", "--format", "json").stdout)
    by_name = {row["name"]: row for row in rows}
    assert by_name["group"]["kinds"] == ["metric", "auditor"]
    assert all(row["loadable"] for row in rows if row["distribution"] == "fairkit"), rows
    shown = json.loads(run("plugins", "show", "group", "--format", "json").stdout)
    assert {"min_group", "loss"} <= {p["name"] for p in shown["auditors"][0]["parameters"]}
    assert "min_group" in run("plugins", "show", "group").stdout
    result = run("plugins", "show", "grup")
    assert result.exit_code == 2
    assert "Did you mean 'group'" in result.stderr


def _until_scoring(process):
    """Wait until the process of the model has loaded the runtime, however busy the machine is."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 30.0
    while children.exists() and time.monotonic() < deadline and not _any_has_the_runtime(children):
        time.sleep(0.05)
    time.sleep(0.1 if children.exists() else 2.0)


def _any_has_the_runtime(children):
    maps = [Path(f"/proc/{child}/maps") for child in children.read_text().split()]
    return any("onnxruntime" in path.read_text() for path in maps if path.exists())


@pytest.mark.long
def test_ctrl_c_ends_with_one_line_and_leaves_nothing(loans_model, tmp_path):
    many = pa.concat_tables([pq.read_table(loans_model.data)] * 600)
    pq.write_table(many, tmp_path / "many.parquet")
    command = [
        sys.executable, "-c", "from fairkit_cli.main import run; run()", "audit", str(loans_model.path),
        "--data", "many.parquet", *AUDIT, "--output", "report.json", "--format", "json",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    _until_scoring(process)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in told
    assert "Traceback" not in told
    assert [path.name for path in tmp_path.iterdir()] == ["many.parquet"]


def test_the_installed_command_runs():
    script = Path(sys.executable).parent / "fairkit"
    result = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, env=os.environ)
    assert result.stdout.startswith("fairkit ")


def test_an_auditor_adds_to_what_the_policy_needs(run, loans_model):
    limits = ("--max", "demographic_parity_difference:sex=0.9", "--min", "accuracy=0.1")
    result = run(
        "audit",
        loans_model.path,
        "--data",
        loans_model.data,
        *AUDIT,
        "--auditor",
        "consistency",
        *limits,
        "--format",
        "json",
    )
    assert result.exit_code == 0, result.output
    assert {"group", "consistency"} == {one["auditor"] for one in _report(result)["findings"]}
