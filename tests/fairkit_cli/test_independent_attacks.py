"""A dishonest certifier, or whoever holds the registry's folder, with the commands alone: refused, or noted."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke, ok

LABEL = ("--label", "decision", "--favorable", "approved")
SEX = ("--sensitive", "sex")
LENIENT = ("--max", "demographic_parity_difference:sex=0.9")
REGISTRY = "fairkit-registry"


def bare_policy():
    """The file of a policy that asks for nothing but a certificate by a trusted key."""
    Path("empty.toml").write_text("")
    return "empty.toml"


def witnessed(*arguments):
    """Call with a witness, which the configuration names."""
    config = Path("fairkit.toml")
    config.write_text('[registry]\nwitness = "w.json"\n')
    try:
        return invoke(*arguments)
    finally:
        config.unlink()


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Let `user("other")` be somebody else, who remembers nothing of a registry."""

    def become(name):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "homes" / name))

    become("mine")
    return become


@pytest.fixture
def place(tmp_path, monkeypatch, user, loans_model):
    """The loans model in a registry, and an alias whose rule every audit of it meets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRKIT_REGISTRY", raising=False)
    checked("key", "new", "k")
    checked("registry", "add", "credit", loans_model.path)
    checked("registry", "alias", "credit", "production", "--key", "k.pub", *LENIENT)
    return tmp_path


@pytest.fixture
def certify(place, loans_model):
    """Certify the model with options of the certifier's choice; returns the command's result."""

    def run(*options, data=loans_model.data, sensitive=SEX, output="c.json"):
        common = ("--data", data, "--key", "k", "--output", output)
        return invoke("certify", loans_model.path, *common, *LABEL, *sensitive, *options)

    return run


def promote(code, alias="production", certificate="c.json"):
    """Attach the certificate and ask for the alias; returns what was said."""
    checked("registry", "add", "credit@1", "--certificate", certificate)
    return checked("registry", "promote", "credit@1", alias, code=code).stdout


def put_back(copy):
    shutil.rmtree(REGISTRY)
    shutil.copytree(copy, REGISTRY)


@pytest.fixture
def certified(place, certify):
    """The registry with a certificate that counts, as `before`; then promoted, as `after`; with a witness."""
    ok(certify())
    checked("registry", "add", "credit@1", "--certificate", "c.json")
    ok(witnessed("registry", "check", "--accept"))
    shutil.copytree(REGISTRY, "before")
    shutil.copy("w.json", "w-before.json")
    ok(witnessed("registry", "promote", "credit@1", "production"))
    return place


def test_an_alias_without_keys_and_rules_is_refused(place, certify):
    ok(certify("--max", "demographic_parity_difference:sex=1"))
    checked("registry", "alias", "credit", "bare", "--min-rows", 1)
    assert "refused: the alias 'bare' trusts no key" in promote(1, "bare")
    checked("registry", "alias", "credit", "production", "--policy", bare_policy())
    assert "refused: the alias 'production' trusts no key" in promote(1)


def test_rules_of_the_certifiers_choice_are_noted(place, certify):
    ok(certify("--max", "demographic_parity_difference:sex=1"))
    checked("registry", "alias", "credit", "production", "--policy", bare_policy(), "--key", "k.pub")
    assert "note: the alias has no rules, so what a pass takes was the signer's choice" in promote(0)


def test_the_certifiers_low_confidence_is_refused_also_without_rules(place, certify):
    ok(certify("--confidence", "0.5", "--max", "accuracy_difference:sex=0.5"))
    assert "refused: demographic_parity_difference was audited at confidence 0.5" in promote(1)
    checked("registry", "alias", "credit", "production", "--policy", bare_policy(), "--key", "k.pub")
    assert "refused: the audit's confidence is 0.5; the alias asks for 0.95" in promote(1)


@pytest.mark.parametrize(
    "text", ["[settings]\n", "[settings.data]\n", "[settings.policy]\n", "[settings.audit.group]\n"]
)
def test_a_settings_file_that_pins_nothing_is_refused(place, text):
    (place / "pins.toml").write_text(text)
    before = checked("registry", "alias", "credit", "production").stdout
    checked("registry", "alias", "credit", "production", "--policy", "pins.toml", code=2)
    assert checked("registry", "alias", "credit", "production").stdout == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "setting"),
    [
        (("--set", "group.min_group=1"), "audit.group.min_group"),
        (("--set", "data.missing=group"), "data.missing"),
        (("--set", "group.label_error=sex=0.1"), "audit.group.label_error"),
        (("--set", "group.label_error=decision=0.4"), "audit.group.label_error"),
        (("--set", "audit.adjust=holm"), "audit.adjust"),
        (("--set", "group.simultaneous=true"), "audit.group.simultaneous"),
    ],
)
def test_a_setting_that_is_not_pinned_is_refused_although_the_rule_is_met(place, certify, options, setting):
    ok(certify(*options))
    said = promote(1)
    assert said.count("refused:") == 2, said  # the headline, and the setting alone
    assert f"refused: setting {setting} is" in said


def test_bins_that_merge_groups_are_refused(place, certify):
    rule = ("--max", "demographic_parity_difference:age=0.9")
    checked("registry", "alias", "credit", "production", "--policy", bare_policy(), "--key", "k.pub", *rule)
    empty = ok(certify(sensitive=("--sensitive", "age:100")), 2)
    assert "no row has 'age' in the bin '>= 100'" in empty.stderr
    ok(certify(sensitive=("--sensitive", "age:60")))
    assert 'refused: setting data.sensitive is ["age:60"]' in promote(1)


def weighed(loans_model, weight):
    """Write the table with `weight` for the women and 1 for the men."""
    table = pq.read_table(loans_model.data)
    weights = pc.if_else(pc.equal(table["sex"], "female"), weight, 1.0)
    pq.write_table(table.append_column("w", weights), "w.parquet")


def test_weights_that_nearly_remove_a_group_are_refused(place, certify, loans_model):
    weighed(loans_model, 1e-9)
    ok(certify("--set", "data.weights=w", data="w.parquet"))
    assert 'refused: setting data.weights is "w"' in promote(1)


@pytest.mark.long
def test_weights_that_remove_a_group_decide_nothing_and_are_not_promoted(place, certify, loans_model):
    weighed(loans_model, 0.0)
    checked("audit", loans_model.path, "--data", "w.parquet", *LABEL, *SEX, "--set", "data.weights=w", *LENIENT, code=3)
    ok(certify("--set", "data.weights=w", data="w.parquet"))
    assert "data.weights" in promote(1)


def test_another_table_of_the_same_name_is_refused(place, certify, loans_model):
    checked("registry", "alias", "credit", "production", "--data", loans_model.data)
    pq.write_table(pq.read_table(loans_model.data).slice(0, 2000), loans_model.data.name)
    ok(certify(data=loans_model.data.name))
    assert "refused: no certificate of credit@1 is about the data that 'production' asks for" in promote(1)


@pytest.fixture
def signed_by_two(place, certify):
    """An envelope that the trusted key and a foreign one have signed, without its signatures, and those."""
    checked("key", "new", "foreign")
    ok(certify("--key", "foreign"))
    envelope = json.loads(Path("c.json").read_text())
    return envelope, *envelope["signatures"]


def test_a_foreign_signature_beside_the_trusted_one_adds_no_trust(place, signed_by_two):
    _, ours, theirs = signed_by_two
    assert ours["keyid"][:16] in checked("verify", "c.json", "--key", "k.pub").stdout
    promote(0)
    checked("key", "new", "third")
    checked("registry", "alias", "credit", "strict", "--key", "third.pub", *LENIENT)
    assert "not signed by a key that you trust" in promote(1, "strict")
    assert theirs["keyid"] != ours["keyid"]


@pytest.mark.long
def test_the_trusted_signature_replaced_by_a_foreign_one_is_refused(place, signed_by_two):
    envelope, ours, theirs = signed_by_two
    garbage = base64.b64encode(b"x" * 64).decode()
    for signatures, words in (
        ([theirs], "not signed by a key that you trust"),
        ([theirs | {"keyid": ours["keyid"]}], "the signature does not hold"),
        ([ours | {"sig": garbage}, theirs], "refused: certificate"),
    ):
        Path("x.json").write_text(json.dumps(envelope | {"signatures": signatures}))
        checked("verify", "x.json", "--key", "k.pub", code=1)
        assert words in promote(1, certificate="x.json")
    Path("x.json").write_text(json.dumps(envelope | {"signatures": []}))
    checked("registry", "add", "credit@1", "--certificate", "x.json", code=2)


def test_files_restored_without_their_index_are_refused(certified, user, loans_model):
    for path in Path(REGISTRY).glob("index.sqlite*"):
        path.unlink()
    commands = (
        ("promote", "credit@1", "production"),
        ("add", "credit", loans_model.path),
        ("check", "--accept"),
        ("check", "--gc"),
    )
    for name in ("mine", "other"):
        user(name)
        for command in commands:
            assert "index.sqlite is gone" in checked("registry", *command, code=2).stderr.replace("\n", " ")
    assert not (Path(REGISTRY) / "index.sqlite").exists()


def test_an_older_index_is_refused_by_memory_and_by_a_witness(certified, user):
    put_back("before")
    refused = checked("registry", "promote", "credit@1", "production", code=2).stderr
    assert "the index is an older one, or was cut" in refused
    user("other")
    refused = ok(witnessed("registry", "promote", "credit@1", "production"), 2).stderr
    assert "w.json remembers" in refused


def test_one_of_two_forked_logs_is_refused_in_the_others_place(certified, user):
    put_back("before")
    user("forker")
    checked("registry", "promote", "credit@1", "production")
    checked("registry", "alias", "credit", "later", "--key", "k.pub")
    user("mine")
    for command in (("verify", "credit@production"), ("promote", "credit@1", "production"), ("list",)):
        assert "event 4 is not the one that it was" in checked("registry", *command, code=2).stderr
    user("other")
    assert "w.json remembers" in ok(witnessed("registry", "list"), 2).stderr


def edit(statement):
    connection = sqlite3.connect(f"{REGISTRY}/index.sqlite", isolation_level=None)
    connection.execute(statement)
    connection.close()


CHANGES = (
    "policy = '{}'",
    "policy = replace(policy, '0.9', '1.0')",
    "certificate = NULL",
    "version = NULL",
    "alias = 'staging'",
)


def test_an_alias_edited_in_the_database_is_refused(certified, user):
    shutil.copytree(REGISTRY, "after")
    user("other")  # who has never seen the registry, and so has the log alone
    for change in CHANGES:
        put_back("after")
        edit(f"UPDATE aliases SET {change}")
        alias = "staging" if "staging" in change else "production"
        for command in (("promote", "credit@1", alias), ("verify", f"credit@{alias}")):
            checked("registry", *command, code=2)


def test_the_time_of_an_alias_edited_in_the_database_is_refused(certified):
    edit("UPDATE aliases SET changed_at = '2020-01-01T00:00:00Z'")
    checked("registry", "verify", "credit@production", code=2)


def test_check_names_a_policy_that_lacks_its_parts(certified):
    edit("UPDATE aliases SET policy = '{}'")
    assert "fairkit registry check` lists all damage" in checked("registry", "list", code=2).stderr
    checked("registry", "check", code=1)


def test_an_older_witness_is_brought_up_to_date_and_hides_no_older_index(certified):
    shutil.copy("w-before.json", "w.json")
    ok(witnessed("registry", "verify", "credit@production"))
    assert Path("w.json").read_text() != Path("w-before.json").read_text()
    shutil.copy("w-before.json", "w.json")
    put_back("before")
    refused = ok(witnessed("registry", "promote", "credit@1", "production"), 2).stderr
    assert "the index is an older one, or was cut" in refused


def test_a_witness_that_lies_is_refused_and_stays_as_it_is(certified):
    for text in ("", "{}", "null", "garbage", "[" * 50_000, '{"events": -1}', "x" * 70_000):
        Path("w.json").write_text(text)
        said = ok(witnessed("registry", "promote", "credit@1", "production"), 2).stderr
        assert "registry head" in said
        assert Path("w.json").read_text() == text
    for digest, events in (("0" * 64, 3), ("0" * 64, 10**30), ("", 1)):
        lie = {"schema": "fairkit.registry-head/1", "events": events, "head": digest}
        Path("w.json").write_text(json.dumps(lie))
        assert "w.json remembers" in ok(witnessed("registry", "list"), 2).stderr
