"""What a watch is about: a model in the registry, a file, or a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairkit.results.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is watched, as far as a registry or a certificate tells."""

    model: str | None = None
    sha256: str | None = None
    alias: str | None = None
    certificate: str | None = None
    report: Report | None = None
    roles: Any = None
    rules: Any = ()


def subject_of(model: str | None, certificate: Path | None, registry: Path | None) -> Subject:
    """Return the subject of a watch, from a name in the registry, a file, or a certificate."""
    from fairkit_registry.evidence import certificate as certificates

    if model is None or Path(model).is_file():
        digest = None
        if model is not None:
            from fairkit_registry.blobs import hash_file

            digest = hash_file(Path(model))
        if certificate is None:
            return Subject(model=model, sha256=digest)
        raw = certificates.read_file(certificate)
        found = certificates.check_subject(raw, digest, where=str(certificate)) if digest else certificates.read(raw)
        return _of_certificate(found, model=model or found.model_name, alias=None)
    return _registered(model, certificate, registry)


def _registered(model: str, certificate: Path | None, registry: Path | None) -> Subject:
    from fairkit_cli.registry.common import open_registry
    from fairkit_registry import names
    from fairkit_registry.evidence import certificate as certificates
    from fairkit_registry.evidence.keys import parse_public

    reference = names.parse(model)
    with open_registry(registry) as store:
        version = store.version(reference)
        alias_record = None if reference.alias is None else store.alias(version.name, reference.alias)
        if certificate is not None:
            subject_certificate = certificates.check_subject(
                certificates.read_file(certificate), version.model, where=str(certificate)
            )
            return _of_certificate(subject_certificate, model=version.reference, alias=reference.alias)
        trusted = [parse_public(pem) for pem in alias_record.policy.keys] if alias_record is not None else []
        digest = (
            alias_record.certificate
            if alias_record is not None and alias_record.certificate
            else (*version.certificates, None)[0]
        )
        if digest is None:
            return Subject(model=version.reference, sha256=version.model, alias=reference.alias)
        raw = store.certificate(digest)
        subject_certificate = (
            certificates.verify(raw, trusted, model_sha256=version.model) if trusted else certificates.read(raw)
        )
    return _of_certificate(subject_certificate, model=version.reference, alias=reference.alias)


def _of_certificate(certificate: Any, *, model: str, alias: str | None) -> Subject:
    return Subject(
        model=model,
        sha256=certificate.model_sha256,
        alias=alias,
        certificate=certificate.sha256,
        report=certificate.report,
        roles=certificate.settings.get("data", {}),
        rules=tuple(
            {"metric": rule.metric, "sensitive": rule.sensitive, rule.rule.side: rule.limit, **rule.rule.scenario}
            for rule in certificate.report.policy
        ),
    )
