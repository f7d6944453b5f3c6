"""What an alias asks about the served model, sealed locks, and small failures, from the command line."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import onnx.parser
import pytest
from tests.commands import checked

from fairkit.errors import FairkitError
from fairkit_cli.render import svg
from fairkit_registry.evidence.signers import new_key_pair


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("FAIRKIT_REGISTRY", str(tmp_path / "r"))
    for name in ("auditor", "owner"):
        new_key_pair(tmp_path / name)
    return checked


def graph(path, body, declared="float[N,1] x", made="float[N,1] y"):
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({declared}) => ({made}) {{ {body} }}'
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def test_rows_that_the_author_cannot_know_are_sealed_and_opened(run, loans_model):
    """The owner locks rows by a secret; the certifier gets both after the model came."""
    roles = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")
    rule = ("--max", "demographic_parity_difference:sex=0.9")
    lock = ("policy", "lock", "--data", loans_model.data, *roles, *rule, "--key", "owner", "--output", "lock.json")
    run(*lock, "--data-salted", "secret.txt")
    run("registry", "add", "credit", "lock.json")
    run("registry", "add", "credit", loans_model.path)
    certify = ("certify", "credit@1", "--lock", "lock.json", "--data", loans_model.data, "--key", "auditor")
    assert "lock.salt" in run(*certify, "--output", "c.json", code=2).stderr
    (tmp := loans_model.data.parent / "wrong.txt").write_text("11" * 32)
    run(*certify, "--output", "c.json", "--set", f"lock.salt={tmp}", code=2)
    run(*certify, "--output", "c.json", "--set", "lock.salt=secret.txt")
    run("registry", "add", "credit@1", "--certificate", "c.json")
    Path("alias.toml").write_text('keys = ["auditor.pub"]\ndata = ["owner.pub"]\nunseen = true\n')
    run("registry", "alias", "credit", "production", "--policy", "alias.toml")
    run("registry", "promote", "credit@1", "production")
    run(*certify, "--set", "lock.salt=secret.txt", "--output", "d.json", "--set", "audit.seed=3", code=2)


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("s = Constant<value_ints = [0]>() y = Slice(x, s, s, s)", "float[M,1] y"),
        ("s = Constant<value_ints = [0]>() a = Constant<value_ints = [1]>() y = Slice(x, s, s, a)", "float[N,0] y"),
        ("y = ReduceMax<keepdims = 0>(x)", "float y"),
    ],
)
def test_a_score_without_rows_is_one_message(run, tmp_path, body, made):
    model = graph(tmp_path / "m.onnx", body, made=made)
    (tmp_path / "d.csv").write_text("x,y,sex\n" + "".join(f"{i % 7},{i % 2},{'fm'[i % 3 > 0]}\n" for i in range(60)))
    roles = ("--label", "y", "--favorable", "1", "--sensitive", "sex")
    assert "for 60 rows" in run("audit", model, "--data", "d.csv", *roles, code=2).stderr.replace("\n", " ")


@pytest.mark.parametrize("cell", ["events SET at", "versions SET notes", "versions SET filename"])
def test_text_in_the_index_that_is_not_utf_8_is_one_message(run, tmp_path, cell):
    run("registry", "add", "credit", graph(tmp_path / "m.onnx", "y = Sigmoid(x)"))
    with closing(sqlite3.connect(tmp_path / "r" / "index.sqlite")) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"UPDATE {cell} = CAST(x'ff32' AS TEXT)")
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()
    for command in (("list",), ("show", "credit"), ("check",)):
        assert "fairkit: " in run("registry", *command, code=2).stderr


def test_pages_under_a_limit_of_addresses_are_one_message(monkeypatch):
    """The renderer would abort the whole process."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2 << 30, resource.RLIM_INFINITY))
    with pytest.raises(FairkitError, match="ulimit -v"), svg.warm():
        pass


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of MLflow's own libraries
def test_nothing_is_left_in_the_working_folder_by_mlflow(run, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", f"sqlite:///{tmp_path / 'elsewhere' / 'x.db'}")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run("registry", "import", "models:/credit/1", "--registry", "r", code=2)
    assert not (tmp_path / "mlflow.db").exists()
