"""Statements that no audit gives, by a trusted key: each is refused with the reason; honest ones are not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

import fairkit
from fairkit.results.report import Report
from fairkit.results.rules import Rule
from fairkit_registry.errors import CertificateError, ContradictionError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import recompute as certifying
from fairkit_registry.evidence.charts import contradictions
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.signed import PAYLOAD_TYPE

DPD = "demographic_parity_difference"


@pytest.fixture(scope="module")
def honest():
    """An audit of 1,000 made rows with a disparity of about 0.22, and its settings."""
    rng = np.random.default_rng(1)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 1_000)]
    score = np.clip(rng.random(1_000) + 0.22 * (sex == "m") - 0.11, 0, 1)
    roles = {"label": "y", "favorable": 1, "sensitive": ["sex"], "predictions": {"score": "s"}}
    data = fairkit.load_data({"sex": sex, "y": rng.integers(0, 2, 1_000), "s": score}, **roles)
    rules = [Rule(metric=DPD, sensitive="sex", max=0.4)]
    report = Report.from_dict(fairkit.audit(None, data, policy=rules).to_dict())
    assert report.verdict == "pass"
    return report, SignedSettings(data=data.roles.to_dict(), policy=(rules[0],)).to_dict()


def changed(report: Report, **changes) -> Report:
    """The report with the one finding that its rule is about changed; a function makes the new value of what was."""
    made = [
        replace(one, **{k: v(getattr(one, k)) if callable(v) else v for k, v in changes.items()})
        if one.metric == DPD
        else one
        for one in report.findings
    ]
    return replace(report, findings=tuple(made))


def ruled(report: Report, limit: float) -> Report:
    rule = Rule(metric=DPD, sensitive="sex", max=limit)
    return replace(report, policy=tuple(replace(one, rule=rule) for one in report.policy))


ATTACKS = {
    "pass over a failing interval": (lambda r: ruled(r, 0.05), "judged again it is fail"),
    "pass over one that straddles": (lambda r: changed(r, interval=(0.1, 0.5)), "judged again it is inconclusive"),
    "pass over a group too small": (lambda r: changed(r, inconclusive="a group is too small"), "inconclusive"),
    "the whole passes, a rule fails": (
        lambda r: replace(r, policy=tuple(replace(one, verdict="fail") for one in r.policy)),
        "its rules together is fail",
    ),
    "a rule without its finding": (
        lambda r: replace(r, findings=tuple(one for one in r.findings if one.metric != DPD)),
        "cannot be judged",
    ),
    "value outside its interval": (lambda r: changed(r, interval=(0.0, 0.05)), "outside its interval"),
    "a reversed interval": (lambda r: changed(r, interval=(0.3, 0.1)), "is reversed"),
    "a value that is no number": (lambda r: changed(r, value=float("nan")), "is not finite"),
    "another confidence": (lambda r: changed(r, confidence=0.5), "its confidence is 0.5"),
    "an invented auditor": (lambda r: changed(r, auditor="strict"), "not one of those in the settings"),
    "another auditor's metric": (lambda r: changed(r, metric="dif"), "does not declare the metric 'dif'"),
    "twice": (lambda r: replace(r, findings=(*r.findings, r.find(DPD, "sex"))), "is in it 2 times"),
    "bounds of another form": (lambda r: changed(r, evidence={"missing_bounds": {"low": "x"}}), "lack a number"),
    "a bound below its value": (lambda r: changed(r, evidence={"upper_confidence_bound": 0.1}), "below its value"),
}


def test_an_honest_audit_has_no_contradiction(honest):
    assert list(contradictions(*honest)) == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_statement_that_no_audit_gives_is_named(honest, attack):
    report, settings = honest
    forge, words = ATTACKS[attack]
    found = list(contradictions(forge(report), settings))
    assert any(words in text for text in found), found


@pytest.mark.parametrize("change", [{"confidence": 0.5}, {"adjustment": "holm"}, {"policy": []}])
def test_settings_are_those_of_the_report(honest, change):
    report, settings = honest
    found = list(contradictions(report, settings | change))
    assert bool(found) == ("policy" not in change)  # a policy of the alias alone is none of the audit's
    other = [settings["policy"][0] | {"max": 0.9}]
    assert "not those in its policy" in "".join(contradictions(report, settings | {"policy": other}))


def test_a_trusted_key_does_not_help_it(honest, signer, make, tmp_path):
    report, settings = honest
    forged = changed(report, interval=(0.0, 0.05))
    raw = certifying.issue(forged, [signer.secret], settings=settings, audited_at=datetime(2026, 1, 5, tzinfo=UTC))
    with pytest.raises(ContradictionError, match="contradicts itself"):
        certificate.verify(raw, [signer.public])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_honest_audits_of_any_kind_pass(seed):
    """Small groups, weights, randomized decisions, regression, adjustments, rows without a group: no false alarm."""
    rng = np.random.default_rng(seed)
    rows, groups = int(rng.choice([12, 60, 500])), int(rng.integers(2, 6))
    names = [None if seed > 3 and i % 9 == 0 else f"g{i % groups}" for i in range(rows)]
    table = {"g": np.array(names, dtype=object), "w": rng.random(rows) * 3, "p": rng.random(rows)}
    roles = {"label": "y", "sensitive": ["g"], "weights": [None, "w"][seed % 2], "features": []}
    if seed % 3 == 0:
        table["y"], roles["predictions"] = rng.normal(size=rows) * 100, {"score": "p"}
    else:
        table["y"], roles["favorable"] = rng.integers(0, 2, rows), 1
        roles["predictions"] = {"probability" if seed % 3 == 1 else "score": "p"}
    data = fairkit.load_data(table, **roles)
    adjustment = [None, "bonferroni", "benjamini-hochberg"][seed % 3]
    metric = "mean_prediction_difference" if seed % 3 == 0 else "accuracy_difference"
    told = {"policy": [Rule(metric=metric, sensitive="g", max=0.1)], "adjustment": adjustment, "confidence": 0.9}
    report = fairkit.audit(None, data, **told)
    settings = SignedSettings(data=data.roles.to_dict(), **(told | {"policy": tuple(told["policy"])}))
    assert list(contradictions(Report.from_dict(report.to_dict()), settings.to_dict())) == []


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "1" * 5000])
def test_a_number_that_no_float_holds_is_refused_at_the_door(registry, model, certify, signer, tmp_path, number):
    import base64
    import json

    from fairkit_registry.evidence import signed as dsse

    good = json.loads(certify(model()).read_bytes())
    payload = base64.b64decode(good["payload"]).replace(b'"value":0.05', b'"value":' + number.encode(), 1)
    forged = tmp_path / "big.json"
    forged.write_bytes(dsse.sign(payload, PAYLOAD_TYPE, [signer.secret]).to_bytes())
    with pytest.raises(CertificateError, match="number that no float holds"):
        registry.add("credit", model(), certificates=[forged])
    assert registry.models() == []
