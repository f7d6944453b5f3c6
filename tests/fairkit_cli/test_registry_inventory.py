"""`fairkit registry inventory` and `registry log --decisions` on a registry with a promoted and a stray model."""

from __future__ import annotations

import csv
import datetime
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from fairkit_cli.main import app

POLICY = """
[[policy]]
metric = "demographic_parity_difference"
sensitive = "sex"
max = 0.9
hazard = "Women are refused more often"
mitigation = "thresholds by group"
review = "a new product"
"""


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def folder(loans_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry: credit@2 in production by a certificate, credit@1 never promoted, a model without a certificate."""
    here = tmp_path_factory.mktemp("inventory")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.delenv("FAIRKIT_REGISTRY", raising=False)
        (here / "fairkit.toml").write_text(POLICY)
        assert invoke("key", "new", "key").exit_code == 0
        made = invoke(
            "certify", loans_model.path, "--data", loans_model.data, "--label", "decision", "--favorable", "approved",
            "--sensitive", "sex", "--key", "key", "--output", "good.json", "--set", "about.intended_use==Credit",
            "--set", "about.owner=Lending <b>",
        )  # fmt: skip
        assert made.exit_code == 0, made.output
        for command in (
            ("add", "credit", loans_model.path),
            ("add", "credit", loans_model.path, "--certificate", "good.json"),
            ("add", "stray", loans_model.path),
            (
                "alias",
                "credit",
                "production",
                "--key",
                "key.pub",
                "--max-age-days",
                "30",
                "--max",
                "demographic_parity_difference:sex=0.9",
            ),
            ("promote", "credit@2", "production"),
        ):
            done = invoke("registry", *command)
            assert done.exit_code == 0, (command, done.output)
    return here


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FAIRKIT_REGISTRY", raising=False)


def test_what_is_in_use_is_listed_with_what_is_missing():
    rows = json.loads(invoke("registry", "inventory", "--format", "json").stdout)
    credit, stray = rows
    assert (credit["model"], credit["version"], credit["aliases"]) == ("credit", 2, ["production"])
    assert (stray["version"], stray["aliases"]) == (1, [])
    assert (credit["purpose"], credit["owner"]) == ("=Credit", "Lending <b>")
    assert credit["missing"] == ["tier", "limits", "exposure", "monitoring"]
    assert set(stray["missing"]) >= {"purpose", "owner", "last_validation"}
    assert credit["last_validation"].split(": ", 1)[1].startswith("pass, signed by ")
    assert "hazard: Women are refused more often" in credit["rules"]
    audited = datetime.date.fromisoformat(credit["last_validation"][:10])
    assert credit["next_review"] == str(audited + datetime.timedelta(days=30))  # the alias's own limit
    assert not credit["overdue"]


def test_people_state_the_rest_and_a_watch_its_state(folder: Path, tmp_path: Path):
    facts = tmp_path / "facts.toml"
    facts.write_text(
        '[stray]\ntier = 1\npurpose = "a"\nowner = "b"\nlimits = "c"\nexposure = "d"\nnext_review = 2020-01-01\n'
        "[credit]\ntier = 2\n"
    )
    done = invoke(
        "watch", "init", "--certificate", folder / "good.json", "--state", tmp_path / "w",
        "--predictions", "decision=decision",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rng = np.random.default_rng(1)
    table = pa.table({"sex": rng.choice(["female", "male"], 500), "decision": rng.choice(["approved", "denied"], 500)})
    pq.write_table(table, tmp_path / "day-2026-01-02.parquet")
    invoke("watch", "add", tmp_path / "w", "--data", tmp_path / "day-2026-01-02.parquet")
    told = ("registry", "inventory", "--facts", facts, "--watch", tmp_path / "w", "--format")
    rows = list(csv.DictReader(io.StringIO(invoke(*told, "csv").stdout)))
    assert [row["model"] for row in rows] == ["credit", "stray"][::-1]  # by tier
    assert rows[0]["next_review"] == "2020-01-01 OVERDUE"
    assert rows[1]["purpose"] == "'=Credit"  # no formula
    assert "500 decisions up to 2026-01-02" in rows[1]["monitoring"]
    page = invoke(*told, "html").stdout
    assert "Lending &lt;b&gt;" in page
    assert page.count("not stated") >= 2
    assert "no law or guidance was found" in page
    text = invoke(*told, "table").stdout
    assert "OVERDUE" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[credits]\ntier = 1", "credit"),
        ("[credit]\ntears = 1", "tier"),
        ("[credit]\ntier = 4", "is 1, 2 or 3"),
        ("[credit]\ntier = true", "is 1, 2 or 3"),
        ('[credit]\nowner = ""', "takes a text"),
        ('[credit]\nnext_review = "2027"', "is a date"),
        ("credit = 1", "are a table"),
        ("[credit", "not valid TOML"),
    ],
)
def test_wrong_facts_say_what_is_wrong(text: str, said: str, tmp_path: Path):
    (tmp_path / "facts.toml").write_text(text)
    done = invoke("registry", "inventory", "--facts", tmp_path / "facts.toml")
    assert done.exit_code == 2
    assert said in done.stderr


def test_the_log_says_who_promoted_what_on_which_evidence(folder: Path):
    found = json.loads(invoke("registry", "log", "credit", "--decisions", "--format", "json").stdout)
    promoted, alias = found
    assert (promoted["action"], promoted["alias"], promoted["version"], promoted["before"]) == (
        "promote",
        "production",
        2,
        None,
    )
    assert promoted["verdict"] == "pass"
    assert promoted["signed_by"]
    assert promoted["audited_at"]
    assert alias["action"] == "alias"
    rows = list(csv.DictReader(io.StringIO(invoke("registry", "log", "--decisions", "--format", "csv").stdout)))
    assert [row["certificate"] for row in rows] == [promoted["certificate"], ""]
    assert "promote" in invoke("registry", "log", "--decisions").stdout
    refused = invoke("registry", "log", "--format", "csv")
    assert refused.exit_code == 2
    assert "add --decisions" in refused.stderr
