"""What an imported archive must hold: manifests of versions, checked before anything is believed."""

from __future__ import annotations

import hashlib
import re
import tarfile
from contextlib import contextmanager
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from fairkit.support.files import replacing
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry import jsonio as names
from fairkit_registry.blobs import CHUNK, Staged, is_digest
from fairkit_registry.errors import ArchiveError, RegistryError
from fairkit_registry.evidence.signers import PublicKey, parse_public
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from fairkit_registry.store.index import Version
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
        aliases = [alias for alias in registry.aliases(version.name) if alias.version == version.version]
        policies = [alias.policy for alias in registry.aliases(version.name)]
        pems = {pem for policy in policies for pem in policy.keys}
        trusted = [*(parse_public(pem) for pem in sorted(pems)), *extra]
        manifest = _manifest(writer, registry, version, {key.keyid: key for key in trusted})
        annotations = {REF: f"{version.name}-{version.version}", "dev.fairkit.name": version.name}
        if aliases:
            annotations["dev.fairkit.aliases"] = ",".join(alias.alias for alias in aliases)
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
    found = [_arrival(_read(entry, staged, MANIFEST, "manifest"), staged) for entry in manifests]
    return sorted(found, key=lambda arrival: (arrival.name, arrival.version))


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
    config = _read(manifest.get("config"), staged, CONFIG, "version record")
    layers = manifest.get("layers")
    if not isinstance(layers, list):
        raise ArchiveError("the archive is refused: a manifest has no layers")
    kinds = (MODEL, CERTIFICATE, PUBLIC_KEY)
    files: dict[str, list[Staged]] = {kind: [] for kind in kinds}
    for layer in layers:
        blob = _find(layer, staged, "layer")
        if layer.get("mediaType") not in files:
            raise ArchiveError(f"the archive is refused: a layer is of type {layer.get('mediaType')!r}")
        files[layer["mediaType"]].append(blob)
    if len(files[MODEL]) != 1:
        raise ArchiveError("the archive is refused: a manifest must have exactly one ONNX file")
    return Arrival(
        **record_of(config),
        model=files[MODEL][0],
        certificates=tuple(files[CERTIFICATE]),
        keys=tuple(files[PUBLIC_KEY]),
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


_ALLOWED = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")
_FOLDERS = frozenset({"", "blobs", "blobs/sha256"})
MOST_MEMBERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A regular file of the archive, to be read before the next one is asked for."""

    name: str
    size: int
    handle: IO[bytes]

    def chunks(self) -> Iterator[bytes]:
        """Return the content piece by piece."""
        left = self.size
        while left:
            piece = self.handle.read(min(CHUNK, left))
            if not piece:
                raise ArchiveError(f"the archive is cut off within {self.name}")
            left -= len(piece)
            yield piece

    def small(self, limit: int) -> bytes:
        """Return the content of a file that must be small."""
        if self.size > limit:
            raise ArchiveError(f"{self.name} has {self.size} bytes; at most {limit} are read there")
        return b"".join(self.chunks())


class _Bounded:
    """A file whose reads are bounded: tarfile would read a header of any declared size into memory."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= CHUNK:
            raise ArchiveError("the archive is refused: a header in it is of absurd size")
        return self._raw.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()


@contextmanager
def members(path: Path, *, most_bytes: int) -> Iterator[Iterator[Member]]:
    """Open an archive and go through its files, refusing what an OCI layout does not hold.

    No name from the archive ever becomes a path. Links, devices, sparse files, other names, doubles
    and compressed archives are refused.
    """
    try:
        with path.open("rb") as raw:
            yield _walk(path, raw, most_bytes)
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"{path} is not a tar archive, or is damaged ({error})") from None
    except OSError as error:
        raise ArchiveError(f"cannot read the archive {path}: {error.strerror or error}") from None


def _walk(path: Path, raw: BinaryIO, most_bytes: int) -> Iterator[Member]:
    magic = raw.read(6)
    raw.seek(0)
    if magic[:2] == b"\x1f\x8b" or magic[:3] == b"BZh" or magic == b"\xfd7zXZ\x00" or magic[:4] == b"\x28\xb5\x2f\xfd":
        raise ArchiveError(f"{path} is compressed; unpack it first (gunzip): only plain tar archives are read")
    seen: set[str] = set()
    total = end = 0
    with tarfile.open(fileobj=_Bounded(raw), mode="r:") as tar:  # type: ignore[call-overload]
        while (entry := tar.next()) is not None:
            # A negative size would send the reader back and round in circles.
            if entry.size < 0 or entry.offset < end:
                raise ArchiveError("the archive is refused: the size of a file in it is negative")
            end = entry.offset_data
            name = _safe_name(entry)
            if entry.isdir():
                continue
            total += entry.size
            if total > most_bytes:
                raise ArchiveError(
                    f"the archive holds more than {most_bytes} bytes; pass a larger --max-bytes if you trust it"
                )
            if name in seen or len(seen) >= MOST_MEMBERS:
                raise ArchiveError(f"the archive is refused: {name} stands in it twice, or it has too many files")
            seen.add(name)
            handle = tar.extractfile(entry)
            if handle is None:
                raise ArchiveError(f"the archive is refused: {name} is no file")
            yield Member(name=name, size=entry.size, handle=handle)
            tar.members = []  # tarfile would keep a record of every member


def _safe_name(entry: tarfile.TarInfo) -> str:
    name = entry.name.removeprefix("./").rstrip("/")
    if entry.isdir() and (name in _FOLDERS or name == "."):
        return name
    if not entry.isreg() or entry.issparse():
        kind = "a link" if entry.issym() or entry.islnk() else "no regular file"
        raise ArchiveError(f"the archive is refused: {entry.name!r} is {kind}")
    if not _ALLOWED.fullmatch(name):
        raise ArchiveError(f"the archive is refused: {entry.name!r} does not belong into an OCI image layout")
    return name
