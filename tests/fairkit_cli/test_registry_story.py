"""The story of docs/how-to/registry.md works as typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(sh|python)(?: exit=(\d+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks():
    text = (ROOT / "docs" / "how-to" / "registry.md").read_text("utf-8")
    return _BLOCK.findall(text)


@pytest.mark.long
def test_the_story_works_as_typed(tmp_path):
    environment = {
        **{key: value for key, value in os.environ.items() if key != "FAIRKIT_REGISTRY"},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    codes = []
    for kind, code, text in blocks():
        command = [sys.executable, "-W", "ignore", "-c", text] if kind == "python" else ["bash", "-ec", text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        codes.append(done.returncode)
        if done.returncode != int(code or 0):
            pytest.fail(f"{text}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        if "Traceback" in done.stderr:
            pytest.fail(done.stderr)
    assert codes.count(1) == 6
    assert codes.count(2) == 1
    assert "# Model card: credit@2" in (tmp_path / "card.md").read_text()
