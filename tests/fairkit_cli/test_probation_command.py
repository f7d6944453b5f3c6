"""`fairkit registry probation`, from the watch's own statements to the alias that falls by itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import onnx.parser
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry.evidence.signers import new_key_pair
from fairkit_registry.store import events

RULE = "demographic_parity_difference:sex=0.1"
MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,1] x) => (float[N,1] y) { y = Sigmoid(x) }'


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("FAIRKIT_REGISTRY", str(tmp_path / "r"))
    new_key_pair(tmp_path / "watcher")

    def run(*words, code=0):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result.stdout

    return run


@pytest.fixture
def promoted(run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    run("registry", "add", "credit", "m.onnx")
    options = ("--open", "--probation", "10d", "--watch-key", "watcher.pub", "--max", RULE)
    run("registry", "alias", "credit", "production", *options)
    said = run("registry", "promote", "credit@1", "production")
    assert "on probation for 10 days" in said
    return run


def decisions(path, gap=0.0, rows=3000):
    rng = np.random.default_rng(1)
    sex = np.where(rng.random(rows) < 0.5, "f", "m")
    yes = rng.random(rows) < 0.4 + gap * (sex == "m")
    pq.write_table(pa.table({"sex": sex.tolist(), "decision": yes.astype(int)}), path)
    return path


def watched(run, tmp_path, gap):
    """Watch a day of decisions of the promoted version, and sign what they say."""
    day = datetime.now(UTC).date().isoformat()
    run(
        "watch", "init", "credit@production", "--state", "w", "--sensitive", "sex", "--max", RULE, "--groups", "sex=f,m"
    )
    table = decisions(tmp_path / f"decisions-{day}.parquet", gap)
    CliRunner().invoke(app, ["watch", "add", "w", "--data", str(table), "--heartbeat", "watcher"])
    return tmp_path / "w" / "heartbeats.jsonl"


def test_a_watch_over_good_decisions_goes_in_and_every_command_shows_the_state(promoted, tmp_path, monkeypatch):
    statements = watched(promoted, tmp_path, 0.0)
    said = promoted("registry", "probation", "credit@production", "--watch", statements)
    assert "on probation until" in said
    assert "last statement of" in said
    assert "no attestation yet" in said
    assert "on probation for 10 days" in promoted("registry", "alias", "credit")
    assert "production: on probation until" in promoted("registry", "show", "credit@production")
    shown = json.loads(promoted("registry", "show", "credit@1", "--format", "json"))
    assert shown["probation"]["production"]["state"] == "running"
    assert "served" in promoted("registry", "log", "credit")
    assert "production=1" in promoted("registry", "list")
    assert "production" in promoted("registry", "show", "credit@1", "--format", "markdown")

    later = datetime.now(UTC) + timedelta(days=9)
    monkeypatch.setattr(events, "now", lambda: later.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    # nothing has written the end down: what is listed follows from log and clock
    assert "production=-" in promoted("registry", "list")
    assert "credit@production means nothing since" in promoted("registry", "list")
    listed = promoted("registry", "list", "credit")
    assert "means nothing since" in listed
    assert "production" not in listed.splitlines()[1]
    (model,) = json.loads(promoted("registry", "list", "--format", "json"))
    assert model["aliases"] == {"production": None}
    assert "statement" in model["ended"]["production"]
    (entry,) = json.loads(promoted("registry", "inventory", "--format", "json"))
    assert entry["aliases"] == []
    assert "production means nothing" in entry["ended"][0]
    assert "credit@production means nothing" in promoted("registry", "inventory")
    assert "means nothing" in promoted("registry", "inventory", "--format", "csv")
    card = promoted("registry", "show", "credit@1", "--format", "markdown")
    assert "production" not in card
    refused = CliRunner().invoke(app, ["registry", "export", "credit@production", "--output", "x.tar"])
    assert refused.exit_code == 2
    assert "means nothing since" in refused.output
    keys = ("--key", "watcher.pub")
    assert "probation ended without success" in promoted("registry", "verify", "credit@production", *keys, code=1)
    assert "ended without success" in promoted("registry", "show", "credit@production")
    said = promoted("registry", "probation", "credit@production", code=1)
    assert "credit@1 was taken back" in said
    (alias,) = json.loads(promoted("registry", "alias", "credit", "--format", "json"))
    assert alias["version"] is None
    assert "which ended on" in promoted("registry", "promote", "credit@1", "production", code=1)


def test_a_watch_whose_decisions_break_the_limit_takes_the_alias_back(promoted, tmp_path):
    statements = watched(promoted, tmp_path, 0.5)
    said = promoted("registry", "probation", "credit@production", "--watch", statements, "--format", "json", code=1)
    found = json.loads(said)
    assert found["probation"]["state"] == "fallen"
    assert found["taken_back"]["done"]
    assert "broke the limit" in found["probation"]["reason"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("alias", "credit", "production", "--probation", "soon"), 2, "no number of days"),
        (("alias", "credit", "production", "--probation", "9999d"), 2, "at most"),
        (("probation", "credit@1"), 2, "is no alias"),
        (("probation", "credit@staging"), 2, "no alias"),
        (("probation", "credit@production", "--watch", "m.onnx"), 1, "nothing was taken in"),
        (("probation", "credit@production", "--watch", "none"), 1, "none"),
    ],
)
def test_what_cannot_be_is_refused_in_words(promoted, words, code, said):
    result = CliRunner().invoke(app, ["registry", *words])
    assert result.exit_code == code, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_no_probation_is_asked_for_with_nought(promoted):
    promoted("registry", "alias", "credit", "production", "--probation", "0")
    assert "not on probation" in promoted("registry", "probation", "credit@production")
