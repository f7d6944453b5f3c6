"""One archive with models, certificates and public keys: an OCI image layout in a tar file.

Each version is a manifest with three kinds of layers, so that any OCI registry can hold it and the usual
tools (oras, skopeo) can copy it.
"""

from __future__ import annotations

import hashlib
import tarfile
from io import BytesIO
from typing import TYPE_CHECKING, Any

from fairkit.support.files import replacing
from fairkit_registry import names
from fairkit_registry.evidence.keys import PublicKey, parse_public
from fairkit_registry.jsonio import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fairkit_registry.store.records import Version
    from fairkit_registry.store.registry import Registry

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
ARTIFACT = "application/vnd.fairkit.model.v1"
CONFIG = "application/vnd.fairkit.version.v1+json"
MODEL = "application/vnd.fairkit.model.v1.onnx"
CERTIFICATE = "application/vnd.dsse.envelope.v1+json"
PUBLIC_KEY = "application/x-pem-file"
TITLE = "org.opencontainers.image.title"
REF = "org.opencontainers.image.ref.name"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'


class _Writer:
    """A tar file whose bytes depend on its content alone."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._written: set[str] = set()

    def _entry(self, name: str, size: int) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name)  # no owner, no time, mode 0644
        entry.size = size
        return entry

    def document(self, name: str, content: bytes) -> None:
        self._tar.addfile(self._entry(name, len(content)), BytesIO(content))

    def content(self, content: bytes, kind: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._written:
            self._written.add(digest)
            self.document(f"blobs/sha256/{digest}", content)
        return _descriptor(kind, digest, len(content), annotations)

    def file(self, path: Path, digest: str, kind: str, annotations: dict[str, str]) -> dict[str, Any]:
        size = path.stat().st_size
        if digest not in self._written:
            self._written.add(digest)
            with path.open("rb") as handle:
                self._tar.addfile(self._entry(f"blobs/sha256/{digest}", size), handle)
        return _descriptor(kind, digest, size, annotations)


def _descriptor(kind: str, digest: str, size: int, annotations: dict[str, str] | None) -> dict[str, Any]:
    record: dict[str, Any] = {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}
    return record | ({"annotations": annotations} if annotations else {})


def export(
    registry: Registry, references: Sequence[str], path: Path, *, keys: Sequence[PublicKey] = ()
) -> list[Version]:
    """Write versions, their certificates and public keys to one archive."""
    versions = _chosen(registry, references)
    with replacing(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _write(_Writer(tar), registry, versions, keys)
    return versions


def _chosen(registry: Registry, references: Sequence[str]) -> list[Version]:
    chosen: dict[str, Version] = {}
    for text in references:
        wanted = names.parse(text)
        whole = wanted.version is None and wanted.alias is None
        for version in registry.versions(wanted.name) if whole else [registry.version(wanted)]:
            chosen[version.reference] = version
    return sorted(chosen.values(), key=lambda version: (version.name, version.version))


def _write(writer: _Writer, registry: Registry, versions: Sequence[Version], extra: Sequence[PublicKey]) -> None:
    writer.document("oci-layout", LAYOUT)
    manifests = []
    for version in versions:
        aliases = [one for one in registry.aliases(version.name) if one.version == version.version]
        policies = [alias.policy for alias in registry.aliases(version.name)]
        pems = {pem for policy in policies for pem in policy.keys}
        trusted = [*(parse_public(pem) for pem in sorted(pems)), *extra]
        manifest = _manifest(writer, registry, version, {key.keyid: key for key in trusted})
        annotations = {REF: f"{version.name}-{version.version}", "dev.fairkit.name": version.name}
        if aliases:
            annotations["dev.fairkit.aliases"] = ",".join(one.alias for one in aliases)
        entry = writer.content(canonical(manifest), MANIFEST, annotations)
        manifests.append(entry | {"artifactType": ARTIFACT})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    writer.document("index.json", canonical(index))


def version_record(version: Version) -> dict[str, Any]:
    """Return a version's record as it travels."""
    record = version.to_dict()
    return {key: record[key] for key in ("name", "version", "filename", "parent", "tags", "notes", "added_at")}


def _manifest(writer: _Writer, registry: Registry, version: Version, keys: dict[str, PublicKey]) -> dict[str, Any]:
    file = registry.model_path(version)
    layers = [writer.file(file, version.model, MODEL, {TITLE: f"{version.name}-{version.version}.onnx"})]
    for number, digest in enumerate(version.certificates, 1):
        title = f"{version.name}-{version.version}.certificate{number}.json"
        layers.append(writer.content(registry.certificate(digest), CERTIFICATE, {TITLE: title}))
    for keyid, key in sorted(keys.items()):
        layers.append(writer.content(key.pem.encode("ascii"), PUBLIC_KEY, {TITLE: f"{keyid[:16]}.pub"}))
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": writer.content(canonical(version_record(version)), CONFIG),
        "layers": layers,
        "annotations": {"org.opencontainers.image.created": version.added_at},
    }
