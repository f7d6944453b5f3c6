"""Everything about one version, gathered for display, and written by an exporter."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.errors import PluginError
from fairkit.exporters import Card, CertifiedReport
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry import blobs, jsonio
from fairkit_registry.blobs import BlobStore, Staged, hash_file
from fairkit_registry.errors import ArchiveError, CertificateError, KeyFileError, RegistryError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence.predicate import time_text
from fairkit_registry.evidence.signers import PublicKey, parse_public
from fairkit_registry.exchange.layout import LARGEST_DOCUMENT, Arrival, arrivals, members
from fairkit_registry.store import tables
from fairkit_registry.store.folder import Staging, staging_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.store.index import Version
    from fairkit_registry.store.registry import Registry


def pinned_keys(registry: Registry, name: str, alias: str | None = None) -> list[PublicKey]:
    """Return the keys that an alias of a model trusts, or that any of its aliases does."""
    chosen = [record for record in registry.aliases(name) if alias in (None, record.alias)]
    keys = [parse_public(pem) for record in chosen for pem in record.policy.keys]
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
    aliases = [alias.alias for alias in registry.aliases(version.name) if alias.version == version.version]
    graph = blobs.summarise(registry.model_path(version))
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
        earlier = chosen.get(one.statement_sha256)
        if earlier is None or (one.verified and not earlier.verified):
            chosen[one.statement_sha256] = one
    return list(chosen.values())


# Taking an archive in: everything in it is checked under temporary names before the registry changes.


MOST_BYTES = 64 << 30
"""Bytes that an archive may hold, unless the caller allows more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One version of an archive."""

    origin: str  # what it is called in the archive
    version: Version | None  # what it became here; None where the archive was only looked at
    new: bool  # false where the registry had it already (the same record and model, and all its certificates)
    certificates: tuple[Certificate, ...]  # verified where keys were given, else as they came
    carried_keys: tuple[str, ...]  # key ids of the public keys in the archive. They are shown, and never trusted

    @property
    def verdict(self) -> str | None:
        """The verdict of the newest certificate, if it was verified."""
        newest = max(self.certificates, key=lambda one: one.audited_at, default=None)
        return newest.report.verdict if newest is not None and newest.verified else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)


def import_archive(
    registry: Registry,
    path: Path,
    *,
    name: str | None = None,
    trusted: Sequence[PublicKey] = (),
    most_bytes: int = MOST_BYTES,
) -> list[Imported]:
    """Add every version of an archive, all of them or none.

    Versions get the next numbers here and remember where they come from; a version that was imported
    before is not added again. Public keys in the archive are never trusted.
    """
    with registry.staging() as staging:
        return take_in(registry, _take_in(staging, path, most_bytes), name=name, trusted=trusted)


def take_in(
    registry: Registry, incoming: Sequence[Arrival], *, name: str | None, trusted: Sequence[PublicKey]
) -> list[Imported]:
    """Add versions whose files are staged, all of them or none; for the rest see `import_archive`."""
    if name is not None and len({arrival.name for arrival in incoming}) > 1:
        raise ArchiveError("--name goes with an archive of one model; this one holds several")
    inspected = [_inspect(arrival, trusted, registry.revoked()) for arrival in incoming]
    with registry.folder.write() as connection:
        renamed: dict[str, tuple[str, int]] = {}
        return [
            _insert(connection, registry.blobs, arrival, name=name, certificates=certificates, renamed=renamed)
            for arrival, certificates in zip(incoming, inspected, strict=True)
        ]


def look_into(
    path: Path, trusted: Sequence[PublicKey], scratch: Path, *, most_bytes: int = MOST_BYTES
) -> list[Imported]:
    """Check an archive as an import would, and add nothing."""
    with staging_in(BlobStore(scratch)) as staging:
        incoming = _take_in(staging, path, most_bytes)
        return [
            Imported(
                origin=f"{arrival.name}@{arrival.version}",
                version=None,
                new=False,
                certificates=_inspect(arrival, trusted, {}),
                carried_keys=_carried(arrival),
            )
            for arrival in incoming
        ]


def _take_in(staging: Staging, path: Path, most_bytes: int) -> list[Arrival]:
    """Copy the archive's blobs under temporary names, and follow its index."""
    blobs: dict[str, Staged] = {}
    documents: dict[str, bytes] = {}
    with members(path, most_bytes=most_bytes) as entries:
        for entry in entries:
            if "/" not in entry.name:
                documents[entry.name] = entry.small(LARGEST_DOCUMENT)
                continue
            staged = staging.take(staging.blobs.stage(entry.chunks()))
            if staged.digest != entry.name.rpartition("/")[2]:
                raise ArchiveError(f"the archive is refused: the content of {entry.name} does not have this digest")
            blobs[staged.digest] = staged
    if "oci-layout" not in documents or "index.json" not in documents:
        raise ArchiveError(f"{path} is no OCI image layout: it lacks oci-layout or index.json")
    return arrivals(documents["index.json"], blobs)


