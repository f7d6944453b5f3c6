"""Everything about one version, gathered for display, and written by an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit import plugins
from fairkit.errors import PluginError
from fairkit.exporters import Card, CertifiedReport
from fairkit_registry import onnxfile
from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence.keys import PublicKey, parse_public
from fairkit_registry.evidence.predicate import time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.store.records import Version
    from fairkit_registry.store.registry import Registry


def pinned_keys(registry: Registry, name: str, alias: str | None = None) -> list[PublicKey]:
    """Return the keys that an alias of a model trusts, or that any of its aliases does."""
    chosen = [one for one in registry.aliases(name) if alias in (None, one.alias)]
    keys = [parse_public(pem) for one in chosen for pem in one.policy.keys]
    return list({key.keyid: key for key in keys}.values())


def certificates_of(registry: Registry, version: Version) -> list[Certificate]:
    """Return a version's certificates, the newest first; those that a pinned key signed are verified."""
    pinned = pinned_keys(registry, version.name) if version.certificates else []
    found = [_look(registry.certificate(digest), version, pinned) for digest in version.certificates]
    return sorted(found, key=lambda one: one.audited_at, reverse=True)


def _look(raw: bytes, version: Version, pinned: list[PublicKey]) -> Certificate:
    if pinned:
        try:
            return certificates.verify(raw, pinned, model_sha256=version.model)
        except CertificateError:
            pass  # shown as what it is: a claim that nobody vouches for
    return certificates.read(raw)


def card(registry: Registry, version: Version) -> Card:
    """Gather what exporters make model cards and bills of materials of."""
    aliases = [one.alias for one in registry.aliases(version.name) if one.version == version.version]
    graph = onnxfile.summarise(registry.model_path(version))
    return Card(
        name=version.name,
        version=version.version,
        model_sha256=version.model,
        size=version.size,
        added_at=version.added_at,
        parent=version.parent,
        tags=version.tags,
        notes=version.notes,
        aliases=tuple(aliases),
        inputs=graph.inputs,
        outputs=graph.outputs,
        operators=graph.operators,
        weights=graph.weights,
        attached=version.certificates,
        certificates=tuple(map(certified, distinct(certificates_of(registry, version)))),
    )


def certified(certificate: Certificate) -> CertifiedReport:
    """Return what exporters are told of a certificate."""
    return CertifiedReport(
        sha256=certificate.sha256,
        report=certificate.report,
        audited_at=time_text(certificate.audited_at),
        keyids=certificate.keyids,
        verified=certificate.verified,
        mitigation=certificate.mitigation,
    )


def exported(registry: Registry, version: Version, name: str) -> str:
    """Return a version as the exporter of a name writes it."""
    exporter, owner = plugins.exporter_of(name)
    described = card(registry, version)
    with plugins.blame(owner, f"writing {version.reference} as {name}"):
        text = exporter().export(described)
        written = isinstance(text, str) and text.encode("utf-8")
    if not written:
        raise PluginError(
            f"the exporter {name!r} of the plugin {owner.name!r} gives {type(text).__name__}, or nothing; it is to "
            "return text"
        )
    return text


def distinct(found: Sequence[Certificate]) -> list[Certificate]:
    """Return one certificate for each statement, in the same order: copies are one, and a verified one stands first."""
    chosen: dict[str, Certificate] = {}
    for one in found:
        known = chosen.get(one.statement_sha256)
        if known is None or (one.verified and not known.verified):
            chosen[one.statement_sha256] = one
    return list(chosen.values())
