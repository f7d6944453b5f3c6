"""`fairkit watch` from the command line: codes, alarms that go out, demotion, signed statements."""

from __future__ import annotations

import datetime
import hashlib
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked

from fairkit_registry.evidence.signers import new_key_pair
from fairkit_registry.store.registry import Registry
from fairkit_watch.log import frame, read
from fairkit_watch.settings import canonical

RULE = "demographic_parity_difference:sex=0.1"


def run(*arguments, code=0):
    result = checked(*arguments, code=code)
    assert "Traceback" not in result.output
    return result


def day(t):
    return (datetime.date(2024, 1, 1) + datetime.timedelta(t)).isoformat()


def write(folder, t, gap=0.0, rows=2000):
    rng = np.random.default_rng(t)
    sex = np.where(rng.random(rows) < 0.5, "f", "m")
    yes = rng.random(rows) < 0.4 + gap * (sex == "m")
    folder.mkdir(exist_ok=True)
    path = folder / f"decisions-{day(t)}.parquet"
    pq.write_table(pa.table({"sex": sex.tolist(), "decision": yes.astype(int)}), path)
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRKIT_REGISTRY", raising=False)
    return tmp_path


@pytest.fixture
def state(here):
    run("watch", "init", "--state", "w", "--sensitive", "sex", "--max", RULE, "--groups", "sex=f,m")
    return here / "w"


def test_a_beginning_says_what_each_table_must_have(here):
    said = run(
        "watch", "init", "--state", "w", "--predictions", "decision=chosen,favorable=yes,score=p", "--label", "repaid",
        "--favorable", "1", "--sensitive", "sex", "--max", RULE,
    ).output  # fmt: skip
    assert "chosen (favorable: yes), repaid (favorable: 1), p, sex" in " ".join(said.split())
    pq.write_table(pa.table({"sex": ["f"], "chosen": ["no"]}), here / "decisions-2024-01-01.parquet")
    assert "no watched column 'p'" in run("watch", "add", "w", "--data", "decisions-2024-01-01.parquet", code=2).output


def test_a_watch_from_the_command_line(state, here):
    file = write(here / "in", 0)
    shown = json.loads(run("watch", "add", state, "--data", file, "--format", "json").stdout)
    assert (shown["rows"], shown["days"], shown["alarms"]) == (2000, [day(0)], [])
    again = run("watch", "add", state, "--data", file, code=2)
    assert "was added before" in again.stderr
    assert json.loads(run("watch", "show", state, "--format", "json").stdout)["verdict"] == "pass"
    assert "PASS: of all decisions since 2024-01-01" in run("watch", "show", state).stdout
    bad = write(here / "in", 1, gap=0.4)
    told = run("watch", "add", state, "--data", bad, code=1).stdout
    assert "ALARM fail" in told
    assert "ALARM changed" in told
    assert "FAIL" in run("watch", "show", state, code=1).stdout
    calm = run(
        "watch",
        "add",
        state,
        "--data",
        write(here / "in", 2, gap=0.4),
        "--levels",
        "shares",
        "--alarm-file",
        "alarms.jsonl",
    )
    assert not (here / "alarms.jsonl").exists()
    assert "ALARM" not in calm.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "w", "--data", "none.csv"), "no data file"),
        (("add", "w", "--data", "x.csv"), "which day"),
        (("add", "w", "--data", "x.csv", "--day", "2024-13-01"), "no day"),
        (("add", "w", "--data", "x.csv", "--day", "2024-01-05", "--as-of", "2024-01-01"), "today is 2024-01-01"),
        (("add", "w", "--data", "x.csv", "--day", "2024-01-01", "--demote"), "is about none"),
        (("add", "w", "--data", "x.csv", "--day", "2024-01-01", "--levels", "all"), "no level 'all'"),
        (("add", "w", "--data", "x.csv", "--alarm-file", "no/where"), "does not exist"),
        (("label", "w", "--data", "x.csv"), "awaits no labels"),
        (("show", "nowhere"), "there is no watch"),
        (("init", "--state", "w", "--sensitive", "sex", "--max", RULE), "exists already"),
        (("init", "--state", "n"), "nothing to watch"),
        (("init", "--state", "n", "--sensitive", "sex", "--max", RULE, "--groups", "sex"), "--groups sex=female"),
        (("init", "--state", "n", "--sensitive", "sex", "--max", RULE, "--predictions", "score=s"), "decision=COL"),
        (("init", "--state", "n", "--sensitive", "sex", "--max", "roc_auc=1"), "cannot be watched"),
        (("init", "credit@production", "--state", "n", "--max", RULE), "no registry"),
    ],
)
def test_bad_usage_is_one_message_and_code_2(state, here, arguments, message):
    (here / "x.csv").write_text("sex,decision\nf,1\nm,0\n")
    before = (state / "totals.log").read_bytes()
    result = run("watch", *arguments, code=2)
    assert message in " ".join(result.stderr.split())
    assert (state / "totals.log").read_bytes() == before
    assert not (here / "n").exists()


def frames(records):
    return b"".join(frame(one) for one in records)


