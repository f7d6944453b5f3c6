"""Revocation lists: signed, numbered, never taken back; heeded wherever a certificate counts."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry.errors import CertificateError, RevokedError, VerificationError
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence import dsse, issuing, revocations, revoked
from fairkit_registry.evidence.sequence import SequenceNumber
from fairkit_registry.exchange.archive import export
from fairkit_registry.exchange.importing import import_archive
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.run import evaluate, promote
from fairkit_registry.store import maintenance
from fairkit_registry.store.registry import Registry

NOW = datetime(2026, 1, 10, tzinfo=UTC)
LATER = NOW + timedelta(days=30)


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    """What lists this user has seen: nothing, at the beginning of each test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def entry(kind, sha256, reason="the label was wrong"):
    return revocations.Entry(kind=kind, sha256=sha256, reason=reason, at=NOW)


def listed(by, *entries, previous=None, until=LATER):
    before = None if previous is None else revocations.read(previous, [by.public])
    return revocations.issue(by.secret, entries, previous=before, next_update=until, issued_at=NOW)


def of_certificate(path):
    return entry("certificate", certificates.read(path.read_bytes()).statement_sha256)


def known(raw, trusted, revokers=()):
    return revoked.seen([("list.json", raw)], trusted, revokers)


def test_a_revoked_certificate_model_or_key_counts_no_longer(model, certify, signer):
    path = certify(model())
    found = certificates.read(path.read_bytes())
    for one in (of_certificate(path), entry("model", found.model_sha256), entry("key", signer.public.keyid)):
        lists = revoked.Revocations((revocations.read(listed(signer, one), [signer.public]),))
        with pytest.raises(RevokedError, match=f"the {one.kind} .* was revoked at 2026-01-10.*the label was wrong"):
            certificates.verify(path.read_bytes(), [signer.public], revocations=lists)
    other = revoked.Revocations((revocations.read(listed(signer, entry("model", "0" * 64)), [signer.public]),))
    assert certificates.verify(path.read_bytes(), [signer.public], revocations=other).verified


def test_a_certificate_wrapped_anew_stays_revoked(model, certify, signer):
    path = certify(model())
    raw = listed(signer, of_certificate(path))
    wrapped = json.dumps(json.loads(path.read_bytes()), indent=3).encode()
    assert wrapped != path.read_bytes()
    with pytest.raises(RevokedError):
        certificates.verify(wrapped, [signer.public], revocations=known(raw, [signer.public]))


def test_only_the_signer_and_pinned_revokers_can_revoke(model, certify, signer, stranger):
    both, own = certify(model(), by=[signer.secret, stranger.secret]), certify(model(2.0))
    raw = listed(stranger, of_certificate(both), of_certificate(own), entry("key", signer.public.keyid))
    trusted = [signer.public, stranger.public]
    lists = known(raw, trusted)
    assert certificates.verify(own.read_bytes(), trusted, revocations=lists).keyids == (signer.public.keyid,)
    # of two signatures only the issuer's own falls
    left = certificates.verify(both.read_bytes(), trusted, revocations=lists)
    assert left.keyids == (signer.public.keyid,)
    # a revoker's list counts against everybody's
    pinned = known(raw, [signer.public], [stranger.public])
    for path in (both, own):
        with pytest.raises(RevokedError):
            certificates.verify(path.read_bytes(), [signer.public], revocations=pinned)
    with pytest.raises(VerificationError, match="not signed by a key that you trust"):
        known(raw, [signer.public])


def test_a_list_that_was_seen_is_heeded_ever_after_without_being_named(model, certify, signer):
    path = certify(model())
    assert certificates.verify(path.read_bytes(), [signer.public]).verified
    known(listed(signer, of_certificate(path)), [signer.public])
    with pytest.raises(RevokedError):
        certificates.verify(path.read_bytes(), [signer.public])


def test_an_older_list_another_one_and_one_that_takes_back_are_refused(signer):
    first = listed(signer, entry("model", "1" * 64))
    second = listed(signer, entry("model", "2" * 64), previous=first)
    assert {one.sha256 for one in revocations.read(second, [signer.public]).entries} == {"1" * 64, "2" * 64}
    known(second, [signer.public])
    known(second, [signer.public])
    with pytest.raises(VerificationError, match=r"number 1 .* is older than number 2, which this user has seen"):
        known(first, [signer.public])
    twin = listed(signer, entry("model", "3" * 64), previous=first)
    with pytest.raises(VerificationError, match="two revocation lists with the number 2"):
        known(twin, [signer.public])
    # a thief of the key signs number 3 without the entries
    read = revocations.read(second, [signer.public])
    empty = revocations.issue(signer.secret, [], previous=replace(read, entries=()), next_update=LATER)
    with pytest.raises(VerificationError, match=r"takes back the revocation of model 1{16} in number 2"):
        known(empty, [signer.public])
    # a folder may keep them all: the newest counts
    (newest,) = revoked.seen([("a", second), ("b", first)], [signer.public]).lists
    assert newest.sequence == 2
    with pytest.raises(VerificationError, match="two revocation lists with the number 2"):
        revoked.seen([("a", second), ("b", twin)], [signer.public])


