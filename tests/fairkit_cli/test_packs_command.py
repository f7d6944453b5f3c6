"""`fairkit report --pack`: from a table to a filed summary in two commands, and every gap in sight."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit.settings import ModelOptions
from fairkit_onnx.file import OnnxModel

pytest.importorskip("scipy", reason="exact tests need scipy: pip install 'fairkit[packs]'")
pytest.importorskip("vl_convert", reason="pages need vl-convert-python: pip install 'fairkit[html]'")

FACTS = """
tool = "ResumeRank 2"
distribution_date = 2026-12-01
auditor = "Doe | Partners <b>"
data_source = "Historical data of 2025 of one employer"
category_source = "Stated by the applicants"
category_labels = "=1+1 is Asian, Black is Black or African American, Native is Native American or Alaska Native"
auditor_no_part = true
auditor_no_employment = true
auditor_no_interest = true
"""


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The day after the packs were checked, so that none is overdue."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795478400")  # 2026-11-24


def table_of(folder: Path) -> pa.Table:
    """The table as fairkit reads it: an empty cell is missing."""
    options = pacsv.ConvertOptions(strings_can_be_null=True)
    return pacsv.read_csv(folder / "applicants.csv", convert_options=options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, and a table of 10,000 applicants with their scores; some of unknown sex or race."""
    here = tmp_path_factory.mktemp("applicants")
    rng = np.random.default_rng(5)
    sex = rng.choice(["Female", "Male"], 10_000).astype(object)
    race = rng.choice(["White", "Black", "=1+1", "Native"], 10_000, p=[0.6, 0.25, 0.14, 0.01]).astype(object)
    score = np.clip(rng.beta(3, 3, 10_000) - 0.05 * (sex == "Female"), 0, 0.999).round(3)
    chosen = (score > 0.55).astype(int)
    sex[:300] = None
    race[200:600] = None
    columns = {"sex": pa.array(sex), "race": pa.array(race), "score": score, "chosen": chosen}
    pacsv.write_csv(pa.table(columns), here / "applicants.csv")
    checked("key", "new", here / "key")
    (here / "facts.toml").write_text(FACTS)
    return here


def test_a_filed_summary_in_two_commands(folder: Path):
    checked(
        "certify", "--pack", "nyc-ll144", "--data", folder / "applicants.csv", "--predictions", "decision=chosen",
        "--sensitive", "sex,race", "--key", folder / "key",
        "--output", folder / "ll.json",
    )  # fmt: skip
    told = ("--key", folder / "key.pub", "--pack", "nyc-ll144", "--facts", folder / "facts.toml", "--strict")
    second = checked("report", folder / "ll.json", *told, "--format", "csv")
    data = table_of(folder).to_pandas()
    rows = list(csv.DictReader(io.StringIO(second.stdout)))
    for column in ("sex", "race"):
        rates = data.groupby(column)["chosen"].agg(["size", "sum", "mean"])
        found = {one["row"].removeprefix("'"): one for one in rows if one["table"] == column}
        assert set(found) == set(rates.index)
        for group, (size, chosen, rate) in rates.iterrows():
            assert int(found[group]["people"]) == size
            assert int(found[group]["selected"]) == chosen
            assert float(found[group]["impact ratio"]) == pytest.approx(rate / rates["mean"].max())
    assert sum(one["table"] == "sex+race" for one in rows) == 8
    missing = {one["row"]: one["people of unknown category"] for one in rows}
    assert (missing["sex"], missing["race"], missing["sex+race"]) == ("300", "400", "600")
    assert any(one["row"] == "'=1+1" for one in rows)  # no formula

    text = invoke("report", folder / "ll.json", *told, "--format", "markdown").stdout
    assert "Doe \\| Partners \\<b\\>" in text
    assert "2026-12-01" in text
    assert "GAP" not in text
    assert "0.8 " not in text.replace("0.8 %", "")
    checked("report", folder / "ll.json", *told, "--output", folder / "ll.html")
    shown = (folder / "ll.html").read_text("utf-8")
    assert "Doe | Partners &lt;b&gt;" in shown
    assert "computed from signed counts" in shown
    assert not re.search(r"compliant", shown)
    assert len(shown) < 400_000


