"""Conditions from the command line to a certificate and back; what cannot be meant is one message and code 2."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.commands import invoke

import fairkit
from fairkit.results.report import validate_report

AUDIT = ("--predictions", "decision=admitted", "--data", "admissions.csv", "--sensitive", "sex")
INSIDE = (*AUDIT, "--within", "department", "--reference", "sex=male")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command in a folder with Berkeley's admissions."""
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(fairkit.datasets.table("admissions"), "admissions.csv")
    return invoke


def test_a_rule_inside_strata_and_one_against_a_reference(run):
    limit = ("--max", "demographic_parity_difference:sex|department=0.05", "--min", "impact_ratio:sex=0.8")
    result = run("audit", *INSIDE, *limit, "--format", "json")
    record = json.loads(result.stdout)
    validate_report(record)
    assert [rule["verdict"] for rule in record["policy"]] == ["pass", "fail"]
    assert record["policy"][0]["within"] == ["department"]
    inside = [f for f in record["findings"] if f.get("within") and "reference" not in f]
    assert {f["metric"] for f in inside} >= {"demographic_parity_difference", "odds_ratio"}
    assert result.exit_code == 1


def test_a_certificate_repeats_it_and_pins_see_it(run, tmp_path):
    assert run("key", "new", "k", "--no-passphrase").exit_code in (0, 2)
    if not (tmp_path / "k").exists():
        assert run("key", "new", "k").exit_code == 0
    result = run("certify", *INSIDE, "--key", "k", "--output", "c.json")
    assert result.exit_code == 0, result.output
    verify = ("verify", "c.json", "--key", "k.pub", "--data", "admissions.csv", "--recompute")
    assert run(*verify).exit_code == 0
    from fairkit_registry.evidence import settings as pins
    from fairkit_registry.evidence.certificate import read, read_file

    settings = read(read_file("c.json")).settings
    assert settings["data"]["within"] == ["department"]
    odd = pins.unusual(settings)
    assert odd["data.within"] == ["department"]
    assert odd["data.reference"] == ["sex=male"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--reference", "sex=nobody"), "--reference 'sex=nobody' names a group that has no rows"),
        (("--within", "faculty"), "no within column 'faculty'"),
        (("--within", "sex"), "have one group of 'sex' only"),
        (("--cluster", "nobody"), "no cluster column 'nobody'"),
        (("--cluster", "one"), "the --cluster column 'one' has one value"),
        (("--sensitive-probability", "race=admitted"), "--sensitive-probability 'race=admitted'"),
        (("--sensitive-probability", "race=one,admitted"), "not to 1"),
        (("--max", "demographic_parity_difference:sex|department=0.1"), "--within"),
    ],
)
def test_bad_conditions_are_one_message(run, tmp_path, options, words):
    table = fairkit.datasets.table("admissions").append_column("one", pa.array(np.ones(4526)))
    pacsv.write_csv(table, "admissions.csv")
    result = run("audit", *AUDIT, *options, "--output", "report.txt")
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.stderr.split())
    assert not (tmp_path / "report.txt").exists()


def test_two_reports_and_two_tables_are_compared(run):
    table = fairkit.datasets.table("admissions")
    flipped = table.set_column(2, "admitted", pa.array(1 - np.array(table.column("admitted"))))
    pacsv.write_csv(flipped, "later.csv")
    for name in ("admissions", "later"):
        told = ("--predictions", "decision=admitted", "--data", f"{name}.csv", "--sensitive", "sex", "--favorable", "1")
        assert run("audit", *told[:-2], "--format", "json", "--output", f"{name}.json").exit_code == 0
    of_reports = run("compare", "admissions.json", "later.json", "--format", "json")
    assert of_reports.exit_code == 0, of_reports.output
    of_tables = run("compare", *AUDIT, "--against", "later.csv", "--format", "json")
    assert of_tables.exit_code == 0, of_tables.output
    one, other = (json.loads(r.stdout)["changes"][0] for r in (of_reports, of_tables))
    assert one == other
    rate = next(c for c in one if c["metric"] == "selection_rate" and c["sensitive"] is None)
    assert rate["after"] == pytest.approx(1 - rate["before"])
    assert rate["interval"][0] <= rate["after"] - rate["before"] <= rate["interval"][1]
    mixed = run("compare", "admissions.json", "model.onnx")
    assert mixed.exit_code == 2
    assert "two reports or certificates" in " ".join(mixed.stderr.split())
