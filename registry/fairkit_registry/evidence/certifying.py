"""From a model and data to a certificate: audit, gather, sign."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fairkit.results.about import facts_of
from fairkit_registry.blobs import is_digest
from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import dsse, predicate
from fairkit_registry.evidence.certificate import Certificate, check_report, check_statement
from fairkit_registry.evidence.statements import PolicyLock, SignedTable
from fairkit_registry.jsonio import read_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.progress import Progress
    from fairkit.results.report import Report
    from fairkit_onnx.model import OnnxModel
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.signers import Signer

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
            policy_lock=None if policy_lock is None else dsse.Envelope.from_bytes(policy_lock).to_dict(),
            lock_salt=lock_salt,
            valid_until=valid_until,
        )
    except (ValueError, TypeError) as error:
        raise CertificateError(f"the report cannot be written as JSON: {error}") from None
    return Certificate.sign(about.name, about.sha256, body, secrets)


def _check_table(raw: bytes, sha256: str) -> None:
    """Refuse a statement about another table, whoever signed it."""
    found = SignedTable.read(raw)
    if found.sha256 != sha256:
        raise CertificateError(
            f"the statement about {found.name} names the content {found.sha256[:16]}..., the table has "
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
