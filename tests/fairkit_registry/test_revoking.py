"""What a registry has revoked: an event of the log that every promotion reads, and says."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from tests.commands import checked

from fairkit_registry.errors import RegistryError, RevokedError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.promotion.run import evaluate
from fairkit_registry.store import tables as events
from fairkit_registry.store.index import AliasPolicy
from fairkit_registry.store.registry import check

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


def test_by_command(credit, signer, stranger, tmp_path):
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
