from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources

import pytest

from fairkit_cards import cyclonedx, hub_card, markdown
from fairkit_registry.exchange import describe
from fairkit_registry.store.index import AliasPolicy


@pytest.fixture
def card(registry, model, certify, signer, make):
    findings = [
        make.finding("demographic_parity_difference", 0.05, notes=("Rows 3 | 4 were small.",)),
        make.finding("accuracy", 0.81, sensitive=None, groups=(), better="higher"),
        make.finding("selection_rate_difference", 0.1, interval=None),
        make.finding("roc_auc_difference", 0.1, interval=(float("-inf"), 0.2)),
    ]
    mitigation = {"plugin": "threshold-optimizer", "parameters": {"constraint": "dp"}, "base": None}
    registry.add("credit", model(1))
    registry.add(
        "credit",
        model(2),
        certificates=[certify(model(2), findings, mitigation=mitigation)],
        parent="credit@1",
        tags=["candidate"],
        notes="# A <b>bold</b>\n[link](http://x) *claim*",
    )
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    return describe.card(registry, registry.version("credit@2"))


def test_the_model_card_has_findings_intervals_groups_and_caveats(card, signer):
    text = markdown(card)
    assert text.startswith("# Model card: credit@2\n")
    assert r"| demographic\_parity\_difference | sex | 0.05 | [0.04, 0.06] | lower |" in text
    assert r"| demographic\_parity\_difference | sex | f | 40 | 0.05 | [0.04, 0.06] |" in text
    assert "| accuracy | all rows | 0.81 | [0.8, 0.82] | higher |" in text
    assert "[-∞, 0.2]" in text
    assert f"Signed by `{signer.public.keyid[:16]}`" in text
    assert "threshold-optimizer" in text
    assert r"Rows 3 \| 4 were small." in text
    assert "it does not say that the model is fair" in text


def test_text_from_outside_cannot_change_the_card(card):
    text = markdown(card)
    assert r"\# A \<b\>bold\</b\> \[link\](http\://x) \*claim\*" in text
    assert sum(line.startswith("# ") for line in text.splitlines()) == 1


def read_back(text, tmp_path):
    """Read a card with the Hub's own library."""
    hub = pytest.importorskip("huggingface_hub", reason="huggingface-hub is not installed: pip install 'fairkit[dev]'")
    path = tmp_path / "README.md"
    path.write_text(text, encoding="utf-8")
    return hub.ModelCard.load(path)


@pytest.mark.long
def test_the_hub_s_library_reads_the_evaluation_results_back(card, signer, tmp_path):
    read = read_back(hub_card(card), tmp_path)
    data = read.data
    assert (data.model_name, data.library_name) == ("credit", "onnx")
    assert "candidate" in data.tags
    found = {one.metric_type: one for one in data.eval_results}
    gap = found["demographic_parity_difference"]
    assert gap.metric_value == 0.05
    assert gap.metric_name == "demographic parity difference (sex), 95% interval [0.04, 0.06]"
    assert gap.metric_args["interval"] == pytest.approx([0.04, 0.06])
    assert gap.metric_args["signed_by"] == [signer.public.keyid]
    assert gap.task_type == "tabular-classification"
    assert gap.dataset_args["sha256"] == card.certificates[0].report.data.sha256
    assert found["accuracy"].metric_args["sensitive"] is None
    assert read.text.strip().startswith("# Model card: credit@2")


def test_text_from_outside_cannot_change_the_front_matter(card, tmp_path):
    evil = 'a"\n---\n# no\u2028\x85: [*x, !!python/object {}] \U0001f600'
    report = card.certificates[0].report
    forged = replace(card.certificates[0], report=replace(report, data=replace(report.data, name=evil)))
    text = hub_card(replace(card, certificates=(forged,), tags=(evil,)))
    read = read_back(text, tmp_path)
    assert text.count("\n---\n") == 1
    assert "\U0001f600" in read.data.eval_results[0].dataset_name
    assert "\n" not in read.data.tags[-1]
    assert "a claim" not in text
    claimed = hub_card(replace(card, certificates=(replace(forged, verified=False),)))
    assert "a claim: no trusted key has signed it" in claimed


