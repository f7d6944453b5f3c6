"""A holder of the registry's folder goes back, cuts the log, or edits the index: refused at use."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.commands import checked

from fairkit_registry.errors import RegistryError, RevokedError, TamperedError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.jsonio import canonical, fingerprint
from fairkit_registry.promotion.run import evaluate, promote
from fairkit_registry.store import folder as heads
from fairkit_registry.store import tables as events
from fairkit_registry.store.index import MIGRATIONS, AliasPolicy, statements
from fairkit_registry.store.registry import Registry, check, gc, resolve


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    """Let `at_home("other")` be another user, or another machine: it remembers nothing."""

    def move(name: str) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "homes" / name))

    move("mine")
    return move


@pytest.fixture
def place(tmp_path, model, certify, signer):
    """A registry whose alias points to a certified version; version 2 has no certificate."""
    with Registry(tmp_path / "r", create=True) as store:
        store.add("credit", model(1), certificates=[certify(model(1))])
        store.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
        assert promote(store, "credit@1", "production").verdict == "pass"
        store.add("credit", model(2))
    return tmp_path / "r"


def database(place) -> sqlite3.Connection:
    """The index as an attacker opens it: without the triggers that keep the log."""
    connection = sqlite3.connect(place / "index.sqlite", isolation_level=None)
    for trigger in ("events_stay", "events_remain"):
        connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    return connection


def close(connection: sqlite3.Connection) -> None:
    """Put the triggers back, so that only the edit itself can be seen."""
    for statement in statements(MIGRATIONS[0]):
        if "CREATE TRIGGER" in statement:
            connection.execute(statement)
    connection.close()


def edit(place, *statements: str) -> None:
    connection = database(place)
    for statement in statements:
        connection.execute(statement)
    close(connection)


def rewrite(place) -> None:
    """Compute every digest anew, as somebody would who changed an event and knows how."""
    connection = database(place)
    connection.row_factory = sqlite3.Row
    previous = "0" * 64
    for row in connection.execute("SELECT * FROM events ORDER BY seq").fetchall():
        record = {key: row[key] for key in ("seq", "at", "action", "name")} | {
            "body": json.loads(row["body"]),
            "previous": previous,
        }
        digest = fingerprint(record)
        connection.execute("UPDATE events SET previous = ?, digest = ? WHERE seq = ?", (previous, digest, row["seq"]))
        previous = digest
    close(connection)


def saved(place, to) -> None:
    sqlite3.connect(place / "index.sqlite").execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(place / "index.sqlite", to)


def restore(place, of) -> None:
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (place / name).unlink(missing_ok=True)
    shutil.copy(of, place / "index.sqlite")


EDITS = {
    "the alias points to an uncertified version": "UPDATE aliases SET version = 2",
    "the alias asks for nothing": """UPDATE aliases SET policy = replace(policy, '"open":false', '"open":true')""",
    "another alias": "INSERT INTO aliases SELECT name, 'live', policy, 2, NULL, changed_at FROM aliases",
    "another file under a version": "UPDATE versions SET model = (SELECT model FROM versions WHERE version = 2)",
    "a certificate is gone": "DELETE FROM certificates",
    "a certificate is at another version": "UPDATE certificates SET version = 2",
    "the alias is gone": "DELETE FROM aliases",
    "a version is gone": "DELETE FROM versions WHERE version = 2",
    "another parent": "UPDATE versions SET parent_name = 'credit', parent_version = 1 WHERE version = 2",
}


@pytest.mark.parametrize("home", ["mine", "other"])
@pytest.mark.parametrize("what", EDITS)
def test_an_edited_index_is_refused_at_use(place, model, at_home, what, home):
    edit(place, "PRAGMA foreign_keys = OFF", EDITS[what])
    at_home(home)  # the log itself tells, also on a machine that has never seen this registry
    for use in (
        lambda: resolve("credit@production", place),
        lambda: promote(Registry(place), "credit@2", "production"),
        lambda: Registry(place).add("credit", model(3)),
        lambda: Registry(place).versions("credit"),
        lambda: Registry(place).models(),
        lambda: gc(Registry(place)),
    ):
        with pytest.raises(TamperedError, match="changed from outside"):
            use()
    assert check(Registry(place)).problems


def test_an_event_that_was_changed_is_refused_at_use(place, at_home):
    edit(
        place,
        "UPDATE aliases SET version = 2",
        """UPDATE events SET body = replace(body, '"version":1', '"version":2') WHERE action = 'promote'""",
    )
    at_home("other")
    with pytest.raises(TamperedError, match="event 3 of the registry's log"):
        resolve("credit@production", place)


def test_a_log_rewritten_from_the_beginning_is_refused_where_its_head_is_remembered(place, tmp_path, at_home):
    with Registry(place) as store:
        store.folder.heads.witnesses = (tmp_path / "witness.json",)
        store.folder.remember()
    edit(
        place,
        "UPDATE aliases SET version = 2, certificate = NULL",
        """UPDATE events SET body = replace(body, '"version":1', '"version":2') WHERE action = 'promote'""",
        """UPDATE events SET body = json_set(body, '$.certificate', NULL) WHERE action = 'promote'""",
    )
    connection = database(place)
    for seq, body in connection.execute("SELECT seq, body FROM events").fetchall():
        text = canonical(json.loads(body)).decode()
        connection.execute("UPDATE events SET body = ? WHERE seq = ?", (text, seq))
    close(connection)
    rewrite(place)
    with pytest.raises(TamperedError, match="the log was rewritten"):
        resolve("credit@production", place)
    at_home("other")
    with pytest.raises(TamperedError, match=r"witness\.json remembers"):
        resolve("credit@production", place, witnesses=[tmp_path / "witness.json"])
    resolve("credit@production", place)  # who remembers nothing cannot tell: hence witnesses


def test_an_older_index_is_refused(place, tmp_path, model, certify, make):
    saved(place, tmp_path / "old.sqlite")
    with Registry(place) as store:  # the new audit that the holder would like to forget
        bad = certify(model(1), [make.finding("demographic_parity_difference", 0.4)], verdict="fail")
        store.attach("credit@1", [bad])
    restore(place, tmp_path / "old.sqlite")
    with pytest.raises(TamperedError, match=r"has 4 events, and had 5 before"):
        Registry(place)
    with pytest.raises(TamperedError, match="index is an older one"):
        resolve("credit@production", place)


def test_a_truncated_log_is_refused(place):
    edit(place, "DELETE FROM events WHERE seq = 4", "DELETE FROM versions WHERE version = 2")
    with pytest.raises(TamperedError, match="had 4 before"):
        resolve("credit@production", place)


def test_another_registry_in_its_place_is_refused(place, tmp_path, model):
    with Registry(tmp_path / "forged", create=True) as store:
        for factor in range(6):
            store.add("credit", model(factor))
        store.set_alias("credit", "production", AliasPolicy(open=True))
        promote(store, "credit@1", "production")
    shutil.rmtree(place)
    (tmp_path / "forged").rename(place)
    with pytest.raises(TamperedError, match="the log was rewritten, or it is another registry"):
        resolve("credit@production", place)


def test_what_others_add_is_no_tampering(place, model, at_home):
    at_home("other")
    with Registry(place) as store:
        store.add("credit", model(5))
    at_home("mine")
    with Registry(place) as store:
        assert store.version("credit").version == 3
    (own,) = heads.own_files(place)
    assert heads.parse(own.read_bytes(), "x").events == 5


def test_the_state_folder_is_the_users(place, tmp_path):
    (own,) = heads.own_files(place)
    assert own.is_relative_to(tmp_path / "homes" / "mine")
    assert json.loads(own.read_text())["registry"] == str(place)
    assert json.loads(own.read_text())["events"] == 4


def test_a_broken_memory_is_one_message(place):
    heads.own_files(place)[0].write_text("{}")
    with pytest.raises(RegistryError, match="holds no registry head"):
        Registry(place)


def test_a_link_turned_to_another_folder_is_refused(place, tmp_path, model):
    link = tmp_path / "link"
    link.symlink_to(place)
    resolve("credit@production", link)
    with Registry(tmp_path / "forged", create=True) as store:
        store.add("credit", model(4))
        store.set_alias("credit", "production", AliasPolicy(open=True))
        promote(store, "credit@1", "production")
    link.unlink()
    link.symlink_to(tmp_path / "forged")
    with pytest.raises(TamperedError):
        resolve("credit@production", link)


def test_a_view_that_shows_two_faces_is_refused(place, at_home):
    """Compared once and used once: a view could give the certified version to the comparison only."""
    edit(
        place,
        "PRAGMA foreign_keys = OFF",
        "ALTER TABLE aliases RENAME TO honest",
        "CREATE VIEW aliases AS SELECT name, alias, policy, CASE WHEN random() % 2 THEN 1 ELSE 2 END AS version, "
        "certificate, changed_at FROM honest",
    )
    at_home("other")
    with pytest.raises(TamperedError, match=r"(view|table) aliases"):
        resolve("credit@production", place)
    assert any("aliases" in text for text in check(Registry(place, trusting=True)).problems)


def test_a_trigger_of_somebody_elses_is_refused(place):
    edit(place, "CREATE TRIGGER later AFTER INSERT ON events BEGIN UPDATE aliases SET version = 2; END")
    with pytest.raises(TamperedError, match="trigger later"):
        Registry(place)


@pytest.mark.parametrize("body", ["{}", "[]", '{"alias":"production","policy":3}', "3"])
def test_an_event_of_another_form_is_one_message(place, at_home, body):
    edit(place, f"UPDATE events SET body = '{body}' WHERE seq = 2")
    rewrite(place)
    at_home("other")
    with pytest.raises(TamperedError, match=r"(does not have the form|in the tables but not in the log)"):
        resolve("credit@production", place)


# ---- the index is gone
def test_a_lost_index_over_files_is_never_version_1_again(place, model):
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (place / name).unlink(missing_ok=True)
    for use in (lambda: Registry(place, create=True), lambda: Registry(place), lambda: resolve("credit", place)):
        with pytest.raises(TamperedError, match="3 files that it listed are still there") as caught:
            use()
        assert "gc" not in str(caught.value)
    assert not (place / "index.sqlite").exists()


def test_a_registry_removed_as_a_whole_may_be_made_anew_with_a_note(place, model):
    shutil.rmtree(place)
    with Registry(place, create=True) as store:
        assert "is gone; this is a new one" in store.notes[0]
        assert store.add("credit", model()).version == 1
    Registry(place)


def test_gc_never_removes_what_the_log_knows(place):
    edit(place, "PRAGMA foreign_keys = OFF", "DELETE FROM blobs WHERE kind = 'certificate'")
    with Registry(place) as store:
        assert gc(store).files == ()


def test_gc_refuses_an_older_index(place, tmp_path, model):
    saved(place, tmp_path / "old.sqlite")
    with Registry(place) as store:
        newest = store.add("credit", model(9))
    restore(place, tmp_path / "old.sqlite")
    with pytest.raises(TamperedError):
        gc(Registry(place))
    assert Registry(place, trusting=True).blobs.path(newest.model).is_file()


# ---- witnesses
def test_witnesses_are_written_after_each_change(place, tmp_path, model, at_home):
    witness = tmp_path / "elsewhere.json"
    with pytest.raises(RegistryError, match="does not exist"):
        Registry(place, witnesses=[witness])
    with Registry(place, trusting=True, witnesses=[witness]) as store:
        store.folder.remember(force=True)
    with Registry(place, witnesses=[witness]) as store:
        store.add("credit", model(7))
        head = store.log(limit=1)[0]
    assert heads.parse(witness.read_bytes(), "w") == heads.Head(events=5, digest=head.digest, source="w")
    with pytest.raises(RegistryError, match="lies in the registry"):
        Registry(place, witnesses=[place / "w.json"])
    witness.write_text("x" * 70_000)
    with pytest.raises(RegistryError, match="too large"):
        Registry(place, witnesses=[witness])


def test_an_address_is_no_witness(place):
    with pytest.raises(RegistryError, match="is an address, which is not read"):
        Registry(place, witnesses=["https://example.org/head"])


# ---- what was on the disk before
def test_a_registry_of_an_older_version_keeps_working(tmp_path, model, certify, signer, monkeypatch):
    now = AliasPolicy.to_dict
    fewer = ("settings", "min_rows", "data_keys", "plain", "locked", "unseen")
    monkeypatch.setattr(AliasPolicy, "to_dict", lambda p: {k: v for k, v in now(p).items() if k not in fewer})
    with Registry(tmp_path / "old", create=True) as store:
        store.add("credit", model(), certificates=[certify(model())])
        store.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
        promote(store, "credit@1", "production")
    monkeypatch.undo()
    with Registry(tmp_path / "old") as store:
        assert check(store).problems == ()
        held = store.alias("credit", "production")
        assert (held.version, held.policy.settings, held.policy.locked) == (1, {}, False)
        store.set_alias("credit", "production", replace(held.policy, min_rows=40))
        assert promote(store, "credit@1", "production").verdict == "pass"
        assert check(store).problems == ()


# What a registry has revoked: an event of the log that every promotion reads, and says.
NOW = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture
def credit(registry, model, certify, signer, stranger):
    """A version with two certificates: one by each key, the stranger's newer."""
    first = certify(model())
    second = certify(model(), by=[stranger.secret], at=datetime(2026, 1, 3, tzinfo=UTC))
    registry.add("credit", model(), certificates=[first, second])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem, stranger.public.pem)))
    return registry, first.read_bytes(), second.read_bytes()


