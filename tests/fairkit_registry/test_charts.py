"""Score charts in certificates: what goes in comes out, within the budget, and nothing else slips in."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit.results.findings import Finding, GroupValue
from fairkit_registry.evidence import certificate, charts
from fairkit_registry.evidence.predicate import public_findings
from fairkit_registry.evidence.recompute import compare_reports


def audited(groups=2, rows=400, weights=False):
    rng = np.random.default_rng(0)
    data = {
        "x": rng.normal(size=rows),
        "g": np.array([f"g{i}" for i in rng.integers(0, groups, rows)]),
        "y": rng.integers(0, 2, rows),
        "w": rng.random(rows),
    }
    given = fairkit.load_data(
        data, label="y", favorable=1, sensitive="g", features=["x"], weights="w" if weights else None
    )

    class Model:
        def predict_proba(self, rows):
            p = 1 / (1 + np.exp(-rows[:, 0]))
            return np.column_stack([1 - p, p])

        def predict(self, rows):
            return (rows[:, 0] >= 0).astype(int)

    return fairkit.audit(Model(), given)


def ks(report):
    return report.find("statistical_parity_ks", "g")


@pytest.mark.long
@pytest.mark.parametrize("weights", [False, True])
def test_charts_come_out_as_they_went_in(weights, model, certify, signer, make):
    report = audited(weights=weights)
    settings = make.settings | {"data": {"label": "y", "favorable": 1, "weights": "w" if weights else None}}
    raw = certify(model(), report.findings, data=report.data, settings=settings).read_bytes()
    signed = certificate.verify(raw, [signer.public]).report
    kept = ks(signed).evidence
    assert not set(charts.CHARTS) & set(kept)
    assert not any("not in the certificate" in note for note in ks(signed).notes)
    back, was = ks(charts.expanded(signed)).evidence, ks(report).evidence
    assert not set(charts.COMPACT) & set(back)
    np.testing.assert_allclose(back["histogram"]["edges"], was["histogram"]["edges"], rtol=1e-5)
    for group in ("g0", "g1"):
        np.testing.assert_allclose(back["histogram"]["groups"][group], was["histogram"]["groups"][group], rtol=1e-5)
        np.testing.assert_allclose(back["roc"][group], was["roc"][group], atol=1e-5)
        for one, other in zip(back["calibration"][group], was["calibration"][group], strict=True):
            assert one["interval"] == pytest.approx(other["interval"], abs=1e-5)
            assert [one[k] for k in ("score", "observed")] == pytest.approx(
                [other[k] for k in ("score", "observed")], abs=1e-5
            )
    if not weights:
        total = sum(sum(map(sum, pairs)) for pairs in back["histogram"]["groups"].values())
        assert total == 400


@pytest.mark.long
def test_what_is_public_already_stays_and_is_compared(model, certify, signer, make):
    report = audited()
    settings = make.settings | {"data": {"label": "y", "favorable": 1}}
    raw = certify(model(), report.findings, data=report.data, settings=settings).read_bytes()
    signed = certificate.verify(raw, [signer.public]).report
    once = public_findings([finding.to_dict() for finding in report.findings])
    assert public_findings(once) == once
    whole = report.__class__(**{**{f: getattr(signed, f) for f in signed.__slots__}, "findings": report.findings})
    assert not list(compare_reports(signed, whole))
    place = [f.metric for f in report.findings].index("statistical_parity_ks")
    other = json.loads(json.dumps(report.findings[place].evidence))
    other["histogram"]["groups"]["g0"][20][0] += 3
    changed = [*report.findings]
    changed[place] = Finding(**{f: getattr(changed[place], f) for f in Finding.__slots__} | {"evidence": other})
    found = list(compare_reports(signed, report.__class__(
        **{**{f: getattr(signed, f) for f in signed.__slots__}, "findings": tuple(changed)}
    )))  # fmt: skip
    assert any("score_counts" in one for one in found)


@pytest.mark.long
def test_many_groups_stay_within_the_budget(model, certify):
    report = audited(groups=60, rows=6_000)
    many = [finding.to_dict() for finding in report.findings] * 8
    public = [one for one in public_findings(many) if one["metric"] == "statistical_parity_ks"]
    sizes = [charts.size_of(finding["evidence"]) for finding in public]
    assert 0 < sum(sizes) <= charts.MOST_BYTES
    # the curves of so many groups do not fit, their distributions do, and those of the first few findings only
    assert all("score_roc" not in one["evidence"] for one in public)
    kept = ["score_counts" in one["evidence"] for one in public]
    assert kept == sorted(kept, reverse=True)
    assert 0 < sum(kept) < 8
    assert all(any("to keep it small" in note for note in one["notes"]) for one in public)
    alone = certify(model(), report.findings)
    bare = [Finding(**{f: getattr(one, f) for f in Finding.__slots__} | {"evidence": {}}) for one in report.findings]
    assert alone.stat().st_size - certify(model(), bare).stat().st_size < 100_000


HOSTILE = [
    {"score_edges": [0, 1], "score_counts": [1, 2, 3]},
    {"score_edges": [0, 1], "score_counts": "<script>"},
    {"score_edges": [0, 1], "score_counts": [1, 2, 3, 4], "score_roc": [9, 0, 0]},
    {"score_edges": [0, 1], "score_counts": [1, 2, 3, 4], "score_roc": [-1, 0.5]},
    {"score_edges": [0, 1], "score_counts": [1, 2, 3, 4], "score_calibration": [0, 0, 0]},
    {"score_edges": [0], "score_counts": []},
    {"score_counts": [1, 2]},
]


@pytest.mark.parametrize("evidence", HOSTILE)
def test_lists_that_are_something_else_are_left_alone(evidence, model, make):
    groups = tuple(GroupValue(group=name, rows=5, value=0.1) for name in ("a", "b"))
    finding = make.finding("statistical_parity_ks", 0.1, evidence=evidence, groups=groups)
    report = charts.expanded(make.report(model(), [finding]))
    assert report.findings[0].evidence == evidence


@pytest.mark.parametrize(
    "histogram", ["text", {"edges": [0, 1]}, {"edges": [0, 1], "groups": {"f": [["Bob", 3]], "m": [[1, 2]]}}]
)
def test_charts_that_are_not_as_expected_are_left_out(histogram, make):
    finding = make.finding("statistical_parity_ks", 0.1, evidence={"histogram": histogram}).to_dict()
    (public,) = public_findings([finding])
    assert "Bob" not in json.dumps(public)
    assert not set(charts.COMPACT) & set(public["evidence"])
