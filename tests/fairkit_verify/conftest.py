from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "registry" / "fairkit_verify"
GOLDEN = ROOT / "tests" / "fairkit_registry" / "golden"

ABSENT = """
import sys
from importlib.abc import MetaPathFinder
class Absent(MetaPathFinder):
    names = {"numpy", "pyarrow", "onnx", "onnxruntime", "jsonschema", "rich", "typer", "pluggy", "pandas", "fairkit",
             "fairkit_registry", "fairkit_cli", "fairkit_why", "fairkit_group",
             "fairkit_all_inputs"}
    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
sys.argv = ["fairkit-verify", *sys.argv[1:]]
from fairkit_verify.command import run
run()
"""
"""Runs the small verifier where nothing else of ours, and none of the audit's libraries, can be imported."""


@pytest.fixture(scope="session")
def build_hook():
    spec = importlib.util.spec_from_file_location("hatch_build", PROJECT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small(tmp_path_factory, build_hook):
    """Run `fairkit-verify` as its wheel has it."""
    folder = tmp_path_factory.mktemp("assembled")
    (folder / "fairkit_verify").mkdir()
    build_hook.assemble(folder / "fairkit_verify")

    def run(*arguments, state: Path):
        environment = os.environ | {"PYTHONPATH": str(folder), "XDG_STATE_HOME": str(state)}
        return subprocess.run(
            [sys.executable, "-c", ABSENT, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )

    return run


@pytest.fixture
def golden(tmp_path):
    def unpacked(name: str) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_bytes(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))
        return path

    return unpacked


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `fairkit` in this process, in an empty folder, with a state folder of its own."""
    from typer.testing import CliRunner

    from fairkit_cli.main import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments])
