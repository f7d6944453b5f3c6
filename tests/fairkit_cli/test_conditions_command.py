"""Conditions from the command line to a certificate and back; what cannot be meant is one message and code 2."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit.results.report import validate_report
from fairkit_registry.evidence.certificate import read, read_file

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


# Each condition of a comparison is in the certificate, and `verify --recompute` repeats it.
ABOUT = ("--predictions", "decision=h,score=s", "--data", "rows.parquet", "--label", "y", "--favorable", "1")
CASES = {
    "reference": (("--sensitive", "sex", "--reference", "sex=male"), "impact_ratio", "sex"),
    "within": (("--sensitive", "sex", "--within", "department"), "odds_ratio", "sex"),
    "scores within": (("--sensitive", "sex", "--within", "department"), "statistical_parity_ks", "sex"),
    "cluster": (("--sensitive", "sex", "--cluster", "person_id"), "demographic_parity_difference", "sex"),
    "scores within clusters": (
        ("--sensitive", "sex", "--within", "department", "--cluster", "person_id"), "roc_auc_difference", "sex",
    ),
    "rows without a group": (("--sensitive", "race"), "selection_rate_difference", "race"),
    "join": (
        ("--sensitive", "region", "--join", "people.parquet", "--on", "person_id"),
        "demographic_parity_difference", "region",
    ),
    "probabilities": (("--set", "data.sensitive_probability=tribe=p_a,p_b"), "demographic_parity_difference", "tribe"),
    "probabilities of people": (
        ("--set", "data.sensitive_probability=tribe=p_a,p_b", "--cluster", "person_id"),
        "demographic_parity_difference", "tribe",
    ),
    "calibration": (("--sensitive", "sex"), "calibration_in_the_large_difference", "sex"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng, n = np.random.default_rng(0), 1_500
    who = rng.integers(0, 300, n)
    score, p = rng.random(n).round(3), rng.random(n).round(2)
    race = rng.choice(["x", "y"], n).astype(object)
    race[rng.random(n) < 0.1] = None
    rows = {
        "person_id": who, "sex": rng.choice(["female", "male"], n), "race": race,
        "department": rng.choice(list("AB"), n),
        "s": score, "h": (score > 0.5) * 1, "y": (rng.random(n) < score) * 1, "p_a": p, "p_b": 1 - p,
    }  # fmt: skip
    path = tmp_path_factory.mktemp("certified")
    pq.write_table(pa.table(rows), path / "rows.parquet")
    people = {"person_id": np.arange(300), "region": rng.choice(["north", "south"], 300)}
    pq.write_table(pa.table(people), path / "people.parquet")
    return path


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_verify_repeats_it(case, folder, monkeypatch):
    monkeypatch.chdir(folder)
    options, metric, sensitive = CASES[case]
    name = case.replace(" ", "-")

    if not (folder / "k").exists():
        checked("key", "new", "k")
    checked("certify", *ABOUT, *options, "--key", "k", "--output", f"{name}.json")
    join = ("--join", "people.parquet") if case == "join" else ()
    told = checked("verify", f"{name}.json", "--key", "k.pub", "--data", "rows.parquet", *join, "--recompute").output
    assert "computed again" in told
    signed = read(read_file(f"{name}.json"))
    typed = json.loads(checked("audit", *ABOUT, *options, "--format", "json").output)
    mine = [f.to_dict() for f in signed.report.findings if (f.metric, f.sensitive) == (metric, sensitive)]
    theirs = [f for f in typed["findings"] if (f["metric"], f["sensitive"]) == (metric, sensitive)]
    assert len(mine) == len(theirs) >= 1
    for one, other in zip(mine, theirs, strict=True):
        assert one["value"] == pytest.approx(other["value"], abs=1e-6)
        assert one["interval"] == pytest.approx(other["interval"], abs=1e-6)
        assert one.get("within") == other.get("within")
        lines = [(each.get("missing") or {}).get("value") for each in (one, other)]
        assert lines[0] == pytest.approx(lines[1], abs=1e-6)
    if case == "rows without a group":
        assert mine[0]["missing"]["rows"] == signed.report.data.missing["race"]
    if "--cluster" in options:
        assert signed.settings["data"]["cluster"] == "person_id"
        assert signed.report.data.clusters["column"] == "person_id"
