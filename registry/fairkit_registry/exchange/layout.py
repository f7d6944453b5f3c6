"""What an imported archive must hold: manifests of versions, checked before anything is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry import names
from fairkit_registry.blobs import Staged, is_digest
from fairkit_registry.errors import ArchiveError, RegistryError
from fairkit_registry.exchange import archive
from fairkit_registry.jsonio import StrictJsonError, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_DOCUMENT = 8 << 20
_LONGEST_TEXT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One version on its way in: staged files and the record that came with them."""

    name: str
    version: int
    filename: str
    parent: str | None
    tags: tuple[str, ...]
    notes: str
    model: Staged
    certificates: tuple[Staged, ...]
    keys: tuple[Staged, ...]
    source: str = ""

    @property
    def origin(self) -> str:
        """What the version was called where it comes from, with the digest of its model."""
        return f"{self.source or f'{self.name}@{self.version}'} sha256:{self.model.digest}"


def read_document(raw: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON document of the archive."""
    try:
        return read_object(raw)
    except StrictJsonError as error:
        raise ArchiveError(f"the archive's {where} cannot be read: {error}") from None


def arrivals(index: bytes, staged: Mapping[str, Staged]) -> list[Arrival]:
    """Follow the index to every version."""
    manifests = read_document(index, "index.json").get("manifests")
    if not isinstance(manifests, list) or not manifests:
        raise ArchiveError("the archive holds no models: its index.json lists no manifest")
    found = [_arrival(_read(entry, staged, archive.MANIFEST, "manifest"), staged) for entry in manifests]
    return sorted(found, key=lambda one: (one.name, one.version))


def _find(entry: Any, staged: Mapping[str, Staged], where: str) -> Staged:
    digest = entry.get("digest") if isinstance(entry, dict) else None
    if not isinstance(digest, str) or not is_digest(digest.removeprefix("sha256:")):
        raise ArchiveError(f"the archive is refused: a {where} has no SHA-256 digest")
    blob = staged.get(digest.removeprefix("sha256:"))
    if blob is None:
        raise ArchiveError(f"the archive is incomplete: the {where} {digest} is missing")
    if entry.get("size") != blob.size:
        raise ArchiveError(f"the archive is refused: the {where} {digest} has another size than declared")
    return blob


def _read(entry: Any, staged: Mapping[str, Staged], kind: str, where: str) -> dict[str, Any]:
    blob = _find(entry, staged, where)
    if entry.get("mediaType") != kind:
        raise ArchiveError(f"the archive is refused: a {where} is of type {entry.get('mediaType')!r}, not {kind!r}")
    if blob.size > LARGEST_DOCUMENT:
        raise ArchiveError(f"the archive is refused: the {where} {blob.digest} is too large ({blob.size} bytes)")
    return read_document(blob.path.read_bytes(), where)


def _arrival(manifest: dict[str, Any], staged: Mapping[str, Staged]) -> Arrival:
    config = _read(manifest.get("config"), staged, archive.CONFIG, "version record")
    layers = manifest.get("layers")
    if not isinstance(layers, list):
        raise ArchiveError("the archive is refused: a manifest has no layers")
    kinds = (archive.MODEL, archive.CERTIFICATE, archive.PUBLIC_KEY)
    files: dict[str, list[Staged]] = {kind: [] for kind in kinds}
    for layer in layers:
        blob = _find(layer, staged, "layer")
        if layer.get("mediaType") not in files:
            raise ArchiveError(f"the archive is refused: a layer is of type {layer.get('mediaType')!r}")
        files[layer["mediaType"]].append(blob)
    if len(files[archive.MODEL]) != 1:
        raise ArchiveError("the archive is refused: a manifest must have exactly one ONNX file")
    return Arrival(
        **record_of(config),
        model=files[archive.MODEL][0],
        certificates=tuple(files[archive.CERTIFICATE]),
        keys=tuple(files[archive.PUBLIC_KEY]),
    )


def record_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a version's record as the arguments of `Arrival`."""
    try:
        return {
            "name": names.check_name(_text(config, "name")),
            "version": _number(config, "version"),
            "filename": _text(config, "filename"),
            "parent": None if config.get("parent") is None else str(names.parse(_text(config, "parent"))),
            "tags": tuple(_text({"tag": tag}, "tag") for tag in config.get("tags", ())),
            "notes": _text(config, "notes"),
        }
    except ArchiveError:
        raise
    except (RegistryError, TypeError) as error:
        raise ArchiveError(f"the archive is refused: its version record is not understood ({error})") from None


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ArchiveError(f"the archive is refused: its version record has no usable {key!r}")
    return value


def _number(record: Mapping[str, Any], key: str) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**12:
        raise ArchiveError(f"the archive is refused: its version record has no usable {key!r}")
    return value
