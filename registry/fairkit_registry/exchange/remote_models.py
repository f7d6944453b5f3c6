"""Where in an OCI registry a model's bytes are: as they are in a ModelPack's layer, or packed in an image's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry.blobs import is_digest
from fairkit_registry.errors import ArchiveError
from fairkit_registry.exchange import images, modelpack
from fairkit_registry.oci.blobs import check_descriptor
from fairkit_registry.oci.client import INDEX, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairkit_registry.oci.address import Address
    from fairkit_registry.oci.client import Client, Document


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteModel:
    """A model in an OCI registry."""

    top: Document  # what the address means: a manifest or an index. The evidence refers to it
    manifest: Document  # the manifest with the model's layer
    model: str  # SHA-256 of the ONNX file; in an image a claim, until `pieces` has come to its end
    layer: str  # digest and bytes of the layer
    size: int  # digest and bytes of the layer
    filename: str  # what the file was called
    packed: bool  # whether the layer is an image's

    def pieces(self, client: Client) -> Iterator[bytes]:
        """Yield the model piece by piece; the last piece is followed by an error unless all has its digest."""
        if not self.packed:
            yield from client.blob(self.layer, self.size)
            return
        seen = hashlib.sha256()
        for piece in images.unpacked(client.blob(self.layer, self.size)):
            seen.update(piece)
            yield piece
        if seen.hexdigest() != self.model:
            raise ArchiveError(
                f"the model in the image has SHA-256 {seen.hexdigest()}, and the manifest names {self.model}"
            )


def find(client: Client, address: Address) -> RemoteModel:
    """Find the model at an address."""
    top = client.manifest(address.reference, accept=(MANIFEST, INDEX))
    manifest = top
    if top.content.get("mediaType") == INDEX:
        listed = top.content.get("manifests")
        first = listed[0] if isinstance(listed, list) and listed else None
        manifest = client.manifest(check_descriptor(first)[0])
    claimed = _claimed(manifest.content)
    if claimed is None:
        layer, size, filename = modelpack.model_layer(manifest.content, address)
        model = layer.removeprefix("sha256:")
        return RemoteModel(
            top=top, manifest=manifest, model=model, layer=layer, size=size, filename=filename, packed=False
        )
    layers = manifest.content.get("layers")
    if not isinstance(layers, list) or len(layers) != 1:
        raise ArchiveError(f"{address} is an image with other layers than a model's; it takes exactly one")
    layer, size = check_descriptor(layers[0])
    return RemoteModel(
        top=top, manifest=manifest, model=claimed, layer=layer, size=size, filename="model.onnx", packed=True
    )


def _claimed(content: Mapping[str, Any]) -> str | None:
    """Return the model that an image says it has; None where it is no image of ours."""
    told, described = content.get("annotations"), content.get("config")
    named = told.get(images.MODEL) if isinstance(told, dict) else None
    image = isinstance(described, dict) and described.get("mediaType") == images.CONFIG
    digest = named.removeprefix("sha256:") if isinstance(named, str) else ""
    return digest if image and is_digest(digest) else None
