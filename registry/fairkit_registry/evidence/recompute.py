"""The whole audit again, from what a certificate says, compared number by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fairkit.results.findings import facts_of
from fairkit_registry.blobs import is_digest
from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import charts, predicate, signed
from fairkit_registry.evidence.certificate import Certificate, check_report, check_statement
from fairkit_registry.evidence.predicate import public_findings
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.signed import PolicyLock, SignedTable
from fairkit_registry.jsonio import read_object

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.progress import Progress
    from fairkit.results.report import Report
    from fairkit_onnx.file import OnnxModel
    from fairkit_registry.evidence.signers import Signer


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

    A subspace without a strength was learned against the summed loss, `dif` without a `difference` took logits as they
    were, and as many rows are asked as were.
    """
    settings = SignedSettings.from_dict(certificate.settings)
    parameters = {name: dict(values) for name, values in settings.parameters.items()}
    for finding in certificate.report.findings:
        told = finding.parameters
        if told.get("metric") == "subspace" and "metric_sha256" in told and "strength" not in told:
            parameters.setdefault(finding.auditor, {})["penalty"] = "summed"
        if finding.auditor == "dif" and told.get("output") == "logit" and "difference" not in told:
            parameters.setdefault(finding.auditor, {})["difference"] = "single"
        if "queries" in told:
            parameters.setdefault(finding.auditor, {})["queries"] = told["queries"]
    return dataclasses.replace(settings, parameters=parameters)


def compare_reports(signed: Report, again: Report) -> Iterator[str]:
    """Say in sentences where two reports differ by more than the tolerance."""
    then, now = _by_key(signed), _by_key(again)
    for key in [*then, *(key for key in now if key not in then)]:
        name = "/".join(str(part) for part in key[:3] if part is not None)
        if key not in then or key not in now:
            yield f"the finding {name} is {'not signed' if key in now else 'signed, and the audit does not have it'}"
            continue
        first, second = then[key], now[key]
        left_out = set(GONE)
        if not set(charts.COMPACT) & set(first["evidence"]):  # older certificates have no charts
            left_out |= {*charts.COMPACT, *charts.CHARTS}
        for finding in (first, second):
            finding["evidence"] = {k: v for k, v in finding["evidence"].items() if k not in left_out}
        yield from _differences(first, second, name, 1e-6 if first["metric"] in LEARNED else TOLERANCE)
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
        for number, (first, second) in enumerate(zip(then, now, strict=True)):
            yield from _differences(first, second, f"{where}[{number}]", tolerance)
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


# From a model and data to a certificate: audit, gather, sign.


METRIC_DIGEST = "metric_sha256"
"""The key under which an auditor's finding names the digest of the fair metric that it used."""


def certify(
    model: OnnxModel | Any | None,
    dataset: Dataset,
    settings: SignedSettings,
    secrets: Sequence[Signer],
    *,
    audited_at: datetime | None = None,
    progress: Progress | None = None,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
    tables: Sequence[bytes] = (),
    about: Mapping[str, str] | None = None,
    policy_lock: bytes | None = None,
    lock_salt: str | None = None,
    valid_days: float | None = None,
) -> tuple[bytes, Report]:
    """Audit a model and sign what is found, whatever the verdict."""
    if model is not None and model.external:
        raise CertificateError(
            f"{model.name} keeps weights in other files, which its digest does not cover; save it as one file: "
            "onnx.save_model(onnx.load(path), out, save_as_external_data=False)"
        )
    for raw in tables:
        _check_table(raw, dataset.learn().sha256)
    report = settings.run(model, dataset, progress=progress, engine=engine, scheduler=scheduler)
    report = dataclasses.replace(report, about=facts_of(about or {}))
    made = audited_at or datetime.now(UTC)
    check_statement(report, settings.to_dict())  # nothing is signed that would be refused later
    if policy_lock is not None:
        check_report(report, settings.to_dict(), made, PolicyLock.read(policy_lock), salt=lock_salt)
    signed = issue(
        report,
        secrets,
        settings=settings.to_dict(),
        mitigation=None if model is None else mitigation_of(model.settings),
        fair_metrics=fair_metrics_of(report),
        audited_at=made,
        tables=tables,
        policy_lock=policy_lock,
        lock_salt=lock_salt,
        valid_until=None if valid_days is None else made + timedelta(days=valid_days),
    )
    return signed, report


def issue(
    report: Report,
    secrets: Sequence[Signer],
    *,
    settings: Mapping[str, Any],
    mitigation: Mapping[str, Any] | None = None,
    fair_metrics: Sequence[Mapping[str, Any]] = (),
    audited_at: datetime | None = None,
    tables: Sequence[bytes] = (),
    policy_lock: bytes | None = None,
    lock_salt: str | None = None,
    valid_until: datetime | None = None,
) -> bytes:
    """Sign a report; of what was asked about a table without a model, the table is the subject."""
    about = report.data if report.model.unseen else report.model
    if about.sha256 is None:
        raise CertificateError("only a model in a file can be certified: save it as ONNX and audit the file")
    try:
        body = predicate.build(
            report,
            settings=settings,
            mitigation=mitigation,
            fair_metrics=fair_metrics,
            audited_at=audited_at or datetime.now(UTC),
            table_statements=[read_object(raw) for raw in tables],
            policy_lock=None if policy_lock is None else signed.Envelope.from_bytes(policy_lock).to_dict(),
            lock_salt=lock_salt,
            valid_until=valid_until,
        )
    except (ValueError, TypeError) as error:
        raise CertificateError(f"the report cannot be written as JSON: {error}") from None
    return Certificate.sign(about.name, about.sha256, body, secrets)


def _check_table(raw: bytes, sha256: str) -> None:
    """Refuse a statement about another table, whoever signed it."""
    table = SignedTable.read(raw)
    if table.sha256 != sha256:
        raise CertificateError(
            f"the statement about {table.name} names the content {table.sha256[:16]}..., the table has "
            f"{sha256[:16]}...: it is about another table, or the table was changed since"
        )


def mitigation_of(embedded: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read from a model's own metadata which mitigation made it: plugin, parameters, base model's digest, search.

    It is what the file says about itself; the signature vouches that the file says so.
    """
    mitigation = embedded.get("mitigation")
    if not isinstance(mitigation, Mapping) or not isinstance(mitigation.get("plugin"), str):
        return None
    parameters, base = mitigation.get("parameters"), mitigation.get("base_model")
    record = {
        "plugin": mitigation["plugin"],
        "parameters": dict(parameters) if isinstance(parameters, Mapping) else {},
        "base": {"sha256": base} if isinstance(base, str) and is_digest(base) else None,
    }
    record |= {key: mitigation[key] for key in ("learner", "seed", "fairkit") if mitigation.get(key) is not None}
    return record | ({"search": dict(mitigation["search"])} if isinstance(mitigation.get("search"), Mapping) else {})


def fair_metrics_of(report: Report) -> list[dict[str, str]]:
    """Gather the digests of the fair metrics that findings name."""
    named = {
        (finding.auditor, str(source[METRIC_DIGEST]))
        for finding in report.findings
        for source in (finding.parameters, finding.evidence)
        if source.get(METRIC_DIGEST)
    }
    return [{"auditor": auditor, "sha256": digest} for auditor, digest in sorted(named)]
