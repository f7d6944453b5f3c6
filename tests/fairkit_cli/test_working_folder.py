"""The folder that one stands in is an attacker, too: modules with the names of others, and settings of strangers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.commands import checked, invoke
from typer.main import get_command

import fairkit
from fairkit.errors import ConfigError, DataError, ParameterError
from fairkit_cli.config import find_config, load_announced, load_config, trust, user_file
from fairkit_cli.main import app
from fairkit_cli.options.audit import AuditOptions, audit_settings
from fairkit_correspondence.client import Client as ChatClient
from fairkit_correspondence.client import Server
from fairkit_endpoint.client import Client as EndpointClient
from fairkit_endpoint.client import EndpointSettings
from fairkit_registry.evidence.signers import new_key_pair

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
        text = f"open({str(tmp_path / 'loaded')!r}, 'a').write({name!r} + chr(10))\nraise ImportError('trap')\n"
        (folder / f"{name}.py").write_text(text)
    return folder


def run(trap, *words):
    return subprocess.run(
        [str(word) for word in words], cwd=trap, capture_output=True, text=True, check=False, timeout=120
    )


WORK = """
from fairkit_cli.process_environment import prepare_libraries
prepare_libraries()
from fairkit.engines.base import each_in_processes
each_in_processes(abs, [1, -2], [], 2, print)
import multiprocessing
with multiprocessing.get_context("spawn").Pool(1) as pool:
    print(pool.map(abs, [-7]))
"""


@pytest.mark.long
def test_no_process_takes_a_module_from_the_working_folder(trap, tmp_path, loans_model):
    options = ["--data", loans_model.data, "--label", "decision", "--favorable", "approved", "--sensitive", "sex"]
    assert run(trap, SCRIPT, "audit", loans_model.path, *options).returncode == 0
    hook = run(trap, sys.executable, "-P", "-m", "fairkit_cli.pytest_plugin", *options, loans_model.path)
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
    for query in (f"SELECT * FROM '{tmp_path / 'secret.csv'}'", f"SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')"):
        with pytest.raises(DataError):
            fairkit.load_data(f"duckdb:{tmp_path / 'people.db'}?query={query}", label="y").learn()


@pytest.fixture
def outsider(tmp_path, monkeypatch):
    """A project whose settings name hosts, and a user with secrets in the environment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("AZURE_STORAGE_KEY", "PGPASSFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PGPASSWORD", "FAIRKIT_ENDPOINT_TOKEN", "AZURE_STORAGE_SAS_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "very-secret")
    return tmp_path


PLACES = {
    "postgresql://127.0.0.1:9/d?query=SELECT 1": "127.0.0.1",
    "s3://b/x.parquet?endpoint=127.0.0.1:9": "127.0.0.1",
    "gs://b/x.parquet?endpoint=https://127.0.0.1:9": "127.0.0.1",
    "abfs://c@evil.dfs.core.windows.net/x.parquet": "evil.dfs.core.windows.net",
    "delta:s3://b/x?endpoint=evil.example.org:9": "evil.example.org",
}


@pytest.mark.parametrize("address", PLACES)
def test_secrets_go_to_no_host_that_only_a_configuration_names(outsider, address):
    path = outsider / "fairkit.toml"
    path.write_text(f"[data]\npath = {address!r}\n")
    config = load_config(path)
    with pytest.raises(ConfigError, match="would be sent there"):
        config.table(address)
    trust([PLACES[address].upper()])
    assert config.table(address) == address
    trust([])
    with pytest.raises(ConfigError):
        config.table(address)
    own = user_file()
    own.parent.mkdir(parents=True)
    own.write_text(f"trusted_hosts = [{PLACES[address]!r}]\n")
    assert config.table(address) == address
    own.chmod(0o666)
    with pytest.raises(ConfigError, match="written by others"):
        config.table(address)
    own.chmod(0o644)
    own.write_text("trusted_hosts = 'all'\n")
    with pytest.raises(ConfigError, match="holds one thing"):
        config.table(address)


def test_what_has_no_secret_or_no_host_needs_no_trust(outsider, monkeypatch):
    (outsider / "fairkit.toml").write_text("")
    config = load_config(outsider / "fairkit.toml")
    for text in ("s3://bucket/x.parquet", "s3://b/x.csv?endpoint=host&anonymous=true", "loans.csv", "duckdb:l.db"):
        assert config.table(text).endswith(text.partition(":")[2])
    monkeypatch.delenv("PGPASSWORD")
    (outsider / "home").mkdir()
    (outsider / "home" / ".pgpass").write_text("db.example.org:*:*:*:secret\n")  # bound to its own host
    assert config.table("postgresql://other/d?query=SELECT 1")
    (outsider / "home" / ".pgpass").write_text("*:*:*:*:secret\n")
    with pytest.raises(ConfigError, match="would be sent there"):
        config.table("postgresql://other/d?query=SELECT 1")


def test_the_token_goes_to_no_endpoint_that_only_a_configuration_names(outsider, loans_model):
    (outsider / "fairkit.toml").write_text("[endpoint]\nurl = 'http://127.0.0.1:9'\nmodel_name = 'm'\n")
    audit = ("audit", "--data", str(loans_model.data))
    refused = invoke(*audit)
    assert (refused.exit_code, "would be sent there" in refused.stderr.replace("\n", " ")) == (2, True)
    for words in (("--trust-host", "127.0.0.1", *audit), (*audit, "--endpoint", "http://127.0.0.1:9")):
        tried = invoke(*words)
        assert "cannot be reached" in tried.stderr.replace("\n", " ")


def test_secrets_are_not_sent_without_encryption_beyond_this_machine(outsider):
    client = EndpointClient(EndpointSettings(url="http://model.example.org", model="m"))
    with pytest.raises(ParameterError, match="without encryption"):
        client.describe()
    with pytest.raises(ParameterError, match="without encryption"):
        ChatClient(Server(url="http://model.example.org/v1", model="m"))
    with pytest.raises(DataError, match="without encryption"):
        fairkit.load_data("s3://b/x.parquet?endpoint=http://store.example.org", label="y").learn()


def test_a_weaker_policy_than_the_command_lines_is_told(tmp_path, capsys):
    path = tmp_path / "fairkit.toml"
    path.write_text(
        '[[policy]]\nmetric = "demographic_parity_difference"\nsensitive = "sex"\nmax = 0.5\n'
        '[[policy]]\nmetric = "accuracy"\nmin = 0.7\n'
    )
    typed = AuditOptions(maximums=["demographic_parity_difference:sex=0.05"])
    settings = audit_settings(typed, load_config(path))
    assert [rule.limit for rule in settings.policy] == [0.05]
    said = capsys.readouterr().err.replace("\n", " ")
    assert "weaker than the command line's rules, which hold instead: demographic_parity_difference:sex max 0.5" in said
    assert "because the command line has its own: 1" in said
    stricter = AuditOptions(maximums=["demographic_parity_difference:sex=0.9"], minimums=["accuracy=0.7"])
    audit_settings(stricter, load_config(path))
    assert capsys.readouterr().err == ""


def test_a_certificate_says_where_its_settings_come_from(tmp_path, monkeypatch, loans_model):
    monkeypatch.chdir(tmp_path)
    new_key_pair(tmp_path / "k")
    path = tmp_path / "mine.toml"
    path.write_text("[model]\nthreshold = 0.0001\n")
    roles = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex", "--config", str(path))
    words = ("certify", str(loans_model.path), "--data", str(loans_model.data), *roles, "--key", "k")
    done = invoke(*words, "--output", "c.json")
    assert f"settings from {path}: threshold 0.0001" in done.stderr.replace("\n", "")


EACH = """
import json, sys
from fairkit_cli.main import run
for words in json.loads(sys.argv[1]):
    sys.argv = ["fairkit", *words]
    try:
        run()
    except SystemExit as ended:
        code = ended.code or 0
    said = json.dumps([words, code, sys.path])
    print(f"\\nENDED {said}", file=sys.__stderr__, flush=True)
"""


@pytest.mark.long
def test_no_command_takes_a_module_from_the_working_folder(trap, tmp_path, loans_model):
    """Every command there is, with what it needs to do its work or to refuse it late."""
    shutil.copy(loans_model.path, trap / "m.onnx")
    shutil.copy(loans_model.data, trap / "d.csv" if str(loans_model.data).endswith("csv") else trap / "d.parquet")
    data = next(trap.glob("d.*")).name
    roles = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex"]
    rule = ["--max", "demographic_parity_difference:sex=0.9"]
    script = {
        "key new": ["k"],
        "audit": ["m.onnx", "--data", data, *roles],
        "certify": ["m.onnx", "--data", data, *roles, *rule, "--key", "k", "--output", "c.json"],
        "verify": ["c.json", "--key", "k.pub", "--model", "m.onnx", "--data", data, "--recompute"],
        "registry add": ["credit", "m.onnx", "--certificate", "c.json", "--registry", "r"],
        "frontier": ["reweigh", "--data", data, *roles, "--set", "frontier.jobs=2", "--output", "f.html"],
        "mitigate": ["--plugin", "reweigh", "--data", data, *roles, "--output", "n.onnx"],
        "compare": ["m.onnx", "m.onnx", "--data", data, *roles],
        "init": [data],
        "plan": [*rule, "--rows", "1000"],
        "report": ["c.json", "--output", "p.html"],
        "watch init": ["--state", "w", "--sensitive", "sex", *rule],
        "why": ["m.onnx", "--data", data, *roles],
        "plugins check": ["no-such-plugin"],
        "demo": [],
        "policy lock": ["--data", data, *roles, *rule, "--key", "k", "--output", "lock.json"],
    }
    names = sorted(names_of(get_command(app)), key=lambda name: [*script, name].index(name))
    words = [[*name.split(), *script.get(name, ["nothing"])] for name in names]
    done = run(trap, sys.executable, "-P", "-c", EACH, json.dumps(words))
    assert not (tmp_path / "loaded").exists(), (tmp_path / "loaded").read_text()
    ends = [json.loads(line[6:]) for line in done.stderr.splitlines() if line.startswith("ENDED ")]
    assert [one[0] for one in ends] == words, done.stderr
    for each, code, path in ends:
        assert code in (0, 1, 2, 3), (each, code)
        assert not {"", ".", str(trap)} & set(path), (each, path)


def names_of(command, prefix=""):
    """Every command of a group, as it is typed."""
    context = command.context_class(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if hasattr(inner, "list_commands"):
            yield from names_of(inner, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "--report", "endless", "--max", "accuracy_difference:sex=0.1"), "too large to be a report"),
        (("ask", "endless", "--dry-run"), "it has more than 16 MiB"),
        (("audit", "m.onnx", "--data", "d.csv"), "fairkit.toml is not valid TOML: it has more than 16 MiB"),
    ],
)
def test_a_file_without_an_end_is_one_message(tmp_path, monkeypatch, words, said):
    """They were read until the memory was full."""
    monkeypatch.chdir(tmp_path)
    Path("endless").symlink_to("/dev/zero")
    if words[0] == "audit":
        Path("fairkit.toml").write_bytes(b"#" * (16 * 2**20 + 1))
    result = checked(*words, code=2)
    assert said in " ".join(result.stderr.split())


