"""Versions from OCI registries: what comes is staged and checked whole before the registry here changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import ArchiveError, CertificateError, VerificationError
from fairkit_registry.evidence.bundles import BUNDLE
from fairkit_registry.evidence.certificate import LARGEST_CERTIFICATE, check_subject, verify
from fairkit_registry.evidence.predicate import TYPE
from fairkit_registry.evidence.revocations import LARGEST, read
from fairkit_registry.evidence.revoked import remembered
from fairkit_registry.evidence.statement import predicate_type
from fairkit_registry.exchange import archive, modelpack
from fairkit_registry.exchange.importing import MOST_BYTES, take_in
from fairkit_registry.exchange.layout import Arrival
from fairkit_registry.exchange.remote_models import RemoteModel, find
from fairkit_registry.oci.blobs import check_descriptor
from fairkit_registry.oci.client import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations
    from fairkit_registry.exchange.importing import Imported
    from fairkit_registry.oci.address import Address
    from fairkit_registry.store.registry import Registry

_MOST_REFERRERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A model in an OCI registry with what refers to it, whose bytes were read and have their digests."""

    digest: str  # of the manifest
    model: str  # SHA-256 of the ONNX file
    certificates: tuple[tuple[str, bytes], ...]  # name and bytes of each file that came as one
    lists: tuple[bytes, ...]  # bytes of each file that came as a revocation list

    def known(self, trusted: Sequence[PublicKey]) -> Revocations:
        """Return the revocations by trusted keys: of the lists that came along, and of those seen before."""
        found = remembered(trusted)
        for raw in self.lists:
            with suppress(VerificationError):
                found = found.merge(read(raw, trusted), "came along or was seen by this user")
        return found

    def claims(self) -> tuple[list[Certificate], list[str]]:
        """Return the certificates about the model, whoever signed them, and the errors of other files."""
        good, strange = [], []
        for name, raw in self.certificates:
            try:
                good.append(check_subject(raw, self.model, where=f"certificate {name[7:19]}"))
            except CertificateError as error:
                strange.append(str(error))
        return good, strange

    def trusted(self, keys: Sequence[PublicKey]) -> tuple[list[Certificate], list[str]]:
        """Return the certificates that hold, and why each of the others does not.

        Who can push to the registry can attach whatever they like, so what no trusted key signed only is not counted.
        """
        good, refused, known = [], [], self.known(keys)
        for name, raw in self.certificates:
            try:
                good.append(verify(raw, keys, model_sha256=self.model, revocations=known))
            except CertificateError as error:
                refused.append(f"certificate {name[7:19]}: {error}")
        return good, refused


def pull(
    registry: Registry, address: Address, *, name: str | None = None, trusted: Sequence[PublicKey] = ()
) -> Imported:
    """Add a model of an OCI registry as a version here, with the certificates that refer to it."""
    with registry.staging() as staging, Client(address) as client:
        source = find(client, address)
        if source.size > MOST_BYTES:
            raise ArchiveError(f"{address} has {source.size} bytes; at most {MOST_BYTES} are read")
        model = staging.take(staging.blobs.stage(source.pieces(client)))
        remote = _remote(client, source, address)
        arrival = Arrival(
            **modelpack.record(client, source.manifest.content, address, source.filename),
            model=model,
            keys=(),
            certificates=tuple(staging.take(staging.blobs.stage([raw])) for raw in _kept(remote, trusted)),
            revocations=tuple(staging.take(staging.blobs.stage([raw])) for raw in remote.lists),
        )
        (imported,) = take_in(registry, [arrival], name=name, trusted=trusted)
        return replace(imported, origin=str(address.at(source.top.digest)))


def _kept(remote: Remote, trusted: Sequence[PublicKey]) -> list[bytes]:
    """Return the certificates to take: about this model, and by a trusted key where keys were named."""
    if not trusted:
        kept = []
        for name, raw in remote.certificates:
            with suppress(CertificateError):
                check_subject(raw, remote.model, where=name)
                kept.append(raw)
        return kept
    good, refused = remote.trusted(trusted)
    if not good:
        raise VerificationError("no certificate of it holds: " + ("; ".join(refused) or "there is none"))
    digests = {one.sha256 for one in good}
    return [raw for name, raw in remote.certificates if name.removeprefix("sha256:") in digests]


def look(address: Address, *, model: bool = True) -> Remote:
    """Read a model in an OCI registry and all that refers to it, and keep nothing."""
    with Client(address) as client:
        found = find(client, address)
        if model:
            for _ in found.pieces(client):
                pass
        return _remote(client, found, address)


def _remote(client: Client, source: RemoteModel, address: Address) -> Remote:
    limits = dict.fromkeys(archive.CERTIFICATES, LARGEST_CERTIFICATE) | {archive.REVOCATIONS: LARGEST}
    files: dict[str, list[tuple[str, bytes]]] = {kind: [] for kind in limits}
    for layer in source.manifest.content["layers"]:  # an archive that was copied has them beside the model
        if layer.get("mediaType") in files:
            raw = client.small(layer, limits[layer["mediaType"]])
            files[layer["mediaType"]].append((str(layer["digest"]), raw))
    listed = client.referrers(source.top.digest)
    if len(listed) > _MOST_REFERRERS:
        raise ArchiveError(f"{len(listed)} artifacts refer to {address}; at most {_MOST_REFERRERS} are read")
    for entry in listed:
        if entry.get("artifactType") in files:
            kind, name, raw = _file(client, entry, source.top.digest, limits)
            if kind != BUNDLE or predicate_type(raw) == TYPE:  # others sign models in this form too
                files[kind].append((name, raw))
    return Remote(
        digest=source.top.digest,
        model=source.model,
        certificates=tuple(one for kind in archive.CERTIFICATES for one in files[kind]),
        lists=tuple(raw for _, raw in files[archive.REVOCATIONS]),
    )


def _file(client: Client, entry: dict[str, Any], subject: str, limits: dict[str, int]) -> tuple[str, str, bytes]:
    """Follow an entry of the referrers to its one file."""
    digest, _ = check_descriptor(entry)
    content = client.manifest(digest).content
    kind, layers, about = content.get("artifactType"), content.get("layers"), content.get("subject")
    fits = kind == entry["artifactType"] and isinstance(about, dict) and about.get("digest") == subject
    if not fits or not isinstance(layers, list) or len(layers) != 1:
        raise ArchiveError(
            f"{digest} is listed as referring to {subject} and is no such artifact: the list was changed"
        )
    raw = client.small(layers[0], limits[str(kind)])
    return str(kind), str(layers[0]["digest"]), raw
