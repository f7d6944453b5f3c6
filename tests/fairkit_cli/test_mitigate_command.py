"""`fairkit mitigate`: before and after are printed, and files of others are read as an audit reads them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke
from tests.exports import EXPORTS, people

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


# `fairkit mitigate --model` takes the options about outputs that `fairkit audit` takes, and reads files as it does.
WITH_OPTIONS = [export for export in EXPORTS if export.options]


def _typed(options):
    for name, value in options.items():
        parts = [f"{key}={one}" for key, one in value.items()] if isinstance(value, dict) else value
        text = ",".join(parts) if isinstance(parts, tuple | list) else str(parts)
        yield from ("--threshold", text) if name == "threshold" else ("--set", f"model.{name}={text}")


@pytest.fixture
def _same_rows(monkeypatch):
    # the rules are measured on the rows they learned from, which a leak check refuses
    monkeypatch.setattr("fairkit_repair.mitigation.learned.check_leak", lambda *_: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("foreign")
    columns = {name: values.tolist() for name, values in people().items()}
    pq.write_table(pa.table(columns), where / "people.parquet")
    return where


@pytest.mark.usefixtures("_same_rows")
@pytest.mark.long
@pytest.mark.parametrize("export", WITH_OPTIONS, ids=lambda export: export.name)
def test_the_same_options_as_audit(export, folder):
    model = folder / "model.onnx"
    model.write_bytes(export.build().SerializeToString())
    data = ["--data", str(folder / "people.parquet"), "--label", export.label]
    data += ["--favorable", str(export.favorable), "--sensitive", "sex", "--features", ",".join(export.features)]
    shown = ["--format", "json", *_typed(export.options)]
    audited = checked("audit", model, *data, *shown)
    method = ["--plugin", "threshold-optimizer", "--set", "constraint=demographic_parity", "--set", "tolerance=0"]
    paths = ["--model", str(model), "--test", str(folder / "people.parquet"), "--output", str(folder / "fair.onnx")]
    repaired = checked("mitigate", *method, *paths, *data, *shown)
    accuracy = (export.decision() == export.truth).mean()
    record = json.loads(repaired.stdout)
    for findings in (json.loads(audited.stdout)["findings"], record["before"]["findings"]):
        said = next(one for one in findings if one["metric"] == "accuracy" and one["sensitive"] is None)
        assert said["value"] == pytest.approx(accuracy, abs=1e-6)
    gap = next(one for one in record["after"]["findings"] if one["metric"] == "demographic_parity_difference")
    assert gap["value"] < 0.002
    assert np.isfinite(accuracy)


def test_an_option_that_means_nothing_is_refused(folder):
    data = ["--data", str(folder / "people.parquet"), "--label", "word", "--favorable", "approved"]
    arguments = [
        "mitigate",
        "--plugin",
        "reweigh",
        *data,
        "--sensitive",
        "sex",
        "--set",
        "model.classes=approved,denied",
    ]
    result = checked(*arguments, "--output", folder / "fair.onnx", code=2)
    assert "classes=('approved', 'denied') means nothing here" in result.stderr
