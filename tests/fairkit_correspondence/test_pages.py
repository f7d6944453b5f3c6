"""The pages' commands run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```(sh|python)(?: exit=(\d+))?\n(.*?)```", re.DOTALL)


@pytest.mark.long
def test_the_tutorial_finds_the_planted_gap(tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    page = (ROOT / "docs" / "tutorials" / "paired-names.md").read_text("utf-8")
    printed = []
    try:
        for kind, code, text in _BLOCK.findall(page):
            command = [sys.executable, "-c", text] if kind == "python" else ["bash", "-ec", text]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != int(code or 0):
                pytest.fail(f"{text}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
            printed.append(done.stdout + done.stderr)
    finally:
        subprocess.run(["bash", "-c", "kill $(cat pid) 2> /dev/null"], cwd=tmp_path, check=False)
    quoted = re.search(r"    (FAIL: .*?)\n\n", page, re.DOTALL)[1].replace("\n    ", "\n")
    assert quoted in printed[3]
    assert "PASS: correspondence_difference for group is 0" in printed[5]
    assert "12 names cannot stand for a group" in printed[6]
    assert "Difference by pair of groups and context" in (tmp_path / "page.html").read_text()