def told(registry, kind):
    decision = evaluate(registry, "credit@1", "production", now=NOW)
    return decision.verdict, " ".join(one.text for one in decision.reasons if one.kind == kind)


def test_a_revoked_certificate_counts_no_longer_and_the_decision_says_so(credit):
    registry, first, second = credit
    assert told(registry, "refused") == ("pass", "")
    registry.revoke("certificate", dsse.statement_sha256(second), "the label was wrong")
    verdict, notes = told(registry, "note")
    assert verdict == "pass"
    assert "was revoked: the label was wrong (event 3, by " in notes
    registry.revoke("certificate", dsse.statement_sha256(first), "both")
    verdict, refused = told(registry, "refused")
    assert verdict == "fail"
    assert "both" in refused
    assert check(registry).problems == ()


def test_another_envelope_around_it_does_not_bring_it_back(credit, stranger, tmp_path):
    """Its identity is the statement: a copy with another key id, or signed anew, is the same certificate."""
    registry, first, second = credit
    for raw in (first, second):
        registry.revoke("certificate", dsse.statement_sha256(raw), "gone")
    envelope = json.loads(second)
    envelope["signatures"][0]["keyid"] = "other"
    (tmp_path / "copy.json").write_text(json.dumps(envelope))
    registry.attach("credit@1", [tmp_path / "copy.json"])
    assert told(registry, "refused")[0] == "fail"
    with pytest.raises(RevokedError, match="gone"):
        certificate.verify(second, [stranger.public], revoked=registry.revoked())


