"""A CycloneDX 1.7 machine-learning bill of materials for one version."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import json_text
from fairkit_cards.markdown import CAVEATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.exporters import Card, CertifiedReport
    from fairkit.results.findings import Finding
    from fairkit.results.values import Interval

_NAMESPACE = uuid.UUID("5a0a5c0c-9c3e-5a5f-8d6e-0f8f3c1f6b11")


def cyclonedx(card: Card) -> str:
    """Return the bill of materials as JSON. The same version and certificates give the same bytes.

    The model is a component of type ``machine-learning-model`` with its digest, its model card with a
    performance metric for every finding and every group, its data sets by content digest, and its certificates as
    external references of type ``attestation``, each by its digest.
    """
    identity = "|".join([card.reference, card.model_sha256, *card.attached])
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.7.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, identity)}",
        "version": 1,
        "metadata": {"timestamp": card.added_at, "tools": {"components": [{"type": "application", "name": "fairkit"}]}},
        "components": [_component(card)],
    }
    return json_text(document) + "\n"


def _component(card: Card) -> dict[str, Any]:
    properties = [
        *(("fairkit:alias", alias) for alias in card.aliases),
        *(("fairkit:tag", tag) for tag in card.tags),
        *(("fairkit:certificate:sha256", digest) for digest in card.attached),
        *(("fairkit:verdict", one.report.verdict or "none") for one in card.certificates[:1]),
    ]
    component: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": f"model:{card.reference}",
        "name": card.name,
        "version": str(card.version),
        "hashes": [{"alg": "SHA-256", "content": card.model_sha256}],
        "modelCard": _model_card(card),
    }
    if card.notes:
        component["description"] = card.notes
    if properties:
        component["properties"] = [{"name": name, "value": value} for name, value in properties]
    if card.attached:
        component["externalReferences"] = [
            {
                "type": "attestation",
                "url": f"urn:sha256:{digest}",
                "comment": "fairness certificate, an in-toto statement in a DSSE envelope",
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
            for digest in card.attached
        ]
    if card.parent is not None:
        component["pedigree"] = {"notes": f"made from {card.parent}"}
    return component


def _model_card(card: Card) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "inputs": [{"format": text} for text in card.inputs],
        "outputs": [{"format": text} for text in card.outputs],
    }
    considerations: dict[str, Any] = {"technicalLimitations": list(CAVEATS)}
    result: dict[str, Any] = {"modelParameters": parameters, "considerations": considerations}
    if card.certificates:
        newest = card.certificates[0]
        parameters["task"] = newest.report.model.task
        parameters["datasets"] = [_dataset(one) for one in _by_data(card.certificates)]
        result["quantitativeAnalysis"] = {
            "performanceMetrics": [entry for finding in newest.report.findings for entry in _metrics(finding)]
        }
        assessments = _assessments(newest)
        if assessments:
            considerations["fairnessAssessments"] = assessments
    return result


def _by_data(certificates: tuple[CertifiedReport, ...]) -> list[CertifiedReport]:
    return list({one.report.data.sha256: one for one in reversed(certificates)}.values())


def _dataset(certificate: CertifiedReport) -> dict[str, Any]:
    data = certificate.report.data
    properties = [
        {"name": "fairkit:content:sha256", "value": data.sha256},
        {"name": "fairkit:rows", "value": str(data.rows)},
        {"name": "fairkit:auditedAt", "value": certificate.audited_at},
    ]
    sizes = [f"{column}: {group} {rows}" for column, groups in data.groups.items() for group, rows in groups.items()]
    return {
        "type": "dataset",
        "name": data.name,
        "contents": {"properties": properties},
        "description": "Audited on this table. Groups: " + ("; ".join(sizes) or "none"),
    }


def _metrics(finding: Finding) -> Iterator[dict[str, Any]]:
    kind = f"{finding.auditor}/{finding.metric}"
    if finding.value is not None:
        entry = _metric(kind, finding.value, finding.interval)
        yield entry | ({"slice": f"between groups of {finding.sensitive}"} if finding.sensitive else {})
    for group in finding.groups:
        if group.value is not None:
            yield _metric(kind, group.value, group.interval) | {"slice": f"{finding.sensitive}={group.group}"}


def _metric(kind: str, value: float, interval: Interval | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": kind, "value": repr(value)}
    if interval is not None:
        entry["confidenceInterval"] = {"lowerBound": repr(interval[0]), "upperBound": repr(interval[1])}
    return entry


def _assessments(certificate: CertifiedReport) -> list[dict[str, str]]:
    strategy = "none certified"
    if certificate.mitigation is not None:
        told = json.dumps(certificate.mitigation["parameters"], sort_keys=True)
        strategy = f"{certificate.mitigation['plugin']} {told}"
    return [
        {
            "groupAtRisk": rule.sensitive or "all",
            "harms": f"{rule.metric}: {rule.verdict}. {rule.reason}".strip(),
            "mitigationStrategy": strategy,
        }
        for rule in certificate.report.policy
    ]
