"""A model's file from an OCI registry, kept by its digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_registry.exchange.remote_models import find
from fairkit_registry.oci.client import Client

if TYPE_CHECKING:
    from pathlib import Path

    from fairkit_registry.oci.address import Address


def fetch(address: Address, folder: Path) -> Path:
    """Return the model's file, from the folder if it is there with this content, else from the OCI registry."""
    from fairkit.support.files import replacing
    from fairkit_registry.blobs import hash_file

    with Client(address) as client:
        found = find(client, address)
        path = folder / f"{found.model}.onnx"
        if not path.is_file() or hash_file(path) != path.stem:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                for piece in found.pieces(client):
                    file.write(piece)
        return path