def test_a_revoked_key_signs_nothing_and_another_one_does(credit, signer, stranger, model, certify):
    registry, *_ = credit
    registry.revoke("key", stranger.public.keyid, "stolen")
    verdict, notes = told(registry, "note")
    assert (verdict, "stolen" in notes) == ("pass", True)
    both = certify(model(), by=[signer.secret, stranger.secret])
    found = certificate.verify(both.read_bytes(), [signer.public, stranger.public], revoked=registry.revoked())
    assert found.keyids == (signer.public.keyid,)


def test_without_a_reason_nothing_is_revoked(credit):
    registry, *_ = credit
    with pytest.raises(RegistryError, match="say why"):
        registry.revoke("key", "0" * 64, " ")
    assert len(registry.log()) == 2


def test_a_list_that_an_earlier_version_took_in_is_never_dropped_in_silence(credit, stranger):
    registry, *_ = credit
    with registry.folder.index.write() as connection:
        events.append(connection, "revoke", None, {"list": "0" * 64, "issuer": "x", "sequence": 1}, at=events.now())
    verdict, refused = told(registry, "refused")
    assert verdict == "fail"
    assert "event 3 took in a revocation list, which fairkit no longer reads" in refused
    registry.revoke("key", stranger.public.keyid, "as the list said")
    assert told(registry, "refused") == ("pass", "")


def test_the_commands_revoke_and_refuse(credit, signer, stranger, tmp_path):
    registry, _, second = credit

    def run(*words, code=0):
        done = checked("registry", *words, "--registry", registry.path, code=code)
        return done.stdout + done.stderr

    digest = certificate.read(second).sha256
    assert "certificate" in run("revoke", digest[:12], "--reason", "not ours")
    assert "key" in run("revoke", stranger.pub, "--reason", "left the house")
    assert "not ours" in run("show", "--log")
    assert "not ours" in run("promote", "credit@1", "production")
    assert "was revoked" in run("verify", "credit@1", "--key", stranger.pub, code=1)
    for wrong in ("0" * 12, digest[:4], "nobody.pub"):
        assert "is no file" in run("revoke", wrong, "--reason", "x", code=2)
    assert "to nothing" in run("demote", "credit@1", "production", "--reason", "a complaint")
    assert "say why" in run("demote", "credit@1", "production", "--reason", " ", code=2)