def test_what_is_no_list_is_refused(signer, stranger, model, certify):
    raw = listed(signer, entry("model", "1" * 64))
    assert revocations.read(raw, [signer.public]).sequence == 1
    with pytest.raises(CertificateError, match="is no revocation list"):
        revocations.read(certify(model()).read_bytes(), [signer.public])
    body = json.loads(dsse.Envelope.from_bytes(raw).payload)
    for change in (
        {"sequence": 0},
        {"sequence": True},
        {"sequence": 10**12},
        {"sequence": None},
        {"issuedAt": "yesterday"},
        {"revoked": [{"kind": "soul", "sha256": "1" * 64, "reason": "", "at": "2026-01-01T00:00:00Z"}]},
        {"revoked": [{"kind": "model", "sha256": "1", "reason": "", "at": "2026-01-01T00:00:00Z"}]},
        {"revoked": 3},
    ):
        damaged = body | {"predicate": body["predicate"] | change}
        signed = dsse.sign(json.dumps(damaged).encode(), "application/vnd.in-toto+json", [signer.secret])
        with pytest.raises(CertificateError):
            revocations.read(signed.to_bytes(), [signer.public])
    foreign = body | {"predicate": body["predicate"] | {"issuer": stranger.public.keyid}}
    signed = dsse.sign(json.dumps(foreign).encode(), "application/vnd.in-toto+json", [signer.secret])
    with pytest.raises(VerificationError, match="not signed by the key that it names"):
        revocations.read(signed.to_bytes(), [signer.public, stranger.public])


def texts(decision, kind):
    return " ".join(one.text for one in decision.reasons if one.kind == kind)


def test_promotions_heed_the_registrys_lists(registry, model, certify, signer):
    first = certify(model())
    registry.add("credit", model(), certificates=[first])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    assert evaluate(registry, "credit@1", "production", now=NOW).verdict == "pass"
    raw = listed(signer, of_certificate(first))
    registry.revoke([("list.json", raw)], [signer.public])
    registry.revoke([("list.json", raw)], [signer.public])  # once is enough
    assert [one.action for one in registry.log()].count("revoke") == 1
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "fail"
    assert "was revoked" in texts(decision, "refused")
    # another certificate of the same model counts, until the model itself is revoked
    registry.attach("credit@1", [certify(model(), at=datetime(2026, 1, 9, tzinfo=UTC))])
    assert evaluate(registry, "credit@1", "production", now=NOW).verdict == "pass"
    late = evaluate(registry, "credit@1", "production", now=LATER + timedelta(days=1))
    assert late.verdict == "inconclusive"
    assert "was due for an update" in texts(late, "inconclusive")
    whole = listed(signer, entry("model", registry.version("credit@1").model), previous=raw)
    registry.revoke([("list.json", whole)], [signer.public])
    assert "the model" in texts(evaluate(registry, "credit@1", "production", now=NOW), "refused")
    with pytest.raises(VerificationError, match="is older than number 2, which is in the registry"):
        registry.revoke([("list.json", raw)], [signer.public])


def test_a_lost_key_is_revoked_by_the_revoker_that_the_alias_pins(registry, model, certify, signer, stranger):
    registry.add("credit", model(), certificates=[certify(model())])
    policy = AliasPolicy(keys=(signer.public.pem,))
    registry.set_alias("credit", "production", policy)
    raw = listed(stranger, entry("key", signer.public.keyid, "the laptop was stolen"))
    registry.revoke([("list.json", raw)], [stranger.public])
    assert evaluate(registry, "credit@1", "production", now=NOW).verdict == "pass"  # who is that to say
    registry.set_alias("credit", "production", replace(policy, revokers=(stranger.public.pem,)))
    assert "the laptop was stolen" in texts(evaluate(registry, "credit@1", "production", now=NOW), "refused")


