"""Each condition of a comparison is in the certificate, and `verify --recompute` repeats it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked

from fairkit_registry.evidence.certificate import read, read_file

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