def _inspect(arrival: Arrival, trusted: Sequence[PublicKey], revoked: Mapping[str, str]) -> tuple[Certificate, ...]:
    """Look at a version's files; with keys, every certificate must be signed by one of them that is not revoked."""
    where = f"{arrival.name}@{arrival.version}"
    blobs.check_file(arrival.model.path, shown=Path(arrival.filename))
    if trusted and not arrival.certificates:
        raise CertificateError(f"{where} in the archive has no certificate, so no key can vouch for it")
    certificates = []
    for staged in arrival.certificates:
        raw = certificate.read_file(staged.path)
        label = f"the certificate {staged.digest[:12]} of {where}"
        if not trusted:
            certificates.append(certificate.check_subject(raw, arrival.model.digest, where=label))
            continue
        try:
            certificates.append(certificate.verify(raw, trusted, model_sha256=arrival.model.digest, revoked=revoked))
        except CertificateError as error:
            raise type(error)(f"{label}: {error}") from None
    return tuple(certificates)


def _carried(arrival: Arrival) -> tuple[str, ...]:
    labels = []
    for staged in arrival.keys:
        try:
            labels.append(parse_public(staged.path.read_bytes()).keyid if staged.size < LARGEST_DOCUMENT else "")
        except KeyFileError:
            labels.append("")
    return tuple(sorted(filter(None, labels)))


def _insert(
    connection: sqlite3.Connection,
    blobs: BlobStore,
    arrival: Arrival,
    *,
    name: str | None,
    certificates: tuple[Certificate, ...],
    renamed: dict[str, tuple[str, int]],
) -> Imported:
    target = jsonio.check_name(name or arrival.name)
    carried = _carried(arrival)
    row = connection.execute(
        "SELECT version FROM versions WHERE name = ? AND origin = ?", (target, arrival.origin)
    ).fetchone()
    if row is None:
        version = tables.insert_version(
            connection,
            blobs,
            target,
            arrival.model,
            arrival.certificates,
            filename=arrival.filename,
            parent=renamed.get(arrival.parent or ""),
            tags=arrival.tags,
            notes=arrival.notes,
            origin=arrival.origin,
            action="import",
        )
        new = True
    else:
        version, new = _complete(connection, blobs, arrival, target, row["version"])
    renamed[f"{arrival.name}@{arrival.version}"] = (target, version.version)
    return Imported(
        origin=f"{arrival.name}@{arrival.version}",
        version=version,
        new=new,
        certificates=certificates,
        carried_keys=carried,
    )


def _complete(
    connection: sqlite3.Connection, blobs: BlobStore, arrival: Arrival, name: str, number: int
) -> tuple[Version, bool]:
    """Add the certificates that a version did not have when it was imported before."""
    version = tables.find_version(connection, name, number)
    fresh = [one for one in arrival.certificates if one.digest not in version.certificates]
    at = tables.now()
    for one in {one.digest: one for one in fresh}.values():
        tables.attach(connection, blobs, version, one, at)
    return tables.find_version(connection, name, number), bool(fresh)


def check_addition(name: str, file: Path, certificates: Sequence[Path], parent: str | None) -> None:
    """Refuse what `Registry.add` would refuse."""
    jsonio.check_name(name)
    blobs.check_file(file)
    if parent is not None:
        raise RegistryError(f"the registry is new and has no {parent}: leave the parent out, or name another registry")
    if certificates:
        from fairkit_registry.evidence.certificate import check_subject, read_file

        digest = hash_file(file)
        for path in certificates:
            check_subject(read_file(path), digest, where=str(path))


def check_archive(path: Path, trusted: Sequence[PublicKey], most_bytes: int) -> None:
    """Refuse what `importing.import_archive` would refuse."""
    from fairkit_registry.exchange.describe import look_into

    with tempfile.TemporaryDirectory(prefix="fairkit-") as scratch:
        look_into(path, trusted, Path(scratch), most_bytes=most_bytes)
