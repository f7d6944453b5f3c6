"""`fairkit report`: pages from certificates that are checked first."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

from fairkit.results.rules import Rule
from fairkit_cli.evidence import read_evidence, stated_report
from fairkit_cli.pages.certificates import evidence_page, repair_that_passes
from fairkit_cli.render.html import html_page

pytest.importorskip("vl_convert", reason="pages need vl-convert-python: pip install 'fairkit[html]'")

RULE = "demographic_parity_difference:sex=0.1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, another one, and certificates of two tables of decisions: the first fails, the second passes."""
    here = tmp_path_factory.mktemp("evidence")
    rng = np.random.default_rng(1)
    sex = rng.choice(["female", "male"], 4000)
    for name, less in (("bad", 0.3), ("good", 0.0)):
        chosen = rng.random(4000) < 0.6 - less * (sex == "female")
        pq.write_table(pa.table({"sex": sex, "chosen": chosen.astype(int)}), here / f"{name}.parquet")
    checked("key", "new", here / "key")
    checked("key", "new", here / "other")
    for name, code in (("bad", 1), ("good", 0)):
        done = invoke(
            "certify", "--data", here / f"{name}.parquet", "--predictions", "decision=chosen", "--sensitive", "sex",
            "--max", RULE, "--key", here / "key", "--output", here / f"{name}.json",
            "--set", "about.owner=Lending & Risk",
        )  # fmt: skip
        assert done.exit_code == code
    return here


@pytest.mark.long
def test_a_page_of_one_certificate_that_holds(folder: Path):
    # the page is made; the verdict is on it
    checked("report", folder / "bad.json", "--key", folder / "key.pub", "--output", folder / "one.html")
    page = (folder / "one.html").read_text("utf-8")
    assert 'class="signed"' in page
    assert "DOES NOT HOLD" not in page
    assert "Lending &amp; Risk" in page
    assert "Of 100 people of group female, " in page
    assert len(page) < 400_000


@pytest.mark.long
@pytest.mark.parametrize("key", [None, "other.pub"])
def test_a_page_that_nobody_vouches_for_says_so(folder: Path, key: str | None):
    told = [] if key is None else ["--key", folder / key]
    done = invoke("report", folder / "bad.json", *told)
    assert done.exit_code == (0 if key is None else 1)
    assert 'class="unsigned"' in done.stdout
    assert ("DOES NOT HOLD" in done.stdout) == (key is not None)
    said = "the signature was not checked" if key is None else "this evidence does not hold: not signed by a key"
    assert said in done.stderr


def _changed(path: Path, target: Path, change: Any) -> Path:
    envelope = json.loads(path.read_text("utf-8"))
    statement = json.loads(base64.b64decode(envelope["payload"]))
    change(statement["predicate"])
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    target.write_text(json.dumps(envelope), "utf-8")
    return target


@pytest.mark.long
def test_a_changed_number_is_red_with_a_key_and_a_contradiction_without(folder: Path, tmp_path: Path):
    def flatter(body: dict[str, Any]) -> None:
        for finding in body["findings"]:
            if finding["metric"] == "demographic_parity_difference":
                finding["value"], finding["interval"] = 0.01, [0.0, 0.02]

    path = _changed(folder / "bad.json", tmp_path / "changed.json", flatter)
    for told in ([], ["--key", folder / "key.pub"]):
        done = checked("report", path, *told, code=1)
        assert "DOES NOT HOLD" in done.stdout
        assert 'class="unsigned"' in done.stdout
    assert "the certificate contradicts itself" in invoke("report", path).stderr


@pytest.mark.long
def test_an_outcome_that_the_settings_do_not_have_is_a_contradiction(folder: Path, tmp_path: Path):
    path = _changed(folder / "bad.json", tmp_path / "c.json", lambda body: body["data"].update(label="paid"))
    done = checked("report", path, code=1)
    assert "the settings have the label None, the report paid" in done.stderr


def test_what_is_no_certificate_writes_nothing(folder: Path, tmp_path: Path):
    (tmp_path / "no.json").write_text("{}")
    done = checked("report", folder / "bad.json", tmp_path / "no.json", "--output", tmp_path / "p.html", code=2)
    assert "no.json" in done.stderr
    assert not (tmp_path / "p.html").exists()


@pytest.mark.long
def test_several_certificates_are_followed_and_the_newest_is_shown(folder: Path):
    done = checked("report", folder / "good.json", folder / "bad.json", "--key", folder / "key.pub")
    page = done.stdout
    assert "<h1>2 certificates</h1>" in page
    assert "How the numbers moved" in page
    assert page.count("demographic_parity_difference · sex by certificate") >= 1
    assert page.index("bad.parquet") < page.index("good.parquet")  # the oldest first, whatever the order typed
    assert "The repair that passes" not in page  # it is about another table
    assert len(page) < 400_000


@pytest.mark.long
def test_a_repair_is_another_model_by_the_same_rules_on_the_same_table(folder: Path):
    bad, good = read_evidence([folder / "good.json", folder / "bad.json"], [folder / "key.pub"])
    same = replace(good.certificate.report.data, sha256=bad.certificate.report.data.sha256)
    report = replace(good.certificate.report, data=same)
    fixed = replace(good, certificate=replace(good.certificate, report=report, model_sha256="a" * 64))
    assert repair_that_passes([bad, fixed]) is fixed
    assert "The repair that passes" in html_page(evidence_page([bad, fixed]))
    assert repair_that_passes([bad, replace(fixed, failed="no")]) is None
    weaker = replace(
        report, policy=tuple(replace(rule, rule=Rule(rule.metric, rule.sensitive, max=0.9)) for rule in report.policy)
    )
    assert repair_that_passes([bad, replace(fixed, certificate=replace(fixed.certificate, report=weaker))]) is None
    own = replace(fixed.certificate, model_sha256=bad.certificate.model_sha256)
    assert repair_that_passes([bad, replace(fixed, certificate=own)]) is None


