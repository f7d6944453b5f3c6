"""The whole audit again, from what a certificate says, compared number by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import VerificationError
from fairkit_registry.evidence import charts
from fairkit_registry.evidence.predicate import public_findings
from fairkit_registry.evidence.settings import SignedSettings

if TYPE_CHECKING:
    from pathlib import Path

    from fairkit.data.dataset import Dataset
    from fairkit.progress import Progress
    from fairkit.results.report import Report
    from fairkit_registry.evidence.certificate import Certificate

TOLERANCE = 1e-9
EFFORT = ("evaluations", "looks_per_row")
"""How much work a search was: nothing that another run must repeat."""
GONE = ("nearby", "other_texts", "rounding_bounds")
"""What older certificates measured besides and no audit measures now: it is not compared."""
LEARNED = ("unexplained_difference", "gap_without")
"""Numbers that come out of trained regressions: the same to 1e-6, in any order of their sums."""
ROUNDED = 2e-5
"""For what charts are drawn from, which is kept to five digits."""
_SHOWN = 8


def recompute(
    certificate: Certificate, model: str | Path | bytes | None, dataset: Dataset, *, progress: Progress | None = None
) -> Report:
    """Repeat the audit of a verified certificate and compare every number with what was signed."""
    engine = "sql" if "counts" in certificate.report.data.source else None
    again = _settings(certificate).run(model, dataset, progress=progress, engine=engine, signed=certificate.report)
    then, now = (report.model.endpoint.get("metadata_sha256") for report in (certificate.report, again))
    if then != now:
        raise VerificationError(
            f"another model answers at {again.model.endpoint.get('url')} now: the digest of its metadata is "
            f"{str(now)[:16]}..., and {str(then)[:16]}... was signed"
        )
    differences = list(compare_reports(certificate.report, again))
    if differences:
        shown = "; ".join(differences[:_SHOWN])
        more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        versions = _versions(certificate.report.environment, again.environment)
        raise VerificationError(f"the audit gives other numbers than were signed: {shown}{more}{versions}")
    return again


def _settings(certificate: Certificate) -> SignedSettings:
    """Return the settings; what a certificate does not name is done as it was then.

    A subspace without a strength was learned against the summed loss, and `dif` without a `difference` took logits as
    they were.
    """
    settings = SignedSettings.from_dict(certificate.settings)
    parameters = {name: dict(values) for name, values in settings.parameters.items()}
    for finding in certificate.report.findings:
        told = finding.parameters
        if told.get("metric") == "subspace" and "metric_sha256" in told and "strength" not in told:
            parameters.setdefault(finding.auditor, {})["penalty"] = "summed"
        if finding.auditor == "dif" and told.get("output") == "logit" and "difference" not in told:
            parameters.setdefault(finding.auditor, {})["difference"] = "single"
    return dataclasses.replace(settings, parameters=parameters)


def compare_reports(signed: Report, again: Report) -> Iterator[str]:
    """Say in sentences where two reports differ by more than the tolerance."""
    then, now = _by_key(signed), _by_key(again)
    for key in [*then, *(key for key in now if key not in then)]:
        name = "/".join(str(part) for part in key[:3] if part is not None)
        if key not in then or key not in now:
            yield f"the finding {name} is {'not signed' if key in now else 'signed, and the audit does not have it'}"
            continue
        one, other = then[key], now[key]
        left_out = set(GONE)
        if not set(charts.COMPACT) & set(one["evidence"]):  # older certificates have no charts
            left_out |= {*charts.COMPACT, *charts.CHARTS}
        for finding in (one, other):
            finding["evidence"] = {k: v for k, v in finding["evidence"].items() if k not in left_out}
        yield from _differences(one, other, name, 1e-6 if one["metric"] in LEARNED else TOLERANCE)
    yield from _differences(
        {"policy": [(rule.metric, rule.sensitive, rule.verdict) for rule in signed.policy], "verdict": signed.verdict},
        {"policy": [(rule.metric, rule.sensitive, rule.verdict) for rule in again.policy], "verdict": again.verdict},
        "the result",
    )
    yield from _differences(dict(signed.data.groups), dict(again.data.groups), "the groups' sizes")


def _by_key(report: Report) -> dict[tuple[Any, ...], dict[str, Any]]:
    public = public_findings([finding.to_dict() for finding in report.findings])
    return {finding.key: record for finding, record in zip(report.findings, public, strict=True)}


def _differences(then: Any, now: Any, where: str, tolerance: float = TOLERANCE) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in sorted(set(then) | set(now)):
            # sentences quote rounded numbers; the numbers themselves are compared
            if key != "notes" and key not in EFFORT:
                allowed = ROUNDED if key in charts.COMPACT else tolerance
                yield from _differences(then.get(key), now.get(key), f"{where} {key}", allowed)
    elif isinstance(then, list | tuple) and isinstance(now, list | tuple) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _differences(one, other, f"{where}[{number}]", tolerance)
    elif not _same(then, now, tolerance):
        yield f"{where} was {then!r} and is {now!r}"


def _same(then: Any, now: Any, tolerance: float) -> bool:
    numbers = isinstance(then, int | float) and isinstance(now, int | float)
    if numbers and not isinstance(then, bool) and not isinstance(now, bool):
        return bool(abs(then - now) <= tolerance * max(1.0, abs(then)))
    return bool(then == now)


def _versions(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    changed = [key for key in ("fairkit", "python", "plugins") if then.get(key) != now.get(key)]
    if not changed:
        return ""
    return ". Made with other versions: " + ", ".join(f"{key} {then.get(key)} / {now.get(key)}" for key in changed)
