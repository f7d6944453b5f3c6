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


def drop(report: Report, metric: str, sensitive: str) -> Report:
    kept = [f for f in report.findings if (f.metric, f.sensitive) != (metric, sensitive)]
    return replace(report, findings=tuple(kept))


def grouped(index: int, **changes):
    """Change one of a finding's groups."""
    return lambda groups: tuple(
        replace(group, **changes) if place == index else group for place, group in enumerate(groups)
    )


def ruled(report: Report, **changes) -> Report:
    """The same results of other rules."""
    records = [result.rule.to_dict() | changes for result in report.policy]
    results = zip(report.policy, map(Rule.from_dict, records), strict=True)
    return replace(report, policy=tuple(replace(result, rule=rule) for result, rule in results))


def foreign(report: Report) -> Report:
    """A finding that only another auditor makes, under the name of one that ran."""
    gap = Finding(auditor="group", metric="performance_gap", value=0.01, interval=(0.0, 0.02), better="lower")
    return replace(report, findings=(*report.findings, gap))


ATTACKS = {
    "value above its interval": (lambda r: change(r, DPD, interval=(0.0, 0.05)), "outside its interval"),
    "value below its interval": (lambda r: change(r, DPD, interval=(0.25, 0.3)), "outside its interval"),
    "an interval narrower than its groups'": (
        lambda r: change(r, DPD, interval=lambda pair: (sum(pair) / 2 - 0.005, sum(pair) / 2 + 0.005)),
        "narrower than those of its groups allow",
    ),
    "bounds that are no bounds": (
        lambda r: change(r, DPD, evidence={"missing_bounds": "none"}),
        "missing_bounds are no bounds",
    ),
    "bounds of another form": (
        lambda r: change(r, DPD, evidence={"missing_bounds": {"low": "x", "binding": True}}),
        "lack a number",
    ),
    "a chart of another form": (
        lambda r: change(r, DPD, evidence={"score_counts": [None, True, "x", 4]}),
        "does not have the form",
    ),
    "reversed interval": (lambda r: change(r, DPD, interval=lambda pair: pair[::-1]), "is reversed"),
    "interval outside the range": (lambda r: change(r, DPD, interval=(-9.0, -8.0)), "outside its interval"),
    "interval beyond the range": (lambda r: change(r, DPD, interval=(0.0, 9.0)), "leaves the range"),
    "value out of range": (lambda r: change(r, DPD, value=-0.1, interval=(-0.2, 0.1)), "outside the range"),
    "value that its groups do not give": (
        lambda r: change(r, DPD, value=0.01, interval=(0.0, 0.02)),
        "its groups give",
    ),
    "a ratio that its groups do not give": (
        lambda r: change(r, "demographic_parity_ratio", value=0.99, interval=(0.98, 1.0)),
        "its groups give",
    ),
    "a group's value outside its interval": (
        lambda r: change(r, "accuracy_difference", groups=grouped(0, interval=(0.9, 0.95))),
        "group f: its value",
    ),
    "one group only": (lambda r: change(r, DPD, groups=lambda groups: groups[:1]), "its groups are"),
    "no groups": (lambda r: change(r, DPD, groups=()), "fewer than two groups"),
    "a group twice": (lambda r: change(r, DPD, groups=lambda g: (g[0], g[0])), "a group is in it twice"),
    "other rows in a group": (lambda r: change(r, DPD, groups=grouped(0, rows=17)), "its groups are"),
    "groups that do not add up": (
        lambda r: replace(r, data=replace(r.data, groups=r.data.groups | {"sex": {"f": 1, "m": 2}})),
        "have 3 rows together",
    ),
    "a foreign auditor's name": (
        lambda r: change(r, DPD, auditor="evil"),
        "is not one of those in the settings",
    ),
    "a foreign auditor's metric": (foreign, "a metric of the auditor 'restricted-dro'"),
    "a bound that no group metric has": (
        lambda r: change(r, DPD, evidence={"upper_confidence_bound": 0.01}),
        "which no group metric has",
    ),
    "pass over failing findings": (lambda r: ruled(r, max=0.05), "judged again it is fail"),
    "verdict that its rules do not give": (
        lambda r: replace(r, verdict="fail"),
        "that of its rules together",
    ),
    "no verdict over rules": (lambda r: replace(r, verdict=None), "that of its rules together"),
    "a rule on something not measured": (lambda r: ruled(r, metric="dif"), "cannot be judged"),
    "lower confidence in a finding": (lambda r: change(r, DPD, confidence=0.5), "its confidence is 0.5"),
    "another seed than in the settings": (lambda r: replace(r, seed=3), "the settings have the seed"),
    "a finding twice": (lambda r: replace(r, findings=(*r.findings, r.find(DPD, "sex"))), "2 times"),
    "a disparity left out for one column": (lambda r: drop(r, DPD, "age"), "lacks it for age"),
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
    "overall rate outside the groups'": (
        lambda r: change(r, "selection_rate", None, value=0.99, interval=(0.98, 1.0)),
        "outside those of the groups",
    ),
    "overall rate that the groups do not give": (
        lambda r: change(r, "selection_rate", None, value=lambda v: v + 0.01, interval=(0.0, 1.0)),
        "the groups of sex give",
    ),
    "equalized odds below its parts": (
        lambda r: change(r, "equalized_odds_difference", value=0.001, interval=(0.0, 0.002)),
        "the two rates give",
    ),
    "root mean square gap below its parts": (
        lambda r: change(r, "gap_rms", value=0.001, interval=(0.0, 0.002)),
        "the two rates give",
    ),
    "higher is better": (lambda r: change(r, DPD, better="higher"), "it is lower"),
    "rules other than in the settings": (lambda r: ruled(r, max=0.29), "the rules in its settings"),
    "an interval without a value": (lambda r: change(r, DPD, value=None), "no value"),
}


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
@pytest.mark.parametrize(
    "attack", ["value above its interval", "pass over failing findings", "one group only"]
)
def test_it_is_not_promoted_although_a_trusted_key_signed_it(
    registry, model, honest, signer, tmp_path, attack, rules
):
    report, settings = honest
    forged = ATTACKS[attack][0](report)
    sound = tmp_path / "sound.json"
    forgery = tmp_path / "forged.json"
    digest = registry.blobs.stage([model().read_bytes()]).digest
    named = replace(report.model, name="m", sha256=digest, predictions={})
    settings = settings | {"data": settings["data"] | {"predictions": None}}
    for path, one, day in ((sound, report, 5), (forgery, forged, 4)):
        raw = issuing.issue(
            replace(one, model=named),
            [signer.secret],
            settings=settings,
            audited_at=datetime(2026, 1, day, tzinfo=UTC),
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
    [
        (0.1, "below its value"),
        ("0.3", "is no number"),
        (True, "is no number"),
        (0.16, "lower_bound 0.19 is above"),
    ],
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
    loose = change(
        report, DPD, evidence=lambda e: e | {"missing_bounds": e["missing_bounds"] | {"binding": False}}
    )
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
        "g": np.array(
            [None if seed > 8 and i % 9 == 0 else f"g{i % groups}" for i in range(rows)], dtype=object
        ),
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
        data=data.roles.to_dict(),
        policy=(rules[0],),
        adjustment=adjustment,
        confidence=0.9,
        seed=seed,
    )
    assert list(contradictions(Report.from_dict(report.to_dict()), settings.to_dict())) == []


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e400", "1" * 5000])
def test_a_number_that_no_float_holds_is_refused_at_the_door(
    registry, model, certify, signer, tmp_path, number
):
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
