"""Statements in forms that others have settled, beside ours: in-toto test results, and verification summaries (VSA).

They say less than a certificate does: that something passed or failed, by which policy. Tools that gate on them
(policy engines of clusters and of build systems) read them without knowing fairkit.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.predicate import time_text
from fairkit_registry.evidence.statement import PAYLOAD_TYPE, STATEMENT_TYPE, sign_statement, signers_of
from fairkit_registry.jsonio import StrictJsonError, fingerprint, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
SUMMARY = "https://slsa.dev/verification_summary/v1"
EVAL_RESULT = "https://in-toto.io/attestation/eval-result/v0.1"
"""A draft: it may change until it is one of in-toto's predicates."""
COVERAGE = "docs/explanation/intervals.md"
"""Where the simulations of the intervals' coverage are described: evidence about what measured."""
VERIFIER = "https://fairkit.dev/verifier/v1"
"""Names what verified; it is a name, and nothing is ever fetched from it."""
LEVEL = "FAIRKIT_POLICY"
_NEITHER = "neither a test result nor a verification summary"
_RESULTS = {"pass": "PASSED", "fail": "FAILED", "inconclusive": "WARNED"}


def test_result(raw: bytes, certificate: Certificate, secrets: Sequence[Signer]) -> bytes:
    """Sign what a certificate's policy came to, as an in-toto test result (v0.1).

    Each rule of the policy is a test. An inconclusive one is a warning, as is an audit without a policy.
    """
    report = certificate.report
    rules: dict[str, list[str]] = {"pass": [], "fail": [], "inconclusive": []}
    for rule in report.policy:
        limit = f"{'<=' if rule.rule.upper else '>='} {rule.limit:g}"
        place = f":{rule.place}" if rule.place else ""
        rules[rule.verdict].append(f"{rule.metric}{place} {limit}")
    body = {
        "result": _RESULTS.get(report.verdict or "", "WARNED"),
        "configuration": [
            {"name": report.data.name, "digest": {"fairkitTableSha256": report.data.sha256}},
            {"name": "certificate", "digest": {"sha256": hashlib.sha256(raw).hexdigest()}},
        ],
        "passedTests": rules["pass"],
        "warnedTests": rules["inconclusive"],
        "failedTests": rules["fail"],
    }
    subject = certificate.model_sha256 or report.data.sha256
    return sign_statement(certificate.model_name, subject, TEST_RESULT, body, secrets)


def eval_results(raw: bytes, certificate: Certificate, secrets: Sequence[Signer]) -> bytes:
    """Sign each rule of a certificate's policy as an in-toto evaluation result, a line of JSON for each.

    The predicate is a draft (in-toto/attestation, pull request 575) and may still change. A claim there passes or does
    not: an inconclusive rule has not passed, and its `verdict` says why.
    """
    report = certificate.report
    if not report.policy:
        raise CertificateError("an evaluation result is about a policy: the certificate has none")
    lines = []
    for rule in report.policy:
        place = f":{rule.place}" if rule.place else ""
        body = {
            "status": "draft",
            "metric": f"{rule.metric}{place}",
            "comparator": "<=" if rule.rule.upper else ">=",
            "threshold": rule.limit,
            "passed": rule.verdict == "pass",
            "verdict": rule.verdict,
            "sampleSize": report.data.rows,
            "assuranceLevel": "self_attested",
            "dataset": {"name": report.data.name, "digest": {"fairkitTableSha256": report.data.sha256}},
            "evidence": [{"name": "certificate", "digest": {"sha256": hashlib.sha256(raw).hexdigest()}}],
            "harness": {
                "name": "fairkit",
                "version": str(report.environment.get("fairkit", "")),
                "coverageStudy": COVERAGE,
            },
            "evaluatedAt": time_text(certificate.audited_at),
        }
        subject = certificate.model_sha256 or report.data.sha256
        lines.append(sign_statement(certificate.model_name, subject, EVAL_RESULT, body, secrets))
    return b"".join(lines)


def summary(
    reference: str,
    model_sha256: str,
    verdict: str | None,
    secrets: Sequence[Signer],
    *,
    policy: Mapping[str, Any],
    evidence: Sequence[str],
    at: datetime | None = None,
) -> bytes:
    """Sign what a verification came to, as a verification summary (SLSA VSA v1)."""
    from importlib.metadata import version

    passed = verdict == "pass"
    body = {
        "verifier": {"id": VERIFIER, "version": {"fairkit": version("fairkit")}},
        "timeVerified": time_text(at or datetime.now(UTC)),
        "resourceUri": f"urn:fairkit:{reference}",
        "policy": {"uri": f"urn:fairkit:policy:{reference}", "digest": {"sha256": fingerprint(dict(policy))}},
        "inputAttestations": [{"uri": f"sha256:{one}", "digest": {"sha256": one}} for one in evidence],
        "verificationResult": "PASSED" if passed else "FAILED",
        "verifiedLevels": [LEVEL] if passed else ["FAILED"],
        "slsaVersion": "1.0",
    }
    return sign_statement(reference, model_sha256, SUMMARY, body, secrets)


def read(raw: bytes, trusted: Sequence[PublicKey], *, model_sha256: str | None = None) -> dict[str, Any]:
    """Check a test result, an evaluation result or a summary; return its predicate with ``predicateType``."""
    envelope = dsse.Envelope.from_bytes(raw)
    signers_of(envelope, trusted, "the statement")
    try:
        said = read_object(envelope.payload)
        kind = said["predicateType"]
        if (envelope.payload_type, said["_type"]) != (PAYLOAD_TYPE, STATEMENT_TYPE) or kind not in (
            TEST_RESULT,
            EVAL_RESULT,
            SUMMARY,
        ):
            raise CertificateError(
                f"neither a test result nor a verification summary: its predicate is of type {kind!r}"
            )
        (subject,) = said["subject"]
        if model_sha256 not in (None, subject["digest"]["sha256"]):
            raise VerificationError("the statement is about another model")
        return {**said["predicate"], "predicateType": kind}
    except (StrictJsonError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(f"{_NEITHER}: {error!r}") from None
