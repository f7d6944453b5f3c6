"""A model card in Markdown: what was measured, with intervals, and what the numbers do not say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairkit.support.escaping import markdown as escaped
from fairkit.support.markdown import markdown_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.exporters import Card, CertifiedReport
    from fairkit.results.findings import Finding
    from fairkit.results.values import Interval

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
    mitigation = next((one.mitigation for one in card.certificates if one.mitigation is not None), None)
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
