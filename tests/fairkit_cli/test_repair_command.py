"""`fairkit mitigate` with a policy: from the data to a promotion, exit codes, and what cannot be asked together."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

from fairkit_datasets.loans import loans_table

RULE = "demographic_parity_difference:sex=0.1"
ROLES = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex", "--drop", "would_repay"]
FAST = ["--set", "mitigate.methods=threshold-optimizer", "--learner", "logistic", "--set", "mitigate.threads=1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(loans_table(6_000, 1), "train.parquet")
    pq.write_table(loans_table(4_000, 2), "test.parquet")
    return tmp_path


def mitigate(*more, test="test.parquet", rule=RULE):
    data = ["--data", "train.parquet", "--test", test, *ROLES]
    return invoke("mitigate", "--max", rule, *data, "--output", "fair.onnx", *more)


@pytest.mark.long
def test_a_policy_ends_in_a_promotion(folder):
    made = mitigate(*FAST, "--format", "json")
    assert made.exit_code == 0, made.output
    record = json.loads(made.stdout)
    assert record["search"]["reached"]
    assert record["decisions"] == {"randomized": False, "reads": ["sex"]}
    checked("key", "new", "k")
    checked("certify", "fair.onnx", "--data", "test.parquet", "--max", RULE, "--key", "k", "--output", "c.json")
    checked("verify", "c.json", "--model", "fair.onnx", "--key", "k.pub", "--format", "json")
    import base64

    body = json.loads(base64.b64decode(json.loads(Path("c.json").read_text())["payload"]))
    told = body["predicate"]["mitigation"]["search"]
    assert (told["searched"], told["looks"]) == (record["search"]["searched"], 1)
    checked("registry", "add", "loans", "fair.onnx", "--certificate", "c.json")
    checked("registry", "alias", "loans", "production", "--max", RULE, "--key", "k.pub")
    checked("registry", "promote", "loans@1", "production")


@pytest.mark.long
def test_the_first_screen_says_verdict_chance_and_what_got_worse(folder):
    told = mitigate(*FAST, "--set", "mitigate.deterministic=false").stdout
    first = " ".join(told.split())
    assert "threshold-optimizer (constraint = demographic_parity, tolerance = 0.02): PASS" in first
    assert "predicted from rows outside training, like those below: accuracy " in first
    assert "RANDOMIZED: some decisions are drawn by chance" in first
    assert "WORSE (significant)" in first
    assert 1 <= first.count("next: ") <= 3
    assert sum(bool(line) and not line.startswith("  ") for line in told.splitlines()) <= 10
    everything = mitigate(*FAST, "--set", "mitigate.deterministic=false", "--all").stdout
    assert "Picked threshold-optimizer" in everything
    assert "PICKED" in everything


@pytest.mark.long
def test_the_page_shows_the_path_from_base_to_pick(folder):
    page = mitigate(*FAST, "--format", "html").stdout
    assert "From the base to the pick" in page
    assert "a model without any disparity would pass with a chance of" in page
    assert "The one look at the test rows: pass" in page


@pytest.mark.long
def test_a_named_method_gets_its_tolerance_chosen_unless_it_is_set(folder):
    chosen = mitigate("--plugin", "threshold-optimizer", *FAST[2:], "--format", "json")
    assert chosen.exit_code == 0, chosen.output
    record = json.loads(chosen.stdout)
    assert 0 < record["parameters"]["tolerance"] < 0.1
    assert {one["method"] for one in record["search"]["alternatives"]} == {"unconstrained", "threshold-optimizer"}
    invoke(
        "mitigate",
        "--plugin",
        "reweigh",
        "--data",
        "train.parquet",
        *ROLES,
        "--learner",
        "logistic",
        "--output",
        "b.onnx",
    )
    set_by_hand = mitigate(
        "--plugin", "threshold-optimizer", "--model", "b.onnx", "--set", "tolerance=0.03", "--format", "json"
    )
    assert "search" not in json.loads(set_by_hand.stdout)


@pytest.mark.long
def test_test_rows_that_cannot_decide_end_with_code_3_and_write_nothing(folder):
    pq.write_table(loans_table(300, 3), "few.parquet")
    refused = mitigate(*FAST, test="few.parquet", rule="equal_opportunity_difference:sex=0.02")
    assert refused.exit_code == 3
    assert "cannot decide this policy" in refused.stderr
    assert "--set mitigate.anyway" in refused.stderr
    assert "`" not in refused.stderr
    assert not Path("fair.onnx").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--plugin", "threshold-optimizer", "--set", "mitigate.methods=rto"],
            "--plugin or --set mitigate.methods=, not both",
        ),
        (
            ["--plugin", "threshold-optimizer", "--set", "tolerance=0.1", "--set", "mitigate.sure=0.9"],
            "--set mitigate.sure is for a search",
        ),
        (["--set", "mitigate.repeats=3"], "leave out mitigate.repeats and --task"),
        (["--set", "tolerance=0.1"], "write METHOD.KEY=VALUE"),
        (["--set", "mitigate.sure=1.5"], "mitigate.sure is a chance"),
        (["--max", "demographic_parity_difference:rase=0.1"], "not among the sensitive columns"),
        (["--min", "demographic_parity_difference:sex=0.2"], "fail the most equal model"),
        ({"test": "train.parquet"}, "the test rows are the training rows"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_code_2(folder, more, said):
    refused = mitigate(**more) if isinstance(more, dict) else mitigate(*more)
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr.replace("\n  ", " ")
    assert not Path("fair.onnx").exists()


def test_neither_a_method_nor_a_policy(folder):
    refused = checked("mitigate", "--data", "train.parquet", *ROLES, "--output", "fair.onnx", code=2)
    assert "Give --plugin NAME" in refused.stderr
    assert "or a policy" in refused.stderr
