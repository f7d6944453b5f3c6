"""Manifests and referrers of one repository; every document that comes is held against its digest."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import ArchiveError, RegistryError
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object
from fairkit_registry.oci.blobs import Blobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
_TRIES = 5
MOST_PAGES = 100
"""Pages of one list that are read."""
_OK, _CREATED, _MISSING = 200, 201, 404
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A manifest as it lies in the registry."""

    digest: str
    raw: bytes
    content: Mapping[str, Any]

    @property
    def descriptor(self) -> dict[str, Any]:
        """What refers to it."""
        return {"mediaType": self.content.get("mediaType", MANIFEST), "digest": self.digest, "size": len(self.raw)}


class Client(Blobs):
    """A repository of an OCI registry."""

    def manifest(self, reference: str, *, accept: tuple[str, ...] = (MANIFEST,)) -> Document:
        """Return a manifest by tag or digest."""
        found = self.find_manifest(reference, accept=accept)
        if found is None:
            raise RegistryError(f"{self.address.host}/{self.address.repository} has no {reference}")
        return found

    def find_manifest(self, reference: str, *, accept: tuple[str, ...] = (MANIFEST,)) -> Document | None:
        """Return a manifest, or None where there is none of that name; errors as for `manifest`."""
        response = self._transport.request(
            "GET", f"{self._root}/manifests/{reference}", headers={"Accept": ", ".join(accept)}
        )
        if response.status_code == _MISSING:
            return None
        if response.status_code != _OK:
            raise self._transport.refuse(response, f"read {reference} of {self.address.host}/{self.address.repository}")
        raw = response.content
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        if reference.startswith("sha256:") and digest != reference:
            raise ArchiveError(f"what {self.address.host} gives for the manifest {reference} does not have this digest")
        try:
            content = read_object(raw)
        except StrictJsonError as error:
            raise ArchiveError(f"the manifest {reference} cannot be read: {error}") from None
        if content.get("mediaType", accept[0]) not in accept:
            raise ArchiveError(
                f"{reference} is of type {str(content.get('mediaType'))[:80]!r}, not {accept[0]!r}: it is no model"
            )
        return Document(digest=digest, raw=raw, content=content)

    def push_manifest(self, content: Mapping[str, Any], reference: str | None = None) -> tuple[Document, bool]:
        """Put a manifest under a tag, or under its digest; return it, and whether the registry knows of its subject."""
        raw = canonical(content)
        made = Document(digest=f"sha256:{hashlib.sha256(raw).hexdigest()}", raw=raw, content=content)
        response = self._transport.request(
            "PUT",
            f"{self._root}/manifests/{reference or made.digest}",
            content=raw,
            headers={"Content-Type": content["mediaType"]},
        )
        if response.status_code not in (_OK, _CREATED):
            raise self._transport.refuse(
                response, f"put {reference or made.digest[:19]} into {self.address.host}/{self.address.repository}"
            )
        return made, "oci-subject" in response.headers

    def has_manifest(self, reference: str, digest: str) -> bool:
        """Tell whether a name means just this manifest, and the registry has it."""
        response = self._transport.request(
            "HEAD", f"{self._root}/manifests/{reference}", headers={"Accept": f"{MANIFEST}, {INDEX}"}
        )
        return response.status_code == _OK and response.headers.get("docker-content-digest") == digest

    def referrers(self, digest: str) -> list[dict[str, Any]]:
        """Return the descriptors of what refers to a manifest, from the registry's API or the fallback tag."""
        listed: list[dict[str, Any]] = []
        for response in self._pages(f"{self._root}/referrers/{digest}", f"what refers to {digest[:19]}"):
            if response.status_code == _MISSING:
                return self._fallback(digest)
            if response.status_code != _OK:
                raise self._transport.refuse(response, f"list what refers to {digest[:19]}")
            try:
                listed += _entries(read_object(response.content))
            except StrictJsonError:  # a registry that answers with a page of its own
                return self._fallback(digest)
        return listed

    def _pages(self, url: str, what: str) -> Iterator[httpx.Response]:
        """Yield the answers of a list page by page, as long as the registry itself has the next one."""
        for _ in range(MOST_PAGES):
            response = self._transport.request("GET", url)
            yield response
            following = _NEXT.search(response.headers.get("link", ""))
            if following is None:
                return
            url = urllib.parse.urljoin(str(response.request.url), following[1])
            if not url.startswith(f"{self.address.base}/"):
                raise ArchiveError(
                    f"{self.address.host} leads to another host for more of {what}; it is not followed there"
                )
        raise ArchiveError(f"{self.address.host} has more than {MOST_PAGES} pages of {what}")

    def _fallback(self, digest: str) -> list[dict[str, Any]]:
        found = self.find_manifest(_fallback_tag(digest), accept=(INDEX,))
        return [] if found is None else _entries(found.content)

    def attach(self, content: Mapping[str, Any]) -> Document:
        """Put a manifest that has a subject, and see to it that the subject's referrers name it."""
        made, by_registry = self.push_manifest(content)
        subject = content["subject"]["digest"]
        entry = made.descriptor | {
            "artifactType": content["artifactType"],
            "annotations": content.get("annotations", {}),
        }
        for _ in range(_TRIES):
            if any(one.get("digest") == made.digest for one in self.referrers(subject)):
                return made
            if not by_registry:  # no lock: somebody else may write the tag between, so it is read again
                listed = [*self._fallback(subject), entry]
                index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}
                self.push_manifest(index, _fallback_tag(subject))
        raise RegistryError(
            f"{self.address.host} does not list {made.digest[:19]} among what refers to {subject[:19]}; try again"
        )

    def tags(self) -> list[str]:
        """Return the repository's tags, without those that list referrers."""
        found = self._listed(f"{self._root}/tags/list", "tags")
        return [tag for tag in found if not re.fullmatch(r"sha256-[0-9a-f]{64}", tag)]

    def catalog(self) -> list[str]:
        """Return the registry's repositories, where it tells them."""
        return self._listed("/v2/_catalog?n=1000", "repositories")

    def _listed(self, url: str, what: str) -> list[str]:
        """Read a list of names, page by page."""
        names: list[str] = []
        for response in self._pages(url, what):
            if response.status_code != _OK:
                raise self._transport.refuse(response, f"list the {what} of {self.address.host}")
            try:
                names += [str(name) for name in read_object(response.content).get(what) or ()]
            except (StrictJsonError, TypeError):
                raise ArchiveError(f"the {what} of {self.address.host} cannot be read") from None
        return names


def _entries(index: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = index.get("manifests")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ArchiveError("the list of referrers cannot be read: it has no manifests")
    return found


def _fallback_tag(digest: str) -> str:
    return digest.replace(":", "-")
