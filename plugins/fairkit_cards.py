"""Versions of models as model cards, for people and for the Hugging Face Hub, and as bills of materials."""

from __future__ import annotations

import json
import math
import re
import uuid
from typing import TYPE_CHECKING, Any

import fairkit
from fairkit.exporters import Exporter
from fairkit.support.escaping import json_text, markdown_table, visible
from fairkit.support.escaping import markdown as escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.exporters import Card, CertifiedReport
    from fairkit.results.findings import Finding, Interval
    from fairkit.results.report import Report


class ModelCard(Exporter):
    """A model card in Markdown."""

    name = "markdown"

    def export(self, card: Card) -> str:
        """Return the card; see `fairkit_cards`."""
        return markdown(card)


class HubCard(Exporter):
    """A model card for the Hugging Face Hub: front matter with evaluation results, then the card."""

    name = "hf-card"

    def export(self, card: Card) -> str:
        """Return the card; see `fairkit_cards`."""
        return hub_card(card)


class CycloneDX(Exporter):
    """A bill of materials, CycloneDX 1.7."""

    name = "cyclonedx"

    def export(self, card: Card) -> str:
        """Return the bill as JSON; see `fairkit_cards`."""
        return cyclonedx(card)


@fairkit.hookimpl
def fairkit_exporters() -> list[type[Exporter]]:
    """Return one exporter for each form."""
    return [ModelCard, HubCard, CycloneDX]


# A model card in Markdown: what was measured, with intervals, and what the numbers do not say.


CAVEATS: tuple[str, ...] = (
    "Each number is a statement under its metric, on the audited data; it does not say that the model is fair.",
    "An interval covers sampling error only: not wrong labels, not data unlike the people who are judged.",
    "Groups that the data does not name were not looked at; small groups have wide intervals or none.",
    "A signature says who stated the numbers. It does not say when, nor that the key was not lost since.",
)