def test_a_tool_whose_low_scores_are_good_is_counted_below_the_median(folder: Path):
    """Of an odd number of people the one in the middle is not counted; the pack would refuse more than one half."""
    rng = np.random.default_rng(0)
    sex, n = rng.choice(["female", "male"], 4_001), 4_001
    risk = np.clip(0.3 + 0.1 * (sex == "female") + 0.15 * rng.normal(size=n), 0.001, 0.999)
    pq.write_table(
        pa.table({"sex": sex, "risk": risk, "late": (rng.random(n) < risk).astype(int)}), folder / "r.parquet"
    )
    done = invoke(
        "certify", "--pack", "nyc-ll144", "--data", folder / "r.parquet", "--predictions", "score=risk",
        "--label", "late", "--favorable", "0", "--sensitive", "sex", "--key", folder / "key",
        "--output", folder / "r.json",
    )  # fmt: skip
    assert "counted are scores below" in done.stderr
    facts = folder / "risk.toml"
    facts.write_text(f"{FACTS}tool_scores = true\n")
    made = invoke(
        "report", folder / "r.json", "--key", folder / "key.pub", "--pack", "nyc-ll144", "--facts", facts,
        "--format", "csv",
    )  # fmt: skip
    found = {one["row"]: one for one in csv.DictReader(io.StringIO(made.stdout)) if one["table"] == "sex"}
    for group in ("female", "male"):
        assert float(found[group]["scoring rate"]) == pytest.approx((risk < np.median(risk))[sex == group].mean())
    page = invoke("report", folder / "r.json", "--key", folder / "key.pub", "--pack", "nyc-ll144", "--facts", facts)
    assert "Counted are scores below" in " ".join(page.stdout.split())


def test_a_tool_that_scores_is_counted_above_the_median(folder: Path):
    done = checked(
        "certify", "--pack", "nyc-ll144", "--data", folder / "applicants.csv", "--predictions", "score=score",
        "--sensitive", "sex,race", "--key", folder / "key",
        "--output", folder / "sc.json",
    )  # fmt: skip
    assert "the median of all 10,000 scores" in done.stderr
    facts = folder / "scores.toml"
    facts.write_text(f"{FACTS}tool_scores = true\n")
    made = checked(
        "report", folder / "sc.json", "--key", folder / "key.pub", "--pack", "nyc-ll144", "--facts", facts,
        "--format", "csv", "--strict",
    )  # fmt: skip
    data = table_of(folder).to_pandas()
    data["above"] = data["score"] > data["score"].median()
    rates = data.groupby("sex")["above"].mean()
    found = {one["row"]: one for one in csv.DictReader(io.StringIO(made.stdout)) if one["table"] == "sex"}
    for group, rate in rates.items():
        assert float(found[group]["scoring rate"]) == pytest.approx(rate)


@pytest.mark.long
def test_a_model_that_scores_is_counted_above_the_median_of_its_scores(loans_model: Any, tmp_path: Path):
    checked("key", "new", tmp_path / "key")
    told = (
        loans_model.path, "--data", loans_model.data, "--label", "decision", "--favorable", "approved",
        "--sensitive", "sex", "--drop", "would_repay", "--pack", "nyc-ll144",
    )  # fmt: skip
    checked(
        "certify", *told, "--set", "pack.tool_scores=true", "--key", tmp_path / "key", "--output", tmp_path / "c.json",
    )  # fmt: skip
    facts = tmp_path / "facts.toml"
    facts.write_text(f"{FACTS}tool_scores = true\n")
    made = checked(
        "report", tmp_path / "c.json", "--key", tmp_path / "key.pub", "--pack", "nyc-ll144", "--facts", facts,
        "--format", "csv", "--strict",
    )  # fmt: skip
    data = fairkit.load_data(loans_model.data, label="decision", favorable="approved", sensitive=["sex"])
    scorer = OnnxModel.load(loans_model.path).bind(data, ModelOptions())
    batch = data.read(scorer.columns)
    score = scorer.predict(batch.columns(scorer.columns)).score
    above = score > np.median(score)
    groups = pq.read_table(loans_model.data).column("sex").to_numpy(zero_copy_only=False)
    found = {one["row"]: one for one in csv.DictReader(io.StringIO(made.stdout)) if one["table"] == "sex"}
    for group in set(groups):
        assert float(found[group]["scoring rate"]) == pytest.approx(above[groups == group].mean())
    checked("audit", *told, "--set", "pack.tool_scores=true", "--threshold", "0.5", code=2)
    other = [*told[:-1], "ugesp"]
    refused = checked("audit", *other, "--set", "pack.tool_scores=true", code=2)
    assert "pack.tool_scores belongs to" in refused.stderr
    checked("audit", *told[:-2], "--set", "pack.tool_scores=true", code=2)


