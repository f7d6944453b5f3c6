from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit_datasets.loans import loans_table

ROLES = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex"]
FAST = ["--set", "n_estimators=15", "--set", "mitigate.threads=1"]


@pytest.fixture
def loans(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(loans_table(2_000, 1), tmp_path / "loans.parquet")
    return tmp_path


def run(*arguments):
    return invoke("mitigate", *arguments)


def test_before_and_after_are_printed_and_the_file_is_audited_alone(loans):
    result = run("--plugin", "fairgbm", "--data", "loans.parquet", *ROLES, *FAST, "--output", "fair.onnx")
    assert result.exit_code == 0, result.output
    assert "before" in result.stdout
    assert "equal_opportunity_difference" in result.stdout
    assert "wrote fair.onnx" in result.stderr
    again = checked("audit", "fair.onnx", "--data", "loans.parquet", "--format", "json")
    assert json.loads(again.stdout)["model"]["task"] == "binary"


def test_json_has_both_reports_and_the_files_digest(loans):
    result = run(
        "--plugin", "fairgbm", "--data", "loans.parquet", *ROLES, *FAST, "--output", "fair.onnx", "--format", "json"
    )
    record = json.loads(result.stdout)
    assert record["schema"] == "fairkit.mitigation/1"
    assert record["parameters"]["n_estimators"] == 15
    assert record["model"]["sha256"] == fairkit.OnnxModel.load(loans / "fair.onnx").sha256
    assert record["after"]["model"]["sha256"] == record["model"]["sha256"]
    assert record["before"]["data"]["sha256"] == record["after"]["data"]["sha256"]


def test_settings_come_from_the_file_and_options_win(loans):
    (loans / "fairkit.toml").write_text(
        """
        [data]
        path = "loans.parquet"
        label = "decision"
        favorable = "approved"
        sensitive = ["sex"]
        [mitigate]
        plugin = "fairgbm"
        output = "made.onnx"
        holdout = 0.3
        [mitigate.fairgbm]
        n_estimators = 9
        num_leaves = 4
        """
    )
    result = run("--set", "n_estimators=7", "--set", "mitigate.threads=1", "--format", "json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert (record["parameters"]["n_estimators"], record["parameters"]["num_leaves"]) == (7, 4)
    assert record["rows"]["test"] == pytest.approx(600, abs=3)
    assert (loans / "made.onnx").is_file()


@pytest.mark.long
@pytest.mark.parametrize(("rule", "code"), [("accuracy=0.01", 0), ("accuracy=0.999", 1)])
def test_a_policy_decides_the_exit_code(loans, rule, code):
    result = run(
        "--plugin", "fairgbm", "--data", "loans.parquet", *ROLES, *FAST, "--output", "fair.onnx", "--min", rule
    )
    assert result.exit_code == code
    assert (loans / "fair.onnx").is_file()


@pytest.mark.long
def test_both_models_are_registered(loans):
    result = run(
        "--plugin",
        "fairgbm",
        "--data",
        "loans.parquet",
        *ROLES,
        *FAST,
        "--output",
        "fair.onnx",
        "--register",
        "credit",
        "--registry",
        loans / "registry",
    )
    assert result.exit_code == 0, result.output
    assert "registered credit@1" in result.stderr
    assert "registered credit@2" in result.stderr


@pytest.mark.long
def test_a_test_file_is_used_whole(loans):
    pq.write_table(loans_table(700, 2), loans / "test.parquet")
    result = run(
        "--plugin",
        "fairgbm",
        "--data",
        "loans.parquet",
        "--test",
        "test.parquet",
        *ROLES,
        *FAST,
        "--output",
        "fair.onnx",
        "--format",
        "json",
    )
    assert json.loads(result.stdout)["rows"] == {"train": 2000, "test": 700}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--output", "nowhere/fair.onnx"], "create it first: mkdir -p nowhere"),
        (["--set", "num_leavs=3"], "Did you mean 'num_leaves'"),
        (["--set", "lightgbm.objective=mae"], "FairGBM is its own objective"),
        (["--learner", "forest"], "takes no learner"),
        (["--model", "loans.onnx"], "no model file"),
        (["--format", "junit"], "no format 'junit'"),
    ],
)
def test_bad_usage_is_one_message_and_writes_nothing(loans, changes, message):
    output = () if "--output" in changes else ("--output", "fair.onnx")
    result = run("--plugin", "fairgbm", "--data", "loans.parquet", *ROLES, *FAST, *output, *changes)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(loans.glob("**/*.onnx"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--output", "x.onnx"], "--plugin NAME"), (["--plugin", "fairgbm"], "--output OUT.onnx")],
)
def test_what_is_missing_is_asked_for(loans, arguments, message):
    result = run("--data", "loans.parquet", *ROLES, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.long
def test_a_constant_model_is_never_handed_out_without_a_sentence_and_exit_code_3(loans):
    few = ["--set", "n_estimators=1", "--set", "learning_rate=0.001"]
    end = ["--set", "mitigate.threads=1", "--output", "fair.onnx"]
    result = run("--plugin", "fairgbm", "--data", "loans.parquet", *ROLES, *few, *end)
    assert result.exit_code == 3, result.output
    assert "The model is constant" in result.output
    assert (loans / "fair.onnx").exists()
    rule = ["--max", "demographic_parity_difference:sex=0.1"]
    judged = run("--plugin", "fairgbm", "--data", "loans.parquet", *ROLES, *few, *end, *rule, "--format", "json")
    assert judged.exit_code == 3  # a pass is not enough
    assert json.loads(judged.stdout)["is_constant"] is True
