"""What the command sets before any subcommand runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fairkit.support.escaping import number
from fairkit_cli.main import _main


@pytest.mark.parametrize(("given", "wanted"), [(None, "passive"), ("active", "active")])
def test_threads_wait_quietly_unless_told_otherwise(monkeypatch, given, wanted):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    _main()
    assert os.environ["OMP_WAIT_POLICY"] == wanted


def test_nothing_is_below_nothing():
    assert (number(-0.0), number(-0.02)) == ("0.000", "-0.020")


def test_the_demo_of_the_base_install_names_the_extra(tmp_path):
    hidden = "import sys; sys.modules['lightgbm'] = None; from fairkit_cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "demo"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "fairkit: lightgbm is not installed; fix it with: pip install 'fairkit[all]'\n"
    assert done.stdout == ""
