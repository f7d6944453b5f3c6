"""Certificates in Sigstore bundles, and statements in forms that others have settled."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import bundles, certificate, dsse, oms, signers, summaries
from fairkit_registry.policies import AliasPolicy

JS = """
const { bundleFromJSON } = require('@sigstore/bundle');
const { Verifier, toSignedEntity } = require('@sigstore/verify');
const fs = require('fs'), crypto = require('crypto');
const [bundle, pem] = process.argv.slice(1).map(path => fs.readFileSync(path, 'utf8'));
const key = crypto.createPublicKey(pem);
const none = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [],
  publicKey: () => ({ publicKey: key, validFor: () => true }) };
new Verifier(none, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 })
  .verify(toSignedEntity(bundleFromJSON(JSON.parse(bundle))));
console.log('verified');
"""


@pytest.fixture
def bundle(model, certify):
    """A certificate in a bundle."""
    return dsse.Envelope.from_bytes(certify(model()).read_bytes()).to_bundle()


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_a_bundle_says_what_the_certificate_in_it_says(bundle, model, certify, signer):
    plain = certificate.verify(certify(model()).read_bytes(), [signer.public])
    found = certificate.verify(bundle, [signer.public])
    assert found.statement_sha256 == plain.statement_sha256
    assert found.report == plain.report
    record = json.loads(bundle)
    assert record["mediaType"] == bundles.BUNDLE
    assert record["verificationMaterial"] == {"publicKey": {"hint": signer.public.keyid}, "tlogEntries": []}


def test_timestamps_lie_where_a_bundle_has_them(model, certify):
    from dataclasses import replace

    envelope = dsse.Envelope.from_bytes(certify(model()).read_bytes())
    one = replace(envelope.signatures[0], timestamps=(b"first",))
    record = json.loads(replace(envelope, signatures=(one,)).to_bundle())
    stamps = record["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"]
    assert stamps == [{"signedTimestamp": base64.b64encode(b"first").decode()}]
    assert "timestamp" not in record["dsseEnvelope"]["signatures"][0]
    stamps.append({"signedTimestamp": base64.b64encode(b"second").decode()})
    again = dsse.Envelope.from_bytes(json.dumps(record).encode())
    assert again.signatures[0].timestamps == (b"first", b"second")
    assert dsse.Envelope.from_bytes(again.to_bytes()) == again


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.pop("dsseEnvelope"), "has no DSSE envelope"),
        (lambda one: one["dsseEnvelope"]["signatures"].append({}), "must have one signature"),
        (lambda one: one["dsseEnvelope"].update(signatures="x"), "must have one signature"),
        (
            lambda one: one["verificationMaterial"].update(timestampVerificationData={"rfc3161Timestamps": [1]}),
            "cannot be read",
        ),
        (
            lambda one: one["verificationMaterial"].update(
                timestampVerificationData={"rfc3161Timestamps": [{"signedTimestamp": "!"}]}
            ),
            "not base64",
        ),
        (lambda one: one["dsseEnvelope"].update(payload="e30="), "signature"),
    ],
)
def test_a_damaged_bundle_is_refused(bundle, signer, change, said):
    record = json.loads(bundle)
    change(record)
    with pytest.raises(CertificateError, match=said):
        certificate.verify(json.dumps(record).encode(), [signer.public])


def test_a_key_in_a_bundle_is_never_trusted(bundle, stranger):
    record = json.loads(bundle)
    pem = base64.b64encode(Path(stranger.pub).read_bytes()).decode()
    record["verificationMaterial"] = {"publicKey": {"hint": pem}, "x509CertificateChain": {"certificates": []}}
    with pytest.raises(VerificationError):
        certificate.verify(json.dumps(record).encode(), [stranger.public])


def test_two_signatures_are_two_bundles(model, certify, signer, stranger):
    both = certify(model(), by=[signer.secret, stranger.secret]).read_bytes()
    with pytest.raises(CertificateError, match="exactly one signature, not 2"):
        dsse.Envelope.from_bytes(both).to_bundle()


@pytest.mark.parametrize("kind", ["ed25519", "p256"])
def test_sigstores_own_verifier_takes_it(kind, model, certify, tmp_path):
    """Needs Node with @sigstore/bundle and @sigstore/verify; NODE_PATH says where they are."""
    node = shutil.which("node")
    found = node and subprocess.run(
        [node, "-e", "require('@sigstore/verify'); require('@sigstore/bundle')"], capture_output=True, check=False
    )
    if not found or found.returncode:
        pytest.skip("node with @sigstore/bundle and @sigstore/verify is not installed")
    public = signers.new_key_pair(tmp_path / "k", kind=kind)
    raw = certify(model(), by=[signers.load_secret(tmp_path / "k")]).read_bytes()
    path = tmp_path / "b.json"
    path.write_bytes(dsse.Envelope.from_bytes(raw).to_bundle())
    assert certificate.verify(path.read_bytes(), [public]).verified
    command = [node, "-e", JS, str(path), str(tmp_path / "k.pub")]
    assert subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ)).stdout == (
        "verified\n"
    )
    record = json.loads(path.read_bytes())
    record["dsseEnvelope"]["payload"] = "e30="
    path.write_text(json.dumps(record))
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.long
def test_by_command(loans_model, signer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    roles = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")
    rule = ("--max", "demographic_parity_difference:sex=0.9", "--max", "accuracy_difference:sex=0.9")
    command = ("certify", loans_model.path, "--data", loans_model.data, *roles, *rule, "--output", "c.json")
    assert run(*command, "--bundle", "--key", signer.path, "--key", signer.path).exit_code == 2
    assert not Path("c.json").exists()
    made = run(*command, "--bundle", "--key", signer.path, "--test-result", "t.json")
    assert made.exit_code == 0, made.stderr
    assert json.loads(Path("c.json").read_bytes())["mediaType"] == bundles.BUNDLE
    good = run("verify", "c.json", "--key", signer.pub, "--model", loans_model.path)
    assert good.exit_code == 0, good.stdout
    told = summaries.read(Path("t.json").read_bytes(), [signer.public])
    assert told["result"] == "PASSED"
    assert told["passedTests"] == ["demographic_parity_difference:sex <= 0.9", "accuracy_difference:sex <= 0.9"]
    # a second one follows the first in the auditor's sequence
    again = run(*command[:-1], "d.json", "--bundle", "--key", signer.path)
    assert again.exit_code == 0, again.stderr
    first, second = (certificate.read(Path(name).read_bytes()) for name in ("c.json", "d.json"))
    assert second.sequence[0].previous == first.statement_sha256


def test_a_verification_summary_says_what_an_alias_came_to(registry, model, certify, signer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from fairkit_registry.promotion.run import promote

    registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    assert promote(registry, "credit@1", "production").verdict == "pass"
    command = ("registry", "verify", "credit@production", "--registry", registry.path)
    made = run(*command, "--summary", "vsa.json", "--summary-key", signer.path)
    assert made.exit_code == 0, made.stdout + made.stderr
    digest = registry.version("credit@1").model
    told = summaries.read(Path("vsa.json").read_bytes(), [signer.public], model_sha256=digest)
    assert (told["predicateType"], told["verificationResult"]) == (summaries.SUMMARY, "PASSED")
    assert told["verifiedLevels"] == [summaries.LEVEL]
    assert told["inputAttestations"][0]["digest"]["sha256"] == registry.version("credit@1").certificates[0]
    with pytest.raises(VerificationError, match="another model"):
        summaries.read(Path("vsa.json").read_bytes(), [signer.public], model_sha256="0" * 64)
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,), max_age_days=0.1))
    Path("vsa.json").unlink()
    failed = run(*command, "--summary", "vsa.json", "--summary-key", signer.path)
    assert failed.exit_code == 1
    told = summaries.read(Path("vsa.json").read_bytes(), [signer.public])
    assert (told["verificationResult"], told["verifiedLevels"]) == ("FAILED", ["FAILED"])
    for wrong in (("--summary", "x.json"), ("--summary-key", signer.path), ("--insecure-key",)):
        assert run(*command, *wrong).exit_code == 2
    assert not Path("x.json").exists()


def test_what_is_neither_is_refused(model, certify, signer, stranger):
    raw = certify(model()).read_bytes()
    with pytest.raises(CertificateError, match="neither a test result"):
        summaries.read(raw, [signer.public])
    found = certificate.read(raw)
    with pytest.raises(VerificationError, match="a key that you trust"):
        summaries.read(summaries.test_result(raw, found, [stranger.secret]), [signer.public])


def test_a_models_signature_is_told_from_a_certificate(model, certify, tmp_path):
    signers.new_key_pair(tmp_path / "k", kind="p256")
    raw = oms.sign_model("m.onnx", "a" * 64, signers.load_secret(tmp_path / "k"))
    assert oms.signs_model(raw, "a" * 64)
    assert not oms.signs_model(raw, "b" * 64)
    assert not oms.signs_model(certify(model()).read_bytes(), "a" * 64)
