from __future__ import annotations

import base64
import importlib
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from fairkit.data.loading import load_data
from fairkit.results.rules import Rule
from fairkit_onnx.file import OnnxModel
from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import recompute as certifying
from fairkit_registry.evidence.charts import declarations
from fairkit_registry.evidence.recompute import certify, compare_reports, fair_metrics_of, mitigation_of, recompute
from fairkit_registry.evidence.settings import SignedSettings

ROLES = {
    "label": "paid",
    "favorable": "yes",
    "sensitive": ["sex", "age:30:50"],
    "features": ["income", "age"],
    "drop": [],
    "weights": None,
    "missing": "drop",
}


@pytest.fixture(scope="module")
def table():
    import pandas as pd

    rng = np.random.default_rng(3)
    n = 600
    sex = rng.integers(0, 2, n)
    income = np.round(rng.normal(0, 1, n) + sex, 3)
    paid = income + rng.normal(0, 1, n) > 0.5
    return pd.DataFrame(
        {
            "sex": np.where(sex, "m", "f"),
            "age": rng.integers(18, 70, n).astype(float),
            "income": income,
            "paid": np.where(paid, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    """A logistic model of income and age, as one tensor of two features."""
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Sigmoid", ["z"], ["score"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor("w", TensorProto.FLOAT, [2, 1], [1.0, -0.01])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    told = model.metadata_props.add()
    told.key = "fairkit"
    told.value = json.dumps({"mitigation": {"plugin": "p", "parameters": {"a": 1}, "base_model": "b" * 64, "seed": 3}})
    path = tmp_path_factory.mktemp("scorer") / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def settings():
    return SignedSettings(
        data=ROLES,
        auditors=("group",),
        policy=(Rule.from_dict({"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.9}),),
        seed=5,
    )


@pytest.fixture
def certified(table, scorer, settings, signer):
    raw, report = certify(
        OnnxModel.load(scorer),
        settings.open_data(table),
        settings,
        [signer.secret],
        audited_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert report.verdict == "pass"
    return raw


@pytest.mark.long
def test_every_number_comes_back(table, scorer, certified, signer, tmp_path):
    found = certificate.verify(certified, [signer.public])
    assert found.mitigation == {"plugin": "p", "parameters": {"a": 1}, "base": {"sha256": "b" * 64}, "seed": 3}
    assert len(found.report.findings) > 20
    again = SignedSettings.from_dict(found.settings)
    table.to_csv(tmp_path / "d.csv", index=False)
    table.to_parquet(tmp_path / "d.parquet")
    for file in (tmp_path / "d.csv", tmp_path / "d.parquet"):
        dataset = again.open_data(file)
        assert dataset.learn().sha256 == found.report.data.sha256  # CSV, Parquet and data frame are one table
        assert recompute(found, scorer, dataset).verdict == "pass"
    assert load_data(tmp_path / "d.csv").learn().sha256 == found.report.data.sha256  # and no roles are needed for it


def test_the_same_audit_gives_the_same_certificate(table, scorer, settings, signer, certified):
    raw, _ = certify(
        OnnxModel.load(scorer),
        settings.open_data(table),
        settings,
        [signer.secret],
        audited_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert raw == certified


@pytest.mark.long
def test_signed_numbers_that_are_wrong_are_found(table, scorer, settings, signer):
    """Whoever holds the key can sign anything: only computing again shows it."""
    dataset = settings.open_data(table)
    honest = settings.run(scorer, dataset)
    place, first = next((i, f) for i, f in enumerate(honest.findings) if f.metric == "balanced_accuracy")

    def told(value):
        findings = [*honest.findings]
        findings[place] = replace(first, value=value)
        return replace(honest, findings=tuple(findings))

    found = certificate.verify(
        certifying.issue(told(first.value + 3e-9), [signer.secret], settings=settings.to_dict()), [signer.public]
    )
    with pytest.raises(VerificationError, match=r"other numbers than were signed: group/balanced_accuracy value"):
        recompute(found, scorer, dataset)
    assert list(compare_reports(told(first.value + 5e-10), honest)) == []


def test_other_rows_and_another_model_are_found(table, scorer, certified, signer, settings):
    found = certificate.verify(certified, [signer.public])
    with pytest.raises(VerificationError, match="other numbers than were signed"):
        recompute(found, scorer, settings.open_data(table.iloc[:-1]))


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, findings=r.findings[1:]),
        lambda r: replace(r, verdict="fail"),
        lambda r: replace(r, findings=(replace(r.findings[0], interval=None), *r.findings[1:])),
        lambda r: replace(r, findings=(replace(r.findings[0], confidence=0.9), *r.findings[1:])),
        lambda r: replace(r, findings=(replace(r.findings[0], evidence={"x": 1}), *r.findings[1:])),
        lambda r: replace(r, data=replace(r.data, groups={"sex": {"f": 1}})),
        lambda r: replace(r, policy=(replace(r.policy[0], verdict="fail"),)),
    ],
)
def test_every_part_is_compared(table, scorer, settings, change):
    report = settings.run(scorer, settings.open_data(table))
    assert list(compare_reports(report, report)) == []
    assert list(compare_reports(change(report), report))


def test_how_long_a_search_took_is_not_compared(table, scorer, settings):
    report = settings.run(scorer, settings.open_data(table))
    told = [
        replace(report, findings=(replace(report.findings[0], evidence=evidence), *report.findings[1:]))
        for evidence in ({"dual": 1.0, "evaluations": 2.1, "looks_per_row": 9.0}, {"dual": 1.0, "evaluations": 1.5})
    ]
    assert list(compare_reports(*told)) == []


def test_settings_come_back_and_foreign_ones_are_refused(settings):
    assert SignedSettings.from_dict(json.loads(json.dumps(settings.to_dict()))).to_dict() == settings.to_dict()
    with pytest.raises(CertificateError, match="not those of this version"):
        SignedSettings.from_dict(settings.to_dict() | {"new": 1})


def test_no_value_of_the_table_is_in_the_certificate(table, certified):
    payload = base64.b64decode(json.loads(certified)["payload"]).decode()
    incomes = {f"{value:.3f}" for value in table["income"]}
    numbers = {text for text in incomes if f'"{text}"' in payload or f":{text}," in payload}
    assert len(numbers) < 3  # a rate may happen to have three digits


@pytest.mark.parametrize("told", [{}, {"mitigation": "x"}, {"mitigation": {"plugin": 3}}])
def test_a_model_that_says_nothing_of_a_mitigation_has_none(told):
    assert mitigation_of(told) is None


def test_fair_metrics_are_named_once_for_each_auditor(make, model):
    findings = [
        make.finding("performance_gap", 0.1, auditor="restricted-dro", evidence={"metric_sha256": "a" * 64}),
        make.finding("worst", 0.1, auditor="restricted-dro", parameters={"metric_sha256": "a" * 64}),
        make.finding("m", 0.1),
    ]
    assert fair_metrics_of(make.report(model(), findings)) == [{"auditor": "restricted-dro", "sha256": "a" * 64}]


@pytest.mark.long
def test_what_is_not_known_is_signed_and_comes_back(table, scorer, signer):
    """Missing groups, wrong labels and simultaneous intervals are settings, and their bounds are in the certificate."""
    frame = table.assign(sex=[None if i % 7 == 0 else value for i, value in enumerate(table["sex"])])
    settings = SignedSettings(
        data=ROLES,
        auditors=("group",),
        parameters={"group": {"label_error": ["sex=0.05", "paid=0.02"], "simultaneous": True}},
        policy=(
            Rule.from_dict({"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.5}),
            Rule.from_dict({"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.25}),
        ),
        adjustment="holm",
    )
    raw, report = certify(OnnxModel.load(scorer), settings.open_data(frame), settings, [signer.secret])
    found = certificate.verify(raw, [signer.public])
    assert found.report.data.missing == {"sex": 86}
    finding = found.report.find("demographic_parity_difference", "sex")
    assert {"missing_bounds", "label_error_bounds", "outcome_error_bounds", "simultaneous_interval"} <= set(
        finding.evidence
    )
    assert finding.evidence["missing_bounds"]["low"] <= finding.value <= finding.evidence["missing_bounds"]["high"]
    assert "inconclusive" in [rule.verdict for rule in report.policy]
    again = SignedSettings.from_dict(found.settings)
    assert recompute(found, scorer, again.open_data(frame)).policy == report.policy
    filled = frame.assign(sex=frame["sex"].fillna("f"))
    with pytest.raises(VerificationError):
        recompute(found, scorer, again.open_data(filled))


def test_a_support_size_is_signed_and_comes_back(table, scorer, signer):
    pytest.importorskip("numba")
    settings = SignedSettings(
        data=ROLES,
        auditors=("restricted-dro",),
        parameters={
            "restricted-dro": {"epsilon": 0.1, "fair_metric": "euclidean", "columns": ["income"], "support": 200}
        },
        policy=(Rule.from_dict({"metric": "performance_gap", "sensitive": None, "max": 50.0, "support": 200}),),
    )
    raw, report = certify(OnnxModel.load(scorer), settings.open_data(table), settings, [signer.secret])
    assert report.verdict == "pass"
    found = certificate.verify(raw, [signer.public])
    assert found.report.policy[0].rule.support == 200
    (finding,) = found.report.findings
    assert finding.evidence["support_sizes"] == [50, 100, 200]
    assert len(finding.evidence["support_values"]) == 3
    again = SignedSettings.from_dict(found.settings)
    assert recompute(found, scorer, again.open_data(table)).policy == report.policy


METRIC = '''
import fairkit


class HighScores(fairkit.Mean):
    """The share of scores above .6."""

    name = "high_scores"
    better = "none"
    range = (0.0, 1.0)
    meaning = "0: nobody; 1: everybody."
    needs = frozenset({"score"})

    def per_row(self, rows):
        return (rows.score > 0.6).astype(float)


@fairkit.hookimpl
def fairkit_metrics():
    return [HighScores]
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution with a metric as pip does: a module, and its entry point."""

    def installed():
        folder = tmp_path / "site"
        made = folder / "fairkit_high-1.0.dist-info"
        made.mkdir(parents=True)
        (folder / "fairkit_high_scores.py").write_text(METRIC, encoding="utf-8")
        (made / "METADATA").write_text("Metadata-Version: 2.1\nName: fairkit-high\nVersion: 1.0\n", encoding="utf-8")
        (made / "entry_points.txt").write_text("[fairkit]\nhigh-scores = fairkit_high_scores\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        declarations.cache_clear()  # one process is several here
        return folder

    yield installed
    declarations.cache_clear()


def test_a_metric_that_somebody_installs_later_refuses_no_certificate(
    table, scorer, certified, settings, signer, install
):
    found = certificate.verify(certified, [signer.public])
    folder = install()
    now = settings.run(scorer, settings.open_data(table))
    assert "high_scores" in {one.metric for one in now.findings}  # it is in every audit, and stands between others
    again = recompute(found, scorer, settings.open_data(table))
    assert [one.key for one in again.findings] == [one.key for one in found.report.findings]
    assert again.verdict == "pass"

    with_it, _ = certify(OnnxModel.load(scorer), settings.open_data(table), settings, [signer.secret])
    signed = certificate.verify(with_it, [signer.public])
    assert recompute(signed, scorer, settings.open_data(table)).find("high_scores", None).value > 0
    shutil.rmtree(folder / "fairkit_high-1.0.dist-info")
    with pytest.raises(VerificationError, match=r"high_scores is signed, and the audit does not have it.*plugins"):
        recompute(signed, scorer, settings.open_data(table))


def test_findings_are_compared_by_key_and_none_may_be_missing_or_too_many(table, scorer, settings, signer):
    dataset = settings.open_data(table)
    honest = settings.run(scorer, dataset)
    shuffled = replace(honest, findings=honest.findings[::-1])
    assert list(compare_reports(shuffled, honest)) == []
    more = replace(honest.findings[0], parameters={"class": "x"})
    for findings, told in (
        (honest.findings[1:], "is not signed"),
        ((*honest.findings, more), "is signed, and the audit does not have it"),
        ((more, *honest.findings[1:]), "is signed, and the audit does not have it.*is not signed"),
    ):
        raw = certifying.issue(replace(honest, findings=findings), [signer.secret], settings=settings.to_dict())
        with pytest.raises(VerificationError, match=told):
            recompute(certificate.verify(raw, [signer.public]), scorer, dataset)
