"""docs/how-to/travelling.md works as typed: certify here, push, pull there, verify with other tools, promote."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx", reason="httpx is not installed (extra exchange)")
pytest.importorskip("skl2onnx", reason="skl2onnx is not installed (extra sklearn)")
ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(sh|python)(?: exit=(\d+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_spec = importlib.util.spec_from_file_location("oci_tests", Path(__file__).with_name("test_oci.py"))
oci_tests = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oci_tests)
OTHERS = ("model_signing", "openssl")


@pytest.mark.long
def test_the_page_works_as_typed(tmp_path):
    (tmp_path / "server").mkdir()
    (tmp_path / "work").mkdir()
    process, host = oci_tests.start(tmp_path / "server")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FAIRKIT_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "OMP_NUM_THREADS": "1",
    }
    left_out = set()
    try:
        text = (ROOT / "docs" / "how-to" / "travelling.md").read_text("utf-8")
        for kind, code, block in _BLOCK.findall(text):
            missing = {tool for tool in OTHERS if f"{tool} " in block and shutil.which(tool) is None}
            if missing:
                left_out |= missing
                continue
            typed = block.replace("127.0.0.1:5000", host)
            command = [sys.executable, "-W", "ignore", "-c", typed] if kind == "python" else ["bash", "-ec", typed]
            done = subprocess.run(
                command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == int(code or 0), f"{typed}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    if left_out:
        pytest.skip(f"all other steps ran; not installed: {', '.join(sorted(left_out))}")
