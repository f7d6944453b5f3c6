"""`fairkit why` and the other ways to the same numbers: lines, page, Markdown, certificate."""

from __future__ import annotations

import json
import re

import pytest
from tests.commands import checked


@pytest.fixture(scope="module")
def folder(tmp_path_factory, frame, model):
    path = tmp_path_factory.mktemp("why")
    frame.to_csv(path / "loans.csv", index=False)
    (path / "loans.onnx").write_bytes(model)
    return path


def run(*words, code=0):
    return checked(*words, code=code).stdout


def data(folder):
    return ("--data", folder / "loans.csv", "--label", "decision", "--favorable", "approved", "--sensitive", "sex")


def test_the_lines_add_up_to_the_gap(folder):
    text = run("why", folder / "loans.onnx", *data(folder), "--allow", "income,employment", "--set", "why.calls=12000")
    flat = " ".join(text.split())
    assert re.match(
        r"why Favorable decisions, male \(.* people\) minus female \(.* people\): \+.* points \[.*?\] Of", flat
    )
    people = re.search(
        r"Of 100 people of group male, (\d+) are approved; of 100 of group female, (\d+). Of these ([\d.]+) points, by "
        r"column: (.*?)\. column", flat
    )  # fmt: skip
    assert abs(int(people[1]) - int(people[2]) - float(people[3])) <= 1
    assert sum(float(part.split()[-1]) for part in people[4].split(", ")) == pytest.approx(float(people[3]), abs=0.3)
    assert "log-odds of approval (exact)" in flat
    assert "Intervals hold at once; sampling is" in text
    assert " because more people of group male are qualified; " in flat
    assert "Alike in income, employment:" in text
    assert "Retraining without a column may not close the gap." in flat
    assert len(text.splitlines()) <= 19


@pytest.mark.long
def test_the_same_numbers_as_an_audit(folder):
    words = (folder / "loans.onnx", *data(folder), "--format", "json")
    one = json.loads(run("why", *words, "--set", "why.metric=score"))
    other = json.loads(run("audit", *words, "--auditor", "why", "--set", "why.metric=score"))
    assert one["findings"] == other["findings"]


@pytest.mark.long
@pytest.mark.parametrize("form", ["html", "markdown"])
def test_pages_say_what_carries_the_gap(folder, form):
    text = run("why", folder / "loans.onnx", *data(folder), "--set", "why.calls=12000", "--format", form)
    assert ("What carries the gap" if form == "html" else "### Why") in text


def test_a_rule_decides_the_exit_code(folder):
    words = ("why", folder / "loans.onnx", *data(folder), "--set", "why.metric=score", "--allow", "income")
    run(*words, "--max", "unexplained_difference:sex|income=0.9")
    run(*words, "--max", "unexplained_difference:sex|income=0.06", code=3)


def test_a_wrong_column_is_one_message(folder):
    found = checked("why", folder / "loans.onnx", *data(folder), "--allow", "height", code=2)
    assert "no column 'height'" in found.output


@pytest.mark.long
def test_no_other_auditor_may_state_what_is_left(folder):
    from fairkit.results.report import Report
    from fairkit_registry.evidence.charts import contradictions

    words = (folder / "loans.onnx", *data(folder), "--set", "why.metric=score", "--allow", "income", "--format", "json")
    record = json.loads(run("why", *words))
    settings = {"confidence": 0.95, "seed": 0, "auditors": ["why", "group"],
                "data": {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}}  # fmt: skip
    assert not list(contradictions(Report.from_dict(record), settings))
    forged = next(one for one in record["findings"] if one["metric"] == "unexplained_difference")
    forged |= {"auditor": "group", "value": 0.0, "interval": [0.0, 0.01]}
    assert any("declare the metric" in text for text in contradictions(Report.from_dict(record), settings))


@pytest.mark.long
def test_a_certificate_is_verified_and_computed_again(folder):
    run("key", "new", folder / "k", "--type", "ed25519")
    told = ("--auditor", "why", "--set", "why.allowed=income", "--set", "why.calls=12000")
    key = ("--key", folder / "k")
    run("certify", folder / "loans.onnx", *data(folder), *told, *key, "--output", folder / "c.json")
    verified = ("--model", folder / "loans.onnx", "--data", folder / "loans.csv", "--key", folder / "k.pub")
    text = run("verify", folder / "c.json", *verified, "--recompute")
    assert "computed again" in text


@pytest.mark.long
def test_the_group_that_was_found_is_explained(folder):
    text = run("why", folder / "loans.onnx", *data(folder), "--subgroup", "--set", "why.metric=score")
    blocks = [line for line in text.splitlines() if line.startswith("why  ")]
    assert len(blocks) == 2
    assert "everybody else" in " ".join(text.split())
    named = run(
        "why",
        folder / "loans.onnx",
        *data(folder),
        "--set",
        "why.people=employment=permanent",
        "--set",
        "why.metric=score",
    )
    assert "employment = permanent" in named


@pytest.mark.long
def test_a_value_with_a_comma_is_one_condition(folder, frame):
    commas = frame.assign(employment=frame["employment"].replace("permanent", "permanent, full"))
    commas.to_csv(folder / "commas.csv", index=False)
    told = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex", "--set", "why.metric=score"]
    people = ("--set", 'why.people="employment=permanent, full"')
    text = run("why", folder / "loans.onnx", "--data", folder / "commas.csv", *told, *people)
    assert "employment = permanent, full" in text