def test_a_damaged_or_missing_list_is_a_refusal_and_gc_keeps_it(registry, model, certify, signer):
    registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    registry.revoke([("list.json", listed(signer, entry("model", "1" * 64)))], [signer.public])
    assert maintenance.gc(registry).files == ()
    assert maintenance.check(registry).problems == ()
    digest = registry.log(limit=1)[0].body["list"]
    registry.blobs.path(digest).unlink()
    decision = evaluate(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "fail"
    assert "what was revoked cannot be told" in texts(decision, "refused")


def test_lists_travel_in_archives_and_count_before_the_versions_arrive(
    registry, model, certify, signer, tmp_path, monkeypatch
):
    path = certify(model())
    registry.add("credit", model(), certificates=[path])
    registry.add("credit", model(2.0), certificates=[certify(model(2.0))])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    registry.revoke([("list.json", listed(signer, of_certificate(path)))], [signer.public])
    export(registry, ["credit@1"], tmp_path / "revoked.tar")
    export(registry, ["credit@2"], tmp_path / "good.tar")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    with Registry(tmp_path / "there", create=True) as there:
        with pytest.raises(RevokedError):
            import_archive(there, tmp_path / "revoked.tar", trusted=[signer.public])
        assert there.models() == []
        import_archive(there, tmp_path / "good.tar", trusted=[signer.public])
        assert set(there.revocations()) == {signer.public.keyid}
        import_archive(there, tmp_path / "good.tar", trusted=[signer.public])  # the same list again
        # without keys nobody vouches for the list; the archive is taken as it is
        import_archive(there, tmp_path / "revoked.tar")


def test_a_revoked_certificate_keeps_its_number(registry, model, certify, signer, make):
    """Aliases that ask for every number look for gaps, and a revocation is none."""
    found = []
    for number in (1, 2):
        previous = found[-1].statement_sha256 if found else None
        raw = issuing.issue(
            make.report(model()),
            [signer.secret],
            settings=make.settings | {"confidence": 0.95, "seed": 0},
            audited_at=NOW + timedelta(seconds=number),
            sequence=[SequenceNumber(keyid=signer.public.keyid, number=number, previous=previous)],
        )
        (registry.path.parent / f"{number}.json").write_bytes(raw)
        found.append(certificates.read(raw))
    files = [registry.path.parent / "1.json", registry.path.parent / "2.json"]
    registry.add("credit", model(), certificates=files)
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,), sequential=True))
    now = NOW + timedelta(minutes=1)
    assert evaluate(registry, "credit@1", "production", now=now).verdict == "pass"
    registry.revoke([("l", listed(signer, entry("certificate", found[0].statement_sha256)))], [signer.public])
    decision = evaluate(registry, "credit@1", "production", now=now)
    assert decision.verdict == "pass", decision.reasons
    assert "was revoked" in texts(decision, "note")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments])


def test_revoke_by_command_and_what_every_command_makes_of_it(run, tmp_path, model, certify, signer, registry):
    first, second = certify(model()), certify(model(), at=datetime(2026, 1, 9, tzinfo=UTC))
    told = ("verify", first, "--key", signer.pub)
    assert run(*told).exit_code == 0
    revoke = ("revoke", "--key", signer.path, "--output", "list.json")
    made = run(*revoke, "--certificate", first, "--reason", "wrong label", "--format", "json")
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout)["sequence"] == 1
    shutil.copy("list.json", "old.json")
    refused = run(*told, "--revocations", "list.json")
    assert refused.exit_code == 1
    assert "was revoked" in refused.stdout
    assert "wrong label" in refused.stdout
    assert run(*told).exit_code == 1  # remembered
    assert run("verify", second, "--key", signer.pub).exit_code == 0
    # renewed with what is new; the older one is refused from then on
    assert run(*revoke, "--model", model(), "--format", "json").exit_code == 0
    older = run("verify", second, "--key", signer.pub, "--revocations", "old.json")
    assert older.exit_code == 1
    assert "is older than number 2" in older.stdout
    assert run("verify", second, "--key", signer.pub).exit_code == 1
    # another output, or an older file in its place, cannot fork the list
    assert json.loads(run(*revoke[:3], "--output", "x.json", "--format", "json").stdout)["sequence"] == 3
    shutil.copy("old.json", "list.json")
    forked = run(*revoke)
    assert forked.exit_code == 2
    assert "is older than number 3" in forked.stderr
    # in a registry
    registry.add("credit", model(), certificates=[second])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    where = ("--registry", registry.path)
    shown = run("registry", "revocations", "x.json", *where)
    assert (shown.exit_code, "number 3" in shown.stdout) == (0, True), shown.stderr
    assert run("registry", "revocations", "old.json", *where).exit_code == 1
    assert run("registry", "promote", "credit@1", "production", *where).exit_code == 1
    assert run("registry", "verify", "credit@1", *where).exit_code == 1
    assert run("registry", "revocations", tmp_path, *where).exit_code == 2  # other files are no lists