def with_digest(record, **changes):
    """A record with other counts and a digest that fits them, as somebody without a key can write it."""
    made = {**record, **changes}
    return made | {"counts": hashlib.sha256(canonical(made["days"])).hexdigest()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("digest", "do not have its digest"),
        ("negative", "cannot be"),
        ("nan", "cannot be"),
        ("rows", "it says 2,000 rows"),
        ("groups", "more decisions than there are"),
        ("before", "before the watch began"),
        ("twice", "counts twice"),
        ("back", "lies before"),
        ("policy", "other settings"),
        ("form", "does not have the form"),
        ("list", "does not have the form"),
        ("file", "a name that no watch gives"),
    ],
)
def test_records_are_held_against_their_own_digest_and_counts(here, what, said):
    run(
        "watch", "init", "--state", "w", "--sensitive", "sex", "--max", RULE, "--groups", "sex=f,m",
        "--set", f"watch.since={day(0)}",
    )  # fmt: skip
    run("watch", "add", "w", "--data", write(here / "in", 1))
    path = here / "w" / "totals.log"
    begin, record = read(path.read_bytes(), "")[0]
    counts = record["days"][day(1)]
    wrong = {"": {"": {"d": [-1, 2001]}}, "sex": {}}
    numbers = {"": {"": {"d": ["1", 1999]}}, "sex": {}}
    more = {"": counts[""], "sex": {"f": {"d": [2000, 1]}, "m": {"d": [0, 0]}}}
    changed = {
        "digest": record | {"rows": 1999},
        "negative": with_digest(record, days={day(1): wrong}),
        "nan": with_digest(record, days={day(1): numbers}),
        "rows": with_digest(record, days={day(1): {"": {"": {"d": [1, 1]}}}}),
        "groups": with_digest(record, days={day(1): more}),
        "before": with_digest(record, days={"2023-12-31": counts}),
        "twice": record,
        "back": record | {"at": "2000-01-01T00:00:00.000Z"},
        "policy": record | {"policy": "0" * 16},
        "form": {key: value for key, value in record.items() if key != "at"},
        "list": [1],
        "file": with_digest(record, pending={day(1): ["../../in.parquet"]}),
    }[what]
    if what == "digest":
        changed = record | {"days": {day(1): wrong}}
    path.write_bytes(frames([begin, *([record] if what == "twice" else []), changed]))
    for command in (("show", "w"), ("add", "w", "--data", write(here / "in", 2))):
        assert said in run("watch", *command, code=2).stderr.replace("\n", " ")


@pytest.fixture
def deployed(here, loans_model):
    """A registry with two promoted versions of one model, and a watch of the newer."""
    new_key_pair(here / "k")
    for number, path in ((1, loans_model.path), (2, loans_model.again(here / "again.onnx"))):
        arguments = ("--data", loans_model.data, "--sensitive", "sex", "--max", "demographic_parity_difference:sex=0.9")
        roles = ("--label", "decision", "--favorable", "approved")
        where = ("--key", "k", "--output", f"c{number}")
        run("certify", path, *arguments, *roles, *where)
        run("registry", "add", "credit", path, "--certificate", f"c{number}")
    run("registry", "alias", "credit", "production", "--key", "k.pub", "--max", "demographic_parity_difference:sex=0.9")
    for number in (1, 2):
        run("registry", "promote", f"credit@{number}", "production")
    run(
        "watch",
        "init",
        "credit@production",
        "--state",
        "w",
        "--max",
        RULE,
        "--predictions",
        "decision=decision,favorable=1",
    )
    return here


@pytest.mark.long
def test_the_certificate_tells_what_to_expect_and_an_alias_is_taken_back_with_evidence(deployed):
    told = json.loads((deployed / "w" / "policy.json").read_text())
    assert (told["model"], told["alias"], told["sensitive"]) == ("credit@2", "production", ["sex"])
    assert sorted(told["groups"]["sex"]) == ["female", "male"]
    assert set(told["reference"]["rates"]["sex"]["female"]) >= {"selection_rate", "true_positive_rate"}
    assert "demographic_parity_difference:sex" in told["reference"]["numbers"]
    assert sum(told["reference"]["shares"]["sex"].values()) == pytest.approx(1)
    file = write(deployed / "in", 0, gap=0.5)
    table = pq.read_table(file)
    names = pa.array(["male" if one == "m" else "female" for one in table["sex"].to_pylist()])
    pq.write_table(table.set_column(0, "sex", names), file)
    shutil.move("fairkit-registry", "away")  # a registry that cannot be reached: tried again with the next call
    told = run("watch", "add", "w", "--data", file, "--demote", code=1)
    assert "tried again" in told.stderr
    shutil.move("away", "fairkit-registry")
    shutil.copy(file, file.with_name(f"decisions-{day(1)}.parquet"))
    told = run("watch", "add", "w", "--data", file.with_name(f"decisions-{day(1)}.parquet"), "--batch", "2", "--demote")
    assert "taken back: back to credit@1" in " ".join(told.stderr.split())
    with Registry(deployed / "fairkit-registry") as store:
        assert store.alias("credit", "production").version == 1
        event = store.log("credit")[0]
    assert (event.action, event.body["taken_from"]) == ("demote", 2)
    assert event.body["evidence"]["alarm"]["level"] == "fail"
    assert "taken from credit@2" in run("registry", "show", "credit", "--log").stdout
    run("registry", "check")
    run("registry", "promote", "credit@2", "production")  # a person may decide so
    still = run("watch", "add", "w", "--data", file, "--batch", "3", "--demote")
    assert "taken back" not in still.stderr  # once per alarm


def test_rules_that_need_outcomes_say_what_is_missing(here):
    arguments = ["watch", "init", "--state", "w", "--sensitive", "sex", "--max", "equal_opportunity_difference:sex=0.2"]
    assert "--label" in run(*arguments, code=2).stderr
    told = run(*arguments, "--label", "paid", "--favorable", "1", "--horizon", "30", code=2).stderr
    assert "--id" in told
    assert "--horizon" in told
    run(*arguments, "--label", "paid", "--favorable", "1")
    settings = json.loads((here / "w" / "policy.json").read_text())
    (here / "w" / "policy.json").write_text(json.dumps(settings | {"follows": {"folder": "w.before-1"}}))
    assert "no longer reads; begin a new watch" in " ".join(run("watch", "show", "w", code=2).stderr.split())