def number(value: float | None) -> str:
    """Write a value with four significant digits, or a dash."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


def interval(pair: Interval | None) -> str:
    """Write an interval, or a dash."""
    if pair is None:
        return "-"
    return (
        "["
        + ", ".join("∞" if bound == math.inf else "-∞" if bound == -math.inf else number(bound) for bound in pair)
        + "]"
    )


def markdown(card: Card) -> str:
    """Return the model card.

    Text that came from outside (names, notes) is escaped, so that it cannot add headings, links or HTML.
    """
    return "\n".join(_lines(card)).rstrip() + "\n"


def _lines(card: Card) -> Iterator[str]:
    yield f"# Model card: {escaped(card.reference)}"
    yield ""
    if card.notes:
        yield escaped(card.notes)
        yield ""
    mitigation = next(
        (certificate.mitigation for certificate in card.certificates if certificate.mitigation is not None), None
    )
    rows = [
        ("SHA-256 of the ONNX file", f"`{card.model_sha256}`"),
        ("added", card.added_at),
        ("made from", escaped(card.parent or "-")),
        ("aliases", escaped(", ".join(card.aliases) or "-")),
        ("tags", escaped(", ".join(card.tags) or "-")),
        (
            "mitigation",
            "-" if mitigation is None else escaped(f"{mitigation['plugin']} {dict(mitigation['parameters'])}"),
        ),
        ("size", f"{card.size} bytes, {sum(card.operators.values())} operators, {card.weights} weights"),
        ("inputs", escaped(", ".join(card.inputs))),
        ("outputs", escaped(", ".join(card.outputs))),
    ]
    yield from markdown_table(("", ""), rows)
    if not card.certificates:
        yield "## No certificate"
        yield ""
        yield "Nothing was measured and signed for this version."
        yield ""
    for certificate in card.certificates:
        yield from _certificate(certificate)
    yield "## Caveats"
    yield ""
    yield from (f"- {sentence}" for sentence in CAVEATS)


def _certificate(certificate: CertifiedReport) -> Iterator[str]:
    report = certificate.report
    yield f"## Audit of {certificate.audited_at[:10]}"
    yield ""
    signer = ", ".join(f"`{keyid[:16]}`" if keyid.isalnum() else "(no key id)" for keyid in certificate.keyids)
    if certificate.verified:
        yield f"Signed by {signer}; the signature was checked with a trusted key."
    else:
        yield f"Names the key {signer} as its signer. **No alias trusts it: the numbers below are a claim.**"
    yield ""
    data = report.data
    yield f"Data: {escaped(data.name)}, {data.rows} rows{data.lacking}."
    yield ""
    yield f"Digest of its content: `{data.sha256}`."
    yield ""
    yield f"Verdict: **{report.verdict or 'no policy'}**."
    yield ""
    if report.policy:
        rows = []
        for rule in report.policy:
            limit = rule.rule.say()
            rows.append(
                (escaped(rule.metric), escaped(rule.sensitive or "all"), limit, rule.verdict, escaped(rule.reason))
            )
        yield from markdown_table(("rule", "groups", "limit", "verdict", "why"), rows)
    yield "### Findings"
    yield ""
    measured = [
        (escaped(f.metric), escaped(f.sensitive or "all rows"), number(f.value), interval(f.interval), f.better)
        for f in report.findings
    ]
    yield from markdown_table(("metric", "groups", "value", f"interval ({report.confidence:g})", "better"), measured)
    yield from _groups(report.findings)
    notes = dict.fromkeys(note for finding in report.findings for note in finding.notes)
    notes |= dict.fromkeys([*report.model.notes, *report.data.notes])
    if notes:
        yield "### Notes of the audit"
        yield ""
        yield from (f"- {escaped(note)}" for note in notes)
        yield ""


def _groups(findings: Sequence[Finding]) -> Iterator[str]:
    rows = [
        (
            escaped(f.metric),
            escaped(f.sensitive or ""),
            escaped(g.group),
            str(g.rows),
            number(g.value),
            interval(g.interval),
        )
        for f in findings
        for g in f.groups
    ]
    if rows:
        yield "### By group"
        yield ""
        yield from markdown_table(("metric", "column", "group", "rows", "value", "interval"), rows)


# A model card as the Hugging Face Hub takes it: front matter with evaluation results, then the card.


TASKS = {
    "binary": "tabular-classification",
    "multiclass": "tabular-classification",
    "regression": "tabular-regression",
    "ranking": "text-ranking",
}
MOST_METRICS = 60
_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")


def hub_card(card: Card) -> str:
    """Return the card with its front matter; the numbers are those of the newest certificate, verified ones first.

    YAML holds JSON, and so the front matter is JSON in lines: text from outside cannot change its form. The Hub's form
    has no place for intervals; each metric's name says its own, and `args` has it as numbers.
    """
    front_matter: dict[str, Any] = {"library_name": "onnx", "tags": ["onnx", "fairness", "fairkit", *card.tags]}
    chosen = next((certificate for certificate in card.certificates if certificate.verified), None) or next(
        iter(card.certificates), None
    )
    if chosen is not None:
        front_matter["model-index"] = [{"name": card.name, "results": [_result(chosen)]}]
    front = "\n".join(f"{key}: {_json(value)}" for key, value in front_matter.items())
    return f"---\n{front}\n---\n\n{markdown(card)}"


def _result(certificate: CertifiedReport) -> dict[str, Any]:
    report = certificate.report
    data = report.data
    return {
        "task": {"type": TASKS.get(report.model.task, "other")},
        "dataset": {
            "type": "private",
            "name": data.name,
            "args": {"sha256": data.sha256, "rows": data.rows, "groups": dict(data.groups)},
        },
        "metrics": [_metric(finding, certificate) for finding in _chosen(report)],
    }


def _chosen(report: Report) -> Sequence[Finding]:
    """Return findings: those the policy limits, then those over all rows, then differences between groups."""
    ruled = {(rule.metric, rule.sensitive) for rule in report.policy}
    finite = [finding for finding in report.findings if finding.value is not None and math.isfinite(finding.value)]

    def place(one: Finding) -> int:
        if (one.metric, one.sensitive) in ruled:
            return 0
        return 1 if one.sensitive is None else 2 if one.metric.endswith("_difference") else 3

    return [finding for finding in sorted(finite, key=place) if place(finding) < 3][:MOST_METRICS]


def _metric(finding: Finding, certificate: CertifiedReport) -> dict[str, Any]:
    where = f" ({finding.place})" if finding.sensitive else ""
    sure = f", {finding.confidence:.0%} interval {interval(finding.interval)}" if finding.interval else ", no interval"
    claim = "" if certificate.verified else ", a claim: no trusted key has signed it"
    args: dict[str, Any] = {
        "sensitive": finding.sensitive,
        "interval": None if finding.interval is None else [_end(end) for end in finding.interval],
        "confidence": finding.confidence,
        "certificate": certificate.sha256,
        "signed_by": list(certificate.keyids) if certificate.verified else [],
        "caveat": CAVEATS[0],
    }
    rule = next(
        (r for r in certificate.report.policy if (r.metric, r.sensitive) == (finding.metric, finding.sensitive)), None
    )
    if rule is not None:
        args |= {"max": None, "min": None, rule.rule.side: rule.limit, "verdict": rule.verdict}
    name = f"{finding.metric.replace('_', ' ')}{where}{sure}{claim}"
    return {"type": finding.metric, "value": finding.value, "name": name, "args": args}


def _end(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _json(value: Any) -> str:
    """Write JSON that every YAML reader takes for the same: what a reader would act on is shown as an escape."""
    text = json.dumps(_shown(value), ensure_ascii=False, allow_nan=False)
    return _BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list | tuple) else value


# A CycloneDX 1.7 machine-learning bill of materials for one version.


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
        *(("fairkit:verdict", certificate.report.verdict or "none") for certificate in card.certificates[:1]),
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
        parameters["datasets"] = [_dataset(certificate) for certificate in _by_data(card.certificates)]
        result["quantitativeAnalysis"] = {
            "performanceMetrics": [entry for finding in newest.report.findings for entry in _metrics(finding)]
        }
        assessments = _assessments(newest)
        if assessments:
            considerations["fairnessAssessments"] = assessments
    return result


def _by_data(certificates: tuple[CertifiedReport, ...]) -> list[CertifiedReport]:
    return list({certificate.report.data.sha256: certificate for certificate in reversed(certificates)}.values())


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
        entry = _bom_metric(kind, finding.value, finding.interval)
        yield entry | ({"slice": f"between groups of {finding.sensitive}"} if finding.sensitive else {})
    for group in finding.groups:
        if group.value is not None:
            yield _bom_metric(kind, group.value, group.interval) | {"slice": f"{finding.sensitive}={group.group}"}


def _bom_metric(kind: str, value: float, interval: Interval | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": kind, "value": repr(value)}
    if interval is not None:
        entry["confidenceInterval"] = {"lowerBound": repr(interval[0]), "upperBound": repr(interval[1])}
    return entry


def _assessments(certificate: CertifiedReport) -> list[dict[str, str]]:
    strategy = "none certified"
    if certificate.mitigation is not None:
        parameters = json.dumps(certificate.mitigation["parameters"], sort_keys=True)
        strategy = f"{certificate.mitigation['plugin']} {parameters}"
    return [
        {
            "groupAtRisk": rule.sensitive or "all",
            "harms": f"{rule.metric}: {rule.verdict}. {rule.reason}".strip(),
            "mitigationStrategy": strategy,
        }
        for rule in certificate.report.policy
    ]
