"""Policy locks: the question is fixed before the answer, and whoever turns the two round is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.commands import checked, invoke

from fairkit.results.rules import Rule
from fairkit_registry.errors import CertificateError, ContradictionError, VerificationError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import recompute as certifying
from fairkit_registry.evidence import signed as statements
from fairkit_registry.evidence.signed import PolicyLock
from fairkit_registry.promotion.run import evaluate, promote
from fairkit_registry.store.index import AliasPolicy

LOCKED = datetime(2026, 1, 1, tzinfo=UTC)
AUDITED = datetime(2026, 1, 2, tzinfo=UTC)
RULE = Rule(metric="demographic_parity_difference", sensitive="sex", max=0.1).to_dict()


@pytest.fixture
def story(registry, model, make, signer, tmp_path):
    """What happens in order: lock, register, add, certify; each step can be left out or changed."""

    class Story:
        settings = make.settings | {"policy": [RULE]}

        def lock(self, *, by=signer.secret, data=make.data, at=LOCKED, salt=None, **changes):
            told = self.settings | changes
            return statements.sign_lock("people.csv", data, 100, told, [by], locked_at=at, salt=salt)

        def add(self, factor=1.0):
            registry.add("credit", model(factor))
            policy = AliasPolicy(keys=(signer.public.pem,), locked=True)
            registry.set_alias("credit", "production", policy)

        def certify(self, raw, factor=1.0, *, version=1, at=AUDITED, salt=None, **changes):
            signed = certifying.issue(
                make.report(model(factor)),
                [signer.secret],
                settings=self.settings | changes,
                audited_at=at,
                policy_lock=raw,
                lock_salt=salt,
            )
            path = tmp_path / f"c{version}.json"
            path.write_bytes(signed)
            registry.attach(f"credit@{version}", [path])
            return signed

        def refused(self, version=1):
            decision = evaluate(registry, f"credit@{version}", "production", now=AUDITED)
            return " ".join(one.text for one in decision.reasons if one.kind != "note")

        def notes(self, version=1):
            decision = evaluate(registry, f"credit@{version}", "production", now=AUDITED)
            return " ".join(one.text for one in decision.reasons if one.kind == "note")

    return Story()


def test_a_lock_that_came_first_is_promoted(story, registry, signer):
    raw = story.lock()
    registry.lock("credit", raw, [signer.public])
    story.add()
    story.certify(raw)
    assert promote(registry, "credit@1", "production", now=AUDITED).verdict == "pass"
    assert "registered as event 1, before the model (event 2)" in story.notes()
    registry.lock("credit", raw, [signer.public])
    assert [one.action for one in registry.log()].count("lock") == 1


def test_without_a_lock_there_is_no_promotion(story, registry):
    story.add()
    story.certify(None)
    assert "refers to none" in story.refused()


def test_a_lock_that_is_not_registered_shows_nothing(story):
    story.add()
    story.certify(story.lock())
    assert "is not registered for credit" in story.refused()


def test_a_lock_made_after_the_model_is_refused(story, registry, signer):
    story.add()
    raw = story.lock()  # it says that it is older: nobody believes it
    registry.lock("credit", raw, [signer.public])
    story.certify(raw)
    assert "was registered (event 3) after the model came (event 1)" in story.refused()
    # the same file again, as a new version, is no new model
    registry.add("credit", registry.model_path(registry.version("credit@1")))
    assert "after the model came (event 1)" in story.refused(2)


def test_another_policy_than_the_locked_one_is_refused(story, registry, signer):
    raw = story.lock(policy=[RULE | {"max": 0.01}])
    registry.lock("credit", raw, [signer.public])
    story.add()
    signed = story.certify(raw)
    with pytest.raises(ContradictionError, match="its policy is another one"):
        certificate.verify(signed, [signer.public])
    assert "its policy is another one" in story.refused()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 7}, "its setting seed is another one"),
        ({"model": {"threshold": 0.9}}, "its setting model is another one"),
    ],
)
def test_another_setting_than_the_locked_one_is_refused(story, signer, change, said):
    story.add()
    signed = story.certify(story.lock(**change))
    with pytest.raises(ContradictionError, match=said):
        certificate.verify(signed, [signer.public])


def test_another_table_than_the_locked_one_is_refused(story, registry, signer):
    raw = story.lock(data="e" * 64)
    registry.lock("credit", raw, [signer.public])
    story.add()
    signed = story.certify(raw)
    with pytest.raises(ContradictionError, match="about another table"):
        certificate.verify(signed, [signer.public])
    assert "about another table" in story.refused()


def test_an_audit_before_its_lock_is_refused(story, signer):
    story.add()
    signed = story.certify(story.lock(at=AUDITED + timedelta(days=1)))
    with pytest.raises(ContradictionError, match="after the audit"):
        certificate.verify(signed, [signer.public])


def test_a_strangers_lock_is_refused(story, registry, signer, stranger):
    raw = story.lock(by=stranger.secret)
    with pytest.raises(VerificationError, match="a key that you trust"):
        registry.lock("credit", raw, [signer.public])
    registry.lock("credit", raw)
    story.add()
    story.certify(raw)
    assert "not signed by a key that you trust" in story.refused()


def test_of_many_locks_nobody_picks(story, registry, signer):
    """Twenty locks before the model, and the one that suits it: only the newest counts."""
    easy = story.lock()
    registry.lock("credit", easy)
    registry.lock("credit", story.lock(policy=[RULE | {"max": 0.01}]))
    story.add()
    story.certify(easy)
    assert "another policy lock was registered for credit later (event 2)" in story.refused()


def test_a_lock_of_another_model_shows_nothing(story, registry):
    raw = story.lock()
    registry.lock("other", raw)
    story.add()
    story.certify(raw)
    assert "is not registered for credit" in story.refused()


def test_a_revoked_key_locks_nothing(story, registry, signer, stranger):
    raw = story.lock()
    registry.lock("credit", raw)
    story.add()
    story.certify(raw)
    registry.revoke("key", signer.public.keyid, "stolen")
    assert "stolen" in story.refused()


def test_a_registry_with_locks_is_checked_and_replayed(story, registry):
    from fairkit_registry.store.registry import check, gc

    registry.lock("credit", story.lock())
    story.add()
    assert check(registry).problems == ()
    assert gc(registry).files == ()


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"payload":"","payloadType":"x","signatures":[{"sig":""}]}', b"\xff"])
def test_what_is_no_lock_is_one_message(raw):
    with pytest.raises(CertificateError):
        PolicyLock.read(raw)


def test_the_commands_lock_certify_and_promote(loans_model, signer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("FAIRKIT_REGISTRY", str(tmp_path / "registry"))

    roles = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")
    rule = ("--max", "demographic_parity_difference:sex=0.9")
    lock = ("policy", "lock", "--data", loans_model.data, *roles, "--key", signer.path, "--output", "lock.json")
    checked(*lock, "--data-salted", "salt", code=2)  # nothing that a model could fail
    assert not Path("lock.json").exists()
    checked(*lock, *rule, "--purpose", "the yearly audit")
    checked("registry", "add", "credit", signer.pub, code=2)
    checked("registry", "add", "credit", "lock.json", "--notes", "x", code=2)
    checked("registry", "add", "credit", "lock.json")
    checked("registry", "add", "credit", loans_model.path)
    certify = ("certify", "credit@1", "--lock", "lock.json", "--key", signer.path, "--output", "c.json")
    for wrong in ((), ("--data", loans_model.data, *rule), ("--data", loans_model.data, "--set", "audit.seed=3")):
        checked(*certify, *wrong, code=2)
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(loans_model.data).slice(0, 500), "other.parquet")
    other = checked(*certify, "--data", "other.parquet", code=2)
    assert "not the table that was locked" in " ".join(other.stderr.split())
    assert not Path("c.json").exists()
    checked(*certify, "--data", loans_model.data)
    shown = checked("verify", "c.json", "--key", signer.pub, "--model", loans_model.path)
    assert "by the policy lock" in shown.stdout
    checked("registry", "add", "credit@1", "--certificate", "c.json")
    Path("alias.toml").write_text(f'keys = ["{signer.pub}"]\nlocked = true\n')
    checked("registry", "alias", "credit", "production", "--policy", "alias.toml", *rule)
    checked("registry", "alias", "credit", "production", "--data", loans_model.data)
    done = checked("registry", "promote", "credit@1", "production", "--format", "json")
    assert any("were locked at" in one["text"] for one in json.loads(done.stdout)["reasons"])
    assert "lock" in invoke("registry", "show", "--log").stdout


SALT = "5a" * 32


def test_rows_that_were_sealed_by_their_owner_before_the_model_came_are_promoted(story, registry, signer, stranger):
    """The owner of the rows is another person than the certifier; the lock names no table."""
    raw = story.lock(by=stranger.secret, salt=SALT)
    found = PolicyLock.read(raw)
    assert found.sealed
    assert found.data_sha256 == statements.sealed("d" * 64, SALT) != "d" * 64
    registry.lock("credit", raw, [stranger.public])
    story.add()
    asked = AliasPolicy(keys=(signer.public.pem,), unseen=True, data_keys=(stranger.public.pem,))
    registry.set_alias("credit", "production", asked)
    story.certify(raw, salt=SALT)
    assert story.refused() == ""
    assert "before the model (event 2)" in story.notes()


@pytest.mark.parametrize(("salt", "said"), [(None, "has no salt that opens it"), ("11" * 32, "about another table")])
def test_another_salt_or_none_opens_no_lock(story, signer, salt, said):
    story.add()
    signed = story.certify(story.lock(salt=SALT), salt=salt)
    with pytest.raises(ContradictionError, match=said):
        certificate.verify(signed, [signer.public])


def test_rows_that_were_not_sealed_or_by_the_certifier_are_refused(story, registry, signer, stranger):
    plain, own = story.lock(by=stranger.secret), story.lock(salt=SALT)
    registry.lock("credit", plain)
    registry.lock("credit", own)
    story.add()
    keys = (stranger.public.pem, signer.public.pem)
    registry.set_alias("credit", "production", AliasPolicy(keys=keys[1:], unseen=True, data_keys=keys))
    story.certify(plain)
    assert "it names its table" in story.refused()
    story.certify(own, version=1, at=AUDITED + timedelta(minutes=1), salt=SALT)
    assert "has sealed the rows and signed the certificate" in story.refused()
    registry.set_alias("credit", "production", AliasPolicy(keys=keys[1:], unseen=True))
    assert "names no key of the rows' owner" in story.refused()


@pytest.mark.parametrize(
    "data",
    [
        {"sensitive": None}, {"sensitive": 1.5}, {"sensitive": [1.5]}, {"features": 2.0}, {"drop": [None]},
        {"label": 1.5}, {"weights": ["w"]}, {"missing": 0.5},
    ],
)  # fmt: skip
def test_a_lock_with_roles_of_another_kind_is_one_message(story, data):
    story.settings = story.settings | {"data": story.settings["data"] | data}
    with pytest.raises(CertificateError, match="settings of the audit"):
        story.lock()
