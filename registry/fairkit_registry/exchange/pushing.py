"""Versions to OCI registries, with the evidence that refers to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fairkit_registry.evidence.bundles import BUNDLE
from fairkit_registry.evidence.certificate import check_subject, read_file
from fairkit_registry.evidence.keys import keyid_of
from fairkit_registry.evidence.oms import signs_model
from fairkit_registry.evidence.predicate import TYPE
from fairkit_registry.evidence.statement import predicate_type
from fairkit_registry.exchange import archive, images, modelpack
from fairkit_registry.exchange.remote_models import find
from fairkit_registry.oci.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from fairkit_registry.oci.address import Address
    from fairkit_registry.oci.client import Document
    from fairkit_registry.store.records import Version
    from fairkit_registry.store.registry import Registry

Form = Literal["modelpack", "image"]
"""How a model lies in an OCI registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What a push did: the manifest's digest, how many files refer to it, and the bytes that had to be sent."""

    digest: str
    referrers: int
    sent: int


def push(
    registry: Registry,
    reference: str,
    address: Address,
    *,
    form: Form = "modelpack",
    bom: bool = False,
    mount: str | None = None,
) -> Pushed:
    """Put a version into an OCI registry, with its certificates and the revocation lists of its aliases' keys.

    The tag comes last: until then nobody sees anything of it. What the registry has is not sent again.
    """
    version = registry.version(reference)
    path = registry.model_path(version)
    policies = [one.policy for one in registry.aliases(version.name)]
    issuers = {keyid_of(pem) for policy in policies for pem in (*policy.keys, *policy.revokers)}
    lists = [raw for keyid, raw in sorted(registry.revocations().items()) if keyid in issuers]
    raws = [registry.certificate(digest) for digest in version.certificates]
    files = [(archive.certificate_kind(raw), raw) for raw in raws]
    files += [(archive.REVOCATIONS, raw) for raw in lists]
    files += [(archive.BOM, _bill(registry, version))] if bom else []
    with Client(address) as client:
        if form == "image":
            made, parts = _push_image(client, registry, version, path, mount)
        else:
            client.push_file(path, f"sha256:{version.model}", version.size, mount=mount)
            content = modelpack.manifest(version, client.push_bytes(modelpack.config(version)))
            made, parts = client.push_manifest(content)[0], []
        for subject in (made, *parts):
            _refer(client, subject, files)
        if address.tag and not client.has_manifest(address.tag, made.digest):
            client.push_manifest(made.content, address.tag)
        return Pushed(digest=made.digest, referrers=len(files), sent=client.sent)


def _bill(registry: Registry, version: Version) -> bytes:
    from fairkit_registry.exchange.describe import exported

    return exported(registry, version, "cyclonedx").encode("utf-8")


def _push_image(
    client: Client, registry: Registry, version: Version, path: Path, mount: str | None
) -> tuple[Document, list[Document]]:
    """Put an image's layer, its configurations and its manifests; return the index, and the manifests."""
    with registry.staging() as staging:
        packed = staging.take(staging.blobs.stage(images.layer(path, version.size)))
        digest = f"sha256:{packed.digest}"
        client.push_file(packed.path, digest, packed.size, mount=mount)
    described = {"digest": digest, "size": packed.size}
    parts = []
    for architecture in images.PLATFORMS:
        told = client.push_bytes(images.config(version, digest, architecture))
        parts.append(client.push_manifest(images.manifest(version, told, described))[0])
    return client.push_manifest(images.index(version, [one.descriptor for one in parts]))[0], parts


def attach(address: Address, certificates: Sequence[Path]) -> Pushed:
    """Attach certificates to a model that is in an OCI registry."""
    with Client(address) as client:
        remote = find(client, address)
        files = []
        for path in certificates:
            raw = read_file(path)
            if not signs_model(raw, remote.model):
                check_subject(raw, remote.model, where=str(path))
            files.append((archive.certificate_kind(raw), raw))
        _refer(client, remote.top, files)
        return Pushed(digest=remote.top.digest, referrers=len(files), sent=client.sent)


def _refer(client: Client, subject: Document, files: Iterable[tuple[str, bytes]]) -> None:
    there = {one.get("digest") for one in client.referrers(subject.digest)}
    for kind, raw in files:
        hints = _hints(kind, raw)
        layer = client.push_bytes(raw)
        client.push_bytes(b"{}")
        content = modelpack.referrer(subject.descriptor, kind, layer, hints)
        if modelpack.digest_of(content) not in there:
            client.attach(content)


def _hints(kind: str, raw: bytes) -> dict[str, str]:
    """Return the annotations by which other tools find an artifact; nothing is decided by them."""
    if kind == archive.CERTIFICATE:
        return {"in-toto.io/predicate-type": TYPE}
    if kind == BUNDLE:
        about = predicate_type(raw)
        return {"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": about}
    return {}