def test_a_hub_card_without_a_certificate_has_no_results(registry, model, tmp_path):
    registry.add("credit", model())
    read = read_back(hub_card(describe.card(registry, registry.version("credit"))), tmp_path)
    assert read.data.eval_results is None
    assert "## No certificate" in read.text


def test_without_a_certificate_the_card_says_so(registry, model):
    registry.add("credit", model())
    text = markdown(describe.card(registry, registry.version("credit")))
    assert "## No certificate" in text
    assert "### Findings" not in text


def test_an_unverified_certificate_is_called_a_claim(registry, model, certify):
    registry.add("credit", model(), certificates=[certify(model())])
    assert "a claim" in markdown(describe.card(registry, registry.version("credit")))


@pytest.fixture(scope="module")
def bom_schema():
    """CycloneDX's own schema, as its Python library ships it."""
    schemas = pytest.importorskip("cyclonedx.schema._res")
    from jsonschema import Draft7Validator
    from referencing import Registry, Resource

    folder = resources.files(schemas)
    parts = {
        name: json.loads(folder.joinpath(f"{name}.SNAPSHOT.schema.json").read_text("utf-8"))
        for name in ("bom-1.7", "spdx", "jsf-0.82", "cryptography-defs")
    }
    known = Registry().with_resources((part["$id"], Resource.from_contents(part)) for part in parts.values())
    return Draft7Validator(parts["bom-1.7"], registry=known)


def test_the_bill_of_materials_is_valid_cyclonedx(card, bom_schema):
    text = cyclonedx(card)
    assert [error.message for error in bom_schema.iter_errors(json.loads(text))] == []
    wrong = json.loads(text.replace('"machine-learning-model"', '"no such type"'))
    assert list(bom_schema.iter_errors(wrong))
    assert cyclonedx(card) == text


def test_the_certificates_are_evidence_by_digest(card):
    (component,) = json.loads(cyclonedx(card))["components"]
    named = [one["hashes"][0]["content"] for one in component["externalReferences"]]
    assert named == list(card.attached) != []
    assert {one["type"] for one in component["externalReferences"]} == {"attestation"}


def test_the_bill_of_materials_has_metrics_per_group(card, make):
    (component,) = json.loads(cyclonedx(card))["components"]
    assert component["type"] == "machine-learning-model"
    assert component["hashes"] == [{"alg": "SHA-256", "content": card.model_sha256}]
    metrics = component["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert {
        "type": "group/demographic_parity_difference",
        "value": "0.05",
        "confidenceInterval": {"lowerBound": "0.04", "upperBound": "0.060000000000000005"},
        "slice": "sex=f",
    } in metrics
    assert any(entry["type"] == "group/accuracy" and "slice" not in entry for entry in metrics)
    data = component["modelCard"]["modelParameters"]["datasets"][0]
    assert {"name": "fairkit:content:sha256", "value": make.data} in data["contents"]["properties"]
    assessment = component["modelCard"]["considerations"]["fairnessAssessments"][0]
    assert assessment["groupAtRisk"] == "sex"
    assert "threshold-optimizer" in assessment["mitigationStrategy"]


def test_a_bill_of_materials_without_certificates_is_valid_too(registry, model, bom_schema):
    registry.add("credit", model())
    text = cyclonedx(describe.card(registry, registry.version("credit")))
    assert [error.message for error in bom_schema.iter_errors(json.loads(text))] == []


def test_the_schemas_are_shipped():
    names = {entry.name for entry in resources.files("fairkit_registry").joinpath("schemas").iterdir()}
    assert "fairness-audit-1.schema.json" in names
