"""`fairkit ask`, `ask plan`, and audits, locks and certificates of what they wrote."""

from __future__ import annotations

import base64
import json

import pyarrow.parquet as pq
import pytest
from tests.commands import checked

import fairkit
from fairkit_correspondence import planning
from fairkit_correspondence.answers import digest_of
from fairkit_correspondence.plan import read_plan
from fairkit_correspondence.requests import answers_table as answers_of
from fairkit_correspondence.requests import requests_digest, requests_of

from .fake_server import Behaviour, FakeServer
from .plans import write_plan
from .tables import answers_table

LIMIT = ("--max", "correspondence_difference:group=0.05")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Return a folder with a plan, answers with a planted gap, and what was printed."""
    folder = tmp_path_factory.mktemp("asked")
    plan = write_plan(folder, documents=40, names=40, looks=2, asking="limit = 0.05")
    checked("key", "new", folder / "key", "--no-passphrase")
    checked("ask", plan, "--requests", folder / "requests.parquet")
    checked(
        "policy", "lock", "--key", folder / "key", "--output", folder / "lock.json",
        "--data", folder / "requests.parquet", *LIMIT,
    )  # fmt: skip
    with FakeServer(Behaviour(gap=0.12)) as server:
        told = checked(
            "ask", plan, "--endpoint", server.url, "--model", "m", "--budget", "1", "--output",
            folder / "answers.parquet", "--lock", folder / "lock.json", "--save", folder / "page.html", code=1,
        )  # fmt: skip
        again = checked(
            "ask", plan, "--endpoint", server.url, "--model", "m", "--budget", "1", "--output",
            folder / "answers.parquet", "--ask-again", "20",
        )  # fmt: skip
    return folder, told, again


@pytest.mark.long
def test_at_most_twelve_lines_say_what_came_out(asked):
    folder, told, again = asked
    lines = told.stdout.splitlines()
    assert len(lines) <= 12
    assert lines[0].startswith("FAIL: correspondence_difference for group is 0.1")
    assert lines[1].startswith("grey - stone: 11.6 of 100 [8.5, 14.9]")
    assert " of 100 [" in lines[1]
    assert any(line.startswith("documents whose answers differ: ") for line in lines)
    assert any(line.startswith("cost 0.0") for line in lines)
    assert again.stdout.startswith("0 of 20 answers differ from those before: at most 13.9% do")
    page = (folder / "page.html").read_text()
    assert "Difference by pair of groups and context" in page
    assert "Late answers minus early ones" in page
    assert "grey - stone, top-ten" in page


@pytest.mark.long
def test_a_table_of_answers_is_audited_by_its_name(asked):
    folder, *_ = asked
    result = checked("audit", folder / "answers.parquet", *LIMIT, "--format", "json", code=1)
    report = json.loads(result.stdout)
    assert report["verdict"] == "fail"
    served = report["findings"][0]["evidence"]["served"]
    assert served["stated_model"] == "fake-1"
    assert served["model"] == "m"
    checked("audit", folder / "answers.parquet", "--max", "correspondence_difference:group|context=0.3")
    checked("audit", folder / "answers.parquet", "--data", folder / "answers.parquet", code=2)


def test_a_plan_is_locked_before_it_is_asked(asked):
    folder, *_ = asked
    answers, lock, key = folder / "answers.parquet", folder / "lock.json", folder / "key"
    checked(
        "certify", "--lock", lock, "--data", answers, "--key", key, "--output", folder / "cert.json", code=1,
    )  # fmt: skip
    held = checked("verify", folder / "cert.json", "--key", f"{key}.pub", "--data", answers, "--recompute", code=1)
    assert "lock" in held.stdout
    # it says what was asked, of whom, when, about which texts and names
    payload = json.loads(base64.b64decode(json.loads((folder / "cert.json").read_text())["payload"]))
    text, plan = json.dumps(payload), read_plan(folder / "plan.toml")
    planned = answers_of(plan, requests_of(plan), {}, {})
    table = pq.read_table(answers)
    documents = digest_of(sorted(set(table.column("document").to_pylist())))
    names = digest_of([f"{name.group}\t{name.text}" for name in plan.names])
    served = {column: table.column(column)[0].as_py() for column in ("address", "asked_on", "stated_model")}
    for part in (plan.digest, requests_digest(planned), documents, names, *served.values(), "top_logprobs"):
        assert part in text, part
    assert fairkit.load_data(table, sensitive=["group"]).learn().sha256 in text
    # an answer that is changed afterwards is another table
    table = pq.read_table(answers)
    changed = table.column("answer").to_pylist()
    changed[0] = 0.999
    at = table.column_names.index("answer")
    pq.write_table(table.set_column(at, "answer", [changed]), folder / "changed.parquet")
    checked("verify", folder / "cert.json", "--key", f"{key}.pub", "--data", folder / "changed.parquet", code=1)
    # and answers to other requests are not what was locked
    other = table.column("name").to_pylist()
    other[0] = "Baba Other"
    pq.write_table(table.set_column(table.column_names.index("name"), "name", [other]), folder / "other.parquet")
    refused = checked(
        "certify",
        "--lock",
        lock,
        "--data",
        folder / "other.parquet",
        "--key",
        key,
        "--output",
        folder / "c2.json",
        code=2,
    )
    assert "the policy lock is about another table" in refused.stderr


def test_only_what_was_locked_is_asked(asked, tmp_path):
    folder, *_ = asked
    plan = write_plan(tmp_path, documents=40, names=40, looks=2, asking="limit = 0.1")
    with FakeServer(Behaviour()) as server:
        refused = checked(
            "ask", plan, "--endpoint", server.url, "--model", "m", "--budget", "1", "--output",
            tmp_path / "a.parquet", "--lock", folder / "lock.json", code=2,
        )  # fmt: skip
        assert server.calls == 0
    assert "locks other requests" in refused.stderr
    assert not (tmp_path / "a.parquet").exists()


@pytest.mark.long
def test_a_dry_run_says_what_it_costs_and_what_it_will_see(tmp_path):
    plan = write_plan(tmp_path, documents=30, names=40)
    record = json.loads(checked("ask", plan, "--dry-run", "--format", "json").stdout)
    assert record["calls"] == 30 * 2 * 2 * 2 + 4 + 40
    assert record["price"] == pytest.approx((record["prompt_tokens"] + 2 * record["completion_tokens"]) / 1e6)
    assert 0.02 < record["half_width"] < 0.08
    assert record["balance"]["grey"]["names"] == 40
    text = checked("ask", plan, "--dry-run", "--looks", "3").stdout
    assert "Nothing was sent." in text
    assert "3 looks" in text
    refused = checked("ask", write_plan(tmp_path / "few", documents=4, names=12), "--dry-run", code=2)
    assert "inconclusive: 12 names cannot stand for a group; 30 do, 40 are planned" in refused.stderr
    assert "--endpoint URL --model NAME --output FILE" in checked("ask", plan, code=2).stderr


@pytest.mark.long
def test_a_pilot_plans_the_audit(tmp_path, monkeypatch):
    pq.write_table(answers_table(documents=30, names=12, contexts=2), tmp_path / "pilot.parquet")
    record = json.loads(
        checked(
            "ask", "plan", tmp_path / "pilot.parquet", "--sensitive", "race", "--limit", "0.03", "--format", "json"
        ).stdout
    )
    assert record["answer"] == pytest.approx(2 * 0.05**2, rel=0.5)
    sizes = record["sizes"]
    assert [row["names_per_document"] for row in sizes] == [1, 2, 4, 8]
    assert all(row["calls"] == row["documents"] * 2 * 2 * row["names_per_document"] for row in sizes)
    monkeypatch.setattr(planning, "STAGES", (100,))  # the screen, from fewer drawn audits
    assert "names on each document" in checked("ask", "plan", tmp_path / "pilot.parquet", "--sensitive", "race").stdout
    checked("ask", "plan", tmp_path / "pilot.parquet", code=2)


def test_help_loads_nothing_heavy():
    assert "PLAN.toml" in checked("ask", "run", "--help").stdout
    assert "plan" in checked("ask", "--help").stdout


def test_a_csv_of_answers_is_audited_too(tmp_path):
    import pyarrow.csv

    pyarrow.csv.write_csv(answers_table(), tmp_path / "answers.csv")
    checked(
        "audit", tmp_path / "answers.csv", "--sensitive", "race", "--max", "correspondence_difference:race=0.05", code=1
    )


def test_a_lock_made_after_the_questions_is_refused(asked, tmp_path):
    folder, *_ = asked
    table = pq.read_table(folder / "answers.parquet")
    at = table.column_names.index("asked_on")
    earlier = table.set_column(at, "asked_on", [["2020-01-01"] * table.num_rows])
    pq.write_table(earlier, tmp_path / "answers.parquet")
    words = ("--lock", folder / "lock.json", "--data", tmp_path / "answers.parquet", "--key", folder / "key")
    refused = checked("certify", *words, "--output", tmp_path / "cert.json", code=2)
    assert "questions were asked on 2020-01-01, before the policy lock was made" in refused.stderr


def test_names_that_take_more_tokens_are_told(tmp_path):
    plan = write_plan(tmp_path, documents=4, names=4, each=1, asking="pilot = true")
    names = (tmp_path / "names.csv").read_text().replace(" Stone", " Stone Of The Long And Winding Road")
    (tmp_path / "names.csv").write_text(names)
    words = ("--model", "m", "--budget", "1", "--output", tmp_path / "answers.parquet")
    with FakeServer(Behaviour()) as server:
        said = checked("ask", plan, "--endpoint", server.url, *words).stdout
    assert "the names differ in length, too: prompt tokens grey " in said
    assert len(said.splitlines()) <= 12
