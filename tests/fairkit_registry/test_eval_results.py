"""Evaluation results, the draft predicate of in-toto: one signed claim for each rule of a policy."""

from __future__ import annotations

import hashlib
import json

import pytest

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import certificate, dsse, summaries


@pytest.mark.parametrize(("verdict", "passed"), [("pass", True), ("fail", False), ("inconclusive", False)])
def test_a_rule_is_a_claim(model, certify, signer, verdict, passed):
    raw = certify(model(), verdict=verdict).read_bytes()
    found = certificate.read(raw)
    lines = summaries.eval_results(raw, found, [signer.secret]).splitlines()
    assert len(lines) == len(found.report.policy) == 1
    claim = summaries.read(lines[0], [signer.public], model_sha256=found.model_sha256)
    assert claim["predicateType"] == summaries.EVAL_RESULT
    assert claim["metric"] == "demographic_parity_difference:sex"
    assert (claim["comparator"], claim["threshold"]) == ("<=", found.report.policy[0].limit)
    assert (claim["passed"], claim["verdict"]) == (passed, verdict)
    assert (claim["sampleSize"], claim["assuranceLevel"], claim["status"]) == (100, "self_attested", "draft")
    assert claim["evidence"][0]["digest"]["sha256"] == hashlib.sha256(raw).hexdigest()
    statement = json.loads(dsse.Envelope.from_bytes(lines[0]).payload)
    assert statement["subject"][0]["digest"]["sha256"] == found.model_sha256


def test_another_key_and_no_policy_are_refused(model, certify, make, signer, stranger):
    raw = certify(model()).read_bytes()
    (line,) = summaries.eval_results(raw, certificate.read(raw), [stranger.secret]).splitlines()
    with pytest.raises(VerificationError, match="not signed by a key that you trust"):
        summaries.read(line, [signer.public])
    bare = certify(model(), [make.finding("accuracy_difference", 0.05)]).read_bytes()
    with pytest.raises(CertificateError, match="the certificate has none"):
        summaries.eval_results(bare, certificate.read(bare), [signer.secret])
