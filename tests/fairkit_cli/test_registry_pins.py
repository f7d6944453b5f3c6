"""What an alias asks on the command line: a certifier's choices, and the model as it is served."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import onnx.parser
import pytest
from tests.commands import checked, invoke, ok
from tests.conftest import BuiltModel

from fairkit.errors import FairkitError
from fairkit_cli.render import svg
from fairkit_registry.evidence.signers import new_key_pair

AUDIT = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")
RULE = ("--max", "demographic_parity_difference:sex=0.1")


@pytest.fixture
def place(tmp_path, monkeypatch, loans_model):
    """A folder with a key, the loans model in a registry, and an alias that pins key, data and rule."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRKIT_REGISTRY", raising=False)
    checked("key", "new", "k")
    checked("registry", "add", "credit", loans_model.path)
    checked("registry", "alias", "credit", "production", "--key", "k.pub", "--data", loans_model.data, *RULE)
    return tmp_path


def certify(loans_model, name, *options, code=0):
    common = ("certify", loans_model.path, "--data", loans_model.data, "--key", "k", "--output", name)
    return checked(*common, *AUDIT, *options, code=code)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "setting"),
    [
        (("--threshold", "0"), "model.threshold"),
        (("--threshold", "1"), "model.threshold"),
        (("--set", "data.missing=group"), "data.missing"),
        (("--set", "data.weights=amount"), "data.weights"),
        (("--set", "group.min_group=1"), "audit.group.min_group"),
        (("--set", "audit.seed=5"), "audit.seed"),
        (("--sensitive", "age:30"), "data.sensitive"),
    ],
)
def test_a_setting_of_the_certifiers_choice_is_named_and_refused(place, loans_model, options, setting):
    certify(loans_model, "c.json", *options)
    assert f"setting: {setting}" in checked("verify", "c.json", "--key", "k.pub").stdout
    checked("registry", "add", "credit@1", "--certificate", "c.json")
    refused = checked("registry", "promote", "credit@1", "production", code=1).stdout
    assert f"refused: setting {setting} is" in refused
    assert "the alias does not pin it" in refused


@pytest.mark.long
def test_an_alias_like_a_certificate_takes_its_settings_and_no_others(place, loans_model):
    other = BuiltModel(loans_model.again(place / "again.onnx"), loans_model.data)
    certify(other, "agreed.json", "--threshold", "0.9")
    certify(loans_model, "usual.json")
    (place / "alias.toml").write_text('keys = ["k.pub"]\nlike = "agreed.json"\n')
    checked("registry", "alias", "credit", "production", "--policy", "alias.toml", "--max",
            "demographic_parity_difference:sex=0.9")  # fmt: skip
    (record,) = json.loads(checked("registry", "alias", "credit", "production", "--format", "json").stdout)
    assert record["policy"]["settings"]["model.threshold"] == 0.9
    assert "model.threshold = 0.9" in checked("registry", "alias", "credit", "production").stdout
    checked("registry", "add", "credit@1", "--certificate", "usual.json")
    refused = checked("registry", "promote", "credit@1", "production", code=1).stdout
    assert "setting model.threshold is not set, and the alias pins 0.9" in refused
    checked("registry", "add", "credit", other.path, "--certificate", "agreed.json")
    promoted = checked("registry", "promote", "credit@2", "production").stdout
    assert "note: settings of the audit that are not the default: model.threshold = 0.9" in promoted
    assert "the rows were the signer's choice: loans.parquet" in promoted
    assert "setting model.threshold = 0.9" in checked("registry", "verify", "credit@production").stdout
    page = checked("registry", "show", "credit@production", "--format", "html").stdout
    assert "model.threshold = 0.9" in page


@pytest.mark.long
def test_a_table_that_a_key_has_signed(place, loans_model):
    checked("key", "new", "owner")
    sign = ("policy", "lock", "--key", "owner", "--data")
    signed = invoke(*sign, loans_model.data, "--output", "t.json", "--purpose", "test rows")
    assert "loans.parquet, 4,000 rows" in ok(signed).stdout
    checked("registry", "alias", "credit", "production", "--data", "owner.pub")
    assert "on a table signed by key" in checked("registry", "alias", "credit", "production").stdout
    checked("registry", "alias", "credit", "production", "--max", "demographic_parity_difference:sex=0.9")
    certify(loans_model, "plain.json")
    checked("registry", "add", "credit@1", "--certificate", "plain.json")
    assert "fairkit policy lock --data TABLE" in checked("registry", "promote", "credit@1", "production", code=1).stdout
    certify(loans_model, "signed.json", "--signed-data", "t.json")
    shown = checked("verify", "signed.json", "--key", "k.pub", "--key", "owner.pub").stdout
    assert "holds: the table loans.parquet signed by" in shown
    checked("registry", "add", "credit@1", "--certificate", "signed.json")
    promoted = checked("registry", "promote", "credit@1", "production").stdout
    assert "note: the table loans.parquet is signed by key" in promoted
    (place / "other.csv").write_text("a,b\n1,2\n3,4\n")
    checked(*sign, "other.csv", "--output", "o.json")
    common = ("certify", loans_model.path, "--data", loans_model.data, "--key", "k", "--output", "x.json")
    result = checked(*common, *AUDIT, "--signed-data", "o.json", code=2)
    assert "it is about another table" in result.stderr
    assert not (place / "x.json").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("sent", "background"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_a_certificate_that_is_written_is_not_called_interrupted(place, loans_model, sent, background):
    """After "wrote" the work is done: the exit code is the verdict's, whatever signal comes.

    A job in the background does not hear SIGINT from its beginning.
    """
    deaf = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if background else None
    command = [sys.executable, "-c", "from fairkit_cli.main import run; run()", "certify", loans_model.path]
    command += ["--data", loans_model.data, "--key", "k", "--output", "c.json", *AUDIT]
    piped = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **piped, preexec_fn=deaf) as process:  # noqa: PLW1509 -- no other thread
        assert any("wrote" in line for line in process.stderr)
        process.send_signal(sent)
        assert process.wait(timeout=60) == 0
    checked("verify", "c.json", "--key", "k.pub")


# What an alias asks about the served model, sealed locks, and small failures, from the command line.
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
