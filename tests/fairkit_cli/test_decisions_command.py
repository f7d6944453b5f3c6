"""`audit`, `certify`, `verify`, `compare` and `init` on a table of decisions, without a model."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest


@pytest.fixture
def decided(tmp_path):
    """Decisions, a score and outcomes of 2,000 people."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(3)
    sex = rng.integers(0, 2, 2_000)
    p = np.clip(rng.normal(0.5 + 0.1 * sex, 0.2, 2_000), 0, 1)
    columns = {
        "sex": np.array(["f", "m"])[sex],
        "approved": (p > 0.5).astype(int),
        "p": p,
        "repaid": (rng.random(2_000) < p).astype(int),
    }
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


SAID = ("--predictions", "decision=approved,score=p", "--sensitive", "sex")


def test_options_and_configuration_say_the_same(run, decided, tmp_path):
    typed = run("audit", *SAID, "--data", decided, "--label", "repaid", "--favorable", "1", "--format", "json")
    assert typed.exit_code == 0, typed.output
    (tmp_path / "fairkit.toml").write_text(
        '[data]\npath = "log.parquet"\nlabel = "repaid"\nfavorable = 1\nsensitive = ["sex"]\n'
        'predictions = { decision = "approved", score = "p" }\n'
    )
    written = run("audit", "--format", "json")
    assert json.loads(written.stdout)["findings"] == json.loads(typed.stdout)["findings"]
    assert json.loads(written.stdout)["model"] is None


def test_decisions_are_certified_and_verified_without_a_model(run, decided):
    assert run("key", "new", "k").exit_code == 0
    limit = ("--max", "demographic_parity_difference:sex=0.4")
    made = run("certify", *SAID, "--data", decided, *limit, "--key", "k", "--output", "c.json")
    assert made.exit_code == 0, made.output
    verified = run("verify", "c.json", "--key", "k.pub", "--data", decided, "--recompute")
    assert verified.exit_code == 0
    assert "no model was seen" in verified.stdout
    assert "computed again" in verified.stdout
    refused = run("verify", "c.json", "--key", "k.pub", "--model", decided)
    assert refused.exit_code == 1
    assert "no model was seen" in refused.stdout


def test_columns_are_compared_as_models(run, decided):
    about = ("--data", decided, "--label", "repaid", "--favorable", "1", "--sensitive", "sex")
    result = run("compare", "--predictions", "score=p", "--predictions", "decision=approved", *about)
    assert result.exit_code == 0, result.output
    assert "each model compared with columns p" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "what is audited?"),
        (("m.onnx", "--predictions", "score=p"), "not both"),
        (("--predictions", "score=p", "--predictions", "score=q"), "--predictions says score twice"),
        (("--predictions", "score=x"), "no prediction column 'x'"),
        (("--predictions", "score=p", "--set", "model.score_output=s"), "score_output='s' means nothing here"),
        (("--predictions", "score=p", "--set", "model.score_kind=value"), "is a score of its own scale"),
        (("--predictions", "decision=approved", "--auditor", "consistency"), "no model was given"),
    ],
)
def test_one_message_and_exit_code_2(run, decided, arguments, said):
    result = run("audit", *arguments, "--data", decided, "--sensitive", "sex")
    assert result.exit_code == 2
    text = result.output.replace("\n", " ")
    assert said in text or said in " ".join(result.stderr.split())


def test_init_recognises_a_table_of_decisions(run, decided):
    assert run("init", decided, "--favorable", "1").exit_code == 0
    result = run("audit", "--format", "json")
    assert result.exit_code in (0, 1, 3), result.output
    record = json.loads(result.stdout)
    assert record["predictions"]["columns"] == {"decision": "approved", "score": "p"}
    assert list(record["data"]["groups"]) == ["sex"]
    assert any(finding["metric"] == "true_positive_rate" for finding in record["findings"])


def test_init_takes_an_outcome_alone_for_the_label(run, tmp_path):
    import pyarrow as pa

    pq.write_table(
        pa.table({"sex": ["f", "m"] * 20, "approved": [0, 1] * 20, "age": [30, 40] * 20}), tmp_path / "d.parquet"
    )
    assert run("init", "d.parquet").exit_code == 0
    text = (tmp_path / "fairkit.toml").read_text()
    assert 'label = "approved"' in text
    assert "# predictions" in text


def test_join_on_the_command_line_and_in_the_configuration(run, tmp_path):
    import pyarrow as pa

    log = {"who": [i % 300 for i in range(900)], "d": [(i * 7) % 3 > 0 for i in range(900)]}
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    ids = list(range(20, 300))
    pq.write_table(pa.table({"id": ids, "sex": [("f", "m")[i % 2] for i in ids]}), tmp_path / "people.parquet")
    about = ("--predictions", "decision=d", "--data", "log.parquet", "--sensitive", "sex")
    typed = run("audit", *about, "--join", "people.parquet", "--on", "who=id", "--format", "json")
    assert typed.exit_code == 0, typed.output
    record = json.loads(typed.stdout)
    assert record["data"]["joined"]["unmatched"] == 60
    assert any(text.startswith("60 of 900 rows") for text in record["warnings"])
    (tmp_path / "fairkit.toml").write_text(
        '[data]\npath = "log.parquet"\nsensitive = ["sex"]\npredictions = { decision = "d" }\n'
        'join = { path = "people.parquet", on = "who=id" }\n'
    )
    assert json.loads(run("audit", "--format", "json").stdout)["findings"] == record["findings"]
    (tmp_path / "fairkit.toml").unlink()
    alone = run("audit", *about, "--join", "people.parquet")
    assert alone.exit_code == 2
    assert "(--on)" in " ".join(alone.stderr.split())
    assert run("key", "new", "k").exit_code == 0
    joined = ("--join", "people.parquet", "--on", "who=id")
    assert run("certify", *about, *joined, "--key", "k", "--output", "c.json").exit_code == 0
    verified = ("verify", "c.json", "--key", "k.pub", "--data", "log.parquet", "--recompute")
    assert run(*verified).exit_code == 1
    assert run(*verified, "--join", "people.parquet").exit_code == 0
    assert run(*verified, "--join", "log.parquet").exit_code == 1


@pytest.mark.parametrize(
    ("name", "values", "line"),
    [
        ("default", [0, 1], 'favorable = "0"'),
        ("two_year_recid", [0, 1], 'favorable = "0"'),
        ("Churn", ["Yes", "No"], 'favorable = "No"'),
        ("y", [0, 1], None),
    ],
)
def test_init_proposes_the_good_outcome_or_asks(run, tmp_path, name, values, line):
    import pyarrow as pa

    pq.write_table(pa.table({"sex": ["f", "m"] * 20, name: values * 20, "age": [30, 40] * 20}), tmp_path / "d.parquet")
    result = run("init", "d.parquet")
    if line is None:
        assert result.exit_code == 2
        assert "which value of 'y' is good for the person?" in " ".join(result.stderr.split())
        assert not (tmp_path / "fairkit.toml").exists()
        return
    assert result.exit_code == 0
    assert line in (tmp_path / "fairkit.toml").read_text()


def test_the_head_line_names_the_favorable_value(run, decided):
    said = run("audit", "--data", decided, "--sensitive", "sex", "--predictions", "decision=approved,favorable=1")
    assert "rows; favorable: approved = 1" in " ".join(said.stdout.split())
