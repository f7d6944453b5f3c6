"""Certificates: what they hold, and those that earlier versions wrote."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry as ReferencedSchemas
from referencing import Resource

from fairkit.results.report import ModelInfo, Report, report_schema
from fairkit.results.rules import Rule
from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import certificate, predicate
from fairkit_registry.evidence import recompute as certifying
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence.recompute import compare_reports, recompute
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.signed import PAYLOAD_TYPE, PolicyLock, SignedTable
from fairkit_registry.evidence.signers import load_public
from fairkit_registry.jsonio import canonical


def tampered(raw: bytes, change, *, checksums: bool = False) -> bytes:
    """Change the statement (and envelope) as a forger would, who cannot sign."""
    envelope = json.loads(raw)
    statement = json.loads(base64.b64decode(envelope["payload"]))
    change(envelope, statement)
    if checksums:
        statement["predicate"]["checksums"] = predicate.checksums(statement["predicate"])
    if envelope["payload"] == json.loads(raw)["payload"]:
        envelope["payload"] = base64.b64encode(canonical(statement)).decode()
    return json.dumps(envelope).encode()


def test_what_was_signed_comes_back(model, certify, signer, make):
    file = model()
    raw = certify(file, mitigation={"plugin": "x", "parameters": {"a": 1}, "base": None}).read_bytes()
    found = certificate.verify(raw, [signer.public], model_sha256=make.report(file).model.sha256)
    expected = make.report(file)
    assert found.report.to_dict() == expected.to_dict()
    assert found.verified
    assert found.keyids == (signer.public.keyid,)
    assert found.mitigation == {"plugin": "x", "parameters": {"a": 1}, "base": None}
    assert found.audited_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert not certificate.read(raw).verified


def test_the_same_audit_gives_the_same_bytes(model, certify):
    assert certify(model()).read_bytes() == certify(model()).read_bytes()


def test_the_statement_has_the_published_form(model, certify):
    envelope = json.loads(certify(model()).read_bytes())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == predicate.TYPE
    assert statement["subject"][0]["digest"]["sha256"] == statement["predicate"]["model"]["sha256"]
    assert statement["predicate"]["schema"] == "fairkit.report/1"
    Draft202012Validator.check_schema(predicate.schema())
    known = ReferencedSchemas().with_resource(report_schema()["$id"], Resource.from_contents(report_schema()))
    Draft202012Validator(predicate.schema(), registry=known).validate(statement)


def edit_finding(envelope, statement):
    statement["predicate"]["findings"][0]["value"] = 0.001


def drop_finding(envelope, statement):
    statement["predicate"]["findings"].clear()


def edit_verdict(envelope, statement):
    statement["predicate"]["verdict"] = "inconclusive"


def edit_subject(envelope, statement):
    statement["subject"][0]["digest"]["sha256"] = "0" * 64


def edit_type(envelope, statement):
    envelope["payloadType"] = "application/json"


def edit_signature(envelope, statement):
    sig = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    sig[5] ^= 1
    envelope["signatures"][0]["sig"] = base64.b64encode(bytes(sig)).decode()


def cut_payload(envelope, statement):
    envelope["payload"] = envelope["payload"][:-8]


def break_payload(envelope, statement):
    envelope["payload"] = "!" + envelope["payload"][1:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit_finding, "the finding group/demographic_parity_difference/sex was changed after it was signed"),
        (drop_finding, "findings were added or removed after it was signed"),
        (edit_verdict, "the statement was changed after it was signed"),
        (edit_subject, "the statement was changed after it was signed"),
        (edit_type, "payload type is 'application/json'"),
        (edit_signature, "the signature does not hold: it was changed"),
        (cut_payload, "the payload was changed after it was signed"),
        (break_payload, "payload is not base64"),
    ],
)
def test_each_kind_of_tampering_is_refused_with_its_own_message(model, certify, signer, change, message):
    raw = tampered(certify(model()).read_bytes(), change)
    with pytest.raises(CertificateError, match=message):
        certificate.verify(raw, [signer.public])


def test_a_forger_who_mends_the_checksums_is_refused_too(model, certify, signer):
    raw = tampered(certify(model()).read_bytes(), edit_finding, checksums=True)
    with pytest.raises(VerificationError, match="the signature does not hold"):
        certificate.verify(raw, [signer.public])


def test_every_single_bit_of_the_payload_and_the_signature_counts(model, certify, signer):
    envelope = dsse.Envelope.from_bytes(certify(model()).read_bytes())
    for place in range(0, len(envelope.payload), 37):
        changed = bytearray(envelope.payload)
        changed[place] ^= 1 << (place % 8)
        bad = dsse.Envelope(payload=bytes(changed), payload_type=envelope.payload_type, signatures=envelope.signatures)
        with pytest.raises(CertificateError):
            certificate.verify(bad.to_bytes(), [signer.public])


@pytest.fixture
def whole(model, certify, signer):
    """A certificate's bytes, and its report."""
    raw = certify(model()).read_bytes()
    return raw, certificate.verify(raw, [signer.public]).report


