"""The predicate of a certificate: the report, and what is needed to judge and repeat it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.results.findings import is_conditions
from fairkit.results.report import report_schema
from fairkit.support.files import mistakes
from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import charts
from fairkit_registry.jsonio import fingerprint

if TYPE_CHECKING:
    from fairkit.results.report import Report

CLOCK_SKEW = timedelta(minutes=5)
"""By how much the clocks of two machines may differ."""

TYPE = "https://fairkit.dev/fairness-audit/v1"
"""The predicate type. It is a name; nothing is ever fetched from it."""

SCHEMAS = Path(__file__).parent.parent / "schemas"
SCHEMA_FILE = "fairness-audit-1.schema.json"

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)

_PAIR_KEYS = frozenset({"from", "to", "row", "rows", "distance", "gain", "loss", "weight", "count", "probability"})
"""What may stand in an item of a list in evidence: row numbers and measurements, never a row's values."""

_CONDITION_KEYS = frozenset({"column", "value", "low", "high"})
"""What a condition is made of: it describes a group of many people, and is not a row's value."""


def time_text(moment: datetime) -> str:
    """Write a time in UTC as RFC 3339, with milliseconds where it has them: two audits of a second have an order."""
    shown = moment.astimezone(UTC)
    spec = "milliseconds" if shown.microsecond else "seconds"
    return shown.isoformat(timespec=spec).replace("+00:00", "Z")


def read_time(text: str) -> datetime:
    """Read a time with its zone."""
    try:
        if not _TIME.fullmatch(text):  # one form: every reader takes it for the same time
            raise ValueError
        return datetime.fromisoformat(text).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise CertificateError(f"a time in it is none, or has no zone: {text!r}; 2026-03-01T12:00:00Z is one") from None


def build(
    report: Report,
    *,
    settings: Mapping[str, Any],
    mitigation: Mapping[str, Any] | None,
    fair_metrics: Sequence[Mapping[str, Any]],
    audited_at: datetime,
    table_statements: Sequence[Mapping[str, Any]] = (),
    policy_lock: Mapping[str, Any] | None = None,
    lock_salt: str | None = None,
    valid_until: datetime | None = None,
) -> dict[str, Any]:
    """Return the predicate: the report's own keys, and beside them the settings and the rest."""
    body = report.to_dict()
    body["findings"] = public_findings(body["findings"])
    body.pop("decisions", None)  # they follow from the findings, which alone are held against each other
    body |= {
        "settings": dict(settings),
        "mitigation": None if mitigation is None else dict(mitigation),
        "fairMetrics": [dict(metric) for metric in fair_metrics],
        "auditedAt": time_text(audited_at),
    }
    if valid_until is not None:
        body["validUntil"] = time_text(valid_until)
    if table_statements:
        body["tableStatements"] = [dict(statement) for statement in table_statements]
    if policy_lock is not None:
        body["policyLock"] = dict(policy_lock)
    if lock_salt is not None:
        body["lockSalt"] = lock_salt
    return body | {"checksums": checksums(body)}


def public_findings(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return findings as a certificate has them: without rows, score charts compact and within their budget.

    What is public already stays as it is.
    """
    left, public = charts.MOST_BYTES, []
    for finding in findings:
        evidence, less = charts.within(charts.compacted(finding), left)
        left -= charts.size_of(evidence)
        notes = list(finding["notes"])
        if less:
            notes.append("not in the certificate, to keep it small: curves of the scores, or their distribution")
        public.append(without_rows({**finding, "evidence": evidence, "notes": notes}))
    return public


def without_rows(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finding without anything in its evidence that could be a row of the data.

    Numbers and lists of numbers stay; so do pairs by row number. An item of a list keeps only row numbers and
    measurements. Whatever is left out is named in the notes.
    """
    dropped: set[str] = set()
    evidence = {}
    for key, value in finding["evidence"].items():
        public = _public(value, dropped, key)
        if public is not None or value is None:
            evidence[key] = public
        else:
            dropped.add(key)
    notes = list(finding["notes"])
    if dropped:
        notes.append(f"not in the certificate, because it could hold rows of the data: {', '.join(sorted(dropped))}")
    return {**finding, "evidence": evidence, "notes": notes}


def _public(value: Any, dropped: set[str], where: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        plain = {k: v for k, v in value.items() if v is None or isinstance(v, bool | int | float | str)}
        dropped |= {f"{where}.{key}" for key in value if key not in plain}
        return plain
    if where in ("conditions", "within") and is_conditions(value):
        return [_condition(item) for item in value]
    if where == "columns" and value and all(map(_is_part, value)):
        return [{**item, "interval": None if item["interval"] is None else list(item["interval"])} for item in value]
    if isinstance(value, list | tuple):
        return [_public_item(item, dropped, where) for item in value]
    return None


def _is_part(item: Any) -> bool:
    """Whether something is a column's part of a gap: its name and numbers, and nothing else."""
    if not isinstance(item, Mapping) or set(item) != {"column", "value", "interval"}:
        return False
    numbers = [item["value"], *(item["interval"] or ())]
    return isinstance(item["column"], str) and all(isinstance(number, int | float) for number in numbers)


def _condition(item: Mapping[str, Any]) -> dict[str, Any]:
    scalars = {k: v for k, v in item.items() if v is None or isinstance(v, bool | int | float | str)}
    return {key: value for key, value in scalars.items() if key in _CONDITION_KEYS}


def _public_item(item: Any, dropped: set[str], where: str) -> Any:
    if isinstance(item, Mapping):
        fields = {k: v for k, v in item.items() if k in _PAIR_KEYS and isinstance(v, bool | int | float)}
        dropped |= {f"{where}[].{key}" for key in item if key not in fields}
        return fields
    if isinstance(item, bool | int | float):
        return item
    dropped.add(f"{where}[]")
    return None


def checksums(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checksum of each finding and one of everything else.

    They protect nothing, the signature does that. They let a refusal say what was changed.
    """
    rest = {key: value for key, value in body.items() if key not in ("findings", "checksums")}
    return {"findings": [fingerprint(finding) for finding in body["findings"]], "rest": fingerprint(rest)}


@functools.cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of the whole statement, as published; it refers to that of the report."""
    loaded: dict[str, Any] = json.loads((SCHEMAS / SCHEMA_FILE).read_text("utf-8"))
    return loaded


def check(statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return a statement's predicate if it has the form that it should have."""
    body = statement.get("predicate")
    missing = {"settings", "mitigation", "fairMetrics", "auditedAt"}
    if not isinstance(body, dict) or missing - set(body):
        raise CertificateError("not a fairness certificate: its predicate lacks settings, mitigation or auditedAt")
    for path, message in mistakes(statement, schema(), report_schema()):
        where = "/".join(map(str, path)) or "the statement"
        raise CertificateError(f"the certificate does not have the form of {TYPE}: {where}: {message[:200]}")
    return body
