"""`fairkit demo`: without a learner it names the extra at once, and in a terminal it asks nothing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

ASKS = b".key:"
CODE = "import sys; sys.argv = ['fairkit', 'demo']; from fairkit_cli.main import run; run()"


def test_the_base_install_names_the_extra(tmp_path):
    hidden = "import sys; sys.modules['lightgbm'] = None; from fairkit_cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "demo"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "fairkit: lightgbm is not installed; fix it with: pip install 'fairkit[all]'\n"
    assert done.stdout == ""


@pytest.mark.long
def test_in_a_terminal_nothing_is_asked(tmp_path):
    """A person types `fairkit demo` and waits: all three streams are a terminal, and nobody answers."""
    reading, writing = pty.openpty()
    # the file of an environment would answer too
    environment = {key: value for key, value in os.environ.items() if key != "FAIRKIT_KEY_PASSPHRASE_FILE"}
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    code = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # getpass opens /dev/tty\n{CODE}"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        **dict.fromkeys(("stdin", "stdout", "stderr"), writing),
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    )
    os.close(writing)
    shown = b""
    while not shown.rstrip().endswith(ASKS) and (more := _read(reading)):
        shown += more
    if shown.rstrip().endswith(ASKS):
        process.kill()
    ending = process.wait(timeout=300)
    os.close(reading)
    said = " ".join(shown.decode().split())
    assert ending == 0, said
    assert "The demo's key is written without a passphrase" in said
    assert "$ fairkit key new auditor.key --no-passphrase" in said
    assert "exit code 2" not in said


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side is closed
        return b""
