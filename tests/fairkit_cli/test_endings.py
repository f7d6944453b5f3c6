"""How a command ends when something goes wrong around it: bugs, full devices, closed pipes, signals."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.commands import invoke

from fairkit_cli.terminal import failures

COMMAND = (sys.executable, "-c", "from fairkit_cli.main import run; run()")


def _run(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60, **options
    )


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The user's state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fairkit" / "errors"


def _broken(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr("fairkit.plugins.finding.explain_all", fail)
    monkeypatch.setattr("fairkit.plugins.explain_all", fail, raising=False)
    return invoke("plugins", "list")


def test_a_bug_is_one_line_code_70_and_a_file_that_only_the_user_reads(state, monkeypatch):
    result = _broken(monkeypatch, KeyError("\x1b[2Jsecret"))
    assert result.exit_code == 70
    assert re.fullmatch(r"fairkit: an error inside fairkit \(KeyError\); the details are in \S+\n", result.stderr)
    (path,) = state.iterdir()
    assert str(path) in result.stderr
    assert "Traceback (most recent call last)" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_old_reports_of_bugs_go(state, monkeypatch):
    monkeypatch.setattr(failures, "KEPT", 2)
    for _ in range(4):
        _broken(monkeypatch, KeyError("x"))
    assert len(list(state.iterdir())) == 2


def test_where_the_state_folder_cannot_be_written_the_temporary_one_is(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = _broken(monkeypatch, RuntimeError("x"))
    assert result.exit_code == 70
    assert [p.name for p in tmp_path.glob("error-*")] == [Path(result.stderr.split()[-1]).name]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    result = _broken(monkeypatch, RuntimeError("x"))
    assert result.exit_code == 70
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "not enough memory"),
        (OSError(28, "No space left on device", "/tmp/a\nb"), "'/tmp/a\\nb': No space left on device"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
    ],
)
def test_the_machine_is_no_bug(monkeypatch, error, message):
    result = _broken(monkeypatch, error)
    assert result.exit_code == 2
    assert result.stderr == f"fairkit: {result.stderr[9:]}"
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_line_of_a_message_that_a_name_begins_does_not_look_like_a_message():
    from fairkit_cli.terminal.output import say

    code = "import sys; from fairkit_cli.terminal.output import say; say('no column a\\nfairkit: wrote x\\x1b[1A')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stderr == "fairkit: no column a\n  fairkit: wrote x\\x1b[1A\n"
    assert say is not None


@pytest.mark.long
def test_core_names_a_field_and_the_command_its_option(tmp_path):
    """In Python it is an argument; on the command line it is what one types."""
    ended = _run("frontier", "--plugin", "reweigh", "--data", "x.csv", "--state", "s.json", cwd=tmp_path)
    assert "`" not in ended.stderr
    (tmp_path / "s.json").write_text("{}")
    (tmp_path / "x.csv").write_text("sex,y,x\n" + "f,1,0.5\nm,0,0.25\nf,0,0.5\nm,1,0.75\n" * 100)
    call = ("frontier", "--plugin", "reweigh", "--learner", "logistic", "--data", "x.csv", "--state", "s.json")
    told = _run(*call, cwd=tmp_path).stderr
    assert "name it with --label" in told
    told = _run(*call, "--label", "y", "--favorable", "1", "--sensitive", "sex", cwd=tmp_path).stderr
    assert told.endswith("remove it or name another --state file\n")


@pytest.mark.long
@pytest.mark.parametrize("command", [("plugins",), ("--version",), ("plugins", "list", "--format", "json")])
def test_a_full_device_is_code_2(command):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([*COMMAND, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("fairkit: the result cannot be written to standard output: No space left")
    assert ended.stderr.count("\n") == 1


def test_help_on_a_full_device_is_no_success():
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_a_reader_that_leaves_is_code_2_and_no_traceback():
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([*COMMAND, "plugins"], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert ended.returncode == 2
    assert ended.stderr == "fairkit: the program that reads the output closed it before all was written\n"


@pytest.mark.long
@pytest.mark.parametrize(("closed", "code"), [(">&-", 2), ("<&-", 0), ("2>&-", 0)])
def test_closed_streams_end_without_a_traceback(closed, code, tmp_path):
    ended = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "-", *COMMAND, "plugins", "list"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr


def test_an_encoding_that_lacks_characters_shows_escapes(tmp_path):
    (tmp_path / "fairkit.toml").write_text('["\u2713"]\n', encoding="utf-8")
    ended = _run("audit", "m.onnx", cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert ended.returncode == 2
    assert r"\u2713" in ended.stderr


WAIT = """
import sys, tempfile, time
from pathlib import Path
from typer.testing import CliRunner
import fairkit_cli.plugins as plugins
from fairkit_cli.main import run
place = sys.argv.pop()
def work():
    with tempfile.TemporaryDirectory(dir=place) as folder:
        Path(folder, "rows").write_text("x")
        print("ready", file=sys.stderr, flush=True)
        time.sleep(30)
import fairkit.plugins.finding, fairkit.plugins
fairkit.plugins.finding.explain_all = fairkit.plugins.explain_all = work
run()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_command_as_ctrl_c_does(number, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", WAIT, "plugins", "list", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        # under nohup and in the background a signal may be ignored from the start
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509 -- the tests start no threads
    ) as process:
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == "fairkit: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_somebody_ignores_stays_ignored(tmp_path):
    process = subprocess.Popen(
        ["bash", "-c", 'trap "" HUP; exec "$@"', "-", sys.executable, "-c", WAIT, "plugins", "list", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    process.stderr.close()


def test_a_signal_during_the_last_steps_of_the_process_is_no_success():
    code = (
        "import os, signal\nfrom fairkit_cli.terminal.output import end_at_once\n"
        "end_at_once()\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 130


def test_a_folder_that_cannot_be_written_is_code_2(tmp_path):
    if os.geteuid() == 0:
        target = Path("/proc/nothing.toml")  # nobody writes there
        ended = _run("plugins", "new", "some-name", "--output", "/proc/x", cwd=tmp_path)
        assert not target.exists()
    else:
        (tmp_path / "closed").mkdir(mode=0o500)
        ended = _run("init", cwd=tmp_path / "closed")
    assert ended.returncode == 2
    assert ended.stderr.startswith("fairkit: ")
    assert ended.stderr.count("\n") == 1


# Ctrl-C reaches its end: it is repeated where it was swallowed, and does not disturb tidying up.
SWALLOWED = """
import os, signal, time
from fairkit_cli.terminal.output import lasting_interrupts
try:
    with lasting_interrupts():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(20)
        except KeyboardInterrupt:
            pass  # as an extension module does that is being imported
        time.sleep(20)
        print("went on")
except KeyboardInterrupt:
    print("ended")
"""

TIDYING = """
import os, signal, time
from fairkit_cli.terminal.output import AGAIN, lasting_interrupts
try:
    with lasting_interrupts():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(20)
        finally:
            time.sleep(3 * AGAIN)
            print("tidied up")
except KeyboardInterrupt:
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def _printed(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split("\n")[:-1]


def test_an_interrupt_that_was_swallowed_comes_again():
    assert _printed(SWALLOWED) == ["ended"]


@pytest.mark.long
def test_tidying_up_is_left_alone():
    assert _printed(TIDYING) == ["tidied up", "True"]


def test_elsewhere_nothing_changes():
    from fairkit_cli.terminal.output import lasting_interrupts

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with lasting_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