@pytest.mark.long
def test_what_nobody_states_is_a_gap_and_strict_says_so(folder: Path):
    if not (folder / "ll.json").exists():
        test_a_filed_summary_in_two_commands(folder)
    told = ("report", folder / "ll.json", "--key", folder / "key.pub", "--pack", "ugesp")
    loose, strict = invoke(*told, "--format", "markdown"), invoke(*told, "--strict")
    assert (loose.exit_code, strict.exit_code) == (0, 3)
    assert "- Job, and selection procedure: GAP" in loose.stdout
    assert "not answered: 1607.15(A): not stated: Period of the selections" in strict.stderr
    assert "Fisher p" in loose.stdout
    lending = checked("report", folder / "ll.json", "--key", folder / "key.pub", "--pack", "ecoa", "--strict", code=3)
    assert "the audit names no reference group" in lending.stderr


@pytest.mark.long
def test_evidence_that_does_not_hold_is_red_and_comes_before_the_gaps(folder: Path):
    if not (folder / "ll.json").exists():
        test_a_filed_summary_in_two_commands(folder)
    checked("key", "new", folder / "other")
    done = checked("report", folder / "ll.json", "--key", folder / "other.pub", "--pack", "ugesp", "--strict", code=1)
    assert "DOES NOT HOLD" in done.stdout


def test_from_a_certified_credit_model_to_annex_iv_in_two_commands(loans_model: Any, tmp_path: Path):
    checked("key", "new", tmp_path / "key")
    checked(
        "certify", loans_model.path, "--data", loans_model.data, "--label", "decision", "--favorable", "approved",
        "--sensitive", "sex", "--drop", "would_repay", "--max", "equal_opportunity_difference:sex=0.5",
        "--pack", "eu-ai-act", "--key", tmp_path / "key",
        "--output", tmp_path / "c.json",
    )  # fmt: skip
    facts = tmp_path / "facts.toml"
    facts.write_text('intended_purpose = "Consumer credit"\nresponsible_persons = "J. Doe"\n')
    # the provider's part is not written
    done = checked(
        "report", tmp_path / "c.json", "--key", tmp_path / "key.pub", "--pack", "eu-ai-act", "--facts", facts,
        "--format", "markdown", "--strict", code=3
    )  # fmt: skip
    text = done.stdout
    text = text.replace("\\", "")
    order = ["## Annex IV 1:", "## Annex IV 2(b):", "## Annex IV 2(g):", "## Annex IV 3; Article 15:"]
    assert [text.index(clause) for clause in order] == sorted(text.index(clause) for clause in order)
    assert "Consumer credit" in text
    assert "equal_opportunity_difference" in text
    assert "the model's file names no mitigation" in text
    assert "Post-market monitoring plan (Article 72(3)): GAP" in text


