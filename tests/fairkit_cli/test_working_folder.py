"""The folder that one stands in is an attacker, too: modules with the names of others, and settings of strangers."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import fairkit
from fairkit.errors import ConfigError, DataError
from fairkit_cli.config import find_config, load_announced

NAMES = (
    "json", "csv", "random", "types", "typing", "enum", "re", "socket", "ssl", "hashlib", "secrets", "pickle", "copy",
    "shutil", "tempfile", "threading", "queue", "logging", "inspect", "ast", "dataclasses", "functools", "decimal",
    "statistics", "string", "platform", "multiprocessing", "concurrent", "sqlite3", "zipfile", "numpy", "pandas",
    "onnx", "onnxruntime", "sklearn", "scipy", "pyarrow", "typer", "loky", "lightgbm", "cloudpickle", "fairkit",
    "fairkit_onnx",
)  # fmt: skip
SCRIPT = Path(sysconfig.get_path("scripts")) / "fairkit"


@pytest.fixture
def trap(tmp_path):
    """A folder in which every one of these modules writes down that it was loaded."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in NAMES:
        text = (
            f"open({str(tmp_path / 'loaded')!r}, 'a').write({name!r} + chr(10))\nraise ImportError('trap')\n"
        )
        (folder / f"{name}.py").write_text(text)
    return folder


def run(trap, *words):
    return subprocess.run(
        [str(word) for word in words], cwd=trap, capture_output=True, text=True, check=False, timeout=120
    )


WORK = """
from fairkit_cli.surroundings import prepare_libraries
prepare_libraries()
from fairkit.engines.processes import each_in_processes
each_in_processes(abs, [1, -2], [], 2, print)
import multiprocessing
with multiprocessing.get_context("spawn").Pool(1) as pool:
    print(pool.map(abs, [-7]))
"""


def test_no_process_takes_a_module_from_the_working_folder(trap, tmp_path, loans_model):
    options = [
        "--data",
        loans_model.data,
        "--label",
        "decision",
        "--favorable",
        "approved",
        "--sensitive",
        "sex",
    ]
    assert run(trap, SCRIPT, "audit", loans_model.path, *options).returncode == 0
    hook = run(trap, sys.executable, "-P", "-m", "fairkit_cli.precommit", *options, loans_model.path)
    assert hook.returncode == 0, hook.stderr
    (tmp_path / "work.py").write_text(f"if __name__ == '__main__':\n    exec({WORK!r})\n")
    workers = run(trap, sys.executable, tmp_path / "work.py")
    assert "[7]" in workers.stdout, workers.stderr
    assert not (tmp_path / "loaded").exists(), (tmp_path / "loaded").read_text()


def test_settings_come_from_the_repository_and_never_from_further_up(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "fairkit.toml").write_text("[model]\nthreshold = 0.0001\n")
    inner = tmp_path / "project" / "deep"
    inner.mkdir(parents=True)
    assert find_config(inner) is None  # no repository, not below home: only the folder itself
    (tmp_path / "project" / ".git").mkdir()
    assert find_config(inner) is None
    (tmp_path / "project" / "fairkit.toml").write_text("[model]\nthreshold = 0.4\n")
    assert find_config(inner) == tmp_path / "project" / "fairkit.toml"
    home = tmp_path / "home" / "a" / "b"
    home.mkdir(parents=True)
    (tmp_path / "home" / "fairkit.toml").write_text("")
    assert find_config(home) == tmp_path / "home" / "fairkit.toml"


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_settings_that_others_could_have_written_are_refused(tmp_path):
    path = tmp_path / "fairkit.toml"
    path.write_text("")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="could have been written by others"):
        find_config(tmp_path)
    path.chmod(0o644)
    assert find_config(tmp_path) == path
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="could have been written by others"):
        find_config(tmp_path)


def test_an_audit_says_where_its_settings_come_from(tmp_path, capsys):
    path = tmp_path / "fairkit.toml"
    rule = '[[policy]]\nmetric = "demographic_parity_difference"\nmax = 0.5\n'
    path.write_text(f"[model]\nthreshold = 0.0001\n{rule}")
    load_announced(path)
    assert f"settings from {path}: threshold 0.0001, 1 rule" in capsys.readouterr().err


def test_a_query_on_duckdb_reads_its_own_file_only(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "people.db")) as connection:
        connection.sql("CREATE TABLE people AS SELECT 1 AS y, 'f' AS sex")
    (tmp_path / "secret.csv").write_text("y,sex\n1,f\n0,m\n")
    for query in (
        f"SELECT * FROM '{tmp_path / 'secret.csv'}'",
        f"SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')",
    ):
        with pytest.raises(DataError):
            fairkit.load_data(f"duckdb:{tmp_path / 'people.db'}?query={query}", label="y").learn()
