"""Evidence of absence: a bad certificate that is left out leaves a gap; tables are vouched for by a key."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from fairkit_registry.errors import CertificateError, RegistryError, VerificationError
from fairkit_registry.evidence import certificate, issuing, tables
from fairkit_registry.evidence.certifying import check_table
from fairkit_registry.evidence.dsse import statement_sha256
from fairkit_registry.evidence.sequence import SequenceFolder, SequenceNumber
from fairkit_registry.evidence.signers import load_secret, new_key_pair
from fairkit_registry.exchange.describe import card
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.run import evaluate, promote
from fairkit_registry.store import maintenance
from fairkit_registry.store.registry import Registry

NOW = datetime(2026, 1, 10, tzinfo=UTC)


@pytest.fixture
def policy(signer):
    return AliasPolicy(keys=(signer.public.pem,), sequential=True)


def texts(decision, kind="refused"):
    return [reason.text for reason in decision.reasons if reason.kind == kind]


@pytest.fixture
def numbered(tmp_path, signer, make):
    """Sign as `fairkit certify` does: with the next number of the key, a copy of which is kept."""
    folder = SequenceFolder(tmp_path / "sequence")
    made = []

    def sign(model, *, by=signer, places=None, **changes):
        with folder.next([by.public.keyid]) as following:
            raw = issuing.issue(
                make.report(model, **changes),
                [by.secret],
                settings=make.settings,
                audited_at=NOW - timedelta(days=5) + timedelta(hours=len(made)),
                sequence=following.places if places is None else places,
            )
            if places is None:
                following.keep(raw)
        path = tmp_path / f"numbered-{len(made)}.json"
        path.write_bytes(raw)
        made.append(path)
        return path

    sign.folder = folder
    return sign


def test_each_certificate_of_a_key_names_its_number_and_the_one_before(numbered, model, signer):
    paths = [numbered(model()) for _ in range(3)]
    found = [certificate.verify(path.read_bytes(), [signer.public]) for path in paths]
    assert [one.sequence[0].number for one in found] == [1, 2, 3]
    statements = [one.statement_sha256 for one in found]
    assert [one.sequence[0].previous for one in found] == [None, *statements[:2]]
    kept = numbered.folder.root / signer.public.keyid / "00000002.json"
    assert kept.read_bytes() == paths[1].read_bytes()


def test_a_bad_certificate_that_is_not_attached_leaves_a_gap(registry, model, numbered, policy, make):
    good = numbered(model())
    bad = numbered(model(), findings=[make.finding("demographic_parity_difference", 0.4)], verdict="fail")
    lenient = numbered(model())
    registry.add("credit", model(), certificates=[good, lenient])
    registry.set_alias("credit", "production", policy)
    refused = texts(promote(registry, "credit@1", "production", now=NOW))
    assert len(refused) == 1
    assert "certificates number 2 of key" in refused[0]
    registry.attach("credit@1", [bad])
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_a_certificate_about_another_model_fills_its_place(registry, model, numbered, policy):
    first, second = numbered(model(1)), numbered(model(2))
    registry.add("other", model(1), certificates=[first])
    registry.add("credit", model(2), certificates=[second])
    registry.set_alias("credit", "production", policy)
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_a_certificate_without_a_number_or_with_a_strangers_is_refused(
    registry, model, certify, numbered, policy, signer, stranger
):
    registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", policy)
    assert "has no number of its key" in texts(promote(registry, "credit@1", "production", now=NOW))[0]
    alien = numbered(model(2), places=[SequenceNumber(keyid=stranger.public.keyid, number=1, previous=None)])
    registry.add("credit", model(2), certificates=[alien])
    assert "has no number of its key" in texts(promote(registry, "credit@2", "production", now=NOW))[0]


def test_a_number_of_any_size_is_no_long_work(registry, model, numbered, policy, signer):
    huge = numbered(model(), places=[SequenceNumber(keyid=signer.public.keyid, number=10**300, previous=None)])
    registry.add("credit", model(), certificates=[huge])
    registry.set_alias("credit", "production", policy)
    refused = texts(promote(registry, "credit@1", "production", now=NOW))[0]
    assert "certificates number 1, 2, 3, 4, 5, 6, 7, 8 and 99999" in refused


def test_two_certificates_with_one_number_or_a_broken_chain_are_refused(registry, model, numbered, policy, signer):
    keyid = signer.public.keyid
    first = numbered(model())
    twin = numbered(model(), places=[SequenceNumber(keyid=keyid, number=1, previous=None)])
    registry.add("credit", model(), certificates=[first, twin])
    registry.set_alias("credit", "production", policy)
    assert "has signed 2 certificates with the number 1" in "".join(
        texts(promote(registry, "credit@1", "production", now=NOW))
    )
    after = numbered(model(2), places=[SequenceNumber(keyid=keyid, number=2, previous="a" * 64)])
    registry.add("fresh", model(2), certificates=[after])
    registry.set_alias("fresh", "production", policy)
    assert "does not follow number 1" in "".join(texts(evaluate(registry, "fresh@1", "production", now=NOW)))


def test_the_file_added_again_does_not_leave_its_bad_certificate_behind(registry, model, numbered, policy, make):
    good = numbered(model())
    bad = numbered(model(), findings=[make.finding("demographic_parity_difference", 0.4)], verdict="fail")
    registry.add("credit", model(), certificates=[good, bad])
    registry.add("credit", model(), certificates=[good])
    registry.add("laundered", model(), certificates=[good])
    plain = replace(policy, sequential=False)
    for name in ("credit", "laundered"):
        registry.set_alias(name, "production", plain)
    for reference in ("credit@1", "credit@2", "laundered@1"):
        decision = promote(registry, reference, "production", now=NOW)
        assert "failed its policy" in texts(decision)[0], reference


def enveloped(number):
    payload = base64.b64encode(str(number).encode()).decode()
    return json.dumps({"payload": payload, "payloadType": "t", "signatures": [{"sig": ""}]}).encode()


def test_numbers_are_given_once_also_at_the_same_time(tmp_path):
    folder = SequenceFolder(tmp_path / "s")
    key = "a" * 64

    def take():
        for _ in range(10):
            with folder.next([key]) as following:
                following.keep(enveloped(following.places[0].number))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = sorted((tmp_path / "s" / key).glob("*.json"))
    assert [file.read_bytes() for file in files] == [enveloped(number) for number in range(1, 41)]
    with folder.next([key]) as following:
        assert following.places[0].previous == statement_sha256(enveloped(40))


def test_a_number_that_was_not_used_is_given_again(tmp_path):
    folder = SequenceFolder(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt), folder.next(["a" * 64]):
        raise KeyboardInterrupt
    with folder.next(["a" * 64]) as following:
        assert following.places[0].number == 1


def test_a_sequence_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryError, match="cannot be numbered"), SequenceFolder(tmp_path / "file").next(["a" * 64]):
        pass


# ---- signed tables


def statement(signer, digest, **changes):
    given = {"name": "people.csv", "sha256": digest, "rows": 103, "columns": ["sex", "paid"]} | changes
    return tables.sign_table(
        given["name"], given["sha256"], given["rows"], given["columns"], [signer.secret], purpose="test rows"
    )


def test_an_alias_asks_for_a_table_that_a_key_has_signed(model, signer, stranger, make, tmp_path):
    def certified(*statements):
        raw = issuing.issue(
            make.report(model()), [signer.secret], settings=make.settings, audited_at=NOW, table_statements=statements
        )
        path = tmp_path / f"c-{hashlib.sha256(raw).hexdigest()[:8]}.json"
        path.write_bytes(raw)
        return path

    asks = AliasPolicy(keys=(signer.public.pem,), data_keys=(stranger.public.pem,))
    cases = {
        "none": (certified(), "fail"),
        "by the certifier itself": (certified(statement(signer, make.data)), "fail"),
        "about another table": (certified(statement(stranger, "e" * 64)), "fail"),
        "right": (certified(statement(signer, make.data), statement(stranger, make.data)), "pass"),
    }
    for name, (path, verdict) in cases.items():
        with Registry(tmp_path / f"only {name}", create=True) as alone:
            alone.add("credit", model(), certificates=[path])
            alone.set_alias("credit", "production", asks)
            decision = promote(alone, "credit@1", "production", now=NOW)
            assert decision.verdict == verdict, name
            if verdict == "fail":
                assert "that one of its keys for tables has signed" in texts(decision)[0]
            else:
                assert "the table people.csv is signed by key" in "".join(texts(decision, "note"))
                assert "rows were the signer's choice" not in "".join(texts(decision, "note"))


def test_a_statement_about_another_table_is_not_put_into_a_certificate(signer, make):
    raw = statement(signer, "e" * 64)
    with pytest.raises(CertificateError, match="about another table, or the table was changed"):
        check_table(raw, make.data)
    check_table(raw, "e" * 64)
    with pytest.raises(VerificationError, match="about another table"):
        tables.verify_statement(raw, [signer.public], data_sha256=make.data)


def test_a_certificate_is_no_statement_about_a_table_nor_the_other_way_round(model, certify, signer, make):
    with pytest.raises(CertificateError, match="no statement about a table"):
        tables.read_statement(certify(model()).read_bytes())
    with pytest.raises(CertificateError, match="not a fairness certificate"):
        certificate.verify(statement(signer, make.data), [signer.public])


@pytest.mark.parametrize("changes", [{"rows": -1}, {"rows": True}, {"columns": [3]}, {"name": None}])
def test_a_statement_of_another_form_is_refused(signer, make, changes):
    with pytest.raises(CertificateError, match="no statement about a table"):
        tables.read_statement(statement(signer, make.data, **changes))


def copies_of(raw):
    """The same statement in other envelopes, as a stranger without a key can make them."""
    record = json.loads(raw)
    (signature,) = record["signatures"]
    renamed = record | {"signatures": [signature | {"keyid": "somebody else"}]}
    doubled = record | {"signatures": [signature, signature | {"keyid": "twice"}]}
    found = [renamed, doubled]
    der = base64.b64decode(signature["sig"])
    if der[0] == 0x30 and len(der) > 64:  # ECDSA: (r, n - s) holds where (r, s) does
        r, s = decode_dss_signature(der)
        order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
        mirrored = base64.b64encode(encode_dss_signature(r, order - s)).decode()
        found.append(record | {"signatures": [signature | {"sig": mirrored}]})
    return [json.dumps(one).encode() for one in found]


@pytest.mark.parametrize("kind", ["ed25519", "p256"])
def test_copies_of_a_certificate_are_one_certificate(registry, model, numbered, kind, tmp_path, signer):
    """A stranger attaches copies: the sequence has no doubled number, and machines are not counted twice."""
    by = signer
    if kind == "p256":
        public = new_key_pair(tmp_path / "p256", kind="p256")
        by = SimpleNamespace(public=public, secret=load_secret(tmp_path / "p256"))
    first, second = numbered(model(), by=by), numbered(model(), by=by)
    registry.add("credit", model(), certificates=[first, second])
    registry.set_alias("credit", "production", AliasPolicy(keys=(by.public.pem,), sequential=True))
    for number, raw in enumerate(copy for path in (first, second) for copy in copies_of(path.read_bytes())):
        path = tmp_path / f"copy-{number}.json"
        path.write_bytes(raw)
        registry.attach("credit@1", [path])
    assert len(registry.version("credit@1").certificates) == (8 if kind == "p256" else 6)
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "pass", texts(decision)
    assert len(card(registry, registry.version("credit@1")).certificates) == 2
    registry.set_alias("credit", "production", AliasPolicy(keys=(by.public.pem,), machines=2))
    assert "there are 0" in "".join(texts(evaluate(registry, "credit@1", "production", now=NOW)))


def test_what_was_attached_in_error_is_taken_off_with_a_line_in_the_log(
    registry, model, numbered, policy, certify, stranger, tmp_path
):
    strange = certify(model(), by=[stranger.secret])
    registry.add("credit", model(), certificates=[numbered(model()), strange])
    registry.set_alias("credit", "production", policy)
    digest = hashlib.sha256(strange.read_bytes()).hexdigest()
    with pytest.raises(RegistryError, match="no certificates 'abc'"):
        registry.detach("credit@1", "abc", "why")
    with pytest.raises(RegistryError, match="say why"):
        registry.detach("credit@1", digest, " ")
    version, taken = registry.detach("credit@1", digest[:12], "a stranger's")
    assert taken == digest
    assert digest not in version.certificates
    event = registry.log("credit", limit=1)[0]
    assert (event.action, event.body["reason"]) == ("detach", "a stranger's")
    assert registry.detached() == (digest,)
    assert maintenance.check(registry).problems == ()
    maintenance.gc(registry)
    assert registry.certificate(digest) == strange.read_bytes()  # what the log knows stays
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"
    registry.attach("credit@1", [strange])
    assert registry.detached() == ()


def test_a_bad_certificate_by_a_trusted_key_counts_though_it_was_detached(registry, model, numbered, policy, make):
    good = numbered(model())
    bad = numbered(model(), findings=[make.finding("demographic_parity_difference", 0.4)], verdict="fail")
    registry.add("credit", model(), certificates=[good, bad])
    registry.add("again", model(), certificates=[good])
    digest = hashlib.sha256(bad.read_bytes()).hexdigest()
    registry.detach("credit@1", digest, "it is bad")
    for name in ("credit", "again"):
        registry.set_alias(name, "production", policy)
        decision = promote(registry, f"{name}@1", "production", now=NOW)
        assert "failed its policy" in "".join(texts(decision))
        assert "goes on counting" in "".join(texts(decision, "note"))
    registry.blobs.path(digest).unlink()
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "fail"