@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_damaged_never_says_anything_new(whole, signer, data):
    raw, original = bytearray(whole[0]), whole[1]
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = certificate.verify(bytes(raw), [signer.public])
    except CertificateError:
        return
    assert found.report == original  # a space was changed, or the key id, which is only a hint


@pytest.mark.long
def test_securesystemslib_verifies_a_certificate(model, certify, signer):
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    envelope = Envelope.from_dict(json.loads(certify(model()).read_bytes()))
    key = SSlibKey.from_crypto(signer.public.key, keyid=signer.public.keyid)
    assert signer.public.keyid in envelope.verify([key], 1)
    assert json.loads(envelope.payload)["predicate"]["verdict"] == "pass"


def test_another_model_and_other_data_are_told_apart(model, certify, signer):
    raw = certify(model()).read_bytes()
    with pytest.raises(VerificationError, match="about another model"):
        certificate.verify(raw, [signer.public], model_sha256="0" * 64)
    with pytest.raises(VerificationError, match="about other data"):
        certificate.verify(raw, [signer.public], data_sha256="0" * 64)


def test_a_key_that_comes_along_is_never_trusted(model, certify, signer, stranger):
    raw = certify(model(), by=[stranger.secret]).read_bytes()
    with pytest.raises(VerificationError, match="not signed by a key that you trust"):
        certificate.verify(raw, [signer.public])

    def bring_key(envelope, statement):
        envelope["publicKey"] = envelope["signatures"][0]["cert"] = stranger.public.pem
        envelope["signatures"][0]["keyid"] = signer.public.keyid

    with pytest.raises(VerificationError, match="does not hold: it was changed, or it was not made by the key"):
        certificate.verify(tampered(raw, bring_key), [signer.public])
    with pytest.raises(CertificateError, match="--key"):
        certificate.verify(raw, [])


def sign_statement(statement: dict, signer) -> bytes:
    return dsse.sign(canonical(statement), PAYLOAD_TYPE, [signer.secret]).to_bytes()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("_type",), "https://in-toto.io/Statement/v0.1"),
        (("predicateType",), "https://slsa.dev/provenance/v1"),
        (("subject",), []),
        (("subject",), [{"name": "a"}]),
        (("predicate",), 3),
        (("predicate", "settings"), None),
        (("predicate", "auditedAt"), "yesterday"),
        (("predicate", "auditedAt"), "2026-01-01T00:00:00"),
        (("predicate", "findings"), [{}]),
        (("predicate", "findings", 0, "value"), "0.1"),
        (("predicate", "findings", 0, "evidence"), {"rows": [{"age": "39"}]}),
        (("predicate", "model", "sha256"), "e" * 64),
        (("predicate", "schema"), "fairkit.report/2"),
    ],
)
def test_a_signed_statement_of_another_form_is_refused(model, certify, signer, path, value):
    envelope = dsse.Envelope.from_bytes(certify(model()).read_bytes())
    statement = json.loads(envelope.payload)
    place = statement
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(CertificateError):
        certificate.verify(sign_statement(statement, signer), [signer.public])


