"""The tutorial's blocks run in order, as they stand, on the real data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"```(sh|python)(?: exit=(\d+))?\n(.*?)```", re.DOTALL)


def test_the_tutorial_runs_as_typed(public_data, tmp_path):
    environment = {
        **os.environ,
        "FAIRKIT_DATA": str(public_data),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    python = ""
    for kind, code, text in _BLOCK.findall((ROOT / "docs" / "tutorials" / "income.md").read_text("utf-8")):
        if text.startswith("pip install"):
            continue
        if kind == "python":
            python += text
            command = [sys.executable, "-W", "ignore", "-c", python]
        else:
            command = ["bash", "-c", text]
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode != int(code or 0):
            pytest.fail(f"{text}\nexit code {result.returncode}\n{result.stdout}\n{result.stderr}")
