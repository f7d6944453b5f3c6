"""`fairkit demo` on the base install: what needs no learner runs, and the extra for the rest is named at once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

EXTRAS = ("lightgbm", "xgboost", "sklearn", "scipy", "numba", "torch", "pandas", "skl2onnx", "altair", "dask")
ASKS = b".key:"
CODE = f"""
import sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Gone())
sys.argv = ["fairkit", "demo"]
from fairkit_cli.main import run
run()
"""


@pytest.mark.long
def test_the_base_install_runs_what_needs_no_learner(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert said.index("pip install 'fairkit[all]' runs everything") < said.index("$ fairkit audit plain.onnx")
    assert "1 of 1 policy rule broken" in said
    assert "$ fairkit mitigate" not in said
    assert "refused: loans@1 was not promoted" in said
    assert "Traceback" not in done.stderr


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
