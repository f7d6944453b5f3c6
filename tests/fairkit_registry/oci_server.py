"""A small OCI registry with the referrers API and mounts, for what docker-registry lacks; over TLS if asked."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

INDEX = "application/vnd.oci.image.index.v1+json"
NAME = r"/v2/(?P<name>.+?)"


class OciServer:
    """Keeps everything in memory; `seen` has the method and path of every request."""

    def __init__(self, tls: ssl.SSLContext | None = None, page: int = 2) -> None:
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.uploads: dict[str, bytes] = {}
        self.seen: list[tuple[str, str]] = []
        self.page = page
        owner = self

        class Handler(_Handler):
            state = owner

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    state: OciServer

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.state.seen.append((self.command, self.path))
        where = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(where.query))
        for pattern, act in (
            (rf"{NAME}/blobs/uploads/", self.begin),
            (rf"{NAME}/blobs/uploads/(?P<upload>\w+)", self.upload),
            (rf"{NAME}/blobs/(?P<digest>sha256:\w+)", self.blob),
            (rf"{NAME}/manifests/(?P<reference>[^/]+)", self.manifest),
            (rf"{NAME}/referrers/(?P<digest>sha256:\w+)", self.referrers),
        ):
            found = re.fullmatch(pattern, where.path)
            if found:
                act(asked=asked, body=body, **found.groupdict())
                return
        self.reply(404)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = answer  # noqa: N815

    def begin(self, name: str, asked: dict, body: bytes) -> None:
        known = self.state.blobs.get((asked.get("from", ""), asked.get("mount", "")))
        if known is not None:
            self.state.blobs[name, asked["mount"]] = known
            self.reply(201, {"Location": f"/v2/{name}/blobs/{asked['mount']}"})
            return
        upload = f"u{len(self.state.uploads)}"
        self.state.uploads[upload] = b""
        self.reply(202, {"Location": f"/v2/{name}/blobs/uploads/{upload}"})

    def upload(self, name: str, upload: str, asked: dict, body: bytes) -> None:
        self.state.uploads[upload] += body
        whole = self.state.uploads[upload]
        if self.command == "PATCH":
            place = {"Location": self.path, "Range": f"0-{len(whole) - 1}"}
            self.reply(202, place)
            return
        digest = f"sha256:{hashlib.sha256(whole).hexdigest()}"
        if digest != asked.get("digest"):
            self.reply(400)
            return
        self.state.blobs[name, digest] = whole
        self.reply(201, {"Location": f"/v2/{name}/blobs/{digest}"})

    def blob(self, name: str, digest: str, asked: dict, body: bytes) -> None:
        found = self.state.blobs.get((name, digest))
        self.reply(404) if found is None else self.reply(200, {}, found)

    def manifest(self, name: str, reference: str, asked: dict, body: bytes) -> None:
        if self.command == "PUT":
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            for key in (reference, digest):
                self.state.manifests[name, key] = (self.headers["content-type"], body)
            subject = json.loads(body).get("subject")
            self.reply(201, {"OCI-Subject": subject["digest"]} if subject else {})
            return
        found = self.state.manifests.get((name, reference))
        if found is None:
            self.reply(404)
            return
        digest = f"sha256:{hashlib.sha256(found[1]).hexdigest()}"
        self.reply(200, {"Content-Type": found[0], "Docker-Content-Digest": digest}, found[1])

    def referrers(self, name: str, digest: str, asked: dict, body: bytes) -> None:
        """List them page by page, as a registry may."""
        listed = []
        for (owner, key), (kind, raw) in sorted(self.state.manifests.items()):
            content = json.loads(raw)
            if owner == name and key.startswith("sha256:") and (content.get("subject") or {}).get("digest") == digest:
                entry = {"mediaType": kind, "digest": key, "size": len(raw)}
                listed.append(entry | {"artifactType": content["artifactType"]})
        start = int(asked.get("after", 0))
        stop = start + self.state.page
        following = {"Link": f'<{self.path.partition("?")[0]}?after={stop}>; rel="next"'}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed[start:stop]}
        headers = {"Content-Type": INDEX} | (following if stop < len(listed) else {})
        self.reply(200, headers, json.dumps(index).encode())

    def reply(self, status: int, headers: dict | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass
