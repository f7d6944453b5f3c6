"""`fairkit registry`, `key`, `certify` and `verify` as a person and as a script would use them."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

import pytest
from tests.commands import checked, invoke, ok

AUDIT = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")
LENIENT = ("--max", "demographic_parity_difference:sex=0.9")


@pytest.fixture(scope="module")
def made(loans_model, tmp_path_factory):
    """A key pair, a stranger's, and certificates of the loans model: one that passes, one that fails."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("key", "stranger"):
        checked("key", "new", folder / name)
    common = ("certify", loans_model.path, "--data", loans_model.data, *AUDIT, "--key", folder / "key", "--output")
    checked(*common, folder / "good.json", *LENIENT)
    checked(*common, folder / "bad.json", "--max", "demographic_parity_difference:sex=0.0001", code=1)
    folder.joinpath("model.onnx").write_bytes(loans_model.path.read_bytes())
    folder.joinpath("data.parquet").write_bytes(loans_model.data.read_bytes())
    return folder


def message(result):
    """The one message of a command that was used wrongly."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def loaded(run, made):
    ok(run("registry", "add", "credit", made / "model.onnx", "--certificate", made / "good.json", "--tag", "a"))
    ok(run("registry", "alias", "credit", "production", "--key", made / "key.pub"))
    ok(run("registry", "promote", "credit@1", "production"))


# ---- keys and certificates


def test_a_new_key_is_two_files_and_is_never_replaced(run, tmp_path):
    record = json.loads(ok(run("key", "new", "k", "--format", "json")).stdout)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    assert record["public"] == "k.pub"
    assert len(record["keyid"]) == 64
    assert "exists already" in message(run("key", "new", "k"))


@pytest.mark.long
def test_verify_says_what_holds(run, made):
    arguments = ("verify", made / "good.json", "--key", made / "key.pub", "--model", made / "model.onnx")
    result = ok(run(*arguments, "--data", made / "data.parquet", "--recompute"))
    assert "good.json: verified" in result.stdout
    assert result.stdout.count("holds:") == 4
    record = json.loads(ok(run(*arguments, "--format", "json")).stdout)
    assert record["verified"] is True
    assert record["verdict"] == "pass"
    assert record["failed"] is None


def test_a_csv_of_the_same_table_is_the_same_data(run, made, tmp_path):
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    pacsv.write_csv(pq.read_table(made / "data.parquet"), tmp_path / "d.csv")
    ok(run("verify", made / "good.json", "--key", made / "key.pub", "--data", tmp_path / "d.csv"))


def test_the_signed_verdict_is_the_exit_code(run, made):
    result = ok(run("verify", made / "bad.json", "--key", made / "key.pub", "--format", "json"), 1)
    record = json.loads(result.stdout)
    assert (record["verified"], record["verdict"]) == (True, "fail")


def test_what_does_not_hold_is_told_with_exit_code_1(run, made, tmp_path):
    import pyarrow.parquet as pq

    key = ("--key", made / "key.pub")
    result = ok(run("verify", made / "good.json", "--key", made / "stranger.pub"), 1)
    assert "not signed by a key that you trust" in result.stdout
    other = tmp_path / "m.onnx"
    other.write_bytes(made.joinpath("model.onnx").read_bytes() + b"\x1a\x01x")
    assert "about another model" in ok(run("verify", made / "good.json", *key, "--model", other), 1).stdout
    pq.write_table(pq.read_table(made / "data.parquet").slice(1), tmp_path / "d.parquet")
    result = ok(run("verify", made / "good.json", *key, "--data", tmp_path / "d.parquet"), 1)
    assert "about other data" in result.stdout
    (tmp_path / "c.json").write_text("hello")
    record = json.loads(ok(run("verify", tmp_path / "c.json", *key, "--format", "json"), 1).stdout)
    assert record["verified"] is False
    assert "not a certificate" in record["failed"]


def test_wrong_use_of_verify_and_certify_is_one_message(run, made, tmp_path, loans_model):
    good = made / "good.json"
    assert "--recompute needs" in message(run("verify", good, "--key", made / "key.pub", "--recompute"))
    assert "is a secret key" in message(run("verify", good, "--key", made / "key"))
    assert "cannot read missing.json" in message(run("verify", "missing.json", "--key", made / "key.pub"))
    certify = ("certify", loans_model.path, "--data", loans_model.data, *AUDIT, "--key")
    to = ("--output", "c.json")
    assert "is a public key" in message(run(*certify, made / "key.pub", *to))
    assert "no sensitive column 'sexx'" in message(run(*certify, made / "key", *to, "--sensitive", "sexx"))
    assert "--output is there twice" in message(run(*certify, made / "key", *to, *to))
    assert "folder 'no' does not exist" in message(run(*certify, made / "key", "--output", "no/where.json"))
    assert list(tmp_path.iterdir()) == []


def test_certify_signs_with_several_keys(run, made, loans_model):
    two = ("--key", made / "key", "--key", made / "stranger")
    ok(run("certify", loans_model.path, "--data", loans_model.data, *AUDIT, *two, "--output", "c.json"))
    for pub in ("key.pub", "stranger.pub"):
        ok(run("verify", "c.json", "--key", made / pub))


# ---- the registry


def test_add_list_show_and_log(run, made):
    result = ok(run("registry", "add", "credit", made / "model.onnx", "--certificate", made / "good.json"))
    assert result.stdout.startswith("credit@1  sha256 ")
    assert "new registry: fairkit-registry" in result.stderr
    record = json.loads(
        ok(run("registry", "add", "credit", made / "model.onnx", "--parent", "credit@1", "--format", "json")).stdout
    )
    assert (record["version"], record["parent"], record["certificates"]) == (2, "credit@1", [])
    assert json.loads(ok(run("registry", "list", "--format", "json")).stdout) == [
        {"name": "credit", "versions": 2, "newest": 2, "aliases": {}}
    ]
    lines = ok(run("registry", "list", "credit")).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "credit@2", "credit@1"]
    assert (
        len(json.loads(ok(run("registry", "list", "credit", "--limit", 1, "--format", "json")).stdout)["versions"]) == 1
    )
    shown = json.loads(ok(run("registry", "show", "credit@1", "--format", "json")).stdout)
    assert shown["evidence"][0]["verified"] is False
    assert "NOT verified" in ok(run("registry", "show", "credit@1")).stdout
    assert "no certificate" in ok(run("registry", "show", "credit")).stdout
    events = json.loads(ok(run("registry", "show", "credit", "--log", "--format", "json")).stdout)
    assert [event["action"] for event in events] == ["add", "add"]
    assert events[0]["previous"] == events[1]["digest"]


def test_certificates_are_attached_to_a_version(run, made):
    ok(run("registry", "add", "credit", made / "model.onnx"))
    record = json.loads(
        ok(run("registry", "add", "credit@1", "--certificate", made / "good.json", "--format", "json")).stdout
    )
    assert len(record["certificates"]) == 1
    assert "adds a version" in message(run("registry", "add", "credit@1"))


def test_promotion_end_to_end(run, made):
    ok(run("registry", "add", "credit", made / "model.onnx", "--certificate", made / "bad.json"))
    record = json.loads(ok(run("registry", "promote", "credit@1", "production", "--format", "json"), 1).stdout)
    assert record["promoted"] is False
    assert "trusts no key" in record["reasons"][0]["text"]
    ok(run("registry", "alias", "credit", "production", "--key", made / "key.pub"))
    assert "failed its policy" in ok(run("registry", "promote", "credit@1", "production"), 1).stdout
    rule = ("--max", "demographic_parity_difference:sex=0.9")
    ok(run("registry", "alias", "credit", "production", *rule, "--data", made / "data.parquet"))
    asked = json.loads(ok(run("registry", "promote", "credit@1", "production", "--dry-run", "--format", "json")).stdout)
    assert (asked["verdict"], asked["promoted"]) == ("pass", False)
    assert "credit@production points to credit@1" in ok(run("registry", "promote", "credit@1", "production")).stdout
    assert ok(run("registry", "verify", "credit@production")).stdout.startswith("credit@1: verified")


def test_an_undecided_promotion_has_exit_code_3(run, made):
    ok(run("registry", "add", "credit", made / "model.onnx", "--certificate", made / "good.json"))
    findings = json.loads(
        ok(run("audit", made / "model.onnx", "--data", made / "data.parquet", *AUDIT, "--format", "json")).stdout
    )["findings"]
    value = next(f["value"] for f in findings if f["metric"] == "demographic_parity_difference")
    ok(
        run(
            *("registry", "alias", "credit", "production", "--key", made / "key.pub"),
            *("--max", f"demographic_parity_difference:sex={value:.6f}"),
        )
    )
    assert "inconclusive" in ok(run("registry", "promote", "credit@1", "production"), 3).stdout


def test_alias_shows_and_changes_only_what_is_named(run, made, tmp_path):
    loaded(run, made)
    ok(run("registry", "alias", "credit", "production", "--max-age-days", 30, "--min-rows", 5))
    (record,) = json.loads(ok(run("registry", "alias", "credit", "production", "--format", "json")).stdout)
    assert len(record["policy"]["keys"]) == 1
    assert record["policy"]["max_age_days"] == 30
    assert record["policy"]["min_rows"] == 5
    assert record["version"] == 1
    assert "at most 30 days old" in ok(run("registry", "alias", "credit")).stdout
    (tmp_path / "alias.toml").write_text('no_worse = ["accuracy"]\n')
    ok(run("registry", "alias", "credit", "production", "--policy", tmp_path / "alias.toml"))
    (record,) = json.loads(ok(run("registry", "alias", "--format", "json")).stdout)
    assert (record["policy"]["keys"], record["policy"]["no_worse"]) == ([], ["accuracy"])
    assert "one alias" in message(run("registry", "alias", "credit", "--max-age-days", 3))
    assert "not understood" in message(run("registry", "alias", "credit", "p", "--max", "x"))
    assert "no model 'nobody'" in message(run("registry", "alias", "nobody", "p", "--min-rows", 3))
    assert "is no alias" in message(run("registry", "alias", "credit", "9", "--min-rows", 3))


def test_an_alias_can_be_taken_away(run, made):
    loaded(run, made)
    assert "no alias 'produktion'. Did you mean" in message(
        run("registry", "alias", "credit", "produktion", "--remove")
    )
    assert "no other option" in message(run("registry", "alias", "credit", "production", "--remove", "--min-rows", 3))
    ok(run("registry", "alias", "credit", "production", "--remove"))
    assert json.loads(ok(run("registry", "alias", "credit", "--format", "json")).stdout) == []
    assert "has no alias" in message(run("registry", "show", "credit@production"))
    assert "production: removed" in ok(run("registry", "show", "--log")).stdout
    ok(run("registry", "check"))


def test_somebody_elses_certificate_is_a_note_where_another_one_holds(run, made, loans_model):
    ok(
        run(
            *("certify", loans_model.path, "--data", loans_model.data, *AUDIT, *LENIENT),
            *("--key", made / "stranger", "--output", "theirs.json"),
        )
    )
    ok(run("registry", "add", "credit", made / "model.onnx", "--certificate", "theirs.json"))
    key = ("--key", made / "key.pub")
    assert "not signed by a key" in ok(run("registry", "verify", "credit@1", *key), 1).stdout
    ok(run("registry", "add", "credit@1", "--certificate", made / "good.json"))
    assert "note: certificate" in ok(run("registry", "verify", "credit@1", *key)).stdout


def test_a_version_is_shown_as_every_kind_of_card(run, made):
    loaded(run, made)
    assert ok(run("registry", "show", "credit@production", "--format", "markdown")).stdout.startswith(
        "# Model card: credit@1"
    )
    bom = json.loads(ok(run("registry", "show", "credit", "--format", "cyclonedx")).stdout)
    assert bom["bomFormat"] == "CycloneDX"


def test_export_import_and_verify_of_an_archive(run, made, tmp_path):
    loaded(run, made)
    ok(run("registry", "export", "credit", "--output", "a.tar"))
    assert ok(run("registry", "verify", "a.tar", "--key", made / "key.pub")).stdout.startswith(
        "a.tar: verified, verdict pass"
    )
    assert "does not hold" in ok(run("registry", "verify", "a.tar", "--key", made / "stranger.pub"), 1).stdout
    assert "--key" in message(run("registry", "verify", "a.tar"))
    other = ("--registry", "other")
    result = ok(run("registry", "import", "a.tar", *other))
    assert "signatures not checked" in result.stdout
    assert "they are not trusted" in result.stderr
    assert "name the public key" in message(run("registry", "verify", "credit@1", *other))
    record = json.loads(
        ok(run("registry", "import", "a.tar", *other, "--key", made / "key.pub", "--format", "json")).stdout
    )
    assert [one["new"] for one in record] == [False]
    assert record[0]["certificates"][0]["verified"] is True
    ok(run("registry", "verify", "credit@1", "--key", made / "key.pub", *other))
    (tmp_path / "evil.tar").write_bytes(b"x" * 2000)
    assert "not a tar archive" in message(run("registry", "import", "evil.tar", *other))
    assert "not signed by a key" in message(run("registry", "import", "a.tar", *other, "--key", made / "stranger.pub"))


def test_a_check_tells_the_head_and_removes_what_is_lost(run, made, tmp_path):
    loaded(run, made)
    record = json.loads(ok(run("registry", "check", "--format", "json")).stdout)
    assert record["clean"] is True
    assert ok(run("registry", "check", "--head", record["head"])).stdout.startswith("clean: 1 versions")
    assert "no longer in the log" in ok(run("registry", "check", "--head", "0" * 64), 1).stdout
    gone = json.loads(ok(run("registry", "check", "--gc", "--format", "json")).stdout)
    assert gone["removed"] == {"files": [], "bytes": 0}
    file = json.loads(ok(run("registry", "show", "credit", "--format", "json")).stdout)["path"]
    os.chmod(file, 0o644)  # noqa: PTH101
    with open(file, "ab") as handle:  # noqa: PTH123
        handle.write(b"x")
    assert "was changed or damaged" in ok(run("registry", "check"), 1).stdout
    assert "does not hold" in ok(run("registry", "verify", "credit@production"), 1).stdout
    assert "was changed or damaged" in message(
        run("audit", "credit@production", "--data", made / "data.parquet", *AUDIT)
    )


def test_a_name_is_a_model_for_audit_certify_and_verify(run, made):
    loaded(run, made)
    report = json.loads(
        ok(run("audit", "credit@production", "--data", made / "data.parquet", *AUDIT, "--format", "json")).stdout
    )
    assert report["verdict"] is None
    ok(
        run(
            *("certify", "credit@1", "--data", made / "data.parquet", *AUDIT),
            *("--key", made / "key", "--output", "again.json"),
        )
    )
    record = json.loads(
        ok(run("verify", "again.json", "--key", made / "key.pub", "--model", "credit", "--format", "json")).stdout
    )
    assert record["certificate"]["model"] == {"name": "credit@1", "sha256": report["model"]["sha256"]}


def test_a_refused_addition_leaves_no_empty_registry(run, made, tmp_path):
    good = made / "good.json"
    ok(run("registry", "add", "credit", made / "model.onnx", "--registry", "full"))
    ok(run("registry", "export", "credit", "--registry", "full", "--output", "a.tar"))
    add = ("registry", "add")
    assert "is no name" in message(run(*add, "a/b", made / "model.onnx"))
    assert "not a policy lock" in message(run(*add, "credit", good))
    assert "is new and has no credit@1" in message(run(*add, "credit", made / "model.onnx", "--parent", "credit@1"))
    assert "not a certificate" in message(run(*add, "credit", made / "model.onnx", "--certificate", made / "key.pub"))
    assert "no key can vouch" in message(run("registry", "import", "a.tar", "--key", made / "key.pub"))
    assert "not a tar archive" in message(run("registry", "import", good))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "full"]
    ok(run("registry", "import", "a.tar"))


def test_wrong_names_are_one_message(run, made):
    assert "there is no registry in fairkit-registry" in message(run("registry", "list"))
    loaded(run, made)
    assert "Did you mean 'credit'" in message(run("registry", "show", "credti"))
    assert "its versions go from 1 to 1" in message(run("registry", "promote", "credit@4", "production"))
    assert "has no alias 'prod'" in message(run("registry", "show", "credit@prod"))
    assert "not a policy lock" in message(run("registry", "add", "credit", made / "good.json"))
    assert "about another model" in message(
        run("registry", "add", "x", made / "model.onnx", "--certificate", _other(made))
    )


def _other(made):
    from fairkit_registry.evidence.certificate import read
    from fairkit_registry.evidence.recompute import issue
    from fairkit_registry.evidence.signers import load_secret

    good = read((made / "good.json").read_bytes())
    report, settings = good.report, good.settings
    from dataclasses import replace

    other = replace(report, model=replace(report.model, sha256="0" * 64))
    path = made / "other.json"
    path.write_bytes(issue(other, [load_secret(made / "key")], settings=settings))
    return path


def test_where_the_registry_is(run, made, tmp_path, monkeypatch):
    """The option wins over the environment, which wins over the configuration."""
    (tmp_path / ".git").mkdir()  # a repository: its file holds in the folders below
    (tmp_path / "fairkit.toml").write_text('[registry]\npath = "configured"\n')
    add = ("registry", "add", "credit", made / "model.onnx")
    ok(run(*add))
    assert (tmp_path / "configured" / "index.sqlite").is_file()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")  # a path in the file starts from the file's folder
    assert "credit" in invoke("registry", "list").stdout
    monkeypatch.setenv("FAIRKIT_REGISTRY", str(tmp_path / "environment"))
    ok(run(*add))
    assert (tmp_path / "environment" / "index.sqlite").is_file()
    ok(run(*add, "--registry", tmp_path / "option"))
    assert (tmp_path / "option" / "index.sqlite").is_file()


def test_an_empty_path_in_the_configuration_file_is_no_folder(run, made, tmp_path):
    """It meant the default folder to some commands and the file's own to others."""
    (tmp_path / "fairkit.toml").write_text('[registry]\npath = ""\n')
    for command in (("registry", "list"), ("audit", "credit", "--data", made / "data.csv")):
        refused = run(*command)
        assert refused.exit_code == 2
        assert "path in [registry] takes a path, not ''" in refused.stderr


@pytest.mark.long
def test_mitigate_registers_both_models(run, made, loans_model):
    """The new version has the old one as its parent, and its certificate names the mitigation."""
    ok(
        run(
            *("mitigate", "--plugin", "threshold-optimizer", "--model", loans_model.path, *AUDIT),
            *("--data", loans_model.data, "--output", "fair.onnx", "--register", "credit"),
        )
    )
    versions = json.loads(ok(run("registry", "list", "credit", "--format", "json")).stdout)["versions"]
    assert versions[0]["parent"] == f"credit@{versions[1]['version']}"
    ok(
        run(
            *("certify", versions[0]["name"], "--data", loans_model.data, *AUDIT),
            *("--key", made / "key", "--output", "c.json"),
        )
    )
    record = json.loads(ok(run("verify", "c.json", "--key", made / "key.pub", "--format", "json")).stdout)
    mitigation = record["certificate"]["mitigation"]
    assert mitigation["plugin"] == "threshold-optimizer"
    assert mitigation["base"] == {"sha256": versions[1]["sha256"]}


def test_help_and_list_stay_light(made, tmp_path):
    """Neither help nor looking things up nor a signature loads numpy, onnx or an auditor."""
    program = f"""
import sys
from typer.testing import CliRunner
from fairkit_cli.main import app
heavy = {{"pandas", "onnx", "onnxruntime", "sklearn", "torch", "pyarrow", "jsonschema", "scipy", "importlib.metadata"}}
more = {{"numpy", "rich", "fairkit_group"}}
for arguments in (["registry", "--help"], ["registry", "list"],
                  ["registry", "show", "credit"], ["registry", "show", "--log"],
                  ["verify", {str(made / "good.json")!r}, "--key", {str(made / "key.pub")!r}], ["plugins"]):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    loaded = (heavy if arguments == ["plugins"] else heavy | more) & set(sys.modules)
    assert not loaded, (arguments, loaded)
"""
    environment = {key: value for key, value in os.environ.items() if key != "FAIRKIT_REGISTRY"}
    add = [
        sys.executable,
        "-c",
        "from fairkit_cli.main import run; run()",
        "registry",
        "add",
        "credit",
        str(made / "model.onnx"),
    ]
    for command in (add, [sys.executable, "-c", program]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_text_from_outside_cannot_move_the_cursor(run, made):
    ok(run("registry", "add", "credit", made / "model.onnx", "--notes", "a\x1b[2Jb\nc", "--tag", "t\x07"))
    for command in (("show", "credit"), ("list", "credit")):
        assert "\x1b" not in ok(run("registry", *command)).stdout
        assert "\x07" not in ok(run("registry", *command)).stdout


@pytest.mark.long
def test_a_witness_and_the_way_back(run, made, loans_model, tmp_path):
    """An older index is refused by every command; after a check it can be accepted on purpose."""
    import shutil
    import sqlite3

    loaded(run, made)
    (tmp_path / "fairkit.toml").write_text('[registry]\nwitness = "w.json"\n')
    assert "does not exist" in message(run("registry", "list"))
    ok(run("registry", "check", "--accept"))
    index = tmp_path / "fairkit-registry" / "index.sqlite"
    sqlite3.connect(index).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(index, tmp_path / "old.sqlite")
    ok(run("registry", "add", "credit", loans_model.again(tmp_path / "again.onnx")))
    assert json.loads((tmp_path / "w.json").read_text())["events"] == 4
    gc.collect()  # the commands ran in this process: what they opened is closed before the file is exchanged
    for left in ("-wal", "-shm"):
        index.with_name(index.name + left).unlink(missing_ok=True)
    shutil.copy(tmp_path / "old.sqlite", index)
    for command in (
        ("registry", "list"),
        ("registry", "promote", "credit@1", "production"),
        ("registry", "verify", "credit@production"),
        ("audit", "credit@production", "--data", made / "data.parquet", *AUDIT),
    ):
        assert "its log has 3 events, and had 4 before" in message(run(*command))
    shown = ok(run("registry", "check"), 1).stdout
    assert "w.json remembers" in shown
    assert "clean" not in shown
    ok(run("registry", "check", "--accept"))
    ok(run("registry", "list"))
    assert json.loads((tmp_path / "w.json").read_text())["events"] == 3


def test_an_edited_index_is_not_accepted(run, made, tmp_path):
    import sqlite3

    loaded(run, made)
    connection = sqlite3.connect(tmp_path / "fairkit-registry" / "index.sqlite")
    connection.execute("UPDATE aliases SET certificate = NULL")
    connection.commit()
    connection.close()
    assert "alias credit@production was changed" in message(run("registry", "show", "credit@production"))
    assert "alias credit@production was changed" in ok(run("registry", "check", "--accept"), 1).stdout
    assert "was changed" in message(run("registry", "list"))


@pytest.mark.parametrize("body", ["NaN", "[1e999]", "no"])
def test_an_event_whose_body_is_no_json_is_named(run, made, tmp_path, body):
    import sqlite3

    loaded(run, made)
    connection = sqlite3.connect(tmp_path / "fairkit-registry" / "index.sqlite")
    for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("UPDATE events SET body = ? WHERE seq = 2", (body,))
    connection.commit()
    connection.close()
    assert "event 2 was changed: its body is not JSON" in ok(run("registry", "check"), 1).stdout
