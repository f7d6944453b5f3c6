"""`fairkit demo` on the base install: what needs no learner runs, and the extra for the rest is named at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = ("lightgbm", "xgboost", "sklearn", "scipy", "numba", "torch", "pandas", "skl2onnx", "altair", "dask")
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