def _own(folder: Path, tmp_path: Path, *options: Any) -> Path:
    """A certificate by a key of its own, so that what is remembered about it touches no other test."""
    checked("key", "new", tmp_path / "own")
    checked(
        "certify", "--data", folder / "good.parquet", "--predictions", "decision=chosen", "--sensitive", "sex",
        "--max", RULE, "--key", tmp_path / "own", "--output", tmp_path / "own.json",
        *options,
    )  # fmt: skip
    return tmp_path / "own.json"


@pytest.mark.long
def test_an_expired_certificate_is_red(folder: Path, tmp_path: Path):
    path = _own(folder, tmp_path, "--valid-days", "0")
    page = checked(
        "report", path, folder / "bad.json", "--key", tmp_path / "own.pub", "--key", folder / "key.pub", code=1
    )
    assert page.stdout.count("DOES NOT HOLD") == 1
    assert "was valid until" in page.stdout
    assert "The repair that passes" not in page.stdout


@pytest.mark.long
def test_an_old_certificate_says_its_age(folder: Path):
    (one,) = read_evidence([folder / "bad.json"], [folder / "key.pub"])
    day = one.certificate.audited_at.date()
    assert "more than a year" not in html_page(evidence_page([one], today=day.isoformat()))
    later = (day + timedelta(days=400)).isoformat()
    assert "400 days: more than a year" in html_page(evidence_page([one], today=later))


@pytest.mark.long
def test_a_watch_adds_what_came_since(folder: Path, tmp_path: Path):
    path = _own(folder, tmp_path)
    state = tmp_path / "watch"
    done = checked("watch", "init", "--certificate", path, "--state", state, "--predictions", "decision=chosen")
    rng = np.random.default_rng(2)
    sex = rng.choice(["female", "male"], 3000)
    chosen = (rng.random(3000) < 0.7 - 0.4 * (sex == "female")).astype(int)
    pq.write_table(pa.table({"sex": sex, "chosen": chosen}), tmp_path / "day-2026-01-02.parquet")
    checked("watch", "add", state, "--data", tmp_path / "day-2026-01-02.parquet", code=1)
    done = checked("report", path, "--key", tmp_path / "own.pub", "--watch", state)
    page = done.stdout
    assert "Monitoring: the decisions since the audit" in page
    assert "Since the audit</strong>: 1 of 1 limits broken" in page[: page.index("The question")]
    section = page[page.index("Monitoring: the decisions") :]
    assert "3,000 decisions since 2026-01-02" in section
    assert 'class="badge fail"' in section
    assert len(page) < 400_000
    other = checked("report", folder / "bad.json", "--key", folder / "key.pub", "--watch", state, code=2)
    assert "and not about what bad.json certifies" in other.stderr
    checked("report", path, "--watch", state, "--pack", "ugesp", code=2)
    filed = ("report", path, "--key", tmp_path / "own.pub", "--pack", "eu-ai-act-monitoring", "--format")
    made = json.loads(invoke(*filed, "json", "--watch", state).stdout)
    (item,) = [one for one in made["items"] if one["clause"] == "Article 72(2)"]
    rules, decisions, _ = item["tables"]
    look = json.loads(invoke("watch", "show", state, "--format", "json").stdout)
    assert [row[5:8] for row in rules["rows"]] == [
        [one["value"], *(one["interval"] or [None, None])] for one in look["rules"]
    ]
    assert ["decisions", look["rows"]] in decisions["rows"]
    assert {table["origin"] for table in item["tables"]} == {"watched"}
    page = invoke(*filed, "html", "--watch", state).stdout
    assert "read from the watch, not signed here" in page
    assert "Amber: not yet law here" in page
    alone = invoke(*filed, "markdown")
    assert "no watch of the model is named" in alone.stdout
    assert "Who looks at the numbers, how often, and who decides: GAP" in alone.stdout


def test_an_older_certificate_has_its_outcome_from_its_settings(folder: Path):
    (one,) = read_evidence([folder / "bad.json"], [folder / "key.pub"])
    settings = {"data": {**one.certificate.settings["data"], "label": "paid", "favorable": 1.0}}
    report = stated_report(replace(one.certificate, settings=settings))
    assert (report.data.label, report.data.favorable) == ("paid", "1")


@pytest.mark.long
def test_how_the_model_was_made_is_shown(folder: Path):
    (one,) = read_evidence([folder / "bad.json"], [folder / "key.pub"])
    assert "How the model was made" not in html_page(evidence_page([one]))
    made = {
        "plugin": "reweigh", "parameters": {"strength": 0.5, "<b>": 1}, "base": {"sha256": "b" * 64},
        "search": {"considered": 12, "searched": 9, "chance": 0.97, "sure": 0.95},
    }  # fmt: skip
    page = html_page(evidence_page([replace(one, certificate=replace(one.certificate, mitigation=made))]))
    for told in ("Parameter strength", "Parameter &lt;b&gt;", "b" * 64, "alternatives considered</dt><dd>12</dd>"):
        assert told in page