@pytest.mark.long
def test_strict_says_which_clauses_cannot_be_rested_on_and_a_person_accepts(
    loans_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checked("key", "new", tmp_path / "key")
    told = (
        "certify", loans_model.path, "--data", loans_model.data, "--label", "decision", "--favorable", "approved",
        "--sensitive", "sex", "--drop", "would_repay", "--pack", "colorado-insurance", "--key", tmp_path / "key",
    )  # fmt: skip
    checked(*told, "--output", tmp_path / "c.json")
    facts = tmp_path / "facts.toml"
    facts.write_text(
        "".join(f'{key} = "x"\n' for key in ("principles", "testing_policy", "inventory", "vendors", "reports"))
    )
    report = (
        "report",
        tmp_path / "c.json",
        "--key",
        tmp_path / "key.pub",
        "--pack",
        "colorado-insurance",
        "--facts",
        facts,
    )
    page = invoke(*report, "--format", "json")
    made = json.loads(page.stdout)
    gaps = {one["clause"]: one["gaps"] for one in made["items"] if one["gaps"]}
    assert list(gaps) == ["Regulation 10-1-1, section 5, inventory"]  # the model names no mitigation
    assert made["pack"]["edition"] == "2026-11-23"
    assert len(made["pack"]["sha256"]) == 64
    assert made["items"][0]["states"][-1].endswith("Today (2026-11-24): applies.")
    assert "grey: Regulation 10-1-1, section 5: not compared with the official text" in page.stderr
    accepted = checked(
        *report,
        "--strict",
        "--accept-unread",
        "J. <Doe>",
        "--output",
        tmp_path / "p.html",
        code=3,
        # the gap stays
    )
    assert "fairkit: grey:" not in accepted.stderr
    shown = (tmp_path / "p.html").read_text("utf-8")
    assert "Accepted by J. &lt;Doe&gt;: 4 clauses" in shown
    assert "<strong>Grey: read the official text before you rest on it</strong>" in shown
    assert "Source: 3 CCR 702-10" in shown
    assert f"edition 2026-11-23, SHA-256 {made['pack']['sha256']}" in shown
    for wrong, said in (
        (("--accept-unread", "J. Doe"), "belong to --strict"),
        (("--strict", "--accept-status", "repealed"), "takes later, adopted, stayed, proposed"),
        (("--strict", "--accept-unread", " "), "takes the name"),
    ):
        done = checked(*report, *wrong, code=2)
        assert said in done.stderr
    old = checked(*report[:-4], "--pack", "ecoa@2026-07-20", code=2)
    assert "use --pack ecoa" in old.stderr
    red = checked(*report[:-4], "--pack", "ecoa@2026-11-23", "--format", "markdown")  # the current one, by its day
    assert "fairkit: red:" not in red.stderr
    frozen = type("Frozen", (datetime.datetime,), {"now": classmethod(lambda cls, tz=None: cls(2026, 5, 1, tzinfo=tz))})
    monkeypatch.setattr("fairkit_registry.evidence.recompute.datetime", frozen)
    checked(*told, "--output", tmp_path / "may.json")
    may = ("report", tmp_path / "may.json", "--key", tmp_path / "key.pub", "--format", "markdown", "--pack")
    now = checked(*may, "ecoa", "--strict", code=3)
    assert "red: 12 CFR 1002.6(a), comment 2 (ended): repealed 2026-07-21" in now.stderr
    text = now.stdout.replace("\\", "")
    assert "2026-05-01: applied. Today (2026-11-24): repealed 2026-07-21." in text
    assert "(convention, no legal clause)" in text
    then = checked(*may, "ecoa@2026-07-20")
    assert "fairkit: red:" not in then.stderr


def test_new_york_takes_no_group_probabilities(folder: Path):
    done = checked(
        "audit", "--pack", "nyc-ll144", "--data", folder / "applicants.csv", "--predictions", "decision=chosen",
        "--sensitive", "sex", "--sensitive-probability", "race=a_x,a_y", code=2
    )  # fmt: skip
    assert "imputed or inferred data cannot be used" in done.stderr


def test_what_is_typed_wrongly_writes_nothing(folder: Path, tmp_path: Path):
    page = tmp_path / "p.html"
    wrong: list[tuple[tuple[Any, ...], str]] = [
        (("--pack", "nyc-ll14"), "nyc-ll144"),
        (("--facts", folder / "facts.toml"), "belong to --pack"),
        (("--strict",), "belong to --pack"),
        (("--format", "csv"), "belong to --pack"),
        (("--pack", "ugesp", "--facts", folder / "facts.toml"), "has no fact"),
        (("--pack", "ugesp", "--facts", folder / "none.toml"), "cannot be read"),
        (("--pack", "ugesp", "--facts", folder / "key.pub"), "not valid TOML"),
    ]
    for arguments, said in wrong:
        done = checked("report", folder / "missing.json", *arguments, "--output", page, code=2)
        assert said in done.stderr
        assert not page.exists()
    two = checked("report", "a.json", "b.json", "--pack", "ugesp", code=2)
    assert "one certificate" in two.stderr
    nobody = checked(
        "audit", "--pack", "ecoa", "--data", folder / "applicants.csv", "--predictions", "decision=chosen", code=2
    )
    assert "--sensitive" in nobody.stderr


def test_packs_are_listed_and_a_plugin_brings_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    docs = (Path(__file__).parents[2] / "docs" / "plugins" / "hooks.md").read_text("utf-8")
    code = re.search(r"```python file=house_rules.py\n(.*?)```", docs, re.DOTALL)
    (tmp_path / "house_rules.py").write_text(code[1])
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(tmp_path / "house_rules.py"))
    listed = {one["name"]: one for one in json.loads(invoke("packs", "--format", "json").stdout)}
    assert {"nyc-ll144", "ugesp", "ecoa", "eu-ai-act", "house-rules"} <= set(listed)
    assert listed["house-rules"]["checked"] == "2026-01-15"
    text = invoke("packs").stdout
    assert "checked 2026-01-15" in text
    assert "29 CFR 1607.4 and 1607.15(A)" in text
    assert "checked 2026-01-15, status in_force" in text
    shown = invoke("plugins", "show", "house-rules" if "house-rules" in text else "house_rules")
    assert shown.exit_code in (0, 2)
    (tmp_path / "house_rules.py").write_text(code[1].replace('title = "House', 'titel = "The house'))
    import sys

    monkeypatch.delitem(sys.modules, "fairkit_file_house_rules")
    broken = checked("packs")
    assert "no key 'titel'" in broken.stderr
    assert "nyc-ll144" in broken.stdout