def test_a_list_that_is_overdue_leaves_it_undecided(run, model, certify, signer):
    path = certify(model())
    done = run("revoke", "--key", signer.path, "--output", "list.json", "--next-update", "0")
    assert done.exit_code == 0, done.stderr
    undecided = run("verify", path, "--key", signer.pub, "--revocations", "list.json")
    assert undecided.exit_code == 3
    assert "cannot be decided" in undecided.stdout


def test_who_has_seen_nothing_can_ask_for_a_recent_list(run, model, certify, signer, stranger):
    """An older list is shown to somebody without memory: only its age can tell."""
    path = certify(model())
    verify = ("verify", path, "--key", signer.pub, "--max-age", "24h")
    without = run(*verify)
    assert (without.exit_code, "there is no revocation list of key" in without.stdout) == (3, True)
    for days, code in ((0, 0), (-3, 3), (3, 3)):  # of today, old, ahead
        at = datetime.now(UTC) + timedelta(days=days)
        raw = revocations.issue(
            signer.secret, [], previous=None, next_update=datetime(2099, 1, 1, tzinfo=UTC), issued_at=at
        )
        Path("list.json").write_bytes(raw)
        shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)  # no memory
        done = run(*verify, "--revocations", "list.json")
        assert done.exit_code == code, done.stdout
        assert ("one of the last 24 hours is asked for" in done.stdout) == (code == 3)
    revoker = run(*verify, "--revocations", "list.json", "--revoker", stranger.pub)
    assert f"no revocation list of key {stranger.public.keyid[:16]}" in revoker.stdout
    assert run(*verify[:-1], "soon").exit_code == 2


@pytest.fixture
def dated(signer):
    """A list that says since when the signer's key is invalid."""

    def make(since, *, previous=None):
        at = datetime(2026, 6, 1, tzinfo=UTC)
        entry = revocations.Entry(kind="key", sha256=signer.public.keyid, reason="stolen", at=at, invalid_since=since)
        raw = revocations.issue(signer.secret, [entry], previous=previous, next_update=datetime(2036, 1, 1, tzinfo=UTC))
        return revocations.read(raw, [signer.public])

    return make


def test_a_stolen_keys_older_signatures_count_where_their_time_is_proven(dated, signer):
    keyid, since = signer.public.keyid, datetime(2026, 3, 1, tzinfo=UTC)
    known = revoked.Revocations((dated(since),))
    what = {"statement_sha256": "a" * 64, "model_sha256": None}
    before, after = since - timedelta(days=1), since + timedelta(days=1)
    assert known.standing([keyid], proven={keyid: before}, **what) == (keyid,)
    for proven in ({keyid: after}, {keyid: since}, {}, None):
        with pytest.raises(RevokedError, match=r"stolen; what it signed before 2026-03-01T00:00:00Z counts"):
            known.standing([keyid], proven=proven, **what)
    # a certificate that is revoked by itself is spared by no timestamp
    own = revocations.Entry(kind="certificate", sha256="a" * 64, reason="wrong", at=since)
    raw = revocations.issue(signer.secret, [own], previous=dated(since), next_update=datetime(2036, 1, 1, tzinfo=UTC))
    both = revoked.Revocations((revocations.read(raw, [signer.public]),))
    with pytest.raises(RevokedError, match="wrong"):
        both.standing([keyid], proven={keyid: before}, **what)


def test_the_time_may_become_earlier_and_never_later(dated):
    since = datetime(2026, 3, 1, tzinfo=UTC)
    first = dated(since)
    assert dated(since - timedelta(days=9), previous=first).entries[0].invalid_since < since
    assert dated(None, previous=first).entries[0].invalid_since is None
    for milder in (since + timedelta(days=9),):
        assert dated(milder, previous=first).entries[0].invalid_since == since
    # a thief who writes the list by hand
    from dataclasses import replace

    entry = replace(first.entries[0], invalid_since=since + timedelta(days=9))
    thief = replace(first, sequence=2, sha256="0" * 64, entries=(entry,))
    with pytest.raises(VerificationError, match="is invalid since a later time"):
        thief.check_follows(first, "was seen")


def test_only_a_key_is_invalid_since_a_time(tmp_path, signer):
    record = {"kind": "model", "sha256": "a" * 64, "reason": "", "at": "2026-01-01T00:00:00Z"}
    with pytest.raises(ValueError, match="only a key"):
        revocations.Entry.from_dict(record | {"invalidSince": "2026-01-01T00:00:00Z"})
    command = ["revoke", "--key", signer.path, "--output", tmp_path / "l.json", "--invalid-since"]
    for wrong in (
        ("2026-01-01T00:00Z",),
        ("yesterday", "--public-key", signer.pub),
        ("2026-01-01", "--public-key", signer.pub),
    ):
        assert CliRunner().invoke(app, [str(one) for one in (*command, *wrong)]).exit_code == 2
        assert not (tmp_path / "l.json").exists()
