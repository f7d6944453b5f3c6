"""The conformance suite: this verifier answers every case, and a runner that is wrong or broken is told so."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter

import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry import conformance
from fairkit_registry.evidence.answering import answer

CASES = conformance.cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_this_verifier_answers(case):
    told = answer(case.question())
    assert told["answer"] != "unsupported"
    assert case.mistake(told) is None, (case.protects, told)
    assert told.get("because") == case.expected.get("because")


def test_the_suite_covers_what_it_promises():
    kinds = Counter(case.kind for case in CASES)
    assert set(kinds) == {
        "certificate",
        "revocations",
        "table statement",
        "policy lock",
        "watch",
        "checkpoint",
        "proof",
    }
    groups = Counter(case.name.partition("/")[0] for case in CASES)
    assert groups["contradiction"] >= 39
    assert groups["envelope"] >= 25
    assert {"bundle", "timestamp", "revocation", "task", "auditor", "older"} <= set(groups)
    assert all(case.protects.endswith(".") and len(case.protects) > 20 for case in CASES)
    assert len({case.protects for case in CASES if case.expected["answer"] == "refused"}) >= 100


def _script(tmp_path, body):
    path = tmp_path / "runner.py"
    path.write_text(f"import sys, json\n{body}\n")
    return shlex.join([sys.executable, str(path)])


def _run(*arguments):
    return CliRunner().invoke(app, ["conformance", *arguments])


def test_fairkit_passes_through_the_same_door_as_others():
    outcome = _run("--format", "json")
    assert outcome.exit_code == 0, outcome.output
    record = json.loads(outcome.stdout)
    assert record["cases"] == len(CASES)
    assert record["wrong"] == record["unsupported"] == 0


def test_a_runner_that_says_yes_to_everything_is_wrong(tmp_path):
    always = "for line in sys.stdin: print(json.dumps({'answer': 'verified'}), flush=True)"
    outcome = _run(_script(tmp_path, always), "--only", "envelope/wrong-key", "--only", "envelope/ed25519")
    assert outcome.exit_code == 1
    assert "wrong: envelope/wrong-key: answer is 'verified', and 'refused' is right" in outcome.stdout
    # a certificate that holds has a verdict, which it must name
    assert "wrong: envelope/ed25519: verdict is None" in outcome.stdout


@pytest.mark.long
def test_a_runner_that_answers_one_case_and_ends_is_started_again(tmp_path):
    once = "from fairkit_registry.evidence.answering import answer\n"
    once += "print(json.dumps(answer(json.loads(sys.stdin.readline()))), flush=True)"
    outcome = _run(_script(tmp_path, once), "--only", "bundle")
    assert outcome.exit_code == 0, outcome.output
    assert "6 of 6 cases are answered right" in outcome.stdout


def test_a_reason_may_be_left_out_and_must_be_right_where_it_is_not():
    case = next(one for one in CASES if one.name == "envelope/wrong-key")
    assert case.mistake({"answer": "refused"}) is None
    assert "because is 'form'" in case.mistake({"answer": "refused", "because": "form"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(3)", "ended without an answer"),
        ("for line in sys.stdin: print('yes', flush=True)", "no JSON object with an `answer`"),
        ("for line in sys.stdin: print('[1]', flush=True)", "no JSON object with an `answer`"),
    ],
)
def test_a_broken_runner_is_one_message(tmp_path, body, message):
    outcome = _run(_script(tmp_path, body), "--only", "bundle")
    assert outcome.exit_code == 2
    assert message in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere/runner"], "cannot start '/nowhere/runner'"),
        (["'"], "cannot be read"),
        (["--only", "nothing"], "no case whose name begins with nothing"),
        (["x", "--answer"], "leave RUNNER"),
    ],
)
def test_bad_input_is_one_message(arguments, message):
    outcome = _run(*arguments)
    assert outcome.exit_code == 2
    assert message in outcome.stderr


def test_the_cases_can_be_listed():
    outcome = _run("--list", "--only", "revocation/taken-back")
    assert outcome.exit_code == 0
    assert outcome.stdout == (
        "revocation/taken-back: A list that takes a revocation back, as a thief of the key would, is refused.\n"
    )


def test_what_a_runner_does_not_know_is_unsupported():
    assert answer({"kind": "a kind of a later version", "input": {}}) == {"answer": "unsupported"}
