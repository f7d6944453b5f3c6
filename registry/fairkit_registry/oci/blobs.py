"""Blobs of a repository: sent in pieces that can be resumed, and held against their digests while they come."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Self

from fairkit_registry.blobs import CHUNK, is_digest
from fairkit_registry.errors import ArchiveError, RegistryError
from fairkit_registry.oci.transport import LostError, Transport, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import httpx

    from fairkit_registry.oci.address import Address

_PIECE = 1 << 30
"""One request for most models, as docker sends its layers: over several, some registries hash slowly."""
_RESUMED = 5
_OK, _CREATED, _ACCEPTED, _NO_CONTENT, _PARTIAL, _MISSING = 200, 201, 202, 204, 206, 404
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")


class Blobs:
    """The blobs of a repository."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.sent = 0
        self._transport = Transport(address)
        self._root = f"/v2/{address.repository}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def has_blob(self, digest: str) -> bool:
        """Tell whether the repository has a blob (``sha256:...``)."""
        response = self._transport.request("HEAD", f"{self._root}/blobs/{digest}", redirects=True)
        if response.status_code not in (_OK, _MISSING):
            raise self._transport.refuse(response, f"ask {self.address.host} for {digest}")
        return response.status_code == _OK

    def push_file(self, path: Path, digest: str, size: int, *, mount: str | None = None) -> None:
        """Send a file as a blob, unless it is there; after an interruption it goes on where the registry stands.

        With `mount`, another repository of the registry, the blob is taken from there where that has it.
        """
        if self.has_blob(digest):
            return
        doing = f"push {digest[:19]} to {self.address.host}/{self.address.repository}"
        begun = self._begin(doing, {"mount": digest, "from": mount} if mount else {})
        if begun is None:
            return
        location, start, lost = begun, 0, 0
        while start < size:
            stop = min(start + _PIECE, size)
            try:
                response = self._transport.request(
                    "PATCH",
                    location,
                    content=lambda start=start, stop=stop: _part(path, start, stop),
                    size=stop - start,
                    headers={
                        "Content-Type": "application/octet-stream",
                        "Content-Length": str(stop - start),
                        "Content-Range": f"{start}-{stop - 1}",
                    },
                )
            except LostError:
                lost += 1
                if lost > _RESUMED:
                    raise
                location, start = self._resume(location, doing)
                continue
            if response.status_code != _ACCEPTED:
                raise self._transport.refuse(response, doing)
            self.sent += stop - start
            location, start = self._place(response), stop
        joined = "&" if "?" in location else "?"
        done = self._transport.request("PUT", f"{location}{joined}digest={urllib.parse.quote(digest)}")
        if done.status_code != _CREATED:
            raise self._transport.refuse(done, doing)

    def push_bytes(self, content: bytes) -> dict[str, Any]:
        """Send a small blob, unless it is there, and return digest and size."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if not self.has_blob(digest):
            doing = f"push {digest[:19]} to {self.address.host}/{self.address.repository}"
            location = self._begun(doing)
            url = f"{location}{'&' if '?' in location else '?'}digest={urllib.parse.quote(digest)}"
            headers = {"Content-Type": "application/octet-stream"}
            done = self._transport.request("PUT", url, content=content, headers=headers)
            if done.status_code != _CREATED:
                raise self._transport.refuse(done, doing)
            self.sent += len(content)
        return {"digest": digest, "size": len(content)}

    def _begin(self, doing: str, asked: Mapping[str, str]) -> str | None:
        """Begin an upload and return where it goes; None where the registry had the blob and took it from there."""
        query = f"?{urllib.parse.urlencode(asked)}" if asked else ""
        begun = self._transport.request("POST", f"{self._root}/blobs/uploads/{query}")
        if begun.status_code == _CREATED and asked:
            return None
        if begun.status_code != _ACCEPTED:
            raise self._transport.refuse(begun, doing)
        return self._place(begun)

    def _begun(self, doing: str) -> str:
        return self._begin(doing, {}) or ""

    def _place(self, response: httpx.Response) -> str:
        location = response.headers.get("location")
        if not location:
            raise RegistryError(f"{self.address.host} begins an upload and does not say where; is it an OCI registry?")
        return str(urllib.parse.urljoin(str(response.request.url), location))

    def _resume(self, location: str, doing: str) -> tuple[str, int]:
        """Ask how much of an upload has arrived; where the registry has lost track of it, begin anew."""
        response = self._transport.request("GET", location)
        if response.status_code != _NO_CONTENT:
            return self._begun(doing), 0
        found = _RANGE.fullmatch(response.headers.get("range", ""))
        arrived = int(found[1]) + 1 if found and found[1] != "0" else 0
        return self._place(response) if response.headers.get("location") else location, arrived

    def blob(self, digest: str, size: int) -> Iterator[bytes]:
        """Yield a blob piece by piece; the last piece is followed by an error unless all of it has its digest."""
        seen, read, lost = hashlib.sha256(), 0, 0
        while True:
            headers = {"Range": f"bytes={read}-"} if read else {}
            try:
                response = self._transport.request(
                    "GET", f"{self._root}/blobs/{digest}", headers=headers, stream=True, redirects=True
                )
                if response.status_code != (_PARTIAL if read else _OK):
                    raise self._transport.refuse(response, f"pull {digest[:19]} from {self.address.host}")
                for piece in pieces(response, size):
                    seen.update(piece)
                    read += len(piece)
                    if read > size:
                        response.close()
                        raise ArchiveError(f"the blob {digest} is larger than the {size} bytes that its manifest says")
                    yield piece
                break
            except LostError:
                lost += 1
                if lost > _RESUMED:
                    raise
        if read != size or f"sha256:{seen.hexdigest()}" != digest:
            raise ArchiveError(
                f"the content that {self.address.host} gives for {digest} does not have this digest: it was changed or "
                "damaged there, or on the way"
            )

    def small(self, descriptor: Mapping[str, Any], limit: int) -> bytes:
        """Return a small blob whole, held against its descriptor."""
        digest, size = check_descriptor(descriptor)
        if size > limit:
            raise ArchiveError(f"the blob {digest} has {size} bytes; at most {limit} are read")
        return b"".join(self.blob(digest, size))


def check_descriptor(descriptor: Any) -> tuple[str, int]:
    """Return digest and size of a descriptor."""
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    size = descriptor.get("size") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str) or not is_digest(digest.removeprefix("sha256:")) or not digest.startswith("sha256:"):
        raise ArchiveError("the manifest is refused: something in it has no SHA-256 digest")
    if type(size) is not int or size < 0:
        raise ArchiveError(f"the manifest is refused: {digest} has no size")
    return digest, size


def _part(path: Path, start: int, stop: int) -> Iterator[bytes]:
    with path.open("rb") as handle:
        handle.seek(start)
        left = stop - start
        while left:
            piece = handle.read(min(CHUNK, left))
            if not piece:
                raise RegistryError(f"{path} became shorter while it was sent")
            left -= len(piece)
            yield piece
