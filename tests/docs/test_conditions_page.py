"""The page on conditions: its blocks run in order, as they stand, offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "conditions.md"
_BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


def test_the_page_runs_as_typed(tmp_path):
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "110",
    }
    printed = ""
    for kind, text in _BLOCK.findall(PAGE.read_text("utf-8")):
        command = [sys.executable, "-W", "ignore", "-c", text] if kind == "python" else ["bash", "-ec", text]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.fail(f"{text}\nexit code {result.returncode}\n{result.stdout}\n{result.stderr}")
        printed += result.stdout
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    shown = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("    ") and "0." in line]
    shown = [line for line in shown if not line.strip().startswith("--")]
    assert len(shown) > 8
    for line in shown:  # the tables of the page are what is printed
        assert " ".join(line.split()) in lines, line
