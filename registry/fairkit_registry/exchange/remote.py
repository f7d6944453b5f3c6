"""Versions to and from OCI registries. What comes is staged and checked whole before the registry here changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import ArchiveError, CertificateError, VerificationError
from fairkit_registry.evidence.certificate import LARGEST_CERTIFICATE, check_subject, read_file, verify
from fairkit_registry.evidence.keys import keyid_of
from fairkit_registry.evidence.predicate import TYPE
from fairkit_registry.evidence.revocations import LARGEST, read
from fairkit_registry.evidence.revoked import remembered
from fairkit_registry.exchange import archive, modelpack
from fairkit_registry.exchange.importing import MOST_BYTES, take_in
from fairkit_registry.exchange.layout import Arrival
from fairkit_registry.oci.blobs import check_descriptor
from fairkit_registry.oci.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations
    from fairkit_registry.exchange.importing import Imported
    from fairkit_registry.oci.address import Address
    from fairkit_registry.oci.client import Document
    from fairkit_registry.store.registry import Registry

_MOST_REFERRERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What a push did: the manifest's digest, how many files refer to it, and the bytes that had to be sent."""

    digest: str
    referrers: int
    sent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A model in an OCI registry with what refers to it, whose bytes were read and have their digests.

    Attributes
    ----------
    digest
        Of the manifest.
    model
        SHA-256 of the ONNX file.
    certificates
        Name and bytes of each file that came as one.
    lists
        Bytes of each file that came as a revocation list.
    """

    digest: str
    model: str
    certificates: tuple[tuple[str, bytes], ...]
    lists: tuple[bytes, ...]

    def known(self, trusted: Sequence[PublicKey]) -> Revocations:
        """Return what counts no longer: by lists that came and that a trusted key signed, and those seen before."""
        found = remembered(trusted)
        for raw in self.lists:
            with suppress(VerificationError):
                found = found.merge(read(raw, trusted), "came along or was seen by this user")
        return found

    def claims(self) -> tuple[list[Certificate], list[str]]:
        """Return what the certificates about the model say, whoever signed them, and what is none."""
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


def push(registry: Registry, reference: str, address: Address) -> Pushed:
    """Put a version into an OCI registry, with its certificates and the revocation lists of its aliases' keys.

    The tag comes last: until then nobody sees anything of it. What the registry has is not sent again.

    Raises
    ------
    RegistryError
        There is no such version, its file is damaged, or the registry does not take it.
    """
    version = registry.version(reference)
    path = registry.model_path(version)
    policies = [one.policy for one in registry.aliases(version.name)]
    issuers = {keyid_of(pem) for policy in policies for pem in (*policy.keys, *policy.revokers)}
    lists = [raw for keyid, raw in sorted(registry.revocations().items()) if keyid in issuers]
    with Client(address) as client:
        client.push_file(path, f"sha256:{version.model}", version.size)
        content = modelpack.manifest(version, client.push_bytes(modelpack.config(version)))
        made, _ = client.push_manifest(content)
        files = [(archive.CERTIFICATE, registry.certificate(digest)) for digest in version.certificates]
        files += [(archive.REVOCATIONS, raw) for raw in lists]
        _refer(client, made, files)
        if address.tag and not client.has_manifest(address.tag, made.digest):
            client.push_manifest(content, address.tag)
        return Pushed(digest=made.digest, referrers=len(files), sent=client.sent)


def attach(address: Address, certificates: Sequence[Path]) -> Pushed:
    """Attach certificates to a model that is in an OCI registry.

    Raises
    ------
    CertificateError
        One is none, or about another model. Nothing was attached then.
    RegistryError
        There is no such model, or the registry does not take them.
    """
    with Client(address) as client:
        found = client.manifest(address.reference)
        model = modelpack.model_layer(found.content, address)[0].removeprefix("sha256:")
        files = []
        for path in certificates:
            raw = read_file(path)
            check_subject(raw, model, where=str(path))
            files.append((archive.CERTIFICATE, raw))
        _refer(client, found, files)
        return Pushed(digest=found.digest, referrers=len(files), sent=client.sent)


def _refer(client: Client, subject: Document, files: Iterable[tuple[str, bytes]]) -> None:
    there = {one.get("digest") for one in client.referrers(subject.digest)}
    for kind, raw in files:
        hints = {"in-toto.io/predicate-type": TYPE} if kind == archive.CERTIFICATE else {}
        layer = client.push_bytes(raw)
        client.push_bytes(b"{}")
        content = modelpack.referrer(subject.descriptor, kind, layer, hints)
        if modelpack.digest_of(content) not in there:
            client.attach(content)


def pull(
    registry: Registry, address: Address, *, name: str | None = None, trusted: Sequence[PublicKey] = ()
) -> Imported:
    """Add a model of an OCI registry as a version here, with the certificates that refer to it.

    Parameters
    ----------
    registry
        Where to.
    address
        Which.
    name
        Another name for the model.
    trusted
        With keys, one of them must have signed a certificate, and only those that they signed are taken.

    Raises
    ------
    ArchiveError
        A file does not have its digest, or the manifest is not that of a model. Nothing has changed then.
    CertificateError
        No trusted key vouches for it.
    RegistryError
        It cannot be read, or the registry here cannot be written.
    """
    with registry.staging() as staging, Client(address) as client:
        found = client.manifest(address.reference)
        digest, size, filename = modelpack.model_layer(found.content, address)
        if size > MOST_BYTES:
            raise ArchiveError(f"{address} has {size} bytes; at most {MOST_BYTES} are read")
        model = staging.take(staging.blobs.stage(client.blob(digest, size)))
        remote = _remote(client, found, address)
        arrival = Arrival(
            **modelpack.record(client, found.content, address, filename),
            model=model,
            keys=(),
            certificates=tuple(staging.take(staging.blobs.stage([raw])) for raw in _kept(remote, trusted)),
            revocations=tuple(staging.take(staging.blobs.stage([raw])) for raw in remote.lists),
        )
        (imported,) = take_in(registry, [arrival], name=name, trusted=trusted)
        return replace(imported, origin=str(address.at(found.digest)))


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
    """Read a model in an OCI registry and all that refers to it, and keep nothing.

    Parameters
    ----------
    address
        Which.
    model
        Whether to read the model's bytes too, to hold them against their digest.

    Raises
    ------
    ArchiveError
        A file does not have its digest, or the manifest is not that of a model.
    RegistryError
        It cannot be read.
    """
    with Client(address) as client:
        found = client.manifest(address.reference)
        digest, size, _ = modelpack.model_layer(found.content, address)
        if model:
            for _ in client.blob(digest, size):
                pass
        return _remote(client, found, address)


def _remote(client: Client, found: Document, address: Address) -> Remote:
    files: dict[str, list[tuple[str, bytes]]] = {archive.CERTIFICATE: [], archive.REVOCATIONS: []}
    limits = {archive.CERTIFICATE: LARGEST_CERTIFICATE, archive.REVOCATIONS: LARGEST}
    for layer in found.content["layers"]:  # an archive that was copied has them beside the model
        if layer.get("mediaType") in files:
            raw = client.small(layer, limits[layer["mediaType"]])
            files[layer["mediaType"]].append((str(layer["digest"]), raw))
    listed = client.referrers(found.digest)
    if len(listed) > _MOST_REFERRERS:
        raise ArchiveError(f"{len(listed)} artifacts refer to {address}; at most {_MOST_REFERRERS} are read")
    for entry in listed:
        if entry.get("artifactType") in files:
            kind, one, raw = _file(client, entry, found.digest, limits)
            files[kind].append((one, raw))
    return Remote(
        digest=found.digest,
        model=modelpack.model_layer(found.content, address)[0].removeprefix("sha256:"),
        certificates=tuple(files[archive.CERTIFICATE]),
        lists=tuple(raw for _, raw in files[archive.REVOCATIONS]),
    )


def _file(
    client: Client, entry: dict[str, Any], subject: str, limits: dict[str, int]
) -> tuple[str, str, bytes]:
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
