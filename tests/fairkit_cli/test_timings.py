"""`--timings` of long commands: on stderr for people, under `timings` for programs, never in what is signed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def options(loans_model):
    roles = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex"]
    return ["audit", str(loans_model.path), "--data", str(loans_model.data), *roles]


def fairkit(*arguments):
    code = "from fairkit_cli.main import run; run()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_long_work_says_how_far_it_is_where_there_is_no_terminal(monkeypatch, capsys):
    from fairkit_cli.terminal import output as console

    with console.progress_bar() as progress:
        progress("searching", 1, 20)
    assert capsys.readouterr().err == ""  # nothing of short work
    monkeypatch.setattr(console, "PAUSE", 0.0)
    with console.progress_bar() as progress:
        progress("searching", 12, 120)
    assert capsys.readouterr().err == "fairkit: searching, 12 of 120; 0 s so far\n"


@pytest.mark.long
def test_audit_prints_its_phases(loans_model):
    plain = fairkit(*options(loans_model))
    timed = fairkit("--timings", *options(loans_model))
    assert timed.stdout == plain.stdout
    told = {line.split("  ")[1].strip() for line in timed.stderr.splitlines()[1:]}
    assert {"start", "load model", "read", "score", "measure", "intervals", "write", "all"} <= told
    assert "timings" not in plain.stderr


@pytest.mark.long
def test_json_has_them_beside_the_report(loans_model):
    plain = json.loads(fairkit(*options(loans_model), "--format", "json").stdout)
    timed = json.loads(fairkit("--timings", *options(loans_model), "--format", "json").stdout)
    taken = timed.pop("timings")
    assert timed == plain
    assert taken["cpu_seconds"] == pytest.approx(sum(p["cpu_seconds"] for p in taken["phases"]), abs=0.01)
    assert 0.05 < taken["cpu_seconds"] < 600


@pytest.mark.long
def test_a_certificate_has_none(loans_model, tmp_path):
    assert fairkit("key", "new", str(tmp_path / "k")).returncode == 0
    target = tmp_path / "c.json"
    command = ["certify", *options(loans_model)[1:], "--key", str(tmp_path / "k"), "--output", str(target)]
    done = fairkit("--timings", *command)
    assert done.returncode == 0, done.stderr
    assert "phase" in done.stderr
    import base64

    payload = base64.b64decode(json.loads(target.read_text())["payload"]).decode()
    assert "cpu_seconds" not in payload


def test_a_registry_command_prints_its_phases(tmp_path):
    place = ["--registry", str(tmp_path / "r")]
    assert fairkit("registry", "list", *place).returncode in (0, 2)
    timed = fairkit("--timings", "registry", "list", *place)
    assert "start" in timed.stderr
    assert "all" in timed.stderr
