"""A version as a ModelPack artifact (CNCF model-spec), the form in which models lie in OCI registries.

The model's bytes are the layer, so that the layer's digest is the subject of its certificates. Certificates and
revocation lists are artifacts that refer to the manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_registry import names
from fairkit_registry.errors import ArchiveError, RegistryError
from fairkit_registry.exchange import archive
from fairkit_registry.exchange.layout import record_of
from fairkit_registry.jsonio import StrictJsonError, canonical, fingerprint, read_object
from fairkit_registry.oci.blobs import check_descriptor
from fairkit_registry.oci.client import EMPTY, MANIFEST
from fairkit_registry.oci.transport import LARGEST_ANSWER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit_registry.oci.address import Address
    from fairkit_registry.oci.client import Client
    from fairkit_registry.store.records import Version

ARTIFACT = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHT = "application/vnd.cncf.model.weight.v1.raw"
CREATED = "org.opencontainers.image.created"
RECORD = "dev.fairkit.version"
_FILE = "org.cncf.model.filepath"
_FORMATS = frozenset({WEIGHT, archive.MODEL})


def config(version: Version) -> bytes:
    """Return the model's description; the specification allows no keys of our own in it."""
    described = {
        "descriptor": {"name": version.name, "version": str(version.version), "createdAt": version.added_at},
        "config": {"format": "onnx"},
        "modelfs": {"type": "layers", "diffIds": [f"sha256:{version.model}"]},
    }
    return canonical(described)


def manifest(version: Version, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return a version's manifest."""
    title = f"{version.name}-{version.version}.onnx"
    layer = {
        "mediaType": WEIGHT,
        "digest": f"sha256:{version.model}",
        "size": version.size,
        "annotations": {_FILE: title, archive.TITLE: title},
    }
    record = canonical(archive.version_record(version)).decode("utf-8")
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": {"mediaType": CONFIG, **described},
        "layers": [layer],
        "annotations": {CREATED: version.added_at, RECORD: record},
    }


def referrer(
    subject: Mapping[str, Any], kind: str, layer: Mapping[str, Any], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return a manifest of one file that refers to another manifest; the same file gives the same manifest."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": kind,
        "config": {"mediaType": EMPTY, "digest": EMPTY_DIGEST, "size": 2},
        "layers": [{"mediaType": kind, **layer}],
        "subject": dict(subject),
        "annotations": dict(annotations),
    }


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the digest that a manifest has when it is put into a registry."""
    return f"sha256:{fingerprint(content)}"


EMPTY_DIGEST = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
"""Of ``{}``."""


def model_layer(content: Mapping[str, Any], address: Address) -> tuple[str, int, str]:
    """Return digest, size and file name of the model in a manifest."""
    layers = content.get("layers")
    listed = layers if isinstance(layers, list) else []
    models = [one for one in listed if isinstance(one, dict) and one.get("mediaType") in _FORMATS]
    if len(models) != 1:
        raise ArchiveError(
            f"{address} has {len(models) or 'no'} file{'s' if len(models) > 1 else ''} of a model as it is ({WEIGHT}); "
            "it takes exactly one, an ONNX file"
        )
    digest, size = check_descriptor(models[0])
    named = models[0].get("annotations")
    title = named.get(_FILE) or named.get(archive.TITLE) if isinstance(named, dict) else None
    return digest, size, title if isinstance(title, str) and 0 < len(title) < 256 else "model.onnx"


def record(client: Client, content: Mapping[str, Any], address: Address, filename: str) -> dict[str, Any]:
    """Return the record of where a model comes from, as the arguments of `Arrival`; a new one for others' models."""
    annotations, described = content.get("annotations"), content.get("config")
    told = annotations.get(RECORD) if isinstance(annotations, dict) else None
    raw = told.encode("utf-8") if isinstance(told, str) else None
    if isinstance(described, dict) and described.get("mediaType") == archive.CONFIG:  # an archive that was copied
        raw = client.small(described, LARGEST_ANSWER)
    try:
        return record_of(_new_record(address, filename) if raw is None else read_object(raw))
    except StrictJsonError as error:
        raise ArchiveError(f"the record of {address} cannot be read: {error}") from None


def _new_record(address: Address, filename: str) -> dict[str, Any]:
    last = address.repository.rpartition("/")[2]
    try:
        names.check_name(last)
    except RegistryError:
        last = "model"
    notes = f"from {address}"
    return {"name": last, "version": 1, "filename": filename, "parent": None, "tags": [], "notes": notes}
