"""A model card as the Hugging Face Hub takes it: front matter with evaluation results, then the card."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import visible
from fairkit_cards.markdown import CAVEATS, interval, markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.exporters import Card, CertifiedReport
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

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
    chosen = next((one for one in card.certificates if one.verified), None) or next(iter(card.certificates), None)
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
        "metrics": [_metric(one, certificate) for one in _chosen(report)],
    }


def _chosen(report: Report) -> Sequence[Finding]:
    """Return findings: those the policy limits, then those over all rows, then differences between groups."""
    asked = {(rule.metric, rule.sensitive) for rule in report.policy}
    finite = [one for one in report.findings if one.value is not None and math.isfinite(one.value)]

    def place(one: Finding) -> int:
        if (one.metric, one.sensitive) in asked:
            return 0
        return 1 if one.sensitive is None else 2 if one.metric.endswith("_difference") else 3

    return [one for one in sorted(finite, key=place) if place(one) < 3][:MOST_METRICS]


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
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _shown(one) for key, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, list | tuple) else value
