"""A version as an OCI image from scratch, for platforms that mount or unpack images: `models/model.onnx` in one layer.

The layer is a tar file, so its digest is not the model's; `dev.fairkit.model` on the manifests names that one, and it
is held against the bytes that come out of the layer.
"""

from __future__ import annotations

import tarfile
from typing import IO, TYPE_CHECKING, Any, cast

from fairkit_registry.blobs import CHUNK, chunks
from fairkit_registry.errors import ArchiveError
from fairkit_registry.exchange import archive
from fairkit_registry.exchange.modelpack import CREATED, RECORD
from fairkit_registry.jsonio import canonical
from fairkit_registry.oci.client import INDEX, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from fairkit_registry.store.records import Version

CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
MODEL = "dev.fairkit.model"
"""The annotation with the digest of the ONNX file."""
PLATFORMS = ("amd64", "arm64")
_PLACE = "models/model.onnx"
_MOST_MEMBERS = 100


def layer(path: Path, size: int) -> Iterator[bytes]:
    """Yield the bytes of the layer; the same model gives the same layer."""
    entry = tarfile.TarInfo(_PLACE)  # no owner, no time, mode 0644
    entry.size = size
    yield entry.tobuf(tarfile.USTAR_FORMAT)
    with path.open("rb") as handle:
        yield from chunks(handle)
    ending = -size % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE
    yield b"\0" * ending


def config(version: Version, layer_digest: str, architecture: str) -> bytes:
    """Return the configuration of the image for one architecture."""
    return canonical(
        {
            "architecture": architecture,
            "os": "linux",
            "created": version.added_at,
            "config": {"Labels": annotations_of(version)},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        }
    )


def annotations_of(version: Version) -> dict[str, str]:
    """Return the manifests' annotations of the version."""
    record = canonical(archive.version_record(version)).decode("utf-8")
    return {CREATED: version.added_at, RECORD: record, MODEL: f"sha256:{version.model}"}


def manifest(version: Version, described: Mapping[str, Any], layer_described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest for one architecture, given digests and sizes of its configuration and layer."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, **described},
        "layers": [{"mediaType": LAYER, **layer_described}],
        "annotations": annotations_of(version),
    }


def index(version: Version, descriptors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the index over the manifests, one for each of `PLATFORMS`."""
    listed = [
        {**one, "platform": {"architecture": name, "os": "linux"}}
        for one, name in zip(descriptors, PLATFORMS, strict=True)
    ]
    return {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed, "annotations": annotations_of(version)}


class _Stream:
    """What tarfile reads from: pieces that come one by one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int) -> bytes:
        found = [self._left]
        have = len(self._left)
        while have < size and (piece := next(self._pieces, None)) is not None:
            found.append(piece)
            have += len(piece)
        whole = b"".join(found)
        self._left = whole[size:]
        return whole[:size]


def unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the model in a layer, and read the rest of the layer, so that its digest is checked to the end."""
    stream = _Stream(pieces)
    met = 0
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|", bufsize=CHUNK) as tar:
            for count, entry in enumerate(tar):
                if count >= _MOST_MEMBERS:
                    raise ArchiveError(f"the image's layer has more than {_MOST_MEMBERS} files: it is no model's")
                if entry.name.removeprefix("./") != _PLACE:
                    continue
                plain = entry.isreg() and not entry.issparse()  # a few bytes of a sparse file fill a disk
                handle = tar.extractfile(entry) if plain else None
                met += 1
                if handle is None or met > 1:
                    raise ArchiveError(f"the image is refused: {_PLACE} in its layer is no file, or stands there twice")
                yield from chunks(cast("Any", handle))
    except tarfile.TarError as error:
        raise ArchiveError(f"the image's layer is no tar file, or is damaged ({error})") from None
    while stream.read(CHUNK):
        pass
    if not met:
        raise ArchiveError(f"the image's layer has no {_PLACE}")