def test_a_number_of_a_report_that_no_float_holds_is_one_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loans = fairkit.datasets.table("loans").slice(0, 300)
    report = fairkit.audit(
        SimpleNamespace(predict=lambda rows: ["approved"] * len(rows)),
        fairkit.load_data(loans, label="decision", favorable="approved", sensitive=["sex"]),
    ).to_dict()
    report["findings"][0]["interval"] = [0, 10**400]
    Path("r.json").write_text(json.dumps(report))
    for words in (
        ("plan", "--report", "r.json", "--max", "accuracy_difference:sex=0.1"),
        ("compare", "r.json", "r.json"),
    ):
        result = invoke(*words)
        assert (result.exit_code, "a number that no float holds" in result.stderr) == (2, True), result.output


FILES = {
    "[data]\npath = 'FILE'\nlabel = 'y'\nfavorable = 1\nsensitive = 'sex'": "one column; is this file a table",
    "[data]\npath = 'FILE'\nlabel = 'TOKEN'\nfavorable = 1\nsensitive = 'sex'": "one column; is this file a table",
    "[data]\npath = 't.csv'\nlabel = 'y'\nfavorable = 1\nsensitive = 'sex'\nlabelled = 'FILE'": "is not JSON",
    "[data]\npath = 't.csv'\nlabel = 'y'\nfavorable = 1\nsensitive = 'sex'\n[data.join]\npath = 'FILE'\non = 'sex'": "",
    "[registry]\npath = 'reg'\nwitness = 'FILE'": "",
    "[data]\npath = 't.csv'\nlabel = 'y'\nfavorable = 1\nsensitive = 'sex'\n[audit]\nauditors = ['restricted-dro']\n"
    "[audit.restricted-dro]\nepsilon = 0.1\nfair_metric = 'FILE'": "",
}


@pytest.mark.parametrize("text", FILES)
@pytest.mark.parametrize(
    "secret", ["TOKEN=ghp_abc\nB=2\n", "TOKEN ghp_abc, x\n", "[a]\nTOKEN=ghp_abc, x\nb\n", "TOKEN=ghp_abc"]
)
def test_what_a_configuration_names_is_not_shown_by_a_message(text, secret, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("secret.env").write_text(secret)
    Path("t.csv").write_text("y,sex,decision\n1,m,1\n0,f,0\n1,m,1\n0,f,0\n")
    Path("fairkit.toml").write_text("\ufeff" + text.replace("FILE", "secret.env"), encoding="utf-8")
    registry = ("registry", "check") if "registry" in text else ("audit", "--predictions", "decision=decision")
    result = checked(*registry, code=2)
    assert "ghp_" not in result.output + result.stderr
    if secret.startswith("TOKEN=ghp_abc\nB"):
        assert FILES[text] in result.stderr