ODD = (None, True, 0, -1, 1.5, 1e308, "", "x", "a" * 64, [], [1], ["x"], {}, {"a": 1}, [None], [[1, 2]], [{"from": 1}])


def places(value, path=()):
    """Name every place inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from places(inner, (*path, key))


@pytest.fixture
def signed_audit(model, certify):
    """The envelope of a certificate with settings and a mitigation."""
    told = SignedSettings(data={"label": "y"}, policy=(Rule.from_dict({"metric": "m", "max": 1.0}),)).to_dict()
    path = certify(model(), settings=told, mitigation={"plugin": "p", "parameters": {}, "base": None})
    return dsse.Envelope.from_bytes(path.read_bytes())


@pytest.mark.long
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_statement_of_any_form_is_refused_or_can_be_shown(signed_audit, make, data):
    """What is taken into a registry can be shown, compared and turned into cards, whoever made it."""
    import fairkit_cards as bom
    from fairkit.exporters import Card
    from fairkit_cards import markdown
    from fairkit_cli.text.registry import certificate as describe
    from fairkit_registry.evidence import recompute
    from fairkit_registry.exchange.describe import certified
    from fairkit_registry.promotion import case as compare

    statement = json.loads(signed_audit.payload)
    *before, last = data.draw(st.sampled_from(list(places(statement))))
    place = statement
    for key in before:
        place = place[key]
    if data.draw(st.booleans()) and isinstance(place, dict):
        del place[last]
    else:
        place[last] = data.draw(st.sampled_from(ODD))
    raw = replace(signed_audit, payload=canonical(statement)).to_bytes()
    try:
        found = certificate.read(raw)
    except CertificateError:
        return
    original = certificate.read(signed_audit.to_bytes()).report
    card = Card(
        name="c",
        version=1,
        model_sha256="a" * 64,
        size=1,
        added_at="2026-01-01T00:00:00Z",
        operators={},
        attached=("b" * 64,),
        certificates=(certified(found),),
    )
    assert markdown(card)
    assert json.loads(bom.cyclonedx(card))
    assert describe(found)
    assert json.dumps(found.to_dict())
    compare.worse_findings(original, found.report)
    list(recompute.compare_reports(found.report, original))
    with suppress(CertificateError):
        SignedSettings.from_dict(found.settings)


def test_double_keys_have_no_second_reading(signer):
    payload = b'{"_type": "a", "_type": "b"}'
    raw = dsse.sign(payload, PAYLOAD_TYPE, [signer.secret]).to_bytes()
    with pytest.raises(CertificateError, match="twice"):
        certificate.verify(raw, [signer.public])


def test_no_row_of_the_data_gets_into_a_certificate(model, certify, signer, make):
    evidence = {
        "dual": 0.5,
        "note": "text of the auditor",
        "pairs": [{"from": 1, "to": 2, "distance": 0.5, "gain": 0.1, "age": 39, "values": [39, 50_000]}],
        "rows": [3, 4],
        "worst": [["Bob", 39]],
        "nested": {"limit": 3, "row": {"age": 39}},
    }
    raw = certify(model(), [make.finding("equal_opportunity_difference", 0.1, evidence=evidence)]).read_bytes()
    kept = certificate.verify(raw, [signer.public]).report.findings[0]
    assert kept.evidence == {
        "dual": 0.5,
        "note": "text of the auditor",
        "pairs": [{"from": 1, "to": 2, "distance": 0.5, "gain": 0.1}],
        "rows": [3, 4],
        "worst": [None],
        "nested": {"limit": 3},
    }
    assert "pairs[].age" in kept.notes[-1]
    assert b"Bob" not in base64.b64decode(json.loads(raw)["payload"])


def test_only_a_file_can_be_certified(model, signer, make):
    loose = replace(make.report(model()), model=ModelInfo(name="object", sha256=None, task="binary"))
    with pytest.raises(CertificateError, match="only a model in a file"):
        certifying.issue(loose, [signer.secret], settings=make.settings)
    with pytest.raises(CertificateError, match="fairkit key new"):
        certifying.issue(make.report(model()), [], settings=make.settings)
    with pytest.raises(CertificateError, match="JSON"):
        certifying.issue(make.report(model()), [signer.secret], settings={"x": float("nan")})
    with pytest.raises(CertificateError, match="does not have the form"):
        certifying.issue(make.report(model()), [signer.secret], settings={})


def test_a_file_that_is_no_certificate(tmp_path):
    (tmp_path / "big").write_bytes(b" " * (certificate.Certificate.LARGEST + 1))
    with pytest.raises(CertificateError, match="too large"):
        certificate.read_file(tmp_path / "big")
    with pytest.raises(CertificateError, match="cannot read"):
        certificate.read_file(tmp_path / "missing")


# Files that earlier versions wrote: they are read, verified, and written again with the same bytes.
GOLDEN = Path(__file__).parent / "golden"
CERTIFICATES = {"certificate": "key", "certificate-p256": "p256", "table-certificate": "key", "no-policy": "key"}


def content(name: str) -> bytes:
    return gzip.decompress((GOLDEN / f"{name}.gz").read_bytes())


@pytest.mark.parametrize(("name", "key"), CERTIFICATES.items())
def test_certificates_verify_and_write_the_same_bytes(name, key):
    raw = content(f"{name}.json")
    held = certificate.verify(raw, [load_public(GOLDEN / f"{key}.pub")])
    signed = json.loads(dsse.Envelope.from_bytes(raw).payload)["predicate"]
    again = held.report.to_dict()
    same = set(again) & set(signed) - {"findings"}
    assert {"model", "data", "policy", "verdict", "seed", "confidence", "environment"} <= same
    for part in same:
        assert canonical(again[part]) == canonical(signed[part]), part
    assert len(again["findings"]) == len(signed["findings"]) > 0
    settings = SignedSettings.from_dict(signed["settings"]).to_dict()
    assert canonical(settings) == canonical(signed["settings"])


@pytest.mark.parametrize("name", ["report", "report-auditors"])
def test_reports_write_the_same_bytes(name):
    record = json.loads(content(f"{name}.json"))
    assert canonical(Report.from_dict(record).to_dict()) == canonical(record)


CHANGED = {"log_loss", "ecce", "worst_group_loss"}
"""Metrics whose intervals are wider, or begin lower, than they were then: those did not cover."""


def test_a_certificate_of_then_is_recomputed_now(tmp_path):
    """All numbers are those of then; of the metrics that are measured otherwise now the audit says so."""
    raw = content("certificate.json")
    held = certificate.verify(raw, [load_public(GOLDEN / "key.pub")])
    table = tmp_path / "table.csv"
    table.write_bytes(content("table.csv"))
    data = SignedSettings.from_dict(held.settings).open_data(table)
    again = SignedSettings.from_dict(held.settings).run(str(GOLDEN / "model.onnx"), data)
    assert again.verdict == held.report.verdict == "pass"
    differing = {text.split("/")[1] for text in compare_reports(held.report, again)}
    assert {name for name in differing if not name.startswith(tuple(CHANGED))} == set()
    with pytest.raises(VerificationError, match="other numbers than were signed"):
        recompute(held, GOLDEN / "model.onnx", data)


def test_locks_and_statements_about_tables_are_read():
    lock = PolicyLock.read(content("lock.json"))
    statement = SignedTable.read(content("table-statement.json"))
    assert (lock.name, lock.rows) == (statement.name, statement.rows) == ("table.csv", 400)
    assert lock.data_sha256 == statement.sha256
    model = hashlib.sha256((GOLDEN / "model.onnx").read_bytes()).hexdigest()
    assert certificate.verify(content("certificate.json"), [load_public(GOLDEN / "key.pub")]).model_sha256 == model
