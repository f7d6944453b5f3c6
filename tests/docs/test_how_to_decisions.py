"""The blocks of the page on tables of decisions run in order, as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "decisions.md"
_BLOCK = re.compile(r"```(sh|python|toml)\n(.*?)```", re.DOTALL)


def test_the_page_runs_as_typed(tmp_path):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    for kind, text in _BLOCK.findall(PAGE.read_text("utf-8")):
        if kind == "toml":
            (tmp_path / "fairkit.toml").write_text(text)
        typed = "fairkit audit" if kind == "toml" else text
        command = [sys.executable, "-W", "ignore", "-c", text] if kind == "python" else ["bash", "-ec", typed]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"
