"""Statements by a trusted key that cannot be true: each is refused, with the reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

import fairkit
from fairkit.results.findings import Finding
from fairkit.results.report import Report
from fairkit.results.rules import Rule
from fairkit_registry.errors import CertificateError, ContradictionError
from fairkit_registry.evidence import certificate, issuing
from fairkit_registry.evidence.consistency import contradictions
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.statement import PAYLOAD_TYPE
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.run import promote

NOW = datetime(2026, 1, 10, tzinfo=UTC)
DPD = "demographic_parity_difference"
RULE = {"metric": DPD, "sensitive": "sex", "max": 0.3}


@pytest.fixture(scope="module")
def honest():
    """An audit of 4,000 made rows with a disparity of about 0.22, and its settings."""
    rng = np.random.default_rng(1)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 4_000)]
    table = {
        "sex": sex,
        "age": np.array(["old", "young"])[rng.integers(0, 2, 4_000)],
        "y": rng.integers(0, 2, 4_000),
        "s": np.clip(rng.random(4_000) + 0.22 * (sex == "m") - 0.11, 0, 1),
    }
    roles = {"label": "y", "favorable": 1, "sensitive": ["sex", "age"], "predictions": {"score": "s"}}
    data = fairkit.load_data(table, **roles)
    rules = [Rule(metric=DPD, sensitive="sex", max=0.3)]
    report = fairkit.audit(None, data, policy=rules)
    report = Report.from_dict(report.to_dict())
    assert report.verdict == "pass"
    settings = SignedSettings(data=data.roles.to_dict(), policy=(rules[0],)).to_dict()
    return report, settings


def change(report: Report, metric: str, sensitive: str | None = "sex", **changes) -> Report:
    """Change one finding; a function makes the new value of what was."""

    def one(finding: Finding) -> Finding:
        if (finding.metric, finding.sensitive) != (metric, sensitive):
            return finding
        made = {k: v(getattr(finding, k)) if callable(v) else v for k, v in changes.items()}
        return replace(finding, **made)

    return replace(report, findings=tuple(map(one, report.findings)))


def ruled(report: Report, **changes) -> Report:
    """The same results of other rules."""
    records = [result.rule.to_dict() | changes for result in report.policy]
    results = zip(report.policy, map(Rule.from_dict, records), strict=True)
    return replace(report, policy=tuple(replace(result, rule=rule) for result, rule in results))


ATTACKS = {
    "value above its interval": (lambda r: change(r, DPD, interval=(0.0, 0.05)), "outside its interval"),
    "one group only": (lambda r: change(r, DPD, groups=lambda groups: groups[:1]), "its groups are"),
    "pass over failing findings": (lambda r: ruled(r, max=0.05), "judged again it is fail"),
    "bounds of another form": (
        lambda r: change(r, DPD, evidence={"missing_bounds": {"low": "x", "binding": True}}),
        "lack a number",
    ),
    "a chart of another form": (
        lambda r: change(r, DPD, evidence={"score_counts": [None, True, "x", 4]}),
        "does not have the form",
    ),
    "a group too small, unmarked": (
        lambda r: replace(
            change(
                replace(r, findings=(r.find(DPD, "sex"),)),
                DPD,
                groups=lambda g: (replace(g[0], rows=10), replace(g[1], rows=20)),
            ),
            data=replace(r.data, rows=30, groups={"sex": {"f": 10, "m": 20}}),
        ),
        "has 10 rows, fewer than 30",
    ),
}
"""The words of refusals, and what the conformance suite does not have; its cases are in registry/conformance/."""


def test_an_honest_audit_has_no_contradiction(honest):
    assert list(contradictions(*honest)) == []


@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_statement_that_cannot_be_true_is_named(honest, attack):
    report, settings = honest
    forge, words = ATTACKS[attack]
    found = list(contradictions(forge(report), settings))
    assert any(words in text for text in found), found


@pytest.mark.long
@pytest.mark.parametrize("rules", [(RULE,), ()], ids=["alias with rules", "alias without rules"])
@pytest.mark.parametrize("attack", ["value above its interval", "pass over failing findings", "one group only"])
def test_it_is_not_promoted_although_a_trusted_key_signed_it(registry, model, honest, signer, tmp_path, attack, rules):
    report, settings = honest
    forged = ATTACKS[attack][0](report)
    sound = tmp_path / "sound.json"
    forgery = tmp_path / "forged.json"
    digest = registry.blobs.stage([model().read_bytes()]).digest
    named = replace(report.model, name="m", sha256=digest, predictions={})
    settings = settings | {"data": settings["data"] | {"predictions": None}}
    for path, one, day in ((sound, report, 5), (forgery, forged, 4)):
        raw = issuing.issue(
            replace(one, model=named), [signer.secret], settings=settings, audited_at=datetime(2026, 1, day, tzinfo=UTC)
        )
        path.write_bytes(raw)
    policy = AliasPolicy(keys=(signer.public.pem,), rules=rules)
    registry.add("credit", model(), certificates=[sound])
    registry.set_alias("credit", "production", policy)
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"
    # beside a sound and newer one it is still no note
    registry.add("credit", model(), certificates=[sound, forgery])
    decision = promote(registry, "credit@2", "production", now=NOW)
    assert decision.verdict == "fail"
    assert "contradicts itself" in decision.reasons[0].text
    with pytest.raises(ContradictionError, match="contradicts itself"):
        certificate.verify(forgery.read_bytes(), [signer.public])


@pytest.mark.parametrize(
    ("bound", "words"),
    [(0.1, "below its value"), ("0.3", "is no number"), (True, "is no number"), (0.16, "lower_bound 0.19 is above")],
)
def test_a_one_sided_bound_holds_its_value(honest, bound, words):
    report, settings = honest
    gap = Finding(
        auditor="restricted-dro",
        metric="performance_gap",
        value=0.15,
        interval=(0.1, 0.2),
        better="lower",
        evidence={"upper_confidence_bound": bound, "lower_bound": 0.19},
    )
    asked = settings | {"auditors": ["group", "restricted-dro"]}
    found = list(contradictions(replace(report, findings=(*report.findings, gap)), asked))
    assert any(words in text for text in found), found


def test_rows_without_a_group_cannot_be_hidden():
    rng = np.random.default_rng(3)
    sex = np.array(["f", "m"], dtype=object)[rng.integers(0, 2, 1_000)]
    sex[:100] = None
    data = fairkit.load_data(
        {"sex": sex, "y": rng.integers(0, 2, 1_000), "s": rng.random(1_000)},
        label="y",
        favorable=1,
        sensitive="sex",
        predictions={"score": "s"},
    )
    report = Report.from_dict(fairkit.audit(None, data).to_dict())
    settings = SignedSettings(data=data.roles.to_dict()).to_dict()
    assert list(contradictions(report, settings)) == []
    hidden = change(report, DPD, evidence={})
    assert "does not say what the 100 rows" in "".join(contradictions(hidden, settings))
    loose = change(report, DPD, evidence=lambda e: e | {"missing_bounds": e["missing_bounds"] | {"binding": False}})
    assert "does not hold its verdict against" in "".join(contradictions(loose, settings))
    fewer = replace(report, data=replace(report.data, missing={}))
    assert "have 900 rows together" in "".join(contradictions(fewer, settings))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_honest_audits_of_any_kind_pass(seed):
    """Small groups, weights, randomized decisions, regression, adjustments: no false alarm."""
    rng = np.random.default_rng(seed)
    rows, groups = int(rng.choice([12, 60, 500])), int(rng.integers(2, 6))
    table = {
        "g": np.array([None if seed > 8 and i % 9 == 0 else f"g{i % groups}" for i in range(rows)], dtype=object),
        "h": np.array(["a", "b"])[np.arange(rows) % 2],
        "w": rng.random(rows) * 3,
        "p": rng.random(rows),
    }
    roles = {"label": "y", "sensitive": ["g", "h", "g+h"], "weights": [None, "w"][seed % 2], "features": []}
    if seed % 3 == 0:
        table["y"] = rng.normal(size=rows) * 100
        roles["predictions"] = {"score": "p"}
    else:
        table["y"] = rng.integers(0, 2, rows)
        roles["favorable"] = 1
        roles["predictions"] = {"probability" if seed % 3 == 1 else "score": "p"}
    data = fairkit.load_data(table, **roles)
    adjustment = [None, "bonferroni", "benjamini-hochberg"][seed % 3]
    metric = "mean_prediction_difference" if seed % 3 == 0 else "accuracy_difference"
    rules = [Rule(metric=metric, sensitive="g", max=0.1)]
    report = fairkit.audit(None, data, policy=rules, adjustment=adjustment, confidence=0.9, seed=seed)
    settings = SignedSettings(
        data=data.roles.to_dict(), policy=(rules[0],), adjustment=adjustment, confidence=0.9, seed=seed
    )
    assert list(contradictions(Report.from_dict(report.to_dict()), settings.to_dict())) == []


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e400", "1" * 5000])
def test_a_number_that_no_float_holds_is_refused_at_the_door(registry, model, certify, signer, tmp_path, number):
    import base64
    import json

    from fairkit_registry.evidence import dsse

    good = json.loads(certify(model()).read_bytes())
    payload = base64.b64decode(good["payload"]).replace(b'"value":0.05', b'"value":' + number.encode(), 1)
    forged = tmp_path / "big.json"
    forged.write_bytes(dsse.sign(payload, PAYLOAD_TYPE, [signer.secret]).to_bytes())
    with pytest.raises(CertificateError, match="number that no float holds"):
        registry.add("credit", model(), certificates=[forged])
    assert registry.models() == []
